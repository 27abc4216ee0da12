"""No row that the readers accept makes a client raise where a bound is promised.

An error, or its absence, would tell a neighbour apart with certainty.
"""

import itertools
import math

import numpy as np
import pytest
from strategy_checks import BUDGETED

from fedcal.clients.answers import answer
from fedcal.core.scores import LARGEST_LOGIT, rows_by_owner
from fedcal.core.shards import Shards
from fedcal.partition import numbered
from fedcal.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import STRATEGIES
from fedcal.strategies.settings import settings_of

EXTREME = (LARGEST_LOGIT, 3e77, 0.0, -LARGEST_LOGIT)
SMALL = {"epochs": 1, "steps": 5, "rows_per_client": 10}
ABSURD = {"lr": 1e300, "server_lr": 1e300}
TRUSTS = [("central", "user"), ("central", "example"), ("local", "user")]


def extreme_rows() -> Shards:
    """Ties, and differences whose squares overflow, at every client but one."""
    logits = np.array(list(itertools.product(EXTREME, repeat=3)))
    i = np.arange(len(logits))
    return rows_by_owner(logits, i % 3, i % 5, 6, names=numbered(6))


@pytest.mark.parametrize("method", BUDGETED)
def test_extreme_rows_are_answered(method):
    """Also with step sizes out of reason, where the method has any."""
    settings = {k: v for k, v in (SMALL | ABSURD).items() if k in settings_of(method)}
    turn = BUDGETED.index(method)
    for trust, unit in (TRUSTS[turn % 3], TRUSTS[(turn + 1) % 3]):
        public = Federation(clients=6, classes=3, epsilon=5.0, trust=trust, unit=unit)
        strategy = STRATEGIES[method](public, **settings)
        run_inline(strategy, extreme_rows())
        assert strategy.released == strategy.plan.rounds


@pytest.mark.parametrize("method", ["fedbbq", "fednewton", "acct"])
def test_one_row_more_than_the_ring_holds_is_an_answer_like_any(method):
    """A million clients, unit example: it was a failed run, which tells a neighbour for sure."""
    public = Federation(clients=10**6, classes=10, epsilon=8.0, unit="example")
    strategy = STRATEGIES[method](public)
    asked = strategy.open_round(1)
    bound, ring = asked.request.bound, asked.request.ring
    most = ring.limit // math.ceil(max(bound.norms) / ring.grid)
    assert 4096 <= most <= 20_000

    def sent(rows: int) -> np.ndarray:
        logits = np.zeros((rows, 10))
        logits[:, 0] = 50.0  # as sure as can be, and wrong
        labels, offsets = np.ones(rows, np.int64), np.array([0, rows])
        return answer(Shards(logits, labels, offsets), asked.request).view(np.int64)

    many = 3 * most
    assert np.abs(sent(many)).max() <= ring.limit
    for rows in (most, many):
        step = (sent(rows + 1) - sent(rows)) * ring.grid
        assert (bound.norms_of(step) <= 1).all()
