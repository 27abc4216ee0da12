"""One table, written for a terminal and as HTML; data frames of all results."""

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
