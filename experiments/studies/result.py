"""What an experiment gives back, and the files it leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.studies import layout
from experiments.studies.cells import printed_rows
from experiments.studies.claims import Verdict, judge, judged
from experiments.studies.maddock.claims import CLAIMS
from experiments.studies.spec import Experiment, Rows
from fedcal.core.pages import Table, Text
from fedcal.results.figures.drawing import Sheet, save_sheets
from fedcal.results.files import in_json, to_json, write_folder
from fedcal.results.page import Page, Section
from fedcal.results.terminal import csv_text, markdown
from fedcal.run.result import versions
from fedcal.storage.atomic import path_of, write_whole

DRAWN = (".png", ".svg", ".pdf")
"""Kinds of the figure's files."""


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
    def tables(self) -> list[Table]:
        """The tables of the result, and the paper's own, where it prints one."""
        return layout.tables_of(self.experiment, self.rows)

    @cached_property
    def sheet(self) -> Sheet | None:
        """The figure, where there is one."""
        return layout.sheet_of(self.experiment, self.rows)

    @property
    def notes(self) -> list[str]:
        """What a reader must know, and what the tables give away."""
        legend = [layout.LEGEND] if self.experiment.parts else []
        return [*legend, *self.experiment.notes, *self.statement]

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
        """Tables, claims and notes."""
        parts = [f"## {self.experiment.title}\n", *map(markdown, self.tables)]
        if self.sheet is not None:
            parts.append(f"![{self.experiment.title}]({self.experiment.name}.svg)\n")
        if self.verdicts:
            parts.append("### Claims\n\n" + "".join(f"* {v}\n" for v in self.verdicts))
        return "\n".join([*parts, "".join(f"* {line}\n" for line in self.notes)])

    def save(self, out: str | Path) -> None:
        """Write NAME.json, .md, .csv and .html, and for a figure .png, .svg and .pdf; all or none.

        Raises
        ------
        FedcalError
            If a file cannot be written.
        """
        stale = [f"{self.experiment.name}{suffix}" for suffix in DRAWN]
        write_folder(path_of(out), self._write, stale=stale)

    def page(self) -> Page:
        """Return its page: figure, tables, claims, notes."""
        told = [v.holds for v in self.verdicts if v.holds is not None]
        sections = [Section("Tables", self.tables)]
        if self.sheet is not None:
            sections.insert(0, Section("Figure", [self.sheet]))
        parts = {
            "Runs that failed": self.failures,
            "Claims": list(map(str, self.verdicts)),
            "Notes": self.notes,
        }
        for title, lines in parts.items():
            if lines:
                sections.append(Section(title, [Text("", tuple(lines))]))
        again = Text("", (f"python -m experiments {self.experiment.name}",), "code")
        sections.append(Section("Run it again", [again]))
        holding = f"{sum(told)} of {len(told)} claims hold everywhere here."
        verdict = holding if told else self.experiment.title
        return Page(self.experiment.title, verdict, sections, versions=versions())

    def _write(self, folder: Path) -> None:
        name = self.experiment.name
        (folder / f"{name}.md").write_text(self.to_markdown(), "utf-8")
        keys = layout.CSV_KEYS if self.experiment.parts else None
        (folder / f"{name}.csv").write_text(csv_text(self.rows, keys), "utf-8")
        if self.sheet is not None:
            save_sheets({name: self.sheet}, folder, DRAWN)
        write_whole(folder / f"{name}.html", self.page().html())
        (folder / f"{name}.json").write_text(to_json(self.to_json()), "utf-8")
