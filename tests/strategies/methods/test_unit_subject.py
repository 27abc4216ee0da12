"""Unit "subject": a subject's part of a client's answer is clipped as a whole, for every method."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategy_checks import BUDGETED

from fedcal.clients.answers import answer
from fedcal.core.numerics import Integers, Words
from fedcal.core.shards import Shards, numbered
from fedcal.privacy.noise_plan import Federation
from fedcal.privacy.query import Request
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import STRATEGIES, FederatedStrategy
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.strategies.settings import settings_of

CLIENTS, CLASSES, ROWS = 5, 3, 80
QUICK: dict[str, Any] = {"steps": 4, "epochs": 1, "bins_exponent": 3, "rows_per_client": 5}
every_method = pytest.mark.parametrize("name", BUDGETED)


def method(name: str, **fields: Any) -> FederatedStrategy:
    own = Federation(
        **{"clients": CLIENTS, "classes": CLASSES, "epsilon": 1.0, "unit": "subject", **fields}
    )
    quick = {k: v for k, v in QUICK.items() if k in settings_of(name)}
    return STRATEGIES[name](own, **quick)


def sums_over_rows() -> list[str]:
    """Methods whose answers are clipped subject by subject."""
    return [name for name in BUDGETED if per(method(name)) == "subject"]


def per(strategy: FederatedStrategy) -> str:
    return strategy.plan.bound.per


def rows(subjects: Integers | None = None, scale: float = 3.0, seed: int = 0) -> Shards:
    """Some clients' rows, of several subjects each, not in their order."""
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(0, scale, (ROWS, CLASSES)), rng.integers(0, CLASSES, ROWS)
    owner = rng.integers(1, CLIENTS, ROWS)  # the first has none
    about = rng.integers(0, 6, ROWS) if subjects is None else subjects
    names = numbered(CLIENTS)
    return Shards.from_owner(logits, labels, owner, CLIENTS, subjects=about, names=names)


def but(shards: Shards, keep: Any) -> Shards:
    """Only the rows `keep`."""
    return shards.keep(np.flatnonzero(keep))


def query(strategy: FederatedStrategy) -> Request:
    """The first round's question, without the clients' own noise."""
    asked = strategy.open_round(1)
    return replace(asked.request, noise=None)


def total(shards: Shards, asked: Request) -> Words:
    return answer(shards, asked).sum(axis=0, dtype=np.uint64)


def moved(one: Shards, other: Shards, asked: Request) -> float:
    """Norm of the difference of the encoded sums, in units of the bound."""
    difference = asked.ring.decode(total(one, asked) - total(other, asked))
    return float(asked.bound.norms_of(difference[None]).max())


@every_method
def test_a_subject_more_or_less_moves_a_sum_by_the_bound_at_most(name):
    """Trust models by turns; also extreme logits."""
    trust = ("central", "distributed", "local")[BUDGETED.index(name) % 3]
    strategy, found = method(name, trust=trust), []
    most = 1 if per(strategy) == "subject" else 2
    assert (strategy.plan.diameter, strategy.plan.adjacency) == (most, "add-remove")
    asked = query(strategy)
    for scale in (300.0, 1.0):
        shards = rows(scale=scale)
        about, owner = shards.subjects, shards.owner
        for row in (3, 40):
            gone = (about == about[row]) & (owner == owner[row])
            found.append(moved(shards, but(shards, ~gone), asked))
    assert 0 < max(found) <= most


def test_rows_of_a_subject_count_as_so_many_at_most():
    """Each question of an evaluation moves by that many rows' bound, and noise is for it."""
    for settings in (
        {"encoding": "flat"},
        {"encoding": "tree", "height": 2},
        {"encoding": "prefix"},
        {"score": "classes"},
    ):
        counts_as_so_many(settings)


def counts_as_so_many(settings: dict[str, Any]) -> None:
    limit = 3
    own = Federation(CLIENTS, CLASSES, epsilon=1.0, unit="subject", seed=1)
    strategy = FedEvaluate(own, bins=12, rows_per_subject=limit, **settings)
    asked = query(FedEvaluate(own, bins=12, rows_per_subject=limit, **settings))
    run_inline(strategy, rows())
    many = rows(np.arange(ROWS) % 2)
    alone = (many.owner == 1) & (many.subjects == 1)
    assert alone.sum() > limit
    first = int(np.flatnonzero(alone)[0])
    same = replace(  # all in one bucket: the most there is
        many,
        logits=np.where(alone[:, None], many.logits[first], many.logits),
        labels=np.where(alone, many.labels[first], many.labels),
    )
    wide = replace(asked.bound, norms=tuple(1e3 * norm for norm in asked.bound.norms))
    for number in range(1, strategy.plan.rounds + 1):
        of_round = replace(asked, query=strategy.query(number))
        for shards in (many, same):
            assert 0 < moved(shards, but(shards, ~alone), of_round) <= 1.0
            uncut = replace(of_round, bound=wide)
            np.testing.assert_array_equal(answer(shards, of_round), answer(shards, uncut))
    plain = FedEvaluate(own, bins=12, **settings).plan
    np.testing.assert_allclose(np.divide(strategy.plan.noise_std, plain.noise_std), limit)


@pytest.mark.parametrize("name", sums_over_rows())
def test_a_client_sends_the_sum_of_its_subjects_parts(name):
    """And where each row is a subject's own, the same bits as for unit example."""
    asked, shards = query(method(name)), rows()
    assert shards.subjects is not None
    alone = replace(asked, bound=replace(asked.bound, per="client"))
    want = np.zeros((CLIENTS, asked.bound.length), np.uint64)
    for subject in range(6):
        want += answer(but(shards, shards.subjects == subject), alone)
    np.testing.assert_array_equal(answer(shards, asked), want)
    own = rows(np.random.default_rng(1).permutation(ROWS))
    by_row = replace(asked, bound=replace(asked.bound, per="row"))
    np.testing.assert_array_equal(answer(own, asked), answer(own, by_row))
    plans = [method(name, unit=unit).plan for unit in ("subject", "example")]
    assert plans[0].key != plans[1].key
    if plans[1].on_integers:  # a subject's rows are clipped, or weighted
        assert not plans[0].on_integers
        return
    assert plans[0].bound == replace(plans[1].bound, per="subject")
    assert (plans[0].grid, plans[0].noise_std) == (plans[1].grid, plans[1].noise_std)
