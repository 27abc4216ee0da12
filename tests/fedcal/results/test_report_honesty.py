"""What reports must not claim: few rows, failed runs, mixed data, data that nobody can load."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared import cell
from html_page import page_of

from fedcal import simulate
from fedcal.results.comparison import (
    as_table,
    card_of,
    cells_of,
)
from fedcal.results.figures import curves
from fedcal.run.folders import write_report

pytestmark = pytest.mark.usefixtures("quick_figures")


def words_of(folder: Path) -> str:
    return page_of(folder / "report.html").text


FAILED = [{"seed": s, "error": "nobody answered"} for s in (1, 2, 3, 4)]


def written(folder: Path, cells: list[dict[str, Any]]) -> str:
    content = {"schema": 1, "kind": "comparison", "cells": cells, "versions": {}}
    (folder / "compare.json").write_text(json.dumps(content), "utf-8")
    write_report(folder)
    return words_of(folder)


def test_groups_are_not_told_what_follows_from_their_trust_model():
    pairs = (("central", "gaussian"), ("local", "laplace"))
    cells = [cell("fedtemp", 1.0, 0.02, trust=t, mechanism=m) for t, m in pairs]
    assert "mechanism" not in as_table(cells).columns
    assert {*curves.differing(cells)} == {"trust"}
    other = cell("fedtemp", 1.0, 0.03, mechanism="laplace")  # which was chosen
    assert {"trust", "mechanism"} <= {*as_table([*cells, other]).columns}


def test_a_card_says_that_rows_are_too_few_for_intervals():
    logits, labels = 3 * np.eye(2)[[0, 1] * 15], [0, 1] * 15
    card = simulate((logits, labels), method="fedtemp", clients=2, partition="iid")._repr_html_()
    assert "test rows: too few for intervals (they need" in card


def test_sets_of_a_method_that_this_process_does_not_know_are_told_as_sets():
    columns = ("coverage", "set_size", "singletons", "empty")
    after = {key: {"mean": 0.9, "std": 0.0} for key in columns}
    assert "one label" in card_of([cell("theirs", 1.0, 0.0, after=after)]).html(card=True)


def test_a_cell_with_failures_has_no_star_and_says_how_many_ran(tmp_path):
    cells = [
        cell("lucky", 1.0, 0.001, seeds=[0], failures=FAILED),
        cell("fedtemp", 1.0, 0.03, seeds=[0, 1, 2, 3, 4]),
        cell("fednewton", 1.0, 0.02, seeds=[0, 1, 2, 3, 4]),
    ]
    rows = list(as_table(cells_of(cells), ["ece", "classwise_ece", "nll"]).rows)
    stars = {name.text: [entry.best for entry in row[1:]] for name, *row in rows}
    assert stars == {"lucky": [False] * 3, "fedtemp": [False] * 3, "fednewton": [True] * 3}
    assert [name.small for name, *_ in rows] == ["4 of 5 failed", "", ""]
    page = written(tmp_path, cells)
    assert "lucky 4 of 5 failed" in page
    assert "lucky<small>4 of 5 failed</small>" in card_of(cells).html(card=True)
