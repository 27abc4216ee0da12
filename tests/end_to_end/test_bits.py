"""The same bits, whoever drives the strategy and however the sum is taken.

Oracle: `by_hand`, a loop over single clients with Python integers mod 2**64, no masks, no blocks.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from experiments.benchmarks.in_process import run_in_process
from fedcal.clients.answers import contribute
from fedcal.clients.client_app import client_app, site_of
from fedcal.core.checks import InputError
from fedcal.core.numerics import Integers
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.partition import numbered
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.flower import InProcessGrid
from fedcal.run.engines.inline import Unavailable, run_inline
from fedcal.run.training import train
from fedcal.storage.artifact import Artifact
from fedcal.strategies import STRATEGIES, FederatedStrategy
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.transport import ANSWER
from fedcal.strategies.settings import settings_of
from fedcal.units import UNITS

SMALL: dict[str, Any] = {"rows_per_client": 12, "bins_exponent": 4, "steps": 5}


def dropouts(seed: int, clients: int, rate: float, round_number: int) -> Integers:
    """Those that a job draws."""
    job = Job("fednewton", Federation(clients, 2, seed=seed), dropout=rate)
    return job.unavailable(round_number)


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """Each method's examples: its name, and after a colon what is not the first of them."""
    found = {}
    for name, strategy in STRATEGIES.items():
        small = {key: value for key, value in SMALL.items() if key in settings_of(name)}
        for number, example in enumerate(strategy.examples):
            more = ", ".join(f"{key}={value}" for key, value in example.items())
            found[f"{name}: {more}" if number else name] = (name, {**small, **example})
    return found


METHODS = cases()
CLIENTS, CLASSES, ROWS = 20, 4, 250
EMPTY = (0, 9, CLIENTS - 1)

methods = pytest.mark.parametrize("method", METHODS)
FEW = ("fedtemp", "fednewton", "fedoneshot", "fedbbq")
few_methods = pytest.mark.parametrize("method", FEW)
MASKS = ("none", "masks")
ODD = np.random.default_rng(9).permutation(CLIENTS)


def some_shards(clients: int = CLIENTS, rows: int = ROWS, empty: tuple[int, ...] = EMPTY) -> Shards:
    rng = np.random.default_rng(clients)
    labels = rng.integers(0, CLASSES, rows)
    logits = rng.normal(0, 4, (rows, CLASSES))
    logits[np.arange(rows), labels] += 4
    owner = rng.choice(np.setdiff1d(np.arange(clients), empty), rows)
    about = np.arange(len(owner)) % 5
    names = numbered(clients)
    return rows_by_owner(logits, labels, owner, clients, subjects=about, names=names)


@pytest.fixture(scope="module")
def shards():
    return some_shards()


def make(
    method: str, epsilon: float = math.inf, rate: float = 1.0, masks: str = "none", **fields: Any
) -> FederatedStrategy:
    public = {"clients": CLIENTS, "classes": CLASSES, "seed": 4, **fields}
    name, settings = METHODS[method]
    if STRATEGIES[name].exact_only and math.isfinite(epsilon):
        pytest.skip("it refuses a budget")
    if STRATEGIES[name].one_place or name == "fedprior" or "by" in settings:  # of rows alone
        public = {"unit": "example", **public}
    strategy: Callable[..., FederatedStrategy] = STRATEGIES[name]
    own = Federation(sampling_rate=rate, epsilon=epsilon, **{"rounds": 2, **public})
    try:
        made = strategy(own, **settings, secure_aggregation=masks)
    except InputError:  # it asks as often as it needs
        own = Federation(sampling_rate=rate, epsilon=epsilon, **public)
        made = strategy(own, **settings, secure_aggregation=masks)
    vars(made)["keeps_releases"] = True  # of a training, too
    return made


def bits(strategy: FederatedStrategy) -> dict[str, Any]:
    """Everything that a run tells, as bytes."""
    return {
        "releases": [
            (r.round, r.kind, r.values.tobytes(), r.std.tobytes()) for r in strategy.releases
        ],
        "result": {k: v.tobytes() for k, v in strategy.result().arrays().items()},
        "bytes": (strategy.bytes_up, strategy.bytes_down),
    }


