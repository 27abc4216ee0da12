"""Laws of every method under every trust model and unit: bound, noise, limits."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from strategy_checks import BUDGETED
from strategy_checks import nobody as no_rows

from fedcal.calibrators import Calibrator
from fedcal.clients.answers import answer
from fedcal.conformal import PredictionSets
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Integers, softmax
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.partition import numbered
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.privacy.query import Request
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import STRATEGIES, FederatedStrategy
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.strategies.settings import settings_of
from fedcal.training.networks import TrainedModel
from fedcal.trust import NOISY
from fedcal.units import UNITS

CLIENTS, CLASSES = 6, 3
NAMES = numbered(CLIENTS)
SMALL: dict[str, Any] = {"rows_per_client": 5, "bins_exponent": 3}
federation = partial(Federation, clients=CLIENTS, classes=CLASSES, epsilon=1.0)
every_method = pytest.mark.parametrize("name", BUDGETED)
every_unit = pytest.mark.parametrize("unit", UNITS)


def trust_of(name: str, unit: str) -> str:
    """By turns: each unit and each method goes with every trust model somewhere."""
    return list(NOISY)[(BUDGETED.index(name) + list(UNITS).index(unit)) % len(NOISY)]


def method(name: str, own: Federation, **options: Any) -> FederatedStrategy:
    make: Callable[..., Any] = STRATEGIES[name]
    small = {key: value for key, value in SMALL.items() if key in settings_of(name)}
    made: FederatedStrategy = make(own, **{**small, **options})
    vars(made)["keeps_releases"] = True  # of a training, too
    return made


def averages(name: str, unit: str = "user") -> bool:
    """Return whether an answer is not a sum over rows: one row may turn it around."""
    asked = method(name, federation(unit=unit)).query(1)
    return not asked.row_sums


def two_rounds(name: str, unit: str = "user") -> int | None:
    """Return 2, or None (the method's own number) where it does not ask twice."""
    try:
        method(name, federation(rounds=2, unit=unit))
    except InputError:
        return None
    return 2


def additive(name: str, unit: str, trust: str) -> str:
    """Return a mechanism whose release is a sum, where the method's own would encode answers."""
    encodes = name == "evaluate" and (unit, trust) == ("user", "local")
    return "gaussian" if encodes else "auto"


AVERAGED = tuple(name for name in BUDGETED if averages(name))
FITS = tuple(name for name in AVERAGED if name != "fedtemp")


def result_of(strategy: FederatedStrategy, logits: Floats) -> Floats:
    """Return the result of a method as numbers: probabilities where it calibrates."""
    artifact = strategy.result()
    if isinstance(artifact, Calibrator):
        return artifact.predict_proba(logits)
    if isinstance(artifact, ScoreRelease):
        return artifact.counts
    if isinstance(artifact, PredictionSets):
        return 1.0 - artifact.thresholds  # 0 = all labels: nothing is known
    if isinstance(artifact, TrainedModel):
        return artifact.w
    arrays = [np.asarray(array, np.float64).ravel() for array in artifact.arrays().values()]
    return np.concatenate(arrays)


def some_rows(owner: Integers, scale: float, seed: int, subjects: int = 4) -> Shards:
    """Rows whose logits are as large as `scale`, also for wrong labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, scale, (len(owner), CLASSES))
    labels = rng.integers(0, CLASSES, len(owner))
    right = rng.random(len(owner)) < 0.6
    labels[right] = logits[right].argmax(axis=1)
    about = np.arange(len(owner)) % subjects
    return rows_by_owner(logits, labels, owner, CLIENTS, subjects=about, names=NAMES)


def other_row(shards: Shards, row: Any) -> Shards:
    """With another row in its place, as unlike as can be."""
    labels, logits = shards.labels.copy(), shards.logits.copy()
    labels[row], logits[row] = logits[row].argmin(), -logits[row]
    return replace(shards, logits=logits, labels=labels)


def nobody(clients: int = CLIENTS) -> Shards:
    return no_rows(clients, CLASSES, subjects=np.zeros(0, np.int64), names=numbered(clients))


def request_of(strategy: FederatedStrategy, number: int = 1) -> Request:
    """Return a round's question, without the clients' own noise."""
    plan = strategy.plan
    assert plan.bound is not None
    return Request(strategy.query(number), plan.bound, plan.ring, number)


def moved(strategy: FederatedStrategy, seed: int) -> FederatedStrategy:
    """After a round of some noisy release: at other parameters than the identity."""
    ask = strategy.query(1)
    if strategy.plan.rounds > 1:
        std = strategy.plan.std_of_sum(CLIENTS)
        noise = np.random.default_rng(seed).normal(0, std)
        strategy.update(Release(1, ask.kind, noise, std))
    return strategy


def without(shards: Shards, rows: Any) -> Shards:
    return shards.keep(np.delete(np.arange(len(shards.labels)), rows))


def change(asked: Request, one: Shards, other: Shards) -> float:
    """Return the norm of the difference of the encoded sums, in units of the bound."""
    words = [answer(shards, asked).sum(axis=0, dtype=np.uint64) for shards in (one, other)]
    difference = asked.ring.decode(words[0] - words[1])
    return float(asked.bound.norms_of(difference[None]).max())


@every_method
@every_unit
def test_neighbours_differ_by_no_more_than_the_plan_says(name, unit):
    """A client's rows removed (local: replaced), a subject's, or a row; also extreme logits."""
    trust, noise = trust_of(name, unit), additive(name, unit, trust_of(name, unit))
    if (BUDGETED.index(name) // len(NOISY) + list(UNITS).index(unit)) % 2:
        noise = "laplace"
    own = federation(unit=unit, trust=trust, mechanism=noise, rounds=two_rounds(name, unit))
    slow, averaged = name in FITS, averages(name, unit)
    strategy = method(name, own) if slow else moved(method(name, own), 3)
    plan = strategy.plan
    part = {"user": "client", "subject": "subject", "example": "row"}[unit]
    assert plan.bound.per == ("client" if averaged else part)
    if plan.mechanism.order == 1:
        assert plan.bound.order == 1
    in_place = plan.fine and part == "row"  # a row leaves an empty place
    assert plan.adjacency == ("zero-out" if in_place else UNITS[unit].adjacency(trust == "local"))
    replaced = plan.adjacency == "replace"
    twice = replaced or (part != "client" and averaged)
    assert plan.diameter == (2 if twice else 1)
    asked, found = request_of(strategy), []
    for seed, scale in enumerate((8.0,) if slow else (1.0, 8.0, 300.0)):
        rng = np.random.default_rng(seed)
        owner = np.sort(rng.integers(1, CLIENTS, 60))  # the first client has no rows
        shards = some_rows(owner, scale, seed)
        if part == "row":
            rows = [int(rng.integers(60)) for _ in range(2 if slow else 4)]
            pairs = [
                (shards, other_row(shards, i) if replaced else without(shards, i)) for i in rows
            ]
        elif part == "subject":
            about = np.arange(60) % 4
            ids = rng.permutation(60)[: 2 if slow else 4]
            mine = [(owner == owner[i]) & (about == about[i]) for i in ids]
            pairs = [(shards, without(shards, rows)) for rows in mine]
        elif replaced:
            labels = np.where(owner == 2, shards.logits.argmin(axis=1), shards.labels)
            other = replace(shards, labels=labels)
            pairs = [(shards, other), (shards, without(shards, owner == 3))]
        else:
            pairs = [(shards, without(shards, owner == k)) for k in range(3 if slow else CLIENTS)]
        found += [change(asked, *pair) for pair in pairs]
    assert max(found) <= plan.diameter
    if (name, noise) != ("fedcal", "laplace"):  # thousands of numbers within 0.5 vanish in the grid
        assert max(found) > (0.0 if slow else 0.02)


def test_one_row_may_move_an_averaged_update_by_twice_the_bound():
    """A right row alone wants T = 0; with a wrong one of the same logits the client wants T > 1."""
    strategy = method("fedtemp", federation(unit="example"))
    logits = np.array([[9.0, 0.0, 0.0], [9.0, 0.0, 0.0]])
    both = rows_by_owner(logits, np.array([0, 1]), np.array([2, 2]), CLIENTS)
    assert 1.9 < change(request_of(strategy), both, without(both, 1)) <= strategy.plan.diameter == 2


@pytest.mark.parametrize("name", [n for n in BUDGETED if n not in AVERAGED])
def test_extreme_rows_reach_the_bound_but_do_not_pass_it(name):
    """One client, one subject's many rows, or one row that says all that can be said."""
    for unit in UNITS:
        extreme_rows(name, unit)


def extreme_rows(name: str, unit: str) -> None:
    options: dict[str, Any] = {"tables": "per_class"} if name == "fedbbq" else {}
    strategy = method(name, federation(unit=unit, mechanism="gaussian"), **options)
    n = {"client": 4000, "subject": 1000, "row": 1}[UNITS[unit].per]
    shards = some_rows(np.full(n, 2), 40.0, 5, subjects=1)
    wrong = replace(shards, labels=shards.logits.argmin(axis=1))
    asked = request_of(strategy)
    found = change(asked, wrong, nobody())
    weighed = getattr(asked.query, "subject_rows", 0) > 0
    if weighed:  # rows that differ average out: the most is where all are alike, and as one row
        first = (np.zeros(rows, np.int64) for rows in (n, 1))
        alike, one = (change(asked, wrong.keep(rows), nobody()) for rows in first)
        assert alike == pytest.approx(one, rel=1e-3)
        found = max(found, alike)
    # the bound of a row is that of its first bucket, and these lie in the last one; or it is that
    # of the worst candidate, and one in the middle is asked about
    rows = unit == "example" or weighed or name == "conformal"
    least = 0.49 if name.startswith(("evaluate", "conformal")) and rows else 0.99
    assert least < found <= 1.0


@every_method
def test_local_rounds_that_nobody_was_sampled_in_change_nothing(name):
    """No client, no noise: there is nothing in the sum, and nothing is learned."""
    unit = list(UNITS)[BUDGETED.index(name) % len(UNITS)]
    own = federation(
        trust="local",
        unit=unit,
        sampling_rate=1e-9,
        rounds=two_rounds(name, unit),
        mechanism=additive(name, unit, "local"),
    )
    strategy = method(name, own, **({"weighting": "all"} if name == "fedbin" else {}))
    shards = some_rows(np.arange(60) % CLIENTS, 3.0, 1)
    run_inline(strategy, shards)
    assert not any(release.values.any() for release in strategy.releases)
    found = result_of(strategy, shards.logits)
    nothing = softmax(shards.logits) if found.ndim == 2 else np.zeros_like(found)
    np.testing.assert_allclose(found, nothing, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"encoding": "flat"},
        {"encoding": "tree", "height": 2},
        {"encoding": "prefix"},
        {"score": "classes"},
    ],
)
def test_rows_of_a_subject_count_as_so_many_at_most(settings):
    """Each question of an evaluation moves by that many rows' bound, and noise is for it."""
    limit, own = 3, federation(unit="subject", seed=1)
    strategy = FedEvaluate(own, bins=12, rows_per_subject=limit, **settings)
    many = some_rows(np.random.default_rng(0).integers(1, CLIENTS, 80), 3.0, 0, subjects=2)
    run_inline(strategy, many)
    alone = (many.owner == 1) & (many.subjects == 1)
    assert alone.sum() > limit
    first = int(np.flatnonzero(alone)[0])
    same = replace(  # all in one bucket: the most there is
        many,
        logits=np.where(alone[:, None], many.logits[first], many.logits),
        labels=np.where(alone, many.labels[first], many.labels),
    )
    for number in range(1, strategy.plan.rounds + 1):
        asked = request_of(strategy, number)
        wide = replace(asked.bound, norms=tuple(1e3 * norm for norm in asked.bound.norms))
        for shards in (many, same):
            assert 0 < change(asked, shards, without(shards, alone)) <= 1.0
            uncut = answer(shards, replace(asked, bound=wide))
            np.testing.assert_array_equal(answer(shards, asked), uncut)
    plain = FedEvaluate(own, bins=12, **settings).plan
    np.testing.assert_allclose(np.divide(strategy.plan.noise_std, plain.noise_std), limit)
