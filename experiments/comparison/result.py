"""What a comparison gives back, and the files it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcal.experiments.comparison.grid import Cell, Grid
from fedcal.experiments.comparison.journal import CONFIG, DONE, ROWS
from fedcal.experiments.comparison.resolve import LeftOut
from fedcal.experiments.comparison.row import Row, key_of, runs_of
from fedcal.experiments.comparison.statement import statement
from fedcal.experiments.comparison.summary import Line, summarise
from fedcal.experiments.comparison.table import as_csv, as_markdown
from fedcal.experiments.figures import COMPARISON_NAMES
from fedcal.experiments.files import to_json, write_folder
from fedcal.experiments.result import versions


@dataclass(frozen=True)
class Comparison:
    """Methods beside each other, over budgets, partitions and seeds.

    Attributes
    ----------
    grid : what was compared
    cells : one for each line of the table, in its order, as in `compare.json`: plain values, ready
        for `pandas.json_normalize`
    rows : one for each run, in the same order, seeds innermost
    statement : what the table gives away, in whole sentences
    """

    grid: Grid
    cells: list[Line] = field(repr=False)
    rows: list[Row] = field(repr=False)
    statement: list[str] = field(repr=False)

    @classmethod
    def of(
        cls,
        grid: Grid,
        cells: Sequence[Cell],
        rows: Mapping[str, Row],
        held_out: Mapping[str, bool],
        left_out: Sequence[LeftOut] = (),
    ) -> Comparison:
        """Sum up finished runs.

        Parameters
        ----------
        cells : resolved
        rows : by `key_of`, one for each cell and seed
        held_out : name of the data -> whether its test rows are held out by seed
        left_out : combinations of the grid that cannot be
        """
        ordered = [rows[key_of(run)] for cell in cells for run in runs_of(cell)]
        lines = [summarise(cell, rows) for cell in cells]
        return cls(grid, lines, ordered, statement(cells, held_out, left_out))

    @property
    def failures(self) -> list[Row]:
        """Runs that failed in operation."""
        return [row for row in self.rows if "error" in row]

    def to_json(self) -> dict[str, Any]:
        """The content of `compare.json`: strict JSON, no NaN and no infinity."""
        config = self.grid.to_dict()
        config["epsilon"] = ["inf" if e == float("inf") else e for e in config["epsilon"]]
        return {
            "schema": 1,
            "kind": "comparison",
            "config": config,
            "statement": self.statement,
            "cells": self.cells,
            "versions": versions(),
        }

    def to_markdown(self) -> str:
        """The table as people read it, and the statement below."""
        return as_markdown(self.cells) + "\n" + "".join(f"* {line}\n" for line in self.statement)

    def to_csv(self) -> str:
        """The table for programs: fractions with all digits, one line for each cell."""
        return as_csv(self.cells)

    def save(self, out: str | Path) -> None:
        """Write `compare.json`, tables, report, grid and rows into a folder; all or none.

        Figures of an earlier comparison there go.
        """
        write_folder(Path(out), self._write, stale=COMPARISON_NAMES)

    def _write(self, folder: Path) -> None:
        from fedcal.experiments.report import write_comparison_report

        def text(name: str, content: str) -> None:
            (folder / name).write_text(content, "utf-8")

        text(CONFIG, self.grid.to_toml())
        text(ROWS, "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in self.rows))
        text(DONE, to_json(self.to_json()))
        text("table.csv", self.to_csv())
        text("table.md", self.to_markdown())
        write_comparison_report(folder)

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        from fedcal.experiments.report import comparison_card

        return comparison_card(self.to_json())