def by_hand(
    strategy: FederatedStrategy, shards: Shards, unavailable: Unavailable | None = None
) -> Artifact:
    """The plain sum of who answers, client by client."""
    for number in range(1, strategy.plan.rounds + 1):
        asked = strategy.open_round(number)
        gone = set() if unavailable is None else set(unavailable(number).tolist())
        total, repliers = [0] * asked.request.bound.length, 0
        for k in asked.clients.tolist():
            if k not in gone:
                one = contribute(shards.block(k, k + 1), asked.request, np.array([k]))
                words = one[0].tolist()
                total = [(a + b) % 2**64 for a, b in zip(total, words, strict=True)]
                repliers += 1
        strategy.charge_round(asked, repliers)
        strategy.close_round(asked, np.array(total, np.uint64))
    return strategy.result()


def outcome_of(
    strategy: FederatedStrategy, run: Callable[..., object], *args: Any, **kw: Any
) -> Any:
    run(strategy, *args, **kw)
    assert len(strategy.releases) == strategy.plan.rounds
    return bits(strategy)


def turns(method: str) -> list[tuple[float, float]]:
    """Budgets and sampling rates: two of a method's first example, one by turns of each other."""
    name, _ = METHODS[method]
    every = [(1.0, 0.1), (math.inf, 1.0), (1.0, 0.001), (math.inf, 0.1), (1.0, 1.0)]
    turn = list(METHODS).index(method) % len(every)
    some = every[:2] if ":" not in method else every[turn : turn + 1]
    return [(math.inf if STRATEGIES[name].exact_only else e, rate) for e, rate in some]


@methods
def test_inline_and_flower_give_the_same_bits(method, shards):
    for epsilon, rate in turns(method):
        if method.startswith("conformal") and math.isinf(epsilon) and rate < 1:
            with pytest.raises(InputError, match="look ever closer at the same rows"):
                make(method, epsilon, rate)
            continue
        want = outcome_of(make(method, epsilon, rate), by_hand, shards)
        assert outcome_of(make(method, epsilon, rate), run_inline, shards, block=7) == want
        assert outcome_of(make(method, epsilon, rate, "masks"), run_in_process, shards) == want
        other = outcome_of(make(method, epsilon, rate, seed=6), run_inline, shards)
        plan = make(method, epsilon, rate).plan
        by_chance = plan.mechanism.answers == "index" or plan.cohort  # one drawn twice, or who
        by_chance |= math.isinf(epsilon) and STRATEGIES[METHODS[method][0]].one_place  # rows, or 0
        if not by_chance:
            assert (other == want) == (math.isinf(epsilon) and rate != 0.1), (epsilon, rate)


@few_methods
def test_a_dropout_leaves_the_plain_sum_of_the_survivors(method, shards):
    unavailable: Unavailable = partial(dropouts, 4, CLIENTS, 0.2)
    one: Unavailable = lambda number: np.array([5])  # noqa: E731
    for gone in (unavailable, one):
        lost = {"unavailable": gone}
        want = outcome_of(make(method), by_hand, shards, **lost)
        assert want != outcome_of(make(method), run_inline, shards)
        assert outcome_of(make(method), run_in_process, shards, **lost) == want
        assert outcome_of(make(method, masks="masks"), run_inline, shards, **lost) == want
    noisy = outcome_of(make(method, 1.0), by_hand, shards, **lost)
    assert outcome_of(make(method, 1.0, masks="masks"), run_in_process, shards, **lost) == noisy


PROTOCOL: dict[str, Any] = {"masks": "protocol", "committee": 3, "threshold": 2, "quorum": 0.5}


