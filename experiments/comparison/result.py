"""What a comparison gives back, and the files it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from fedcal.datasets import Dataset
from fedcal.experiments.comparison.grid import Grid
from fedcal.experiments.comparison.headline import headline
from fedcal.experiments.comparison.resolve import Resolved
from fedcal.experiments.comparison.statement import statement
from fedcal.experiments.comparison.summary import Line, summarise
from fedcal.experiments.comparison.table import as_csv, as_markdown
from fedcal.experiments.figures import COMPARISON_NAMES
from fedcal.experiments.files import to_json, write_folder
from fedcal.experiments.result import versions
from fedcal.experiments.runs import Row
from fedcal.experiments.runs.journal import CONFIG, ROWS

DONE = "compare.json"
"""The summary, which is there when all runs are finished."""

FINAL = ("table.csv", "table.md", "report.html")
"""What a finished comparison leaves besides."""


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
        cls, grid: Grid, resolved: Resolved, sources: Mapping[str, Dataset], rows: Sequence[Row]
    ) -> Comparison:
        """Sum up finished runs.

        Parameters
        ----------
        resolved : what of the grid was run
        sources : its data by name
        rows : one for each cell and seed, in this order
        """
        following = iter(rows)
        cells = [summarise(c, list(islice(following, len(c.seeds)))) for c in resolved.cells]
        held_out = {name: source.test_scores is None for name, source in sources.items()}
        return cls(grid, cells, list(rows), statement(resolved.cells, held_out, resolved.left_out))

    @property
    def failures(self) -> list[Row]:
        """Runs that failed in operation."""
        return [row for row in self.rows if "error" in row]

    @property
    def headline(self) -> str:
        """Which method did best, in a sentence."""
        return headline(self.cells)

    def to_json(self) -> dict[str, Any]:
        """The content of `compare.json`: strict JSON, no NaN and no infinity."""
        config = self.grid.to_dict()
        config["epsilon"] = ["inf" if e == float("inf") else e for e in config["epsilon"]]
        return {
            "schema": 1,
            "kind": "comparison",
            "config": config,
            "headline": self.headline,
            "statement": self.statement,
            "cells": self.cells,
            "versions": versions(),
        }

    def to_markdown(self) -> str:
        """The headline, the table as people read it, and the statement below."""
        sentences = "".join(f"* {line}\n" for line in self.statement)
        return f"{self.headline}\n\n{as_markdown(self.cells)}\n{sentences}"

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
