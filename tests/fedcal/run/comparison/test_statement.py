"""What a comparison gives away: the sums of basic composition, and what they are not."""

import math
from typing import Any

import pytest

from fedcal.run.comparison.grid import Cell, Variant
from fedcal.run.comparison.run import composed
from fedcal.run.config import Config


def cell(epsilon: float, seeds: tuple[int, ...] = (0,), **config: Any) -> Cell:
    given = {"data": "d", "method": "fedbin", "partition": "natural", "clients": 5, **config}
    return Cell(Variant(given["method"]), Config(epsilon=epsilon, **given), seeds)


def test_natural_clients_pay_for_every_run():
    cells = [cell(1.0, (0, 1, 2)), cell(0.5, (0, 1, 2), method="fedtemp")]
    spent = {"epsilon": pytest.approx(4.5), "delta": pytest.approx(6e-5)}
    assert composed(cells) == [{"data": "d", "unit": "user", **spent, "deals": 1, "runs": 6}]


def test_dealt_clients_pay_within_a_deal():
    cells = [
        cell(1.0, (0, 1), partition="iid"),
        cell(0.5, (0, 1), partition="iid", method="fedtemp"),
        cell(4.0, (1,), partition="dirichlet:1"),
        cell(4.0, (1,), partition="iid", clients=6),
    ]
    spent = {"epsilon": 4.0, "delta": 1e-5}
    assert composed(cells) == [{"data": "d", "unit": "user", **spent, "deals": 4, "runs": 6}]
    both = composed(cells[:2])  # within a deal they add up
    assert both == [
        {"data": "d", "unit": "user", "epsilon": 1.5, "delta": 2e-5, "deals": 2, "runs": 4}
    ]
    # what is not private, or elsewhere, does not count
    cells = [cell(math.inf), cell(1.0, data="e"), cell(math.inf, method="none")]
    assert [(one["data"], one["unit"]) for one in composed(cells)] == [("e", "user")]
