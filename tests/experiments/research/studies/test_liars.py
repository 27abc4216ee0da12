"""Liars keep to what their lie may be: the study is about what it says."""

import itertools

import numpy as np
import pytest

from fedcal.clients.answers import contribute
from fedcal.experiments.research.studies.own import liars
from fedcal.experiments.research.studies.own.liars import (
    CLIENTS,
    METHODS,
    SETTINGS,
    Cell,
    Liars,
    world,
)

EVERYBODY = np.arange(CLIENTS)


@pytest.mark.parametrize("setting", list(SETTINGS)[1:])
def test_a_lie_within_the_bound_is_as_large_as_one_clients_answer(setting):
    for method, liars_ in itertools.product(METHODS, (1, 5)):
        of = world(setting, method, 0)
        strategy = of.job.strategy()
        asked, bound = strategy.open_round(1), of.job.plan.bound
        lying = Liars(Cell(setting, method, "bound", liars_), of, strategy)
        honest = np.setdiff1d(EVERYBODY, lying._liars)
        rest = contribute(of.shards.take(honest), asked.request, honest)
        told = lying.sums(asked, EVERYBODY) - rest.sum(axis=0, dtype=np.uint64)
        lie = asked.request.ring.decode(told)
        largest = liars_ * (1.0 if bound.per == "client" else 50.0)
        norm = float(asked.request.bound.norms_of(lie[None]).max())
        assert norm == pytest.approx(largest, rel=1e-5), method


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_limit_is_not_refused_and_twice_as_much_and_random_integers_are(setting, monkeypatch):
    for method in METHODS:
        passes = setting == "exact sums" and method in liars.TEMPERATURES
        assert liars.run(Cell(setting, method, "random", 1), 0)["refused"] != passes
    cell = Cell(setting, "fednewton", "limit", 1)
    assert not liars.run(cell, 0)["refused"]
    real = liars._farthest
    monkeypatch.setattr(liars, "_farthest", lambda *of: 2 * real(*of))
    private = "unit" in setting
    assert liars.run(cell, 0)["refused"] == private  # exact sums of signed numbers: nothing is
