"""Integers that a seed means for good: noise, samples, coins and masks, on every type of CPU.

What is released is a float somewhere on its way, and need not be the same bits elsewhere.
"""

import hashlib

import numpy as np
import pytest

from fedcal.clients.answers import contribute
from fedcal.clients.questions.search import AccuracyGap
from fedcal.core.numerics import Purpose, stream
from fedcal.core.shards import Shards
from fedcal.privacy import Federation, make_plan
from fedcal.privacy.curator import Curator
from fedcal.secure_aggregation.masking import mask
from fedcal.units import Bound


def digest(integers: object) -> str:
    return hashlib.sha256(np.asarray(integers, "<i8").tobytes()).hexdigest()[:16]


def shares(trust: str, mechanism: str, rate: float = 1.0) -> object:
    """What clients without rows send: their noise."""
    public = Federation(
        clients=5, classes=2, epsilon=1.0, trust=trust, mechanism=mechanism, sampling_rate=rate
    )
    plan = make_plan(public, rounds=2, bound=Bound((3, 1), (1.0, 4.0), "per_block"))
    asked = Curator(plan).open(1, AccuracyGap((0.5, 1.0, 1.5, 2.0)))
    empty = Shards(np.zeros((0, 2)), np.zeros(0, np.int64), np.zeros(6, np.int64))
    return contribute(empty, asked.request, np.arange(5)).view(np.int64)


GOLDEN = {
    "local laplace": (lambda: shares("local", "laplace"), "d91c404e0f7da61f"),
    "local gaussian": (lambda: shares("local", "gaussian"), "2d1799d87c0066b5"),
    "distributed laplace": (lambda: shares("distributed", "laplace"), "4758c4fae281a79d"),
    "distributed gaussian": (
        lambda: shares("distributed", "gaussian"),
        "8fc655f2bb5aa1f4",
    ),
    "masks": (
        lambda: mask(2, range(9), run_seed=11, round=1, length=7).view(np.int64),
        "f03d88d6851e144f",
    ),
    "sampling": (lambda: stream(7, Purpose.SAMPLING, 3).random(50) < 0.3, "bafba966248fce5b"),
    "words": (
        lambda: stream(7, Purpose.COIN, 3, "site 4").integers(0, 2**62, 9),
        "2942d732fecb9147",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_seeded_integers_stay(name):
    draw, golden = GOLDEN[name]
    assert digest(draw()) == golden
