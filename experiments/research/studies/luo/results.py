"""Tables 1 and 7 and Figures 1 to 3 of Luo et al.: cells, and what they come to.

The paper's data are ImageNet-C, CIFAR-100-C and CIFAR-10-C, its models are not published. Here
the same experiments run on logits of a network on corrupted MNIST, which come with fedcal, or on
files of the user's, one for each perturbation. So numbers differ from the paper's; what can be
compared is the order of the methods and the ratios between them.

Table 1 is of severity 5, Table 7 of severity 1, the least shift. The figures show ECE against
sources, samples of each, and epsilon: a row of panels for each of the perturbations that the paper
shows, and one over all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING

from fedcal import datasets
from fedcal.experiments.report.figures.drawing import Panel, Sheet, curve
from fedcal.experiments.report.figures.style import BASELINE_STYLES, LINES, METHOD_STYLES
from fedcal.experiments.research.studies.claims import where as on_how_many
from fedcal.experiments.research.studies.luo.methods import (
    BASELINES,
    COLUMNS,
    NOISES,
    PAPER,
    PRIVATE,
    Competitor,
)
from fedcal.experiments.research.studies.luo.settings import SWEEPS
from fedcal.experiments.research.studies.luo.suite import TRIALS, Suite, run_suite
from fedcal.experiments.research.studies.registry import study
from fedcal.experiments.research.studies.rows import grouped, span, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, Study
from fedcal.metrics.names import heading
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Central, Local

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHIFTED = "mnist-shift"

TITLES: Mapping[str, str] = study("luo")["shared"]["titles"]
"""Method -> what tables call it; the paper's words for the paper's."""

PAIRED = [m for m in TITLES if all(Competitor(m, n) in COLUMNS for n in NOISES)]
"""Methods under both kinds of noise."""

PAPER_PRIVATE = tuple(m for m in PAPER if m in PRIVATE)
"""The paper's methods that add noise."""

SMALLEST, MOST = 50, 250
"""Sources between which the gain of secure aggregation is stated."""

AHEAD = 1.3
"""How many times the median of the next method is that of Acc-T in the paper, at least: 1.35
(CIFAR-100), 1.38, 2.07 (ImageNet) in Table 1, and 1.35 in Table 7."""

Averages = Mapping[str, Sequence[float]]
"""Method of the paper -> (median, mean) ECE under local noise."""

_SETTING = ("sweep", "sources", "samples", "epsilon")
"""Equal for cells of one setting on different data."""


def printed(table: str) -> Mapping[str, Averages]:
    """Return the paper's table1 or table7, from `luo.toml`, by its data."""
    found: Mapping[str, Averages] = study("luo")["printed"][table]
    return found


def experiment(
    severity: int, columns: Sequence[Competitor], summary: Callable[[Rows], Rows]
) -> Callable[..., Rows]:
    """Return the function `rows` of an experiment: all settings on all data, and their summary.

    Parameters
    ----------
    severity
        of the shipped perturbations
    columns
        methods, each under a noise model
    summary
        rows of the cells -> rows of the experiment. A cell has what = "cell", `data` (short),
        `sweep`, `sources`, `samples`, `epsilon`, `trials`; for each column its key -> mean test
        ECE over trials, and key + " std" -> standard deviation
    """

    def rows(
        data: Sequence[str] | None = None,
        out: Path | None = None,
        resume: bool = False,
        jobs: int | None = None,
        ray_address: str | None = None,
        progress: Progress | None = None,
        *,
        trials: int = TRIALS,
        every: int = 1,
    ) -> Rows:
        """Run all settings on all data.

        Parameters
        ----------
        data
            files, one for each perturbation; None = the shipped ones
        out, resume, jobs, ray_address, progress
            see `run_suite`; cells are kept in `out/cells`
        trials, every
            see `Suite`; fewer for a quick look
        """
        shipped = [f"{SHIFTED}:{c}:{s}" for c, s in datasets.shifted(SHIFTED) if s == severity]
        names = tuple(map(_whole, data or shipped))
        suite = Suite(names, tuple(c.key for c in columns), trials, every=every)
        folder = None if out is None else out / "cells"
        found = run_suite(
            suite, out=folder, resume=resume, jobs=jobs, ray_address=ray_address, progress=progress
        )
        return summary([_cell(row, trials) for row in found])

    return rows


