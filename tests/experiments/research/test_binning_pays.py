"""The study of when binning pays: its file, its reading, and one cell measured again."""

from typing import Any

import pytest

from fedcal.experiments.research.studies.expected import shipped
from fedcal.experiments.research.studies.own import binning_pays
from fedcal.experiments.research.studies.own.binning_pays import BINNING, NEGATIVES

POOLED, PER_CLASS, PAPER = BINNING


def row(method: str, clients: int, cwece: float, **more: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"data": "d", "epsilon": 1.0, "ece": 0.01, "accuracy": 0.9}
    own = {"method": method, "clients": clients, "classwise_ece": cwece, "negatives": None}
    return plain | own | more


def cell(clients: int, newton: float, pooled: float, each: float, **more: Any) -> list[Any]:
    return [
        row("none", clients, 0.02),
        row("fednewton", clients, newton),
        row(POOLED, clients, pooled, **more),
        row(PER_CLASS, clients, each),
        row(PAPER, clients, 0.5),
    ]


def test_binning_pays_from_where_it_is_better_at_every_larger_size():
    found = [
        *cell(10, 0.012, 0.011, 0.013),  # luck: lost again at 20
        *cell(20, 0.012, 0.013, 0.013),
        *cell(30, 0.012, 0.011, 0.013),
        *cell(40, 0.012, 0.011, 0.010),
    ]
    (read,) = binning_pays.crossover(found)
    assert (read["clients"], read["method"], read["most_clients"]) == (30, POOLED, 40)
    (never,) = binning_pays.crossover(cell(10, 0.01, 0.011, 0.010))
    assert (never["clients"], never["method"]) == (None, None)


def test_a_variant_that_breaks_the_model_does_not_count():
    sound = cell(10, 0.012, 0.001, 0.02)
    assert binning_pays.crossover(sound)[0]["clients"] == 10
    for found in (
        cell(10, 0.012, 0.001, 0.02, accuracy=0.889),
        cell(10, 0.012, 0.001, 0.02, ece=0.0101),
        # rows of one way with negative counts are not read
        [*cell(10, 0.012, 0.02, 0.02), row(POOLED, 10, 0.001, negatives="cut")],
    ):
        assert binning_pays.crossover(found)[0]["clients"] is None


def test_one_cell_again():
    """The others take minutes; another type of CPU may round another way."""
    again = binning_pays.population_rows("imdb-binary", 100, [1.0])
    kept = [
        r
        for r in shipped("binning-pays").rows
        if (r["data"], r["clients"], r["epsilon"]) == ("imdb-binary", 100, 1.0)
    ]
    assert len(again) == len(kept) == 5 + 2 * len(NEGATIVES)
    for got, want in zip(again, kept, strict=True):
        assert {k: v for k, v in got.items() if not isinstance(v, float)} == {
            k: v for k, v in want.items() if not isinstance(v, float)
        }
        for metric in ("classwise_ece", "ece", "nll", "accuracy"):
            assert got[metric] == pytest.approx(want[metric], rel=1e-3)
