"""Figures 1 to 3 of Luo et al.: ECE against sources, samples of each, and epsilon.

One row of panels for each of the perturbations that the paper shows, and one over all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from fedcal.experiments.report.figures.curves import NAMES
from fedcal.experiments.report.figures.drawing import Panel, Sheet, curve, level
from fedcal.experiments.report.figures.style import BASELINE_STYLES, LINES, METHOD_STYLES
from fedcal.experiments.research.luo.methods import BASELINES, PAPER, Competitor
from fedcal.experiments.research.luo.settings import SWEEPS
from fedcal.experiments.research.studies import luo
from fedcal.experiments.research.studies.spec import Record, RowsClaim
from fedcal.trust import Central, Local

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEVERITY = 5
SHOWN = ("fog", "jpeg_compression", "motion_blur")
"""Perturbations of Figures 1, 2 and 3; where they are missing, the first three there are."""

COLUMNS = (
    *(Competitor(m, "" if m in BASELINES else Local.name) for m in PAPER),
    Competitor("acc-t", Central.name),
)
ALL = "mean over all"
BANDED = "acc-t"
"""Whose spread is drawn; with all of them nothing can be told apart."""

_LABELS = {
    "sources": "private data sources",
    "samples": "samples of each source",
    "epsilon": "epsilon",
}


def shown(found: list[Record]) -> list[Record]:
    """The points of the figure.

    Returns
    -------
    list of dict
        Those of `found` for the data that are shown, and for `data` = "mean over all", where the
        standard deviations are those over data of the means over trials.
    """
    there = list(dict.fromkeys(row["data"] for row in found))
    names = [name for name in SHOWN if name in there] or there[:3]
    return [*(row for row in found if row["data"] in names), *_over_all(found)]


rows = luo.experiment(SEVERITY, COLUMNS, shown)
"""The points; its parameters are those of `luo.experiment`'s."""


def _over_all(found: Sequence[Record]) -> list[Record]:
    """Mean and standard deviation over data, for each setting that all of them have."""
    data = {row["data"] for row in found}
    rows = []
    for key in dict.fromkeys(luo.setting_of(row) for row in found):
        mine = [row for row in found if luo.setting_of(row) == key]
        if len(mine) < len(data):
            continue
        row = {**mine[0], "data": ALL}
        for c in COLUMNS:
            values = [float(r[c.key]) for r in mine]
            row |= {c.key: fmean(values), f"{c.key} std": pstdev(values)}
        rows.append(row)
    return rows


def sheet(found: Sequence[Record]) -> Sheet | None:
    """A row of three panels for each of the data.

    Data with few rows lack settings, and perhaps a whole sweep: only sweeps of which all data
    have a setting are drawn. None if there is no such sweep.
    """
    sweeps = [s for s in SWEEPS if any(r["data"] == ALL and r["sweep"] == s for r in found)]
    if not sweeps:
        return None
    fitted = [c for c in COLUMNS if c.noise]
    plain = [c for c in COLUMNS if not c.noise]
    looks = dict(zip(fitted, METHOD_STYLES, strict=False))
    looks |= dict(zip(plain, BASELINE_STYLES, strict=False))
    panels = [
        _panel([r for r in found if r["data"] == name and r["sweep"] == sweep], sweep, looks)
        for name in dict.fromkeys(row["data"] for row in found)
        for sweep in sweeps
    ]
    legend = tuple((looks[c], _name(c)) for c in COLUMNS)
    title = "ECE under privacy and domain shift"
    return Sheet(title, len(sweeps), tuple(panels), legend)


def _name(c: Competitor) -> str:
    title = luo.TITLES[c.method]
    return f"{title}, central noise" if c.noise == Central.name else title


