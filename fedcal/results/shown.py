"""What every result gives a person: a verdict, parts, a record; and so cards, frames, plots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.core import checks, imports
from fedcal.results.figures.drawing import draw
from fedcal.results.page import Page, Section, Shown

if TYPE_CHECKING:
    from pandas import DataFrame


class Displayable(ABC):
    """A base of results. Who writes another kind of result writes no renderer.

    Attributes
    ----------
    title
        what the result is of
    verdict
        what it says, in words first
    parts
        of its page: tables, figures, texts
    record
        plain data: what its JSON file holds
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is of."""

    @property
    @abstractmethod
    def verdict(self) -> str:
        """What it says, in words first."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Section | Shown]:
        """Parts of its page, from top to bottom."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""

    @property
    def record(self) -> dict[str, Any]:
        """All of it as plain data."""
        return self.to_json()

    @abstractmethod
    def _lines(self) -> Sequence[Mapping[str, Any]]:
        """Return the numbers of the result, by column."""

    def _card(self) -> Page:
        """Return what a notebook shows."""
        return Page(self.title, self.verdict, self.parts)

    def _repr_html_(self) -> str:
        return self._card().html(card=True)

    def to_frame(self) -> DataFrame:
        """Return the numbers as a pandas DataFrame; InputError without pandas or numbers."""
        pandas = imports.need("pandas", "frames", "to_frame")
        if not (lines := self._lines()):
            raise checks.InputError("this result has no numbers here: no rows judged it")
        frame: DataFrame = pandas.json_normalize(lines)
        return frame

    def plot(self, figure: str | None = None) -> Any:
        """Draw one of the figures, in colours that colour-blind people can tell apart.

        Parameters
        ----------
        figure : str, optional
            Which; a name that is none lists them. None = the first.

        Returns
        -------
        Axes, or array of Axes where there are several panels

        Raises
        ------
        InputError
            There is no such figure.
        """
        sheets = Page(self.title, "", self.parts, about=self.title).figures()
        if not sheets:
            raise checks.InputError("this result has no figure; to_frame() has its numbers")
        sheet = sheets[checks.one_of("figure", figure or next(iter(sheets)), sheets)]
        from matplotlib import pyplot

        axes = draw(sheet, on=pyplot.figure()).axes  # made under the user's settings
        return axes[0] if len(axes) == 1 else np.array(axes)


def lines_of(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of a `result.json`: a line for each metric of all rows, a group, a class.

    An interval is that of the value, or of the number after calibration.
    """
    if "after" not in told:
        parts = {"all rows": told, **told.get("groups", {})}
        return [
            {"rows": part, "of": key[8:] or "model", "metric": metric}
            | {name: one[name] for name in ("value", "low", "high")}
            for part, content in parts.items()
            for key, metrics in content.items()
            if key.startswith("metrics")
            for metric, one in metrics.items()
        ]
    covered, names = told.get("coverage_by", {}), told.get("class_names")
    ends = dict((told.get("intervals") or {}).get("after", {}))
    for one in covered.get("whole", {}).values():  # of all rows
        ends["coverage"] = (one["low"], one["high"])
    lines = [
        {"rows": "all rows", "metric": metric, "before": told["before"].get(metric), "after": value}
        | dict(zip(("low", "high"), ends.get(metric, (None, None)), strict=True))
        for metric, value in told["after"].items()
    ]
    for by, parts in covered.items():
        for part, one in parts.items() if by != "whole" else ():
            which = names[int(part)] if names and by == "class" else part
            found = {"after": one["coverage"], "low": one["low"], "high": one["high"]}
            lines.append({"rows": f"{by} {which}", "metric": "coverage", **found})
    return lines
