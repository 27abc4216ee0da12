"""One table, written for a terminal and as HTML; data frames of all results."""

from functools import cache
from typing import Any

from rich.progress import Progress

import fedcal
from fedcal.core.pages import Marked, Table
from fedcal.results import terminal
from fedcal.results.terminal import Steps, console


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


HEART: Any = {"partition": "natural", "unit": "example", "epsilon": 8.0}
ASKED: Any = {
    "calibrate": lambda: fedcal.simulate("heart-disease", **HEART),
    "evaluate": lambda: fedcal.evaluate("heart-disease", by="site", **HEART),
    "sets": lambda: fedcal.prediction_sets("heart-disease", **HEART),
    "compare": lambda: fedcal.compare(
        "heart-disease", method="fedtemp", epsilon=8, clients=20, seeds=2, jobs=1, report=False
    ),
    "plan": lambda: fedcal.plan(clients=40, rows_per_client=20, classes=2, methods=["fedtemp"]),
}


@cache
def result(name: str) -> Any:
    return ASKED[name]()


def test_frames_hold_the_numbers():
    made = {name: result(name).to_frame() for name in ASKED}
    run = result("calibrate")
    rows = made["calibrate"].set_index("metric")
    assert rows["before"].to_dict() == run.before
    assert rows["after"].to_dict() == run.after
    assert rows.loc["nll", ["low", "high"]].tolist() == run.intervals["after"]["nll"]
    rows = made["evaluate"].set_index(["rows", "of", "metric"])
    assert (
        rows.loc[("all rows", "model", "accuracy"), "value"]
        == (result("evaluate").metrics["accuracy"]["value"])
    )
    sites = {"all rows", "cleveland", "hungary", "longbeach", "switzerland"}
    assert {*rows.index.get_level_values(0)} == sites
    rows = made["sets"].set_index(["rows", "metric"])
    full = result("sets").evaluated["coverage_by"]["whole"]["all rows"]
    ends = [full[name] for name in ("coverage", "low", "high")]
    assert rows.loc[("all rows", "coverage"), ["after", "low", "high"]].tolist() == ends
    rows = rows["after"]
    assert rows["all rows", "set_size"] == result("sets").after["set_size"]
    assert 0 < rows["site hungary", "coverage"] <= 1
    assert made["compare"]["nll_mean"].tolist() == [
        cell["after"]["nll"]["mean"] for cell in result("compare").cells
    ]
    (line,) = result("plan").to_json()["methods"]
    assert made["plan"].loc[0, "noise"] == line["noise"]
