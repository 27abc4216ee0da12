"""What an experiment gives back, and the files it leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcal.experiments.figures.panel import Sheet
from fedcal.experiments.files import to_json, write_folder
from fedcal.experiments.reproduce import figures, layout
from fedcal.experiments.reproduce.cells import Score, printed_scores
from fedcal.experiments.reproduce.claims import Verdict, judge, judged
from fedcal.experiments.reproduce.maddock import CLAIMS
from fedcal.experiments.reproduce.spec import Experiment, GridExperiment, Rows, RowsExperiment
from fedcal.experiments.result import versions

LEGEND = (
    f"Mean (standard deviation over seeds) of the classwise ECE on test rows, in %. {layout.MARK}: "
    "loses more than 1 % of accuracy. Bold: the lowest of its line in its table without that mark, "
    "pooled baselines aside."
)


@dataclass(frozen=True)
class Reproduction:
    """An experiment's results.

    Attributes
    ----------
    experiment : what was run
    cells : of a grid, one for each method, network and setting
    rows : of a function
    statement : what the tables give away, in whole sentences
    """

    experiment: Experiment
    cells: list[Score] = field(repr=False)
    rows: Rows = field(repr=False)
    statement: list[str] = field(repr=False)

    @property
    def failures(self) -> list[str]:
        """Messages of runs that failed."""
        return [message for cell in self.cells for message in cell.failures]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """What became of the claims."""
        found = self.experiment
        if isinstance(found, RowsExperiment):
            return [judged(*claim) for claim in found.claims(self.rows)]
        beside = [] if found.paper is None else printed_scores(found.paper)
        return [judge(key, CLAIMS[key], self.cells, beside) for key in found.expected]

    @cached_property
    def blocks(self) -> list[layout.Block]:
        """The tables."""
        if isinstance(self.experiment, RowsExperiment):
            return layout.blocks_of_rows(self.experiment, self.rows)
        return layout.blocks_of(self.experiment, self.cells)

    @property
    def printed(self) -> layout.Block | None:
        """The paper's own table, where it prints one."""
        if self.experiment.paper is None:
            return None
        lines = "network" if isinstance(self.experiment, GridExperiment) else "method"
        return layout.printed_block(self.experiment.paper, lines)

    @cached_property
    def sheet(self) -> Sheet | None:
        """The figure, where there is one."""
        if isinstance(self.experiment, RowsExperiment):
            return self.experiment.sheet(self.rows)
        return figures.sheet_of(self.experiment, self.cells)

    @property
    def legend(self) -> str:
        """How to read the tables; "" where headings say it."""
        return LEGEND if isinstance(self.experiment, GridExperiment) else ""

    def to_json(self) -> dict[str, Any]:
        """The content of `NAME.json`: strict JSON, metrics as fractions."""
        return {
            "schema": 1,
            "kind": "reproduction",
            "name": self.experiment.name,
            "title": self.experiment.title,
            "cells": [cell.to_json() for cell in self.cells],
            "rows": self.rows,
            "claims": [asdict(verdict) for verdict in self.verdicts],
            "notes": list(self.experiment.notes),
            "statement": self.statement,
            "versions": versions(),
        }

    def to_markdown(self) -> str:
        """Tables, claims, and the paper's table below."""
        name = self.experiment.name
        parts = [f"## {self.experiment.title}\n", *map(layout.as_markdown, self.blocks)]
        if self.legend:
            parts.append(f"{self.legend}\n")
        if self.sheet is not None:
            parts.append(f"![{self.experiment.title}]({name}.svg)\n")
        if self.verdicts:
            parts.append("### Claims\n\n" + "\n".join(map(_said, self.verdicts)) + "\n")
        if self.printed is not None:
            parts.append(layout.as_markdown(self.printed))
        parts.append("".join(f"* {line}\n" for line in (*self.experiment.notes, *self.statement)))
        return "\n".join(part for part in parts if part)

    def to_csv(self) -> str:
        """For programs: fractions with all digits."""
        if isinstance(self.experiment, RowsExperiment):
            return layout.rows_csv(self.rows)
        return layout.cells_csv(self.cells)

    def save(self, out: str | Path) -> None:
        """Write NAME.json, .md, .csv and .html, and for a figure .png, .svg and .pdf; all or none.

        Raises
        ------
        FedcalError
            If a file cannot be written.
        """
        stale = [f"{self.experiment.name}{suffix}" for suffix in figures.SUFFIXES]
        write_folder(Path(out), self._write, stale=stale)

    def _write(self, folder: Path) -> None:
        from fedcal.experiments.reproduce.page import write_page

        name = self.experiment.name
        (folder / f"{name}.md").write_text(self.to_markdown(), "utf-8")
        (folder / f"{name}.csv").write_text(self.to_csv(), "utf-8")
        if self.sheet is not None:
            figures.save(self.sheet, folder, name)
        write_page(self, folder / f"{name}.html")
        (folder / f"{name}.json").write_text(to_json(self.to_json()), "utf-8")


def _said(verdict: Verdict) -> str:
    where = f" ({verdict.where})" if verdict.where else ""
    own = f"; in the paper's own numbers {verdict.printed}" if verdict.printed else ""
    return f"* {verdict.text}{where} **{verdict.word.capitalize()}**: {verdict.said}{own}."