def _panel(rows: Sequence[Record], sweep: str, looks: dict[Competitor, str]) -> Panel:
    x = [float(row[sweep]) for row in rows]
    means = {c: [100 * float(row[c.key]) for row in rows] for c in looks}

    def plot(ax: Axes) -> None:
        ax.set(xlabel=_LABELS[sweep], ylabel=NAMES["ece"])
        for c, style in looks.items():
            if c.method == "none":
                level(ax, style, fmean(means[c]))
                continue
            curve(ax, style, x, means[c])
            if c.method == BANDED:
                std = [100 * float(row[f"{c.key} std"]) for row in rows]
                low, high = (
                    [m + k * s for m, s in zip(means[c], std, strict=True)] for k in (-1, 1)
                )
                ax.fill_between(x, low, high, color=LINES[style]["color"], alpha=0.15, linewidth=0)
        ax.set_ylim(bottom=0)

    said = "; ".join(f"{_name(c)}: {', '.join(f'{v:.3g}' for v in y)}" for c, y in means.items())
    return Panel(
        title=_constant(rows[0], sweep),
        note=str(rows[0]["data"]),
        plot=plot,
        said=f"{rows[0]['data']}: ECE against {_LABELS[sweep]}. {said}.",
        aspect=0.8,
    )


def _constant(row: Record, sweep: str) -> str:
    facts = {
        "sources": f"{row['sources']} sources",
        "samples": f"{row['samples']} samples",
        "epsilon": f"ε = {row['epsilon']:g}",
    }
    return ", ".join(text for key, text in facts.items() if key != sweep)


# -- what section 5.2 says of the figures ---------------------------------------------------------

_PAPER = tuple(c for c in COLUMNS if c.noise != Central.name)
_BEST = "acc-t/local"


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """Each is held against each of the perturbations shown, and the mean over all."""
    told: list[RowsClaim] = []
    for text, sweep, holds in CLAIMS:
        lines = {
            name: sorted(
                (r for r in found if (r["data"], r["sweep"]) == (name, sweep)),
                key=lambda r: float(r[sweep]),
            )
            for name in dict.fromkeys(r["data"] for r in found if r["sweep"] == sweep)
        }
        good = [name for name, points in lines.items() if holds(points)]
        bad = [name for name in lines if name not in good]
        said = f"on {len(good)} of {len(lines)}" + (f"; not on {', '.join(bad)}" if bad else "")
        told.append((text, bool(lines) and not bad, said))
    return told


def _best(row: Record) -> str:
    """The paper's method with the lowest mean ECE."""
    return min((c.key for c in _PAPER), key=lambda key: float(row[key]))


def _always_best(points: Sequence[Record]) -> bool:
    return all(_best(row) == _BEST for row in points)


def _one_source_beats_private(row: Record) -> bool:
    private = [c.key for c in _PAPER if c.noise]
    return bool(row["one-source"] < min(row[key] for key in private))


def _falls(key: str) -> Callable[[Sequence[Record]], bool]:
    return lambda points: bool(points[-1][key] < points[0][key])


CLAIMS: tuple[tuple[str, str, Callable[[Sequence[Record]], bool]], ...] = (
    ("Acc-T is best at every number of sources", "sources", _always_best),
    ("Acc-T is best at every number of samples", "samples", _always_best),
    ("Acc-T is best at every epsilon", "epsilon", _always_best),
    ("Acc-T is best with the most sources", "sources", lambda points: _best(points[-1]) == _BEST),
    (
        "Acc-T's ECE is lower with the most sources than with the fewest",
        "sources",
        _falls(_BEST),
    ),
    (
        "Acc-T's ECE is lower with the most samples than with the fewest",
        "samples",
        _falls(_BEST),
    ),
    (
        "At the smallest epsilon one source alone is better than every private method",
        "epsilon",
        lambda points: _one_source_beats_private(points[0]),
    ),
    (
        "Acc-T is best at epsilon = 1",
        "epsilon",
        lambda points: all(_best(row) == _BEST for row in points if row["epsilon"] == 1),
    ),
    (
        "At the largest epsilon ECE-T is within a factor of 1.5 of Acc-T",
        "epsilon",
        lambda points: bool(points[-1]["ece-t/local"] <= 1.5 * points[-1][_BEST]),
    ),
)
"""What is said, of which sweep, and whether it holds of its points, least first."""
