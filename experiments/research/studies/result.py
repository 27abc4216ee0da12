"""What an experiment gives back, and the files it leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcal.core.pages import Table, Text
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.page import Page, Section, Shown
from fedcal.experiments.report.tables import csv_text, markdown
from fedcal.experiments.research.studies import figures, layout
from fedcal.experiments.research.studies.cells import printed_rows
from fedcal.experiments.research.studies.claims import Verdict, judge, judged
from fedcal.experiments.research.studies.maddock.claims import CLAIMS
from fedcal.experiments.research.studies.spec import Experiment, Rows
from fedcal.experiments.runs.files import in_json, to_json, write_folder
from fedcal.experiments.runs.result import versions
from fedcal.storage.atomic import path_of, write_whole

LEGEND = (
    f"Mean (standard deviation over seeds) of the classwise ECE on test rows, in %. {layout.MARK}: "
    "loses more than 1 % of accuracy. Bold: the lowest of its line in its table without that mark, "
    "pooled baselines aside."
)

DRAWN = {
    True: "Whiskers are one standard deviation over seeds; lines across are the model as it is and "
    "calibrators of all rows in one place.",
    False: "Bands, where there are any, are one standard deviation to either side.",
}
"""Whether it is a grid -> what stands above its figure."""


@dataclass(frozen=True)
class Reproduction:
    """An experiment's results.

    Attributes
    ----------
    experiment
        what was run
    rows
        of a grid, see `cells`; or of the function
    statement
        what the tables give away, in whole sentences
    """

    experiment: Experiment
    rows: Rows = field(repr=False)
    statement: list[str] = field(default_factory=list, repr=False)

    @property
    def failures(self) -> list[str]:
        """Messages of runs that failed."""
        return [message for row in self.rows for message in row.get("failures", ())]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdicts on the claims."""
        found = self.experiment
        if found.parts:
            beside = printed_rows(found.paper) if found.paper else []
            return [judge(key, CLAIMS[key], self.rows, beside) for key in found.expected]
        claims = getattr(found.home, "claims", None)
        return [judged(*claim) for claim in claims(self.rows)] if claims and self.rows else []

    @cached_property
    def blocks(self) -> list[Table]:
        """The tables of the result."""
        return layout.blocks_of(self.experiment, self.rows)

    @property
    def printed(self) -> Table | None:
        """The paper's own table, where it prints one."""
        names, paper = "network" if self.experiment.parts else "method", self.experiment.paper
        return layout.printed_block(paper, names) if paper else None

    @cached_property
    def sheet(self) -> Sheet | None:
        """The figure, where there is one."""
        if self.experiment.parts:
            return figures.sheet_of(self.experiment, self.rows)
        sheet = getattr(self.experiment.home, "sheet", None)
        return sheet(self.rows) if sheet and self.rows else None

    @property
    def legend(self) -> str:
        """An explanation of the tables; "" if their headings suffice."""
        return LEGEND if self.experiment.parts else ""

    def to_json(self) -> dict[str, Any]:
        """Return the content of `NAME.json`: strict JSON, metrics as fractions."""
        parts = self.experiment.parts
        cells = [r | {"epsilon": in_json(r["epsilon"])} for r in self.rows] if parts else []
        return {
            "schema": 1,
            "kind": "reproduction",
            "name": self.experiment.name,
            "title": self.experiment.title,
            "cells": cells,
            "rows": [] if cells else self.rows,
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
        """Return the rows as CSV for programs: fractions with all digits."""
        return csv_text(self.rows, layout.CSV_KEYS if self.experiment.parts else None)

    def save(self, out: str | Path) -> None:
        """Write NAME.json, .md, .csv and .html, and for a figure .png, .svg and .pdf; all or none.

        Raises
        ------
        FedcalError
            If a file cannot be written.
        """
        stale = [f"{self.experiment.name}{suffix}" for suffix in figures.SUFFIXES]
        write_folder(path_of(out), self._write, stale=stale)

    def page(self) -> Page:
        """Return its page: figure, tables, claims, the paper's own numbers, notes."""
        told = [v.holds for v in self.verdicts if v.holds is not None]
        holding = f"{sum(told)} of {len(told)} claims hold everywhere here."
        tables: list[Shown] = [Text("", (self.legend,) if self.legend else (), "plain")]
        tables += self.blocks
        if self.failures:
            tables.append(Text("Runs that failed", tuple(self.failures)))
        sections = [Section("Tables", tables)]
        if self.sheet is not None:
            drawn = Text("", (DRAWN[bool(self.experiment.parts)],), "plain")
            sections.insert(0, Section("Figure", [drawn, self.sheet]))
        if self.verdicts:
            claims = Text("", tuple(_said(v).replace("*", "").strip() for v in self.verdicts))
            sections.append(Section("Claims", [claims]))
        if self.printed is not None:
            source = (
                'As printed by Maddock, Cormode and Maple, "Private Federated Multiclass Post-hoc '
                'Calibration". Its marks are omitted.'
            )
            table = replace(self.printed, note=source)
            sections.append(Section("The paper's numbers", [table]))
        notes = Text("", (*self.experiment.notes, *self.statement))
        again = Text("", (f"fedcal reproduce {self.experiment.name}",), "code")
        sections += [Section("Notes", [notes]), Section("Run it again", [again])]
        verdict = holding if told else self.experiment.title
        return Page(self.experiment.title, verdict, sections, versions=versions())

    def _write(self, folder: Path) -> None:
        name = self.experiment.name
        (folder / f"{name}.md").write_text(self.to_markdown(), "utf-8")
        (folder / f"{name}.csv").write_text(self.to_csv(), "utf-8")
        if self.sheet is not None:
            figures.save(self.sheet, folder, name)
        write_whole(folder / f"{name}.html", self.page().html())
        (folder / f"{name}.json").write_text(to_json(self.to_json()), "utf-8")


def _said(verdict: Verdict) -> str:
    where = f" ({verdict.where})" if verdict.where else ""
    own = f"; in the paper's own numbers {verdict.printed}" if verdict.printed else ""
    return f"* {verdict.text}{where} **{verdict.word.capitalize()}**: {verdict.said}{own}."
