"""Every strategy under every trust model, for every unit: it runs, and says what it promises."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from strategy_checks import BUDGETED

from fedcal import datasets, simulate
from fedcal.cli.main import exit_code_of
from fedcal.core.shards import Shards
from fedcal.partition import deal
from fedcal.run.jobs import job_of
from fedcal.run.result import SimulationResult
from fedcal.strategies.settings import calibrating, settings_of
from fedcal.units import UNITS

pytestmark = pytest.mark.usefixtures("quick_figures")

CLIENTS, CLASSES, ROWS = 10, 3, 120
TRUSTS = ("central", "distributed", "local")
QUICK = {"steps": 4, "epochs": 1, "bins_exponent": 3}
"""Of those that have it: less work, no other path through the code."""


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, 2 * ROWS)
    logits = rng.normal(0, 3, (2 * ROWS, CLASSES))
    logits[np.arange(2 * ROWS), labels] += 3
    return {
        "subject": np.arange(ROWS) // 3,
        "logits": logits[:ROWS],
        "labels": labels[:ROWS],
        "test_logits": logits[ROWS:],
        "test_labels": labels[ROWS:],
    }


def options(method: str, **more: Any) -> dict[str, Any]:
    quick = {k: v for k, v in QUICK.items() if k in settings_of(method)}
    return {
        **{"method": method, "clients": CLIENTS, "partition": "iid", "epsilon": 1.0, "seed": 3},
        **{"delta": 1e-5, "set": quick, **more},
    }


def shards() -> Shards:
    return deal(datasets.from_arrays(**arrays()), "iid", CLIENTS, 3)


def run(method: str, **more: Any) -> SimulationResult:
    return simulate(arrays(), **options(method, **more))


def promises() -> Iterator[Any]:
    """Each method under one trust model by turns, and three under each; units by turns."""
    units = list(UNITS)
    for i, method in enumerate(BUDGETED):
        for j, trust in enumerate(TRUSTS):
            slow = (i + j) % 3 and method not in ("fednewton", "acct", "fedbin")
            marks = [pytest.mark.slow] if slow else []
            yield pytest.param(method, trust, units[(i // 3 + j) % len(units)], marks=marks)


@pytest.mark.parametrize(("method", "trust", "unit"), list(promises()))
def test_every_strategy_runs_and_says_what_it_promises(method, trust, unit):
    result = run(method, trust=trust, unit=unit)
    arrays = [a for a in result.artifact.arrays().values() if a.dtype.kind in "fiu"]
    assert all(np.isfinite(array).all() for array in arrays)
    if method in calibrating():
        np.testing.assert_allclose(result.test_probs.sum(axis=1), 1.0)
    privacy, config = result.privacy, result.config

    # the record is the plan's, and the plan the one that this configuration has
    plan = job_of(config, shards()).plan
    for key in ("trust", "unit", "adjacency", "epsilon", "delta", "diameter"):
        assert privacy[key] == getattr(plan, key)
    assert privacy["mechanism"] == plan.mechanism.name
    assert (privacy["trust"], privacy["unit"]) == (trust, unit)
    assert privacy["releases"] == plan.rounds == len(result.rounds)
    std = plan.noise_std
    written = privacy["noise_std"]
    if std is None:
        assert (trust, written) == ("central", None)
    else:
        assert np.broadcast_to(written, len(std)).tolist() == list(std)
        assert min(std) > 0

    assert (config.secure_aggregation == "masks") is (trust == "distributed")


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, **arrays())
    return path


def test_a_round_below_the_quorum_fails_and_writes_nothing(data_file, tmp_path, capfd):
    out = tmp_path / "out"
    asked = ["--clients", "10", "--trust", "distributed", "--epsilon", "1", "--dropout", "0.6"]
    code = exit_code_of(["simulate", "--data", str(data_file), *asked, "--out", str(out)])
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert code == 1
    assert "of 10 clients answered, the noise was planned for at least 9" in line
    assert not out.exists()