def _cell(row: Record, trials: int) -> Record:
    """Convert a row of the suite to a cell with a column for each method."""
    ece = {k: v[0] for k, v in row["ece"].items()}
    std = {f"{k} std": v[1] for k, v in row["ece"].items()}
    name = {"what": "cell", "data": _short(row["run"]["data"])}
    return {**name, **row["run"]["setting"], "trials": trials, **ece, **std}


def _whole(name: str) -> str:
    """Return the absolute path of a file."""
    path = path_of(name)
    return str(path.resolve()) if path.is_file() else name


def _short(name: str) -> str:
    """Return the perturbation of a shipped name, or the name of a file."""
    parts = name.split(":")
    return parts[1] if parts[0] == SHIFTED and len(parts) > 1 else Path(name).name


# -- tables --------------------------------------------------------------------------------------


def table(severity: int, name: str, text: str, harmful: Sequence[str]) -> Study:
    """Return a table of the paper: summaries, then the cells; `what` tells them apart.

    Parameters
    ----------
    severity
        of the perturbations
    name
        of the paper's table
    text, harmful
        which private methods leave the model worse than it was, in words and by name
    """

    def summary(cells: Rows) -> Rows:
        parts = _methods(cells, printed(name)), _perturbations(cells), _aggregation(cells)
        return [row for part in (*parts, cells) for row in part]

    def claims(found: Rows) -> Iterator[RowsClaim]:
        mine, beside = averages_of(found), printed(name)
        yield from _order_claims(mine, beside)
        yield _harm_claim(mine, beside, text, harmful)
        yield from _aggregation_claims(found)

    return Study(experiment(severity, COLUMNS, summary), claims)


def _columns(cells: Rows) -> list[Competitor]:
    """Return the columns that the cells have."""
    return [c for c in COLUMNS if c.key in cells[0]]


def _averages(cells: Rows, key: str) -> dict[str, float]:
    values = [float(row[key]) for row in cells]
    return {"median": median(values), "mean": fmean(values)}


def _methods(cells: Rows, beside: Mapping[str, Averages]) -> Iterator[Record]:
    """Median and mean over all data and settings: what = "method", with the paper's numbers.

    `behind`: median over that of Acc-T under the same noise.
    """
    for c in _columns(cells):
        noise, own = c.noise or NOISES[0], _averages(cells, c.key)
        paper = {
            f"{name} {what}": lines[c.method][k]
            if noise == Local.name and c.method in lines
            else None
            for name, lines in beside.items()
            for k, what in enumerate(own)
        }
        yield {
            **{"what": "method", "noise": noise, "whose": "paper" if c.method in PAPER else "ours"},
            **{"method": c.method, "title": TITLES[c.method], **own},
            "behind": own["median"] / _averages(cells, f"acc-t/{noise}")["median"],
            **paper,
        }


def _perturbations(cells: Rows) -> Iterator[Record]:
    """Mean over the settings of each data set: what = "perturbation"."""
    for (name,), mine in grouped(cells, "data").items():
        means = {c.key: fmean(row[c.key] for row in mine) for c in _columns(cells)}
        yield {"what": "perturbation", "data": name, **means}


def _aggregation(cells: Rows) -> Iterator[Record]:
    """ECE under local noise over that under central noise: what = "aggregation".

    One row for each setting; means over data first, then the ratio.
    """
    there = {c.key for c in _columns(cells)}
    for key, mine in grouped(cells, *_SETTING).items():
        ratios = {
            m: fmean(r[f"{m}/local"] for r in mine) / fmean(r[f"{m}/central"] for r in mine)
            for m in PAIRED
            if {f"{m}/local", f"{m}/central"} <= there
        }
        yield {"what": "aggregation", **dict(zip(_SETTING, key, strict=True)), **ratios}


def averages_of(rows: Rows) -> Averages:
    """Return median and mean of the paper's methods under the paper's noise."""
    mine = where(rows, what="method", whose="paper", noise=Local.name)
    return {r["method"]: (r["median"], r["mean"]) for r in mine}


