"""Reliability data as panels: top label, confidence histogram, one class, all classes.

Parts of a page that are data, drawn: curves and forest plots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.core import naming, numerics, pages
from fedcal.metrics import Reliability
from fedcal.results.figures import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SHOWN_CLASSES = 20
"""Up to so many classes all are shown; of more, the worst."""

FEWEST = 30
"""Rows of a point of a class: neighbouring bins are pooled until they have as many."""

LEGEND = (
    ("perfect", "perfect calibration"),
    ("correct", "share correct"),
    ("over", "overconfident"),
    ("under", "underconfident"),
    ("whisker", "95 % interval of a bin"),
)
CLASS_LEGEND = (("perfect", "perfect calibration"), ("before", "before"), ("after", "after"))
Z = 1.959963984540054


def wilson(
    correct: numerics.Integers, count: numerics.Integers
) -> tuple[numerics.Floats, numerics.Floats]:
    """95 % score interval of shares correct / count, count > 0 (Wilson 1927)."""
    n, share = count.astype(np.float64), correct / count
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * np.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def _unit_axes(x: str, y: str, top: float = 1.0) -> dict[str, Any]:
    """Axes from 0 to 1, upwards to `top`; every tick costs time, so there are few."""
    ends, ticks = {"xlim": (0, 1), "ylim": (0, top)}, np.linspace(0, 1, 3)
    return {"xlabel": x, "ylabel": y, **ends, "xticks": ticks, "yticks": top * ticks}


def diagram(heading: str, data: Reliability) -> drawing.Panel:
    """Share correct against confidence of the top label, by bin of confidence."""
    there = np.flatnonzero(data.count)
    left, right = there / data.bins, (there + 1) / data.bins
    count = data.count[there]
    correct, confidence = data.sum_correct[there] / count, data.sum_confidence[there] / count
    low, high = wilson(data.sum_correct[there], count)
    text = "; ".join(
        f"confidence {c:.3f}: {100 * s:.1f} % of {n} correct"
        for c, s, n in zip(confidence, correct, count, strict=True)
    )

    def plot(ax: Axes) -> None:
        ax.set(**_unit_axes("confidence of the top label", "share correct"))
        drawing.bars(ax, "correct", left, right, 0 * left, correct)
        drawing.bars(ax, "over", left, right, correct, confidence)
        drawing.bars(ax, "under", left, right, confidence, correct)
        drawing.curve(ax, "perfect", (0, 1), (0, 1))
        drawing.whiskers(ax, "whisker", (left + right) / 2, low, high)

    description = f"Reliability diagram, {heading}: ECE {100 * data.ece:.3f} %. {text}."
    return drawing.Panel(heading, plot, description, note=f"top-label ECE {100 * data.ece:.2f} %")


def histogram(heading: str, data: Reliability) -> drawing.Panel:
    """Plot the frequency of each confidence of the top label."""
    edges = np.arange(data.bins + 1) / data.bins
    share = 100 * data.count / max(data.rows, 1)
    text = "; ".join(
        f"{a:.2f} to {b:.2f}: {s:.1f} %"
        for a, b, s in zip(edges[:-1], edges[1:], share, strict=True)
        if s > 0
    )

    def plot(ax: Axes) -> None:
        ax.set(**_unit_axes("confidence of the top label", "% of rows", top=100))
        drawing.bars(ax, "correct", edges[:-1], edges[1:], 0 * share, share)

    description = f"Confidence histogram, {heading}, per cent of {data.rows:,} rows: {text}."
    return drawing.Panel("", plot, description, aspect=0.34)


def reliability_sheet(panels: Mapping[str, Reliability], title: str) -> drawing.Sheet:
    """Diagrams side by side, each over its histogram."""
    both = (make(*one) for make in (diagram, histogram) for one in panels.items())
    return drawing.Sheet(title, len(panels), tuple(both), LEGEND, "reliability")


def class_gaps(data: Reliability) -> numerics.Floats:
    """Each class's own ECE, (classes,); their mean is the classwise ECE."""
    gap = np.abs(data.class_sum_confidence - data.class_sum_correct).sum(axis=1)
    return np.asarray(gap / max(data.rows, 1))


def pooled(
    data: Reliability, j: int
) -> tuple[numerics.Integers, numerics.Floats, numerics.Integers]:
    """Rows, summed probability and rows of class j, of neighbouring bins pooled to `FEWEST` rows.

    Bins are pooled from the left; what is left over at the right joins the last.
    """
    count, after = data.class_count[j], 0
    begins = [0]
    for k, rows in enumerate(count):
        if after >= FEWEST and count[k:].sum() >= FEWEST:
            begins.append(k)
            after = 0
        after += rows
    sums = (count, data.class_sum_confidence[j], data.class_sum_correct[j])
    rows, confidence, correct = (np.add.reduceat(values, begins) for values in sums)
    return rows, confidence, correct


