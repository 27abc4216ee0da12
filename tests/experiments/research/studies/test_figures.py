"""Figures: every curve of every network, places on the axes, and files that publishers take."""

import math
from typing import Any

import study_row

from fedcal.experiments.report.figures.drawing import draw
from fedcal.experiments.research.studies.figures import save, sheet_of
from fedcal.experiments.research.studies.spec import Experiment, Part, Plot, Record, Rows

CELL: Record = {**study_row.CELL, "part": "p", "block": ""}


def experiment(*plots: Plot) -> Experiment:
    part = Part("p", {"FedTemp": "fedtemp", "FedBBQ": "fedbbq", "Base": "none"}, {})
    return Experiment(
        name="f", title="F", about="", networks=("net",), seeds=2, parts=(part,), plots=plots
    )


def cells(**varied: list[Any]) -> Rows:
    ((key, values),) = varied.items()
    titles = ("FedTemp", "FedBBQ")
    return [CELL | {"title": t, key: v} for t in titles for v in values]


def test_each_setting_has_its_place():
    dirichlet = ["dirichlet:0.1", "dirichlet:0.8", "iid"]
    for key, values, ticks in (
        ("rounds", [1, 12, 60], ["1", "12", "60"]),
        ("epsilon", [0.1, 1.0, None], ["0.1", "1", "∞"]),
        ("partition", dirichlet, ["0.1", "0.8", "iid"]),
    ):
        plot = Plot("T", "p", key, "classwise_ece")
        made = sheet_of(experiment(plot), cells(**{key: values})[::-1])
        (ax,) = draw(made).axes
        labels = [t.get_text() for t in ax.get_xticklabels()]
        shown = sorted(zip(ax.get_xticks(), labels, strict=True))
        assert [text for _, text in shown] == ticks
        assert len(ax.lines) == 2
        for line in ax.lines:
            x, y = line.get_data()
            assert list(x) == sorted(x)
            assert list(y) == [2.0] * 3  # per cent
            for place, (tick, _) in zip(x, shown, strict=True):
                assert abs(place - tick) < 0.05 * (ax.get_xlim()[1] - ax.get_xlim()[0])
        assert {text for _, text in made.legend} == {"FedTemp", "FedBBQ"}


def test_baselines_are_lines_across_in_every_panel_of_their_network():
    base = CELL | {"title": "Base", "baseline": True, "rounds": None, "partition": None}
    mine = [*cells(rounds=[1, 12]), base]
    other = [c | {"network": "other", "classwise_ece": [0.5]} for c in mine]
    plots = (Plot("a", "p", "rounds", "classwise_ece"), Plot("b", "p", "rounds", "accuracy"))
    made = sheet_of(experiment(*plots), [*mine, *other])
    assert [p.note for p in made.panels] == ["net", "net", "other", "other"]
    axes = draw(made).axes
    levels = [[m.get_ydata()[0] for m in ax.lines if m.get_label() == "b0"] for ax in axes]
    assert levels == [[2.0], [90.0], [50.0], [90.0]]
    assert made.columns == 2
    assert all(math.isfinite(v) for ax in axes for v in ax.get_yticks())


def test_files_are_whole_and_the_same_each_time(tmp_path):
    made = sheet_of(experiment(Plot("T", "p", "rounds", "accuracy")), cells(rounds=[1, 12]))
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        assert set(save(made, folder, "f")) == {p.name for p in folder.iterdir()}
    for suffix, magic in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF-")):
        first, second = ((tmp_path / f / f"f.{suffix}").read_bytes() for f in "ab")
        assert first.startswith(magic)
        assert first == second