class Shuffled(InProcessGrid):
    """Replies arrive in any order."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))
        order = np.random.default_rng(len(replies)).permutation(len(replies))
        return [replies[k] for k in order]


def run_shuffled(strategy: FederatedStrategy, shards: Shards, ids: list[int]) -> None:
    app = client_app(lambda context: shards.block(site_of(context), site_of(context) + 1))

    def gone(site: int, message: Message) -> bool:
        return site == 7 and message.metadata.message_type == ANSWER

    strategy.start(Shuffled(app, ids, gone))


@few_methods
def test_neither_node_ids_nor_the_order_of_replies_matter(method, shards):
    want = outcome_of(make(method, 1.0), by_hand, shards, lambda number: np.array([7]))
    ascending = list(range(100, 100 + CLIENTS))
    for ids, masks in ((ascending[::-1], "none"), ((100 + ODD).tolist(), "masks")):
        assert outcome_of(make(method, 1.0, masks=masks), run_shuffled, shards, ids) == want


@few_methods
def test_a_round_without_clients_releases_its_noise(method, shards):
    masks = MASKS[FEW.index(method) % 2]
    private, exact = (make(method, e, 0.001, masks) for e in (1.0, math.inf))
    assert not any(len(private.plan.sample(r)) for r in range(1, private.plan.rounds + 1))
    run_in_process(private, shards)
    run_inline(exact, shards)
    assert len(private.releases) == private.plan.rounds
    for release in private.releases:
        if method == "fedoneshot":
            assert release.values.size == 1  # a draw from the uniform distribution
        else:
            assert release.values.all()
            assert (np.abs(release.values) < 9.2 * release.std).all()
    for release in exact.releases:
        assert release.kind == "class_counts" or not release.values.any()


by_clients = pytest.mark.parametrize("trust", ["distributed", "local"])


@few_methods
@by_clients
def test_clients_noise_is_the_same_whoever_drives(method, trust, shards):
    """With dropouts, as many as the quorum allows; units by turns."""
    lost = {"unavailable": partial(dropouts, 4, CLIENTS, 0.2)}
    first = FEW.index(method)
    for turn, rate in enumerate((1.0, 0.5)):
        unit = list(UNITS)[(first + turn) % len(UNITS)]
        noisy = partial(make, method, 1.0, rate, trust=trust, unit=unit, quorum=0.6)
        want = outcome_of(noisy(), by_hand, shards, **lost)
        assert outcome_of(noisy(), run_inline, shards, block=3, **lost) == want, unit
        assert outcome_of(noisy(masks="masks"), run_inline, shards, **lost) == want, unit
        assert outcome_of(noisy(masks="masks"), run_in_process, shards, **lost) == want, unit
        if rate < 1:  # each site answers every round, and its own coin says if its rows count
            secure = partial(noisy, unit="user", **PROTOCOL)
            assert outcome_of(secure(), run_inline, shards) == outcome_of(secure(), by_hand, shards)
        assert outcome_of(noisy(seed=6), run_inline, shards, **lost) != want, unit


@by_clients
def test_each_client_s_noise_is_its_own(trust, shards):
    """Of two clients without rows, and of one in two rounds, no number is the same."""
    strategy = make("fednewton", 1.0, trust=trust)
    seen = []
    for number in (1, 2):
        asked = strategy.open_round(number)
        words = contribute(shards.take(np.array(EMPTY)), asked.request, np.array(EMPTY))
        assert words.all()
        seen += words.ravel().tolist()
        strategy.charge_round(asked, CLIENTS)
        strategy.close_round(asked, np.zeros(words.shape[1], np.uint64))
    assert len(set(seen)) == len(seen)


def test_a_coin_leaves_out_rows_and_no_noise(shards):
    """Everybody is asked and answers; heads and tails differ by the rows alone."""
    strategy = make("fednewton", 1.0, 0.5, trust="distributed")
    asked = strategy.open_round(1)
    assert asked.clients.tolist() == list(range(CLIENTS))
    sites, nobody = asked.clients, shards.take(np.full(CLIENTS, EMPTY[0]))
    noise = contribute(nobody, asked.request, sites)
    sent = contribute(shards, asked.request, sites)
    counted = (sent != noise).any(axis=1)
    assert noise.any(axis=1).all()
    assert 0 < counted.sum() < (shards.rows > 0).sum()
    (alone,) = contribute(shards.block(5, 6), asked.request, np.array([5]))
    assert alone.tolist() == sent[5].tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray leaves its processes to our end
@pytest.mark.parametrize("engine", ["ray", "flower", "grpc"])
def test_a_model_of_other_engines_is_that_of_inline(engine, tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    x = rng.normal(0, 0.3, (300, 8)).astype(np.float32) + np.eye(3, 8, dtype=np.float32)[labels]
    np.savez(tmp_path / "rows.npz", features=x, labels=labels, norm=3.0)
    options: dict[str, Any] = {"data": str(tmp_path / "rows.npz"), "epsilon": 8.0, "clients": 3}
    options |= {"partition": "iid", "rounds": 3}
    inline, there = train(**options), train(engine=engine, **options)
    np.testing.assert_array_equal(there.model.w, inline.model.w)
    assert there.outcome.records == inline.outcome.records
    assert (there.privacy, there.metrics) == (inline.privacy, inline.metrics)
