"""What an experiment gives back, and the files it leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcal.experiments.figures.drawing import Sheet
from fedcal.experiments.files import to_json, write_folder
from fedcal.experiments.report.page import figure, write_page
from fedcal.experiments.reproduce import figures, layout
from fedcal.experiments.reproduce.cells import Score, printed_scores
from fedcal.experiments.reproduce.claims import Verdict, judge, judged
from fedcal.experiments.reproduce.maddock import CLAIMS
from fedcal.experiments.reproduce.spec import Experiment, GridExperiment, Rows, RowsExperiment
from fedcal.experiments.result import versions
from fedcal.experiments.show.tables import TextTable, markdown

LEGEND = (
    f"Mean (standard deviation over seeds) of the classwise ECE on test rows, in %. {layout.MARK}: "
    "loses more than 1 % of accuracy. Bold: the lowest of its line in its table without that mark, "
    "pooled baselines aside."
)

DRAWN = {
    GridExperiment: "Whiskers are one standard deviation over seeds; lines across are the model as "
    "it is and calibrators of all rows in one place.",
    RowsExperiment: "Bands, where there are any, are one standard deviation to either side.",
}
"""What stands above a figure."""


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
    def blocks(self) -> list[TextTable]:
        """The tables."""
        if isinstance(self.experiment, RowsExperiment):
            return layout.blocks_of_rows(self.experiment, self.rows)
        return layout.blocks_of(self.experiment, self.cells)

    @property
    def printed(self) -> TextTable | None:
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
        parts = [f"## {self.experiment.title}\n", *map(markdown, self.blocks)]
        if self.legend:
            parts.append(f"{self.legend}\n")
        if self.sheet is not None:
            parts.append(f"![{self.experiment.title}]({name}.svg)\n")
        if self.verdicts:
            parts.append("### Claims\n\n" + "\n".join(map(_said, self.verdicts)) + "\n")
        if self.printed is not None:
            parts.append(markdown(self.printed))
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

    def page(self) -> dict[str, Any]:
        """What the page shows, which the template lays out."""
        told = [v.holds for v in self.verdicts if v.holds is not None]
        holding = f"{sum(told)} of {len(told)} claims hold everywhere here."
        return {
            "title": self.experiment.title,
            "name": self.experiment.name,
            "verdict": holding if told else self.experiment.title,
            "blocks": self.blocks,
            "printed": self.printed,
            "legend": self.legend,
            "sheet": None if self.sheet is None else figure(self.sheet, "s"),
            "drawn": DRAWN[type(self.experiment)],
            "verdicts": self.verdicts,
            "notes": self.experiment.notes,
            "statement": self.statement,
            "failures": self.failures,
            "versions": versions(),
        }

    def _write(self, folder: Path) -> None:
        name = self.experiment.name
        (folder / f"{name}.md").write_text(self.to_markdown(), "utf-8")
        (folder / f"{name}.csv").write_text(self.to_csv(), "utf-8")
        if self.sheet is not None:
            figures.save(self.sheet, folder, name)
        write_page(folder / f"{name}.html", "reproduction.html.j2", **self.page())
        (folder / f"{name}.json").write_text(to_json(self.to_json()), "utf-8")


def _said(verdict: Verdict) -> str:
    where = f" ({verdict.where})" if verdict.where else ""
    own = f"; in the paper's own numbers {verdict.printed}" if verdict.printed else ""
    return f"* {verdict.text}{where} **{verdict.word.capitalize()}**: {verdict.said}{own}."
