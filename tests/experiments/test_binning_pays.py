"""The study of when binning pays: its file, its reading, and one cell measured again."""

import math
from typing import Any

import numpy as np
import pytest

from fedcal import datasets
from fedcal.experiments.studies import binning_pays
from fedcal.experiments.studies.binning_pays import BINNING, CLIENTS, DATA, EPSILONS, NEGATIVES
from fedcal.experiments.studies.expected import shipped

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


def test_a_population_draws_whole_rows_of_the_fit_part():
    data = datasets.load("imdb-binary").split(0)
    drawn = binning_pays.population(data, 300, 0)
    assert (drawn.clients, len(drawn.labels)) == (300, 300 * 50)
    there = {(*z.tolist(), y) for z, y in zip(data.logits, data.labels.tolist(), strict=True)}
    found = zip(drawn.logits[::37], drawn.labels[::37].tolist(), strict=True)
    assert {(*z.tolist(), y) for z, y in found} <= there
    again, other = (binning_pays.population(data, 300, seed) for seed in (0, 1))
    assert np.array_equal(again.logits, drawn.logits)
    assert not np.array_equal(other.labels, drawn.labels)


def test_the_file_holds_every_cell_once():
    found = shipped("binning-pays").rows
    keys = [(r["data"], r["clients"], r["epsilon"], r["method"], r["negatives"]) for r in found]
    assert len(set(keys)) == len(keys)
    sizes = {(name, k) for name in DATA for k in CLIENTS}
    left_out = {("densenet-cifar100", 3000), ("densenet-cifar100", 10000)}
    budgets = [e if math.isfinite(e) else "inf" for e in EPSILONS]
    want = {
        (name, k, e, m, None)
        for name, k in sizes - left_out
        for e in budgets
        for m in ("none", "fednewton", *BINNING)
    }
    assert {key for key in keys if key[-1] is None} == want
    assert {key[-1] for key in keys} == {None, *NEGATIVES}
    for r in found:
        for metric in ("classwise_ece", "classwise_ece_std", "ece", "accuracy"):
            assert 0 <= r[metric] <= 1
        assert 0 < r["nll"] < 100


def test_what_the_file_says():
    found = {
        (r["data"], r["epsilon"]): r for r in binning_pays.crossover(shipped("binning-pays").rows)
    }
    assert len(found) == len(DATA) * len(EPSILONS)
    for epsilon in (0.5, 1.0):  # a hundred to a thousand users are too few, anywhere
        for name in DATA:
            assert found[name, epsilon]["clients"] in (None, 3000, 10000)
    assert found["imdb-binary", "inf"]["clients"] is not None


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
