"""What a comparison gives away: the sums of basic composition, and what they are not."""

import math
from typing import Any

import pytest

from fedcal.experiments.runs.comparison.grid import Cell, Variant
from fedcal.experiments.runs.comparison.statement import Spent, spent
from fedcal.experiments.runs.config import Config


def cell(epsilon: float, seeds: tuple[int, ...] = (0,), **config: Any) -> Cell:
    given = {"data": "d", "method": "fedbin", "partition": "natural", "clients": 5, **config}
    delta = 0.0 if math.isinf(epsilon) else 1e-5
    return Cell(Variant(given["method"]), Config(epsilon=epsilon, **given), seeds, delta)


def test_natural_clients_pay_for_every_run():
    cells = [cell(1.0, (0, 1, 2)), cell(0.5, (0, 1, 2), method="fedtemp")]
    (only,) = spent(cells, "d", "user")
    assert only == (6, pytest.approx(4.5), pytest.approx(6e-5))


def test_dealt_clients_pay_within_a_deal():
    cells = [
        cell(1.0, (0, 1), partition="iid"),
        cell(0.5, (0, 1), partition="iid", method="fedtemp"),
        cell(4.0, (1,), partition="dirichlet:1"),
        cell(4.0, (1,), partition="iid", clients=6),
    ]
    alone, both = Spent(1, 4.0, 1e-5), Spent(2, 1.5, 2e-5)
    assert sorted(spent(cells, "d", "user")) == [alone, alone, both, both]
    # what is not private, or elsewhere, does not count
    cells = [cell(math.inf), cell(1.0, data="e"), cell(math.inf, method="none")]
    assert spent(cells, "d", "user") == []
    assert len(spent(cells, "e", "user")) == 1
    assert spent(cells, "e", "example") == []