def _order_claims(mine: Averages, beside: Mapping[str, Averages]) -> Iterator[RowsClaim]:
    """Acc-T first, and by how much, under the paper's noise."""
    for k, what in enumerate(("median", "mean")):
        order = sorted(mine, key=lambda m: mine[m][k])
        own = {
            name: min(lines, key=lambda m: lines[m][k]) == "acc-t" for name, lines in beside.items()
        }
        shown = ", ".join(f"{TITLES[m]} {mine[m][k]:.4f}" for m in order)
        yield f"Acc-T has the lowest {what} ECE", order[0] == "acc-t", shown, on_how_many(own)
    for which, names in (("method", PAPER), ("private method", PAPER_PRIVATE)):
        following, lead = _lead(mine, names)
        yield (
            f"In the median Acc-T is at least {AHEAD:g} times ahead of the next {which}",
            lead >= AHEAD,
            f"median of {TITLES[following]} over that of Acc-T: {lead:.2f}",
            ", ".join(f"{_lead(lines, names)[1]:.2f} on {name}" for name, lines in beside.items()),
        )


def _lead(lines: Averages, names: Sequence[str]) -> tuple[str, float]:
    """Return the best other method, and its median over that of Acc-T."""
    following = min((m for m in names if m != "acc-t"), key=lambda m: lines[m][0])
    return following, lines[following][0] / lines["acc-t"][0]


def _harm_claim(
    mine: Averages, beside: Mapping[str, Averages], text: str, harmful: Sequence[str]
) -> RowsClaim:
    """Test that exactly the methods in `harmful` leave the median model worse than it was."""

    def worse(lines: Averages) -> list[str]:
        return [m for m in PAPER_PRIVATE if lines[m][0] > lines["none"][0]]

    names = ", ".join(f"{TITLES[m]} {mine[m][0]:.4f}" for m in worse(mine)) or "none"
    shown = f"worse than no recalibration ({mine['none'][0]:.4f}): {names}"
    own = {name: {*worse(lines)} == {*harmful} for name, lines in beside.items()}
    return text, {*worse(mine)} == {*harmful}, shown, on_how_many(own)


def _aggregation_claims(rows: Rows) -> Iterator[RowsClaim]:
    """Yield the gain from one noise on the sum over noise at each source."""
    sources = where(rows, what="aggregation", sweep="sources")
    mine = [r for r in sources if SMALLEST <= r["sources"] <= MOST]
    for method in ("acc-t", "acc-t-posterior-3"):
        ratios = [float(r[method]) for r in mine if method in r]
        yield (
            f"{TITLES[method]}: one noise on the secure sum instead of each source's own makes "
            f"the ECE at least 2 times smaller at {SMALLEST} to {MOST} sources",
            min(ratios) >= 2 if ratios else None,
            f"{span(ratios, '.2f')} times, median {median(ratios):.2f}"
            if ratios
            else "no such number of sources",
        )


table1 = table(
    5,
    "table1",
    "No private method leaves the model worse than no recalibration, in the median",
    (),
)
table7 = table(
    1,
    "table7",
    "In the median, of the private methods Acc-T alone leaves the model no worse than it was",
    ("histogram", "ece-t", "nll-t"),
)

# -- the figures ---------------------------------------------------------------------------------

SHOWN = ("fog", "jpeg_compression", "motion_blur")
"""Perturbations of Figures 1, 2 and 3; where they are missing, the first three there are."""

