"""Tables: marks, the best of a line, ratios, and files for programs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from fedcal.experiments.reproduce.cells import Score as Cell
from fedcal.experiments.reproduce.layout import (
    Block,
    Entry,
    as_markdown,
    blocks_of,
    blocks_of_rows,
    cells_csv,
    printed_block,
    rows_csv,
)
from fedcal.experiments.reproduce.registry import experiment
from fedcal.experiments.reproduce.spec import (
    Field,
    GridExperiment,
    Part,
    RowsExperiment,
    RowsTable,
    TitledMethod,
)

COLUMNS = (TitledMethod("none", "Base"), TitledMethod("fedbbq", "A"), TitledMethod("fedtemp", "B"))
POOLED = TitledMethod("pooled-temperature", "pooled")
GRID = GridExperiment(
    name="g",
    title="G",
    about="",
    networks=(),
    seeds=2,
    parts=(Part("p", COLUMNS, {}, "paper"), Part("q", (POOLED,), {}, "ours")),
    reference="pooled",
)


def cell(
    column: TitledMethod, ece: tuple[float, ...], accuracy: float = 0.9, part: str = "p"
) -> Cell:
    baseline = column.method in ("none", "pooled-temperature")
    return Cell(
        network="net",
        part=part,
        block="paper" if part == "p" else "ours",
        row="",
        title=column.title,
        method=column.method,
        baseline=baseline,
        epsilon=None,
        rounds=12,
        sampling_rate=0.1,
        clients=100,
        partition="iid",
        classwise_ece=ece,
        accuracy=(accuracy,) * len(ece),
        accuracy_before=0.9,
    )


BASE, A, B = COLUMNS
CELLS = [
    cell(BASE, (0.05,)),
    cell(A, (0.01, 0.01), accuracy=0.85),
    cell(B, (0.02, 0.04)),
    cell(POOLED, (0.02,), part="q"),
]


def test_the_best_is_sought_among_those_that_keep_accuracy() -> None:
    paper, ours, _ = blocks_of(GRID, CELLS)
    assert paper.headings == ("network", "Base", "A", "B")
    ((name, (base, a, b)),) = paper.lines
    assert name == "net"
    assert (base.text, base.best) == ("5.000", False)
    assert (a.text, a.best, a.marked) == ("1.000 (0.000)", False, True)
    assert (b.text, b.best, b.marked) == ("3.000 (1.414)", True, False)
    assert not ours.lines[0][1][0].best  # a pooled baseline competes with nobody


def test_columns_stand_in_the_experiment_s_order() -> None:
    assert blocks_of(GRID, CELLS[::-1]) == blocks_of(GRID, CELLS)


def test_ratios_are_to_the_reference_of_the_same_network() -> None:
    other = [replace(c, network="other", classwise_ece=(0.03,)) for c in CELLS]
    ratios = blocks_of(GRID, [*CELLS, *other])[-1]
    assert ratios.headings == ("network", "A", "B")
    said = {name: [e.text for e in entries] for name, entries in ratios.lines}
    assert said == {
        "net": ["0.500", "1.500"],
        "other": ["1.000", "1.000"],
        "mean": ["0.750", "1.250"],
    }


def test_a_failed_cell_says_so_and_does_not_win() -> None:
    failed = [*CELLS[:2], replace(CELLS[2], failures=("no",)), CELLS[3]]
    ((_, (base, _, b)),) = blocks_of(GRID, failed)[0].lines
    assert b.text == "failed"
    assert not b.best
    assert not base.best  # alone


def test_markdown() -> None:
    text = as_markdown(blocks_of(GRID, CELLS)[0])
    assert text.splitlines() == [
        "### paper",
        "",
        "| network | Base | A | B |",
        "|---|---:|---:|---:|",
        "| net | 5.000 | 1.000 (0.000)† | **3.000 (1.414)** |",
    ]


def test_a_bar_in_a_name_does_not_break_the_table() -> None:
    assert r"| a\|b | 1 |" in as_markdown(Block("", ("x", "y"), (("a|b", (Entry("1"),)),)))


def test_csv_holds_fractions_with_all_digits() -> None:
    lines = {line["title"]: line for line in csv.DictReader(io.StringIO(cells_csv(CELLS)))}
    assert list(lines) == ["Base", "A", "B", "pooled"]
    assert float(lines["B"]["classwise_ece_mean"]) == pytest.approx(0.03)
    assert lines["A"]["loses_accuracy"] == "True"


def test_the_paper_s_table_is_printed_as_it_stands() -> None:
    paper = experiment("maddock-table3").paper
    assert paper is not None
    block = printed_block(paper, "network")
    said = dict(block.lines)
    assert [e.text for e in said["SVHN (18)"]] == [
        *("2.05", "6.89 (0.64)", "2.047 (0.002)", "9.955 (0.034)", "2.396 (0.528)"),
        "2.007 (0.025)",
    ]


def test_rows_are_selected_and_shown() -> None:
    fields = (Field("method", "method"), Field("ece", "ECE, %", digits=2, factor=100))
    table = RowsTable("T", fields, {"what": "run"})
    found = RowsExperiment(name="r", title="R", about="", module="nowhere", tables=(table,))
    rows = [
        {"what": "run", "method": "m", "ece": 0.01234},
        {"what": "run", "method": "n", "ece": None},
        {"what": "other", "x": 1},
    ]
    (block,) = blocks_of_rows(found, rows)
    assert [(name, e.text) for name, (e,) in block.lines] == [("m", "1.23"), ("n", "")]
    head, *lines = rows_csv(rows).splitlines()
    assert head == "what,method,ece,x"
    assert "other,,,1" in lines
