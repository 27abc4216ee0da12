"""Liars keep to what their lie may be: the study is about what it says."""

from __future__ import annotations

import numpy as np
import pytest

from fedcal.clients.answers import answer, contribute
from fedcal.experiments.studies import liars
from fedcal.experiments.studies.liars import CLIENTS, METHODS, SETTINGS, Cell, Liars, world
from fedcal.types import Floats

EVERYBODY = np.arange(CLIENTS)


def lie_of(cell: Cell) -> tuple[Floats, float]:
    """What liars add to the honest clients' sum in the first round, and its norm."""
    of = world(cell.setting, cell.method, 0)
    method = of.job.strategy()
    asked = method.open_round(1)
    assert asked is not None
    lying = Liars(cell, of, method)
    told = lying.sums(asked, EVERYBODY)
    honest = np.setdiff1d(EVERYBODY, lying._liars)
    rest = contribute(of.shards.take(honest), asked.request, honest).sum(axis=0, dtype=np.uint64)
    lie = asked.request.ring.decode(told - rest)
    norm = float(asked.request.bound.norms_of(lie[None]).max()) if method.plan.private else 0.0
    return lie, norm


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("setting", list(SETTINGS)[1:])
def test_a_lie_within_the_bound_is_as_large_as_one_clients_answer(
    setting: str, method: str
) -> None:
    one, five = (lie_of(Cell(setting, method, "bound", n))[1] for n in (1, 5))
    plan = world(setting, method, 0).job.plan
    assert plan.bound is not None
    rows = 1.0 if plan.bound.per == "client" else 50.0
    assert one == pytest.approx(rows, rel=1e-5)
    assert five == pytest.approx(5 * rows, rel=1e-5)


@pytest.mark.parametrize("setting", SETTINGS)
def test_liars_by_label_are_honest_but_for_their_labels(setting: str) -> None:
    cell = Cell(setting, "fednewton", "labels", 5)
    of = world(setting, "fednewton", 0)
    method = of.job.strategy()
    asked = method.open_round(1)
    assert asked is not None
    lying = Liars(cell, of, method)
    changed = lying._shards.labels != of.shards.labels
    assert changed.sum() > 0
    assert (changed == np.isin(of.shards.owner, lying._liars)).all()
    words = contribute(lying._shards, asked.request, EVERYBODY).sum(axis=0, dtype=np.uint64)
    assert (lying.sums(asked, EVERYBODY) == words).all()
    assert (answer(lying._shards, asked.request) != answer(of.shards, asked.request)).any()


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_limit_is_not_refused_and_twice_as_much_is(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell(setting, "fednewton", "limit", 1)
    assert not liars.run(cell, 0)["refused"]
    real = liars._farthest
    monkeypatch.setattr(liars, "_farthest", lambda *of: 2 * real(*of))
    private = "unit" in setting
    assert liars.run(cell, 0)["refused"] == private  # exact sums of signed numbers: nothing is


def test_random_integers_are_refused_where_something_is_bounded() -> None:
    for setting in SETTINGS:
        for method in METHODS:
            passes = setting == "exact sums" and method in liars.TEMPERATURES
            assert liars.run(Cell(setting, method, "random", 1), 0)["refused"] != passes
