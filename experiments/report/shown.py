"""What every result gives a notebook and a paper: a data frame, and its figures on axes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.core.pages import Curve, Part, Table
from fedcal.experiments.report.figures.drawing import Sheet, draw, draw_on
from fedcal.experiments.report.figures.part_panels import part_sheet

if TYPE_CHECKING:
    from pandas import DataFrame


class Shown(ABC):
    """A base of results: each says its lines and its figures."""

    @abstractmethod
    def _lines(self) -> Sequence[Mapping[str, Any]]:
        """Return the numbers of the result, by column."""

    def _figures(self) -> Mapping[str, Sheet]:
        """Return figures by name, the main one first."""
        return {}

    def to_frame(self) -> DataFrame:
        """Return the numbers as a pandas DataFrame; InputError without pandas or numbers."""
        pandas = need("pandas", "frames", "to_frame")
        if not (lines := self._lines()):
            raise InputError("this result has no numbers here: no rows judged it")
        frame: DataFrame = pandas.json_normalize(lines)
        return frame

    def plot(self, figure: str | None = None, *, ax: Any = None) -> Any:
        """Draw one of the figures, in colours that colour-blind people can tell apart.

        Parameters
        ----------
        figure : str, optional
            Which; a name that is none lists them. None = the first.
        ax : Axes or sequence of Axes, optional
            Where: as many as the figure has panels. None = a new figure of pyplot, which a
            notebook shows.

        Returns
        -------
        Axes, or array of Axes where there are several panels

        Raises
        ------
        InputError
            There is no such figure, or there are too few axes for it.
        """
        sheets = self._figures()
        if not sheets:
            raise InputError("this result has no figure; to_frame() has its numbers")
        sheet = sheets[next(iter(sheets)) if figure is None else one_of("figure", figure, sheets)]
        if ax is None:
            from matplotlib import pyplot

            axes = draw(sheet, on=pyplot.figure()).axes  # made under the user's settings
        else:
            axes = list(np.ravel(ax))
            if len(axes) != len(sheet.panels):
                raise InputError(f"the figure has {len(sheet.panels)} panels, ax {len(axes)} Axes")
            draw_on(sheet, axes)
        return axes[0] if len(axes) == 1 else np.array(axes)


def figures_of(parts: Sequence[Part], title: Callable[[str], str]) -> dict[str, Sheet]:
    """Return the figures among parts of a page by their titles, intervals before curves."""
    drawn = [part for part in parts if not isinstance(part, Table)]
    ordered = sorted(drawn, key=lambda part: isinstance(part, Curve))
    return {part.title: part_sheet(part, title(part.title)) for part in ordered}


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
    ends, covered_by = (told.get("intervals") or {}).get("after", {}), told.get("coverage_by", {})
    for one in covered_by.get("whole", {}).values():  # of all rows
        ends = {"coverage": (one["low"], one["high"])}
    lines = [
        {"rows": "all rows", "metric": metric, "before": told["before"].get(metric), "after": value}
        | dict(zip(("low", "high"), ends.get(metric, (None, None)), strict=True))
        for metric, value in told["after"].items()
    ]
    names = told.get("class_names")
    for by, covered in covered_by.items():
        named = names if by in ("class", "alone") else None
        for part, one in covered.items() if by != "whole" else ():
            which = f"{by} {named[int(part)] if named else part}"
            found = {"after": one["coverage"], "low": one["low"], "high": one["high"]}
            lines.append({"rows": which, "metric": "coverage", **found})
    return lines
