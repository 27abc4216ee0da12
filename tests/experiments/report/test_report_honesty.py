"""What reports must not claim: few rows, failed runs, mixed data, data that nobody can load."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared import cell
from html_page import page_of

from fedcal.experiments import simulate
from fedcal.experiments.report import comparison_card, write_comparison_report
from fedcal.experiments.report.comparison import cells_table
from fedcal.experiments.report.figures import COMPARISON_NAMES
from fedcal.experiments.runs.statement.sentences import meaning
from fedcal.metrics.bootstrap import FEWEST

pytestmark = pytest.mark.usefixtures("quick_figures")


def arrays(test_rows: int = 40, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 200 + test_rows)
    logits = rng.normal(size=(len(labels), 3))
    logits[np.arange(len(labels)), labels] += 1.5
    parts = {"logits": 3 * logits[:200], "labels": labels[:200]}
    return parts | {"test_logits": 3 * logits[200:], "test_labels": labels[200:]} | more


def words_of(folder: Path) -> str:
    return page_of(folder / "report.html").text


def test_few_test_rows_have_no_intervals(tmp_path):
    enough = simulate(arrays(FEWEST), clients=10, out=tmp_path / "enough")
    assert enough.intervals is not None
    assert "too few" not in words_of(tmp_path / "enough") + enough._repr_html_()
    for rows, said in ((1, "1 test row"), (FEWEST - 1, f"{FEWEST - 1} test rows")):
        result = simulate(arrays(rows), clients=10, out=tmp_path / str(rows))
        assert result.intervals is None
        said += ": too few for intervals"
        page = words_of(tmp_path / str(rows))
        assert said in page
        assert said in result._repr_html_()
        told = page.partition("What the metrics mean")[0]
        told = told.replace("to tell better from worse", "")
        for word in ("worse", "better", "no clear change", "95 % interval of the", "bootstrap"):
            assert word not in told
        assert "95 % interval" not in page.partition("Metrics On")[0]


def test_only_arrays_cannot_be_named_on_a_command_line(tmp_path):
    for k, name in enumerate(("arrays", "a$b_{$")):
        simulate(arrays(name=name), method="none", out=tmp_path / str(k))
        assert f"The data {name} was passed in Python" in words_of(tmp_path / str(k))
    np.savez(tmp_path / "rows.npz", **arrays())
    for k, data in enumerate((tmp_path / "rows.npz", "resnet110-cifar10"), 2):
        simulate(data, method="none", out=tmp_path / str(k))
        assert "passed in Python" not in words_of(tmp_path / str(k))


PLAIN: dict[str, Any] = {"baseline": True, "partition": None, "clients": None, "bytes_up": 0}
FAILED = [{"seed": s, "error": "nobody answered"} for s in (1, 2, 3, 4)]


def written(folder: Path, cells: list[dict[str, Any]]) -> str:
    content = {"schema": 1, "kind": "comparison", "cells": cells, "versions": {}}
    (folder / "compare.json").write_text(json.dumps(content), "utf-8")
    write_comparison_report(folder)
    return words_of(folder)


def test_a_cell_with_failures_has_no_star_and_says_how_many_ran(tmp_path):
    cells = [
        cell("lucky", 1.0, 0.001, seeds=[0], failures=FAILED),
        cell("fedtemp", 1.0, 0.03, seeds=[0, 1, 2, 3, 4]),
        cell("fednewton", 1.0, 0.02, seeds=[0, 1, 2, 3, 4]),
    ]
    rows = list(cells_table(cells).rows)
    stars = {name.text: [entry.best for entry in row[:3]] for name, *row in rows}
    assert stars == {"lucky": [False] * 3, "fedtemp": [False] * 3, "fednewton": [True] * 3}
    assert [name.small for name, *_ in rows] == ["1 of 5 runs", "", ""]
    page = written(tmp_path, cells)
    assert "lucky 1 of 5 runs" in page
    assert "over 5 seeds" in page
    assert "lucky<small>1 of 5 runs</small>" in comparison_card({"cells": cells})


def test_each_data_set_has_its_own_figures(tmp_path):
    cells = [
        cell("none", None, 0.40, **PLAIN, data="/a/rows.npz"),
        cell("none", None, 0.05, **PLAIN, data="/b/rows.npz"),
        cell("fedtemp", 1.0, 0.30, data="/a/rows.npz"),
        cell("fednewton", 1.0, 0.01, data="/b/rows.npz"),
    ]
    page = written(tmp_path, cells)
    names = {p.name for p in tmp_path.iterdir() if p.suffix in (".png", ".svg")}
    assert len(names) == 8
    assert names == {p.name for pattern in COMPARISON_NAMES for p in tmp_path.glob(pattern)}
    assert "passed in Python" not in page
    cells[2]["data"] = "mine"
    assert page.count("passed in Python") < written(tmp_path, cells).count(
        "The data mine was passed"
    )


def seen(privacy: dict[str, Any], who: str) -> str:
    return next(line["what"] for line in privacy["sees"] if line["who"] == who)


def test_a_report_names_the_committee(tmp_path):
    simulate(arrays(), clients=5, quorum=0.8, secure_aggregation="protocol", out=tmp_path)
    page = words_of(tmp_path)
    assert "quorum of a round 4 answers" in page
    assert "committee 4 of 5 members open a sum" in page
    assert "may work with the server 2 of the sites" in page
    privacy = simulate(arrays(), clients=30).privacy
    assert "Each client's" in seen(privacy, "the server")
    assert "received its contribution unmasked" in privacy["not_protected"][0]
    assert "each client's contribution, too, where there is no secure aggregation" in meaning(
        privacy, "trust"
    )


def test_all_exact_files_and_the_number_of_fit_rows_are_named():
    def privacy(method: str) -> dict[str, Any]:
        held = {k: v for k, v in arrays().items() if not k.startswith("test")}
        return simulate(held, method=method, clients=30, epsilon=1.0).privacy

    told = privacy("fednewton")
    (said,) = [line for line in told["statement"] if "held out" in line]
    files = ("result.json", "rounds.jsonl", "reliability.json", "test_probs.npy", "report.html")
    for name in files:
        assert name in said
    bounded, _, exact = seen(told, "readers of the results").partition("bound.")
    assert "values in rounds.jsonl" in bounded
    assert "test in rounds.jsonl" in exact
    lost = "The number of fit rows of the simulated data, unless rows_per_client is given"
    assert "tell the exact number of fit rows" in " ".join(told["statement"])
    assert lost in " ".join(told["not_protected"])
    told = privacy("fedbin")
    assert "fit rows" not in " ".join([*told["statement"], *told["not_protected"]])
