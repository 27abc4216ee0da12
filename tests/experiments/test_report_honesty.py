"""What reports must not claim: few rows, failed runs, mixed data, data that nobody can load."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.errors import InputError
from fedcal.experiments import simulate
from fedcal.experiments.figures import COMPARISON_NAMES
from fedcal.experiments.report import comparison_card, write_comparison_report, write_report
from fedcal.experiments.report.comparison import cells_table
from fedcal.experiments.show.tables import TextTable
from fedcal.experiments.statement.sentences import meaning
from fedcal.metrics.bootstrap import FEWEST

pytestmark = pytest.mark.usefixtures("quick_figures")


def arrays(test_rows: int = 40, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 200 + test_rows)
    logits = rng.normal(size=(len(labels), 3))
    logits[np.arange(len(labels)), labels] += 1.5
    parts = {"logits": 3 * logits[:200], "labels": labels[:200]}
    return parts | {"test_logits": 3 * logits[200:], "test_labels": labels[200:]} | more


def read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    return content


def words_of(folder: Path) -> str:
    text = re.sub(
        r"(?s)<(style|svg).*?</\1>|<[^>]*>", " ", (folder / "report.html").read_text("utf-8")
    )
    return " ".join(html.unescape(text).replace("\xa0", " ").split())


# --- few test rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, FEWEST - 1])
def test_few_test_rows_have_no_intervals(rows: int, tmp_path: Path) -> None:
    result = simulate(arrays(rows), clients=10, out=tmp_path)
    assert result.intervals is None
    assert read(tmp_path)["intervals"] is None
    said = f"{rows} test row{'s' if rows > 1 else ''}: too few for intervals"
    page = words_of(tmp_path)
    assert said in page
    assert said in result._repr_html_()
    for word in ("worse", "better", "no clear change", "95 % interval of the", "bootstrap"):
        assert word not in page.partition("What the metrics mean")[0].replace(
            "to tell better from worse", ""
        )
    assert "95 % interval" not in page.partition("Metrics On")[0]


def test_enough_test_rows_have_them(tmp_path: Path) -> None:
    result = simulate(arrays(FEWEST), clients=10, out=tmp_path)
    assert result.intervals is not None
    assert "too few" not in words_of(tmp_path) + result._repr_html_()


# --- data that were handed over in Python -------------------------------------------------------


@pytest.mark.parametrize("name", ["arrays", "mine", "a$b_{$"])
def test_arrays_cannot_be_named_on_a_command_line(name: str, tmp_path: Path) -> None:
    simulate(arrays(name=name), method="none", out=tmp_path)
    assert f"The data {name} was handed over in Python" in words_of(tmp_path)


# --- figures of an earlier run ------------------------------------------------------------------


# --- a comparison -------------------------------------------------------------------------------


def cell(label: str, epsilon: float | None, ece: float, **more: Any) -> dict[str, Any]:
    values = {"ece": ece, "classwise_ece": ece / 3, "nll": 0.2 + ece, "accuracy": 0.9 - ece}
    return {
        **{"data": "resnet110-cifar10", "method": label, "label": label, "settings": {}},
        **{"clients": 100, "partition": "iid", "sampling_rate": 1.0, "unit": "user"},
        **{"delta": None if epsilon is None else 1e-5, "trust": "central"},
        **{"epsilon": epsilon, "rounds": 4, "seeds": [0, 1], "baseline": False, "failures": []},
        **{"bytes_up": 64, "bytes_down": 380, "seconds": {"mean": 0.25, "std": 0.0}},
        "after": {m: {"mean": v, "std": 0.0} for m, v in values.items()},
        **more,
    }


PLAIN: dict[str, Any] = {"baseline": True, "partition": None, "clients": None, "bytes_up": 0}
FAILED = [{"seed": s, "error": "nobody answered"} for s in (1, 2, 3, 4)]


def written(folder: Path, cells: list[dict[str, Any]]) -> str:
    content = {"schema": 1, "kind": "comparison", "cells": cells, "versions": {}}
    (folder / "compare.json").write_text(json.dumps(content), "utf-8")
    write_comparison_report(folder)
    return words_of(folder)


def marked(table: TextTable) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in table.rows]


def test_a_cell_with_failures_has_no_star_and_says_how_many_ran(tmp_path: Path) -> None:
    cells = [
        cell("lucky", 1.0, 0.001, seeds=[0], failures=FAILED),
        cell("fedtemp", 1.0, 0.03, seeds=[0, 1, 2, 3, 4]),
        cell("fednewton", 1.0, 0.02, seeds=[0, 1, 2, 3, 4]),
    ]
    table = cells_table(cells)
    stars = {name.text: [entry.best for entry in row[:4]] for name, *row in marked(table)}
    assert stars == {"lucky": [False] * 4, "fedtemp": [False] * 4, "fednewton": [True] * 4}
    assert [name.small for name, *_ in marked(table)] == ["1 of 5 runs", "", ""]
    page = written(tmp_path, cells)
    assert "lucky 1 of 5 runs" in page
    assert "over 5 seeds" in page
    assert "lucky<small>1 of 5 runs</small>" in comparison_card({"cells": cells})


def test_each_data_set_has_its_own_figures(tmp_path: Path) -> None:
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
    assert "handed over" not in page
    cells[2]["data"] = "mine"
    assert page.count("handed over") < written(tmp_path, cells).count("The data mine was handed")


@pytest.mark.parametrize(
    ("fact", "values", "words"),
    [
        ("delta", (1e-5, 1e-3), ("δ = 1e-05", "δ = 0.001")),
        ("trust", ("central", "local"), ("trust central", "trust local")),
        ("rounds", (1, 8), ("1 round", "8 rounds")),
        ("unit", ("user", "example"), ("unit user", "unit example")),
        ("mechanism", ("gaussian", "laplace"), ("gaussian", "laplace")),
    ],
)
def test_what_varies_is_told(fact: str, values: Any, words: tuple[str, str]) -> None:
    cells = [cell("a", 1.0, 0.01 * (k + 1), **{fact: v}) for k, v in enumerate(values)]
    assert list(cells_table(cells).sections.values()) == [f"{w}, ε = 1" for w in words]


# --- files that are not what they should be -----------------------------------------------------

DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no statement": lambda r: r["privacy"].pop("statement"),
    "sees is text": lambda r: r["privacy"].update(sees="x"),
    "sees is numbers": lambda r: r["privacy"].update(sees=[1]),
    "versions is null": lambda r: r.update(versions=None),
    "versions is a list": lambda r: r.update(versions=[]),
    "intervals is text": lambda r: r.update(intervals="x"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    simulate(arrays(), clients=30, epsilon=1.0, out=out)
    return out


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_result_is_one_line(run: Path, tmp_path: Path, what: str) -> None:
    for name in ("reliability.json", "rounds.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    result = read(run)
    DAMAGE[what](result)
    (tmp_path / "result.json").write_text(json.dumps(result), "utf-8")
    with pytest.raises(InputError, match=r"result\.json does not hold what a report needs"):
        write_report(tmp_path)


@pytest.mark.parametrize("versions", [None, [], 3])
def test_a_damaged_comparison_is_one_line(tmp_path: Path, versions: Any) -> None:
    content = {"schema": 1, "kind": "comparison", "cells": [cell("a", 1.0, 0.1)]}
    (tmp_path / "compare.json").write_text(json.dumps(content | {"versions": versions}), "utf-8")
    with pytest.raises(InputError, match=r"compare\.json does not hold what a report needs"):
        write_comparison_report(tmp_path)


# --- the privacy record -------------------------------------------------------------------------


def seen(privacy: dict[str, Any], who: str) -> str:
    return next(line["what"] for line in privacy["sees"] if line["who"] == who)


@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
@pytest.mark.parametrize("masks", ["masks", "none"])
def test_without_masks_the_server_sees_each_contribution(masks: str, epsilon: float) -> None:
    privacy = simulate(arrays(), clients=30, epsilon=epsilon, secure_aggregation=masks).privacy
    plain = masks == "none"
    assert ("Each client's" in seen(privacy, "the server")) is plain
    assert ("masked contributions" in seen(privacy, "the server")) is not plain
    if epsilon == 1.0:
        assert ("server sees each client's" in " ".join(privacy["statement"])) is plain
    else:
        assert ("got its contribution as it is" in privacy["not_protected"][0]) is plain
    assert "each client's contribution, too, where there is no secure aggregation" in meaning(
        privacy, "trust"
    )


def test_a_report_names_the_committee(tmp_path: Path) -> None:
    simulate(arrays(), clients=5, quorum=0.8, secure_aggregation="protocol", out=tmp_path)
    page = words_of(tmp_path)
    assert "quorum of a round 4 answers" in page
    assert "committee 4 of 5 members open a sum" in page
    assert "may work with the server 2 of the sites" in page


def test_all_exact_files_are_named_and_no_more_is_bounded_than_is() -> None:
    held = {k: v for k, v in arrays().items() if not k.startswith("test")}
    privacy = simulate(held, clients=30, epsilon=1.0).privacy
    (said,) = [line for line in privacy["statement"] if "held out" in line]
    for name in (
        "result.json",
        "rounds.jsonl",
        "reliability.json",
        "test_probs.npy",
        "report.html",
    ):
        assert name in said
    bounded, _, exact = seen(privacy, "who reads the results").partition("bound.")
    assert "values in rounds.jsonl" in bounded
    assert "test in rounds.jsonl" in exact


def test_the_number_of_fit_rows_is_told_to_be_public() -> None:
    def said(method: str) -> tuple[str, str]:
        privacy = simulate(arrays(), method=method, clients=30, epsilon=1.0).privacy
        return " ".join(privacy["statement"]), " ".join(privacy["not_protected"])

    statement, lost = said("fednewton")
    assert "tell the exact number of fit rows" in statement
    assert "The number of fit rows of the simulated data, unless rows_per_client is given" in lost
    assert not any("fit rows" in text for text in said("fedbin"))
