"""What Tables 1 and 7 and the figures of Luo et al. share: cells, and summaries of them.

The paper's data are ImageNet-C, CIFAR-100-C and CIFAR-10-C, its models are not published. Here
the same experiments run on logits of a network on corrupted MNIST, which come with fedcal, or on
files of the user's, one for each perturbation. So numbers differ from the paper's; what can be
compared is the order of the methods and the ratios between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from experiments.luo.methods import COLUMNS, PAPER, PRIVATE, Column
from experiments.luo.noise import NOISES
from experiments.luo.suite import TRIALS, Suite, run_suite
from fedcal import datasets
from strategies.job import Progress

Row = dict[str, Any]

SHIFTED = "mnist-shift"

TITLES = {
    "none": "No recalibration",
    "one-source": "One source",
    "histogram": "Histogram binning",
    "ece-t": "ECE-T",
    "nll-t": "NLL-T",
    "acc-t": "Acc-T",
    "histogram-wrong": "Histogram binning (correct, wrong)",
    "acc-t-bisection": "Acc-T, bisection",
    "acc-t-posterior": "Acc-T, posterior, 6 evaluations",
    "acc-t-posterior-3": "Acc-T, posterior, 3 evaluations",
    "acc-t-exponential": "Acc-T, exponential mechanism",
}
"""Method -> what tables call it; the paper's words for the paper's."""

SEARCHES = {
    "acc-t": "golden section",
    "acc-t-bisection": "bisection",
    "acc-t-posterior": "posterior, 6 evaluations",
    "acc-t-posterior-3": "posterior, 3 evaluations",
    "acc-t-exponential": "exponential mechanism",
}
"""Ways to look for the temperature of Acc-T."""

PAIRED = [m for m in TITLES if all(Column(m, n) in COLUMNS for n in NOISES)]
"""Methods under both kinds of noise."""

SMALLEST, MOST = 50, 250
"""Sources between which the gain of secure aggregation is told."""

Printed = Mapping[str, Mapping[str, tuple[float, float]]]
"""Data of the paper -> method -> (median, mean) ECE."""


def _printed(*lines: tuple[float, float]) -> dict[str, tuple[float, float]]:
    return dict(zip(PAPER, lines, strict=True))


TABLE_1: Printed = {
    "ImageNet": _printed(
        (0.1343, 0.1334),
        (0.0657, 0.0700),
        (0.0656, 0.0787),
        (0.0684, 0.0739),
        (0.0597, 0.0624),
        (0.0289, 0.0325),
    ),
    "CIFAR-100": _printed(
        (0.2718, 0.3124),
        (0.1204, 0.1209),
        (0.1867, 0.1850),
        (0.1655, 0.1721),
        (0.1583, 0.1607),
        (0.0890, 0.0973),
    ),
    "CIFAR-10": _printed(
        (0.2187, 0.2924),
        (0.1241, 0.1359),
        (0.1168, 0.1181),
        (0.1160, 0.1668),
        (0.1157, 0.1653),
        (0.0836, 0.1199),
    ),
}
TABLE_7: Printed = {
    "CIFAR-100": _printed(
        (0.1036, 0.1342),
        (0.1067, 0.1082),
        (0.1536, 0.1570),
        (0.1656, 0.1680),
        (0.1419, 0.1576),
        (0.0766, 0.0841),
    ),
}


def shifted(severity: int) -> list[str]:
    """Names of the shipped perturbations of a severity, 1 to 5."""
    return [f"{SHIFTED}:{c}:{s}" for c, s in datasets.shifted(SHIFTED) if s == severity]


def experiment(
    severity: int, columns: Sequence[Column], summary: Callable[[list[Row]], list[Row]]
) -> Callable[..., list[Row]]:
    """The function `rows` of an experiment: all settings on all data, and what is made of them.

    Parameters
    ----------
    severity : of the shipped perturbations
    columns : methods, each under a noise model
    summary : rows of the cells -> rows of the experiment. A cell has what = "cell", `data` (short),
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
    ) -> list[Row]:
        """Run all settings on all data.

        Parameters
        ----------
        data : files, one for each perturbation; None = the shipped ones
        out, resume, jobs, ray_address, progress : see `run_suite`; cells are kept in `out/cells`
        trials, every : see `Suite`; fewer for a quick look
        """
        names = tuple(map(_whole, data or shifted(severity)))
        suite = Suite(names, tuple(c.key for c in columns), trials, every=every)
        folder = None if out is None else out / "cells"
        found = run_suite(
            suite, out=folder, resume=resume, jobs=jobs, ray_address=ray_address, progress=progress
        )
        return summary([_cell(row, trials) for row in found])

    return rows


def _cell(row: Row, trials: int) -> Row:
    """A row of the suite with a column for each method."""
    ece = {k: v[0] for k, v in row["ece"].items()}
    std = {f"{k} std": v[1] for k, v in row["ece"].items()}
    name = {"what": "cell", "data": _short(row["run"]["data"])}
    return {**name, **row["run"]["setting"], "trials": trials, **ece, **std}


