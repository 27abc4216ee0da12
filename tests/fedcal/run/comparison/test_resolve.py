"""What of a grid is run: combinations that cannot be are left out and named, never silently."""

import math
import warnings
from typing import Any

import numpy as np
from refusals import each_is_refused

from fedcal import datasets
from fedcal.core.checks import TooLittle
from fedcal.run.comparison import compare
from fedcal.run.comparison.grid import Cell, LeftOut, read_grid, resolve


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 60)
    logits = rng.normal(0, 3, (60, 3))
    return {"logits": logits, "labels": labels, "test_logits": logits, "test_labels": labels}


def resolved(**options: Any) -> tuple[list[Cell], list[LeftOut]]:
    data = datasets.from_arrays(**arrays(), name="d")
    grid = read_grid({"data": "d", "partition": "iid", "clients": 10, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return resolve(grid, {"d": data})


def protections(cells: list[Cell]) -> list[tuple[Any, ...]]:
    configs = [c.config for c in cells if not c.variant.baseline]
    return [(c.method, c.epsilon, c.unit, c.trust, c.mechanism) for c in configs]


def test_a_setting_is_left_to_the_runs_that_it_does_something_in():
    cells, left_out = resolved(
        method="fedbbq,acct", epsilon="inf,1", set={"clip_positive": 0.5, "clip": 2.0}
    )
    assert left_out == []
    found = {(c.config.method, c.config.epsilon): dict(c.config.set) for c in cells}
    assert found == {
        ("fedbbq", math.inf): {},
        ("acct", math.inf): {},
        ("fedbbq", 1.0): {"clip_positive": 0.5},
        ("acct", 1.0): {"clip": 2.0},
    }
    _, ((cell, why),) = resolved(method="fedbbq,fedbbq[clip_positive=1]", epsilon="inf,1")
    assert (cell.variant.text, cell.config.epsilon) == ("fedbbq[clip_positive=1]", math.inf)
    assert "clip_positive has no effect here" in why


def test_trusts_and_units_multiply_and_are_resolved():
    cells, left_out = resolved(
        method="fedtemp", epsilon="inf,1", trust="central,distributed,local", unit="user,example"
    )
    assert left_out == []
    assert protections(cells)[0] == ("fedtemp", math.inf, "user", "secagg", "auto")
    assert protections(cells)[1:] == [
        ("fedtemp", 1.0, unit, trust, mechanism)
        for unit in ("user", "example")
        for trust, mechanism in (
            ("central", "gaussian"),
            ("distributed", "gaussian"),
            ("local", "gaussian"),
        )
    ]
    assert [c.config.secure_aggregation for c in cells[1:4]] == ["none", "masks", "none"]
    cells, _ = resolved(method="fedtemp", epsilon=1, trust="central,distributed", quorum=0.5)
    assert [c.config.quorum for c in cells] == [0.9, 0.5]  # of those who count answers


def test_a_value_that_goes_with_nothing_is_refused():
    exact: dict[str, Any] = {"epsilon": "inf"}
    table: list[tuple[dict[str, Any], str]] = [
        ({"trust": "secagg"}, "^fedtemp on d, iid, epsilon 1: .*secagg"),
        ({"epsilon": "inf,1", "trust": "secagg"}, "secagg"),
        ({"trust": "secagg,central"}, "secagg"),
        ({"trust": "central,local", "mechanism": "auto,unary"}, "'unary' does not fit"),
        ({"mechanism": "auto,exponential"}, "'exponential' does not fit this method's release"),
        ({"quorum": 0.5}, "quorum"),
        # what no choice of trust would mend
        ({"method": "fedoneshot", "rounds": 3, "trust": "central,local"}, "fedoneshot on d"),
        ({**exact, "method": "acct", "set": {"clip": 2.0}}, "clip has no effect here: no run"),
    ]
    each_is_refused(table, lambda given: resolved(**{"method": "fedtemp", "epsilon": "1", **given}))


def test_what_is_left_out_is_told_before_and_after():
    options: dict[str, Any] = {"mechanism": "auto,exponential"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = compare(
            arrays(), jobs=1, seeds=1, method="fedtemp,fedoneshot", epsilon=1, clients=10, **options
        )
    (warning,) = (str(w.message) for w in caught if w.category is not TooLittle)
    assert warning.startswith("impossible combinations are skipped (1), the first FedTemp with ")
    (said,) = [line for line in found.more if line.startswith("Skipped: ")]
    assert "FedTemp with epsilon 1, unit user, mechanism exponential" in said
    assert "'exponential' does not fit" in said
    assert len(found.cells) == 1 + 2
    assert "mechanism" in found.to_table("csv").splitlines()[0]