def class_panel(
    j: int, before: Reliability, after: Reliability, names: Sequence[str] | None = None
) -> drawing.Panel:
    """Class j against the rest: its share among rows, by its probability."""
    name = naming.called(names, j)
    lines: list[tuple[Any, ...]] = [("perfect", (0, 1), (0, 1))]
    texts, gaps = [], []
    for series, data in (("before", before), ("after", after)):
        rows, confidence, correct = pooled(data, j)
        lines.append((series, confidence / rows, correct / rows, *wilson(correct, rows)))
        shares = zip(confidence / rows, correct, rows, strict=True)
        words = ", ".join(f"{p:.3f}: {c} of {n}" for p, c, n in shares)
        texts.append(f"{series}, probability: rows of the class of all rows: {words}")
        gaps.append(100 * class_gaps(data)[j])
    count = after.class_sum_correct[j].sum()
    title = f"{name}: {count:,} row{'s' if count != 1 else ''}"
    start = f"{name[0].upper()}{name[1:]}: ECE {gaps[0]:.3f} % before, {gaps[1]:.3f} % after"
    plot = drawing.plotter(lines, **_unit_axes("probability of the class", "share of the class"))
    note = f"ECE {gaps[0]:.2f} → {gaps[1]:.2f} %"
    return drawing.Panel(title, plot, f"{start}. {'; '.join(texts)}.", note=note)


def classes_sheet(
    before: Reliability, after: Reliability, title: str, names: Sequence[str] | None = None
) -> drawing.Sheet:
    """One panel for each class; of many classes, for those with the largest gap of the two."""
    gaps = np.maximum(class_gaps(before), class_gaps(after))
    shown = np.arange(len(gaps))
    if len(gaps) > SHOWN_CLASSES:
        shown = np.argsort(-gaps, kind="stable")[:SHOWN_CLASSES]
    panels = tuple(class_panel(int(j), before, after, names) for j in shown)
    return drawing.Sheet(title, min(4, len(panels)), panels, CLASS_LEGEND, "classes")


FOREST_LEFT = 1.45
"""Inches beside a forest plot for its labels."""

LONGEST = 22
"""Letters of a label of a forest plot; a longer one is cut. What it says in words has all."""

_LINE = 0.15  # inches of a forest plot for each of its lines


def drawn(part: Any, about: str = "") -> Any:
    """Return a curve or forest plot as a sheet of one panel; every other part as it is.

    Parameters
    ----------
    about
        what the title on the sheet begins with; "" = the part's own alone
    """
    if not isinstance(part, (pages.Curve, pages.Intervals)):
        return part
    panel = _forest(part) if isinstance(part, pages.Intervals) else _curve(part)
    series = zip(drawing.METHOD_STYLES, part.series, strict=False)
    references = zip(drawing.BASELINE_STYLES, part.references, strict=False)
    title = f"{about}: {part.title}" if about else part.title
    left = FOREST_LEFT if isinstance(part, pages.Intervals) else drawing.LEFT
    return drawing.Sheet(title, 1, (panel,), (*series, *references), note=part.note, left=left)


def _curve(shown: pages.Curve) -> drawing.Panel:
    lines = (*shown.series.values(), *shown.references.values(), *shown.bands.values())
    shares = all(0 <= n <= 1 for line in lines for point in line for n in point)
    axes: dict[str, Any] = {"xlabel": shown.x, "ylabel": shown.y}
    if shares:  # all of the square, also where there are no points
        axes |= {"xlim": (0, 1), "ylim": (0, 1), "xticks": (0, 0.5, 1), "yticks": (0, 0.5, 1)}
    references = zip(drawing.BASELINE_STYLES, shown.references.values(), strict=False)
    plotted: list[Any] = [(style, *np.transpose(line)) for style, line in references]
    for style, (name, line) in zip(drawing.METHOD_STYLES, shown.series.items(), strict=False):
        ends = np.transpose(shown.bands[name]) if name in shown.bands else ()
        plotted.append((style, *np.transpose(line), *ends))
    words = "; ".join(
        f"{name}: " + ", ".join(f"{x:.4g} {y:.4g}" for x, y in _thinned(line))
        for name, line in shown.series.items()
    )
    text = f"{shown.y} against {shown.x}{', with intervals' if shown.bands else ''}. {words}."
    return drawing.Panel("", drawing.plotter(plotted, **axes), text, aspect=1.0 if shares else 0.75)


def _thinned(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `FEW` of the points, the first and the last among them."""
    chosen = np.unique(
        np.linspace(0, len(line) - 1, min(drawing.FEW, len(line))).round().astype(int)
    )
    return [line[k] for k in chosen]


def _forest(shown: pages.Intervals) -> drawing.Panel:
    labels, many = shown.labels, len(shown.series)

    def plot(ax: Axes) -> None:
        ax.set(xlabel=shown.x, ylim=(len(labels) - 0.5, -0.5))
        cut = [text if len(text) <= LONGEST else text[: LONGEST - 1] + "…" for text in labels]
        ax.set_yticks(range(len(labels)), cut)
        ax.grid(visible=False, axis="y")
        for style, x in zip(drawing.BASELINE_STYLES, shown.references.values(), strict=False):
            ax.axvline(x, label=style, **drawing.look(style))
        for k, (style, lines) in enumerate(
            zip(drawing.METHOD_STYLES, shown.series.values(), strict=False)
        ):
            names, value, low, high = zip(*lines, strict=True)
            y = np.array([labels.index(name) for name in names]) + (k + 0.5) / (2 * many) - 0.25
            mine = drawing.look(style) | {"linestyle": "none"}
            ax.hlines(y, low, high, colors=mine["color"], linewidths=0.9, label=style)
            ax.plot(value, y, label=style, **mine)

    words = "; ".join(
        f"{name}: " + ", ".join(f"{label} {v:.4g} ({a:.4g} to {b:.4g})" for label, v, a, b in lines)
        for name, lines in shown.series.items()
    )
    lines = len(labels) * max(1.0, 0.6 * many)
    return drawing.Panel(
        "", plot, f"{shown.x}, with intervals. {words}.", (0.1 + _LINE * lines) / drawing.WIDTH
    )
