"""`fedcal plan`: what it says to help helps, what it asks for is enough, and it reads no row."""

from typing import Any

import numpy as np
import pytest

from fedcal.core.shards import Shards
from fedcal.metrics import ece, nll
from fedcal.partition import dirichlet
from fedcal.privacy.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.run.plan import EPSILONS, plan
from fedcal.strategies.server.job import Job
from fedcal.strategies.warnings import SURE, noise_ratio

FACTS: dict[str, Any] = {"clients": 100, "rows_per_client": 50.0, "classes": 10, "epsilon": 1.0}


def line(method: str, **facts: Any) -> dict[str, Any]:
    (found,) = plan(**{**FACTS, **facts, "methods": [method]}).methods
    return found


def rows(temperature: float, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits that need this temperature, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.gumbel(size=(n, 4)) + 3.5 * np.eye(4)[rng.integers(0, 4, n)]
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return temperature * logits, labels


SETTINGS = [  # method, clients, epsilon: both sides of what is bearable, and away from it
    *(("fednewton", 100, 1.0), ("acct[search=auto]", 100, 1.0), ("fedoneshot", 100, 1.0)),
    *(("nllt", 150, 8.0), ("dp-histogram", 300, 8.0), ("fedoneshot", 10, 0.1)),
    *(("acct[search=auto]", 10, 0.1), ("nllt", 20, 0.5), ("fedtemp", 20, 0.2)),
    *(("dp-histogram", 40, 0.5), ("fedbin", 100, 1.0)),
]


def test_what_is_said_to_help_helps_and_the_rest_does_not():
    """Of models that are too sure and not sure enough, in most of three seeds, by log loss and ECE.

    On shipped data it was measured with more: docs/guide/planning.md.
    """
    for method, clients, epsilon in SETTINGS:
        said = line(method, clients=clients, epsilon=epsilon, classes=4)
        assert said["helps"] != "unsure", (method, clients)
        helps = []
        for temperature in (2.0, 0.6):
            logits, labels = rows(temperature, 50 * clients, 0)
            test, truth = rows(temperature, 4000, 1)
            better = 0
            for seed in range(3):
                owner = dirichlet(labels, clients, 0.5, np.random.default_rng(seed))
                shards = Shards.from_owner(logits, labels, owner, clients)
                federation = Federation(clients, 4, epsilon=epsilon, seed=seed)
                name, _, search = method.rstrip("]").partition("[search=")
                settings = {"rows_per_client": 50.0} if name not in ("fedtemp", "fedbin") else {}
                settings |= {"search": search} if search else {}
                learnt = run_inline(Job(name, federation, settings).strategy(), shards)
                probs = [np.exp(test - np.logaddexp.reduce(test, axis=1, keepdims=True))]
                probs.append(learnt.predict_proba(test))
                falls = [f(probs[1], truth) < f(probs[0], truth) for f in (nll, ece)]
                better += all(falls)
            helps.append(better > 1)
        assert all(helps) == (said["helps"] == "yes"), (method, clients, epsilon, helps)


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("method", ["fednewton", "acct", "nllt"])
def test_what_it_asks_for_is_enough_and_half_is_not(method, trust):
    said = line(method, trust=trust)
    fewest, epsilon = said["fewest_clients"], said["smallest_epsilon"]
    assert line(method, trust=trust, clients=fewest)["helps"] == "yes"
    assert line(method, trust=trust, clients=max(1, fewest // 2))["helps"] != "yes" or fewest < 8
    if epsilon is not None:
        assert line(method, trust=trust, epsilon=epsilon)["helps"] == "yes"
        less = EPSILONS[EPSILONS.index(epsilon) - 1]
        assert line(method, trust=trust, epsilon=less)["helps"] != "yes"


def test_the_noise_is_that_of_the_real_plan():
    said = line("fednewton")
    job = Job("fednewton", Federation(100, 10, epsilon=1.0), {"rows_per_client": 50.0})
    assert said["noise_std"] == list(job.plan.noise_std)
    assert said["noise"] == noise_ratio(job, 50.0)
    assert (said["helps"] == "yes") == (SURE * said["noise"] <= said["bearable"])


def test_without_privacy_rows_alone_decide():
    found = plan(clients=4, rows_per_client=3, classes=2)
    assert {line["noise"] for line in found.methods} == {0.0}
    assert {line["helps"] for line in found.methods} == {"no"}
    assert found.recommended is None
    assert "at least about 30" in found.methods[0]["why"]
    enough = plan(clients=100, rows_per_client=50, classes=2)
    assert enough.recommended == "fednewton"
