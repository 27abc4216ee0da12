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

import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean, median, pstdev

from experiments.studies.claims import between
from experiments.studies.claims import where as on_how_many
from experiments.studies.luo.methods import (
    BASELINES,
    COLUMNS,
    NOISES,
    PAPER,
    PRIVATE,
    Competitor,
    run_point,
)
from experiments.studies.luo.trials import Tables, rows_of, settings_for
from experiments.studies.rows import grouped, where
from experiments.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal import datasets
from fedcal.core.checks import InputError
from fedcal.core.numerics import usable_cores
from fedcal.run.load import load_any
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Central, Local

SHIFTED = "mnist-shift"
TRIALS = 500
"""As in the paper."""

TITLES: Mapping[str, str] = study_file("luo")["shared"]["titles"]
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
    found: Mapping[str, Averages] = study_file("luo")["printed"][table]
    return found


def cells_of(columns: Sequence[Competitor], trials: int, every: int, name: str) -> Rows:
    """Run all settings on one data set.

    A cell has what = "cell", `data` (short), `sweep`, `sources`, `samples`, `epsilon`, `trials`;
    for each column its key -> mean test ECE over trials, and key + " std" -> standard deviation.
    """
    data = load_any(name)
    parts, found = name.split(":"), Rows()
    short = parts[1] if parts[0] == SHIFTED and len(parts) > 1 else Path(name).name
    points = settings_for(len(rows_of(data)[1]), name, every)
    tables = Tables.of(data)
    for point in points:
        ece = run_point(tables, point, columns, trials)
        row = {"what": "cell", "data": short, **asdict(point), "trials": trials}
        std = {f"{k} std": float(v.std()) for k, v in ece.items()}
        found.append({**row, **{k: float(v.mean()) for k, v in ece.items()}, **std})
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
        rows of the cells -> rows of the experiment
    """

    def rows(
        data: Sequence[str] | None = None,
        jobs: int | None = None,
        progress: Progress | None = None,
        *,
        trials: int = TRIALS,
        every: int = 1,
    ) -> Rows:
        """Run all settings on all data: files, one for each perturbation, or the shipped ones.

        `every` takes every k-th setting of each sweep, for a quick look.
        """
        shipped = [f"{SHIFTED}:{c}:{s}" for c, s in datasets.shifted(SHIFTED) if s == severity]
        names = [str(Path(n).resolve()) if Path(n).is_file() else n for n in data or shipped]
        if len({*names}) < len(names):
            raise InputError("data are there twice")
        work = partial(cells_of, columns, trials, every)
        many = min(jobs or usable_cores(), len(names))
        cells = Rows()
        with ProcessPoolExecutor(many, multiprocessing.get_context("spawn")) as pool:
            each = pool.map(work, names) if many > 1 else map(work, names)
            for done, found in enumerate(each, 1):
                cells += found
                if progress is not None:
                    progress(done, len(names))
        return summary(cells)

    return rows


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


def _averages(cells: Rows, key: str) -> dict[str, float]:
    values = [float(row[key]) for row in cells]
    return {"median": median(values), "mean": fmean(values)}


def _methods(cells: Rows, beside: Mapping[str, Averages]) -> Iterator[Record]:
    """Median and mean over all data and settings: what = "method", with the paper's numbers.

    `behind`: median over that of Acc-T under the same noise.
    """
    for c in COLUMNS:
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
        means = {c.key: fmean(row[c.key] for row in mine) for c in COLUMNS}
        yield {"what": "perturbation", "data": name, **means}


def _aggregation(cells: Rows) -> Iterator[Record]:
    """ECE under local noise over that under central noise: what = "aggregation".

    One row for each setting; means over data first, then the ratio.
    """
    for key, mine in grouped(cells, *_SETTING).items():
        ratios = {
            m: fmean(r[f"{m}/local"] for r in mine) / fmean(r[f"{m}/central"] for r in mine)
            for m in PAIRED
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
        text = f"{TITLES[method]}: one noise on the secure sum instead of each source's own makes "
        text += f"the ECE at least 2 times smaller at {SMALLEST} to {MOST} sources"
        if mine:
            yield between(text, mine, method, "sources", 2.0, math.inf)
        else:
            yield text, None, "no such number of sources"


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
_EVERY = {"sources": "number of sources", "samples": "number of samples", "epsilon": "epsilon"}


def _points(found: Rows) -> Rows:
    """Return the points of the figure.

    Those of `found` for the data that are shown, and for `data` = "mean over all", of settings that
    all data have, where the standard deviations are those over data of the means over trials.
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


_BEST = "acc-t/local"
_THEIRS = [c.key for c in DRAWN if c.noise != Central.name]


def _best(*points: Record) -> bool:
    """Return True if Acc-T has the lowest mean ECE of the paper's methods in each."""
    return all(min(_THEIRS, key=lambda key: float(row[key])) == _BEST for row in points)


CLAIMS: tuple[tuple[str, str, Callable[[Rows], bool]], ...] = (
    *((f"Acc-T is best at every {w}", s, lambda p: _best(*p)) for s, w in _EVERY.items()),
    ("Acc-T is best with the most sources", "sources", lambda p: _best(p[-1])),
    *(
        (
            f"Acc-T's ECE is lower with the most {s} than with the fewest",
            s,
            lambda p: bool(p[-1][_BEST] < p[0][_BEST]),
        )
        for s in ("sources", "samples")
    ),
    (
        "At the smallest epsilon one source alone is better than every private method",
        "epsilon",
        lambda p: all(p[0]["one-source"] < p[0][key] for key in _THEIRS if "/" in key),
    ),
    ("Acc-T is best at epsilon = 1", "epsilon", lambda p: _best(*where(p, epsilon=1))),
    (
        "At the largest epsilon ECE-T is within a factor of 1.5 of Acc-T",
        "epsilon",
        lambda p: bool(p[-1]["ece-t/local"] <= 1.5 * p[-1][_BEST]),
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


figures = Study(experiment(5, DRAWN, _points), _figure_claims)