DRAWN = (
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


def _points(found: Rows) -> Rows:
    """Return the points of the figure.

    Returns
    -------
    list of dict
        Those of `found` for the data that are shown, and for `data` = "mean over all", of settings
        that all data have, where the standard deviations are those over data of the means over
        trials.
    """
    there = list(dict.fromkeys(row["data"] for row in found))
    names = [name for name in SHOWN if name in there] or there[:3]
    points = [row for row in found if row["data"] in names]
    for mine in grouped(found, *_SETTING).values():
        if len(mine) < len(there):
            continue
        row = {**mine[0], "data": ALL}
        for c in DRAWN:
            values = [float(r[c.key]) for r in mine]
            row |= {c.key: fmean(values), f"{c.key} std": pstdev(values)}
        points.append(row)
    return points


def _sheet(found: Rows) -> Sheet | None:
    """Draw a row of three panels for each data set.

    Data with few rows lack settings, and perhaps a whole sweep: only sweeps of which all data
    have a setting are drawn. None if there is no such sweep.
    """
    sweeps = [s for s in SWEEPS if where(found, data=ALL, sweep=s)]
    if not sweeps:
        return None
    styles = {True: iter(METHOD_STYLES), False: iter(BASELINE_STYLES)}
    looks = {c: next(styles[bool(c.noise)]) for c in DRAWN}
    panels = [
        _panel(where(mine, sweep=sweep), sweep, looks)
        for mine in grouped(found, "data").values()
        for sweep in sweeps
    ]
    legend = tuple((look, _name(c)) for c, look in looks.items())
    return Sheet("ECE under privacy and domain shift", len(sweeps), tuple(panels), legend)


def _name(c: Competitor) -> str:
    title = TITLES[c.method]
    return f"{title}, central noise" if c.noise == Central.name else title


def _panel(rows: Rows, sweep: str, looks: Mapping[Competitor, str]) -> Panel:
    x = [float(row[sweep]) for row in rows]
    in_order = sorted(looks, key=lambda c: not c.noise)  # of the words: private methods first
    means = {c: [100 * float(row[c.key]) for row in rows] for c in in_order}

    def plot(ax: Axes) -> None:
        ax.set(xlabel=_LABELS[sweep], ylabel=heading("ece"))
        for c, y in means.items():
            if c.method == "none":
                ax.axhline(fmean(y), **LINES[looks[c]])
                continue
            curve(ax, looks[c], x, y)
            if c.method == BANDED:
                std = [100 * float(row[f"{c.key} std"]) for row in rows]
                low, high = ([m + k * s for m, s in zip(y, std, strict=True)] for k in (-1, 1))
                color = LINES[looks[c]]["color"]
                ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
        ax.set_ylim(bottom=0)

    first = rows[0]
    facts = {
        "sources": f"{first['sources']} sources",
        "samples": f"{first['samples']} samples",
        "epsilon": f"ε = {first['epsilon']:g}",
    }
    title, name = ", ".join(text for key, text in facts.items() if key != sweep), str(first["data"])
    said = "; ".join(f"{_name(c)}: {', '.join(f'{v:.3g}' for v in y)}" for c, y in means.items())
    words = f"{name}: ECE against {_LABELS[sweep]}. {said}."
    return Panel(title, plot, words, aspect=0.8, note=name)


# what section 5.2 says of the figures

_BEST = "acc-t/local"
_THEIRS = [c for c in DRAWN if c.noise != Central.name]


def _best(row: Record) -> bool:
    """Return True if Acc-T has the lowest mean ECE of the paper's methods."""
    return min((c.key for c in _THEIRS), key=lambda key: float(row[key])) == _BEST


def _always_best(points: Rows) -> bool:
    return all(map(_best, points))


def _falls(points: Rows) -> bool:
    return bool(points[-1][_BEST] < points[0][_BEST])


CLAIMS: tuple[tuple[str, str, Callable[[Rows], bool]], ...] = (
    ("Acc-T is best at every number of sources", "sources", _always_best),
    ("Acc-T is best at every number of samples", "samples", _always_best),
    ("Acc-T is best at every epsilon", "epsilon", _always_best),
    ("Acc-T is best with the most sources", "sources", lambda points: _best(points[-1])),
    ("Acc-T's ECE is lower with the most sources than with the fewest", "sources", _falls),
    ("Acc-T's ECE is lower with the most samples than with the fewest", "samples", _falls),
    (
        "At the smallest epsilon one source alone is better than every private method",
        "epsilon",
        lambda points: all(points[0]["one-source"] < points[0][c.key] for c in _THEIRS if c.noise),
    ),
    (
        "Acc-T is best at epsilon = 1",
        "epsilon",
        lambda points: _always_best(where(points, epsilon=1)),
    ),
    (
        "At the largest epsilon ECE-T is within a factor of 1.5 of Acc-T",
        "epsilon",
        lambda points: bool(points[-1]["ece-t/local"] <= 1.5 * points[-1][_BEST]),
    ),
)
"""What is said, of which sweep, and whether it holds of its points, least first."""


def _figure_claims(found: Rows) -> Iterator[RowsClaim]:
    """Each is held against each of the perturbations shown, and the mean over all."""
    for text, sweep, holds in CLAIMS:
        held = {
            name: holds(sorted(mine, key=lambda r: float(r[sweep])))
            for (name,), mine in grouped(where(found, sweep=sweep), "data").items()
        }
        yield text, bool(held) and all(held.values()), on_how_many(held)


figures = Study(experiment(5, DRAWN, _points), _figure_claims, _sheet)
