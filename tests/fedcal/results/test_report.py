"""Reports are built from a result folder alone, honest, escaped, and self-contained."""

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared import cell
from html_page import page_of
from made_up import halves
from rich.progress import Progress

import fedcal
from fedcal import simulate
from fedcal.core.pages import Marked, Table
from fedcal.results import terminal
from fedcal.results.comparison import as_table, cells_of
from fedcal.results.figures import curves
from fedcal.results.labels import metric_table, signed
from fedcal.results.page import Page
from fedcal.results.terminal import Steps, console
from fedcal.run import result
from fedcal.run.folders import write_report

FIGURES = {f"{n}.{s}" for n in ("reliability", "classes", "rounds") for s in ("png", "svg")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    simulate(halves(4, 300, 11, 1.5), method="fednewton", clients=30, epsilon=1.0, seed=3, out=out)
    return out


@pytest.fixture
def copy(made, tmp_path):
    for name in ("result.json", "reliability.json", "rounds.jsonl"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    return tmp_path


def result_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    return content


def metric_entries(result: dict[str, Any]) -> list[Any]:
    return list(metric_table(result).rows)


def test_a_saved_run_s_report_can_be_made_again_from_its_files(made, copy):
    assert (made / "report.html").stat().st_size < 2**20
    assert write_report(copy) == copy / "report.html"
    for name in ("report.html", *FIGURES):
        assert (copy / name).read_bytes() == (made / name).read_bytes()


def test_no_report_tells_where_the_data_lie_on_this_disk(tmp_path):
    np.savez(tmp_path / "rows.npz", **halves(3, 60, 2, 1.0))
    result = simulate(tmp_path / "rows.npz", clients=4, method="fedtemp")
    result.save(tmp_path / "out")
    report = tmp_path / "out" / "report.html"
    for path in (report, write_report(report.parent)):
        text = path.read_text("utf-8")
        assert "../rows.npz" in text
        assert str(tmp_path) not in text


def test_of_many_probabilities_fewer_rounds_are_evaluated(monkeypatch):
    monkeypatch.setattr(result, "_EVALUATED_ENTRIES", 1)
    found = simulate(halves(3, 60, 2, 1.0), clients=4, method="fednewton", epsilon=1.0)
    tested = [record["round"] for record in found.evaluated_rounds() if "test" in record]
    assert tested == [1, len(found.rounds)]


def test_a_histogram_stands_below_its_reliability_diagram(made):
    page = (made / "report.html").read_text("utf-8")
    reliability, *_ = re.findall(r'<div class="figures.*?</div>', page, re.DOTALL)
    assert reliability.count("<svg") == 2 * reliability.count("<figure")


def test_it_is_self_contained(made):
    page = page_of(made / "report.html")
    assert set(page.tags) & {"script", "img", "iframe", "object", "embed", "base", "form"} == set()
    assert all(a.startswith(("#", "data:")) for a in page.addresses)
    text = (made / "report.html").read_text("utf-8")
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) == {"#"}
    assert re.findall(r"https?://[^\"]*", text.replace("http://www.w3.org/2000/svg", "")) == []
    assert "default-src 'none'" in html.unescape(text)


EVIL = "<script>alert('1')</script>\"'&"


def poison(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: poison(v) for k, v in value.items()}
    if isinstance(value, list):
        return [poison(v) for v in value]
    return value + EVIL if isinstance(value, str) and value != "inf" else value


def test_words_from_files_are_escaped(copy, tmp_path):
    (copy / "result.json").write_text(json.dumps(poison(result_of(copy))), "utf-8")
    (tmp_path / "compared").mkdir()
    hostile = json.dumps(poison(compared()) | {"kind": "comparison"})
    (tmp_path / "compared" / "compare.json").write_text(hostile, "utf-8")
    for folder in (copy, tmp_path / "compared"):
        page = page_of(write_report(folder))
        assert "script" not in page.tags
        assert EVIL in page.text


def test_better_is_reported_only_where_the_interval_says_so(made):
    names = ("accuracy", "ece", "classwise_ece", "nll", "brier")
    for metric, ends, change, says in (
        ("ece", [-0.02, -0.01], -0.015, "better"),
        ("ece", [0.01, 0.02], 0.015, "worse"),
        ("accuracy", [0.01, 0.02], 0.015, "better"),
        ("nll", [-0.01, 0.02], 0.005, "no clear change"),
        ("nll", [0.0, 0.0], 0.0, "unchanged"),
    ):
        result = result_of(made)
        result["after"][metric] = result["before"][metric] + change
        result["intervals"]["difference"][metric] = ends
        assert metric_entries(result)[names.index(metric)][3].mark == says
    result["after"]["ece"] = 0.02
    for ends, why in (([0.001, 0.015], "; noise inflates the number"), ([0.001, 0.021], "")):
        result["intervals"]["after"]["ece"] = ends
        assert metric_entries(result)[1][2].small.endswith(f" to {100 * ends[1]:.1f}{why}")
    signs = [signed("ece", -0.015), signed("nll", 0.015), signed("ece", -1e-9)]
    assert signs == ["−1.50", "+0.0150", "0.00"]


def compared() -> dict[str, Any]:
    baseline = {"baseline": True, "partition": None, "clients": None, "bytes_up": 0}
    failed = {"after": {}, "seeds": [], "bytes_up": None, "seconds": {"mean": None, "std": None}}
    cells = [
        cell("none", "inf", 0.0475, **baseline),
        cell("fedtemp", 1.0, 0.0355),
        cell("fednewton", 1.0, 0.0101),
        {**cell("fedtemp", "inf", 0.06), "epsilon": None},  # as older files have it
        cell("fednewton", "inf", 0.0112),
        cell("fedbin", 1.0, 0.0, **failed, failures=[{"seed": 0, "error": "nobody answered"}]),
    ]
    statement = ["Publishing all cells adds their budgets up."]
    versions = {"fedcal": "0.1.0"}
    return {"schema": 1, "kind": "comparison", "cells": cells, "statement": statement} | {
        **{"versions": versions, "headline": "Smallest is fednewton, at epsilon = 1."}
    }


def test_groups_do_not_learn_what_follows_from_their_trust_model():
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


def test_sets_of_a_method_that_this_process_does_not_know_are_shown_as_sets():
    columns = ("coverage", "set_size", "singletons", "empty")
    after = {key: {"mean": 0.9, "std": 0.0} for key in columns}
    assert "one label %" in as_table([cell("theirs", 1.0, 0.0, after=after)]).columns


def test_a_cell_with_failures_has_no_star_and_says_how_many_ran():
    failed = [{"seed": s, "error": "nobody answered"} for s in (1, 2, 3, 4)]
    cells = [
        cell("lucky", 1.0, 0.001, seeds=[0], failures=failed),
        cell("fedtemp", 1.0, 0.03, seeds=[0, 1, 2, 3, 4]),
        cell("fednewton", 1.0, 0.02, seeds=[0, 1, 2, 3, 4]),
    ]
    table = as_table(cells_of(cells), ["ece", "classwise_ece", "nll"])
    rows = list(table.rows)
    stars = {name.text: [entry.best for entry in row[1:]] for name, *row in rows}
    assert stars == {"lucky": [False] * 3, "fedtemp": [False] * 3, "fednewton": [True] * 3}
    assert [name.small for name, *_ in rows] == ["4 of 5 failed", "", ""]
    assert "lucky<small>4 of 5 failed</small>" in Page("", "", [table]).html(card=True)


# -- on a terminal, and as frames -----------------------------------------------------------------


def test_no_text_controls_the_terminal(capsys):
    bad = "x\x1b[31m[red]\nrow\u202e"
    to = console()
    terminal.print_table(to, Table(bad, (bad, "b"), [(bad, Marked(bad, mark=bad))]))
    to.print(f"fedcal: {bad}")
    for number in (1, 2):
        progress = Steps(bad, Progress(disable=True))
        progress(number, 2, bad)
        assert "\x1b" not in progress._line
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "x\\x1b[31m[red]\\nrow\\u202e" in shown  # in a cell also of one line


def test_in_a_terminal_words_stand_left_and_numbers_right(capsys):
    rows = [("none", "9.5"), ("fednewton", "100.25")]
    terminal.print_table(console(), Table("", ("method", "ECE, %"), rows, left=(0,)))
    shown = capsys.readouterr().out
    assert "│ none      │" in shown
    assert "│    9.5 │" in shown


def test_a_table_in_latex_is_one_of_booktabs_and_no_word_is_a_command():
    evil = r"50 % of $x_1$ & {~\input|#}^"
    rows = [[Marked(evil, mark="†"), Marked("0.31", best=True, small="± 0.02")], ["b", 1]]
    table = Table("title", ("method", "loss, ε"), rows, "† collapsed.", (0,), {1: ""})
    text = r"50 \% of \$x\_1\$ \& \{\textasciitilde{}\textbackslash{}input|\#\}\textasciicircum{}"
    assert terminal.latex(table, "a\nb").split("\n") == [
        r"% a\nb",
        *(r"\begin{tabular}{lr}", r"\toprule", r"method & loss, $\varepsilon$ \\", r"\midrule"),
        text + r"$^\dagger$ & \textbf{0.31 $\pm$ 0.02} \\",
        *(r"\midrule", r"b & 1 \\", r"\bottomrule", r"\end{tabular}"),
        *("", r"$^\dagger$ collapsed.", ""),
    ]


HEART: Any = {"partition": "natural", "unit": "example", "epsilon": 8.0}


def test_frames_hold_the_numbers():
    run = fedcal.simulate("heart-disease", **HEART)
    rows = run.to_frame().set_index("metric")
    assert rows["after"].to_dict() == run.after
    assert rows.loc["nll", ["low", "high"]].tolist() == run.intervals["after"]["nll"]
    model = fedcal.evaluate("heart-disease", by="site", **HEART)
    rows = model.to_frame().set_index(["rows", "of", "metric"])
    accuracy = rows.loc[("all rows", "model", "accuracy"), "value"]
    assert accuracy == model.metrics["accuracy"]["value"]
    sets = fedcal.prediction_sets("heart-disease", **HEART)
    rows = sets.to_frame().set_index(["rows", "metric"])
    full = sets.evaluated["coverage_by"]["whole"]["all rows"]
    ends = [full[name] for name in ("coverage", "low", "high")]
    assert rows.loc[("all rows", "coverage"), ["after", "low", "high"]].tolist() == ends
    assert 0 < rows.loc[("site hungary", "coverage"), "after"] <= 1