def _whole(name: str) -> str:
    """A file by its whole path."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.is_file() else name


def _short(name: str) -> str:
    """The perturbation of a shipped name, or the name of a file."""
    parts = name.split(":")
    return parts[1] if parts[0] == SHIFTED and len(parts) > 1 else Path(name).name


def summary(found: Sequence[Row], printed: Printed) -> list[Row]:
    """All tables: see the functions below."""
    return [*methods(found, printed), *perturbations(found), *aggregation(found), *searches(found)]


def methods(found: Sequence[Row], printed: Printed) -> list[Row]:
    """Median and mean over all data and settings: what = "method", with the paper's numbers.

    `behind`: median over that of Acc-T under the same noise.
    """
    rows = []
    for c in _columns(found):
        values = [float(row[c.key]) for row in found]
        noise = c.noise or NOISES[0]
        ahead = median(float(row[f"acc-t/{noise}"]) for row in found)
        row: Row = {
            "what": "method",
            "noise": noise,
            "whose": "paper" if c.method in PAPER else "ours",
            "method": c.method,
            "title": TITLES[c.method],
            "median": median(values),
            "mean": fmean(values),
            "behind": median(values) / ahead,
        }
        for name, table in printed.items():
            there = table.get(c.method) if noise == "local" else None
            for k, what in enumerate(("median", "mean")):
                row[f"{name} {what}"] = None if there is None else there[k]
        rows.append(row)
    return rows


def perturbations(found: Sequence[Row]) -> list[Row]:
    """Mean over the settings of each data set: what = "perturbation"."""
    rows = []
    for name in dict.fromkeys(row["data"] for row in found):
        mine = [row for row in found if row["data"] == name]
        means = {c.key: fmean(row[c.key] for row in mine) for c in _columns(found)}
        rows.append({"what": "perturbation", "data": name, **means})
    return rows


def aggregation(found: Sequence[Row]) -> list[Row]:
    """ECE under local noise over that under central noise: what = "aggregation".

    One row for each setting; means over data first, then the ratio.
    """
    rows = []
    there = {c.key for c in _columns(found)}
    for key in dict.fromkeys(setting_of(row) for row in found):
        mine = [row for row in found if setting_of(row) == key]
        ratios = {
            m: fmean(r[f"{m}/local"] for r in mine) / fmean(r[f"{m}/central"] for r in mine)
            for m in PAIRED
            if {f"{m}/local", f"{m}/central"} <= there
        }
        rows.append({"what": "aggregation", **dict(zip(_SETTING, key, strict=True)), **ratios})
    return rows


_SETTING = ("sweep", "sources", "samples", "epsilon")


def setting_of(row: Row) -> tuple[Any, ...]:
    """Equal for cells of one setting on different data."""
    return tuple(row[k] for k in _SETTING)


def searches(found: Sequence[Row]) -> list[Row]:
    """The searches of Acc-T against each other, at the same epsilon: what = "search".

    `best`: share of the cells in which a search has the lowest mean ECE of its noise model.
    """
    rows = []
    for noise in NOISES:
        mine = [c for c in _columns(found) if c.noise == noise and c.method in SEARCHES]
        keys = [c.key for c in mine]
        winners = [min(keys, key=row.__getitem__) for row in found]
        for c in mine:
            values = [float(row[c.key]) for row in found]
            rows.append(
                {
                    "what": "search",
                    "noise": noise,
                    "method": c.method,
                    "title": SEARCHES[c.method],
                    "median": median(values),
                    "mean": fmean(values),
                    "best": winners.count(c.key) / len(found),
                }
            )
    return rows


def _columns(found: Sequence[Row]) -> list[Column]:
    """Those that the cells have."""
    return [c for c in COLUMNS if c.key in found[0]]


Claim = tuple[str, bool, str]


def order_claims(rows: Sequence[Row], ahead: float) -> list[Claim]:
    """Acc-T first, and by how much, under the paper's noise.

    Parameters
    ----------
    ahead : how many times the median of the next method is that of Acc-T in the paper, at least
    """
    mine = {
        r["method"]: r
        for r in rows
        if r["what"] == "method" and r["noise"] == "local" and r["whose"] == "paper"
    }
    told: list[Claim] = []
    for what in ("median", "mean"):
        order = sorted(mine.values(), key=lambda r: float(r[what]))
        said = ", ".join(f"{r['title']} {r[what]:.4f}" for r in order)
        told.append((f"Acc-T has the lowest {what} ECE", order[0]["method"] == "acc-t", said))
    for which, names in (("method", mine), ("private method", PRIVATE)):
        rest = [r for name, r in mine.items() if name in names and name != "acc-t"]
        following = min(rest, key=lambda r: float(r["median"]))
        ratio = following["median"] / mine["acc-t"]["median"]
        said = f"median of {following['title']} over that of Acc-T: {ratio:.2f}"
        text = f"In the median Acc-T is at least {ahead:g} times ahead of the next {which}"
        told.append((text, ratio >= ahead, said))
    return told


def aggregation_claims(rows: Sequence[Row]) -> list[Claim]:
    """What one noise on the sum buys, next to one of each source."""
    mine = [
        r
        for r in rows
        if r["what"] == "aggregation"
        and r["sweep"] == "sources"
        and SMALLEST <= r["sources"] <= MOST
    ]
    told = []
    for method in ("acc-t", "acc-t-posterior-3"):
        ratios = [float(r[method]) for r in mine if method in r]
        if not ratios:
            continue
        text = (
            f"{TITLES[method]}: one noise on the secure sum instead of each source's own makes "
            f"the ECE at least 2 times smaller at {SMALLEST} to {MOST} sources"
        )
        said = f"{min(ratios):.2f} to {max(ratios):.2f} times, median {median(ratios):.2f}"
        told.append((text, min(ratios) >= 2, said))
    return told


def search_claims(rows: Sequence[Row]) -> list[Claim]:
    """Which search is best under which noise."""
    told = []
    for noise in NOISES:
        mine = [r for r in rows if r["what"] == "search" and r["noise"] == noise]
        order = sorted(mine, key=lambda r: float(r["median"]))
        said = ", ".join(f"{r['title']} {r['median']:.4f}" for r in order)
        text = f"Under {noise} noise another search finds a better temperature than golden section"
        told.append((text, bool(order) and order[0]["method"] != "acc-t", said))
    return told
