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

from fedcal import datasets
from fedcal.experiments.research.luo.methods import COLUMNS, NOISES, PAPER, PRIVATE, Competitor
from fedcal.experiments.research.luo.suite import TRIALS, Suite, run_suite
from fedcal.experiments.research.studies.spec import Record, RowsClaim
from fedcal.experiments.runs.config import read_toml
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Local

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

PAIRED = [m for m in TITLES if all(Competitor(m, n) in COLUMNS for n in NOISES)]
"""Methods under both kinds of noise."""

PAPER_PRIVATE = tuple(m for m in PAPER if m in PRIVATE)
"""The paper's methods that add noise."""

SMALLEST, MOST = 50, 250
"""Sources between which the gain of secure aggregation is stated."""

PaperTable = Mapping[str, Mapping[str, Sequence[float]]]
"""Data of the paper -> method -> (median, mean) ECE."""


def printed(table: str) -> PaperTable:
    """The paper's table1 or table7, of `luo.toml`."""
    found: PaperTable = read_toml(Path(__file__).with_name("luo.toml"))["printed"][table]
    return found


def shifted(severity: int) -> list[str]:
    """Names of the shipped perturbations of a severity, 1 to 5."""
    return [f"{SHIFTED}:{c}:{s}" for c, s in datasets.shifted(SHIFTED) if s == severity]


def experiment(
    severity: int, columns: Sequence[Competitor], summary: Callable[[list[Record]], list[Record]]
) -> Callable[..., list[Record]]:
    """The function `rows` of an experiment: all settings on all data, and what is made of them.

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
    ) -> list[Record]:
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
        names = tuple(map(_whole, data or shifted(severity)))
        suite = Suite(names, tuple(c.key for c in columns), trials, every=every)
        folder = None if out is None else out / "cells"
        found = run_suite(
            suite, out=folder, resume=resume, jobs=jobs, ray_address=ray_address, progress=progress
        )
        return summary([_cell(row, trials) for row in found])

    return rows


def table(severity: int, name: str) -> Callable[..., list[Record]]:
    """The function `rows` of a table: summaries, then the cells; `what` tells them apart."""
    return experiment(severity, COLUMNS, lambda cells: [*summary(cells, printed(name)), *cells])


def _cell(row: Record, trials: int) -> Record:
    """A row of the suite with a column for each method."""
    ece = {k: v[0] for k, v in row["ece"].items()}
    std = {f"{k} std": v[1] for k, v in row["ece"].items()}
    name = {"what": "cell", "data": _short(row["run"]["data"])}
    return {**name, **row["run"]["setting"], "trials": trials, **ece, **std}


def _whole(name: str) -> str:
    """A file by its whole path."""
    path = path_of(name)
    return str(path.resolve()) if path.is_file() else name


def _short(name: str) -> str:
    """The perturbation of a shipped name, or the name of a file."""
    parts = name.split(":")
    return parts[1] if parts[0] == SHIFTED and len(parts) > 1 else Path(name).name


def summary(found: Sequence[Record], beside: PaperTable) -> list[Record]:
    """All tables: see the functions below."""
    return [*methods(found, beside), *perturbations(found), *aggregation(found), *searches(found)]


def methods(found: Sequence[Record], beside: PaperTable) -> list[Record]:
    """Median and mean over all data and settings: what = "method", with the paper's numbers.

    `behind`: median over that of Acc-T under the same noise.
    """
    rows = []
    for c in _columns(found):
        values = [float(row[c.key]) for row in found]
        noise = c.noise or NOISES[0]
        ahead = median(float(row[f"acc-t/{noise}"]) for row in found)
        row: Record = {
            "what": "method",
            "noise": noise,
            "whose": "paper" if c.method in PAPER else "ours",
            "method": c.method,
            "title": TITLES[c.method],
            "median": median(values),
            "mean": fmean(values),
            "behind": median(values) / ahead,
        }
        for name, table in beside.items():
            there = table.get(c.method) if noise == Local.name else None
            for k, what in enumerate(("median", "mean")):
                row[f"{name} {what}"] = None if there is None else there[k]
        rows.append(row)
    return rows


def perturbations(found: Sequence[Record]) -> list[Record]:
    """Mean over the settings of each data set: what = "perturbation"."""
    rows = []
    for name in dict.fromkeys(row["data"] for row in found):
        mine = [row for row in found if row["data"] == name]
        means = {c.key: fmean(row[c.key] for row in mine) for c in _columns(found)}
        rows.append({"what": "perturbation", "data": name, **means})
    return rows


def aggregation(found: Sequence[Record]) -> list[Record]:
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


def setting_of(row: Record) -> tuple[Any, ...]:
    """Equal for cells of one setting on different data."""
    return tuple(row[k] for k in _SETTING)


def searches(found: Sequence[Record]) -> list[Record]:
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


def _columns(found: Sequence[Record]) -> list[Competitor]:
    """Those that the cells have."""
    return [c for c in COLUMNS if c.key in found[0]]


AHEAD = 1.3
"""How many times the median of the next method is that of Acc-T in the paper, at least: 1.35
(CIFAR-100), 1.38, 2.07 (ImageNet) in Table 1, and 1.35 in Table 7."""

Averages = Mapping[str, Sequence[float]]
"""Method of the paper -> (median, mean) ECE under local noise."""


def table_claims(
    rows: Sequence[Record], name: str, text: str, harmful: Sequence[str]
) -> list[RowsClaim]:
    """A table's order, and what secure aggregation and other searches buy.

    Parameters
    ----------
    name
        of the paper's table
    text, harmful
        which private methods leave the model worse than it was, in words and by name
    """
    beside = printed(name)
    return [
        *order_claims(rows, beside, AHEAD),
        harm_claim(rows, beside, text, harmful),
        *aggregation_claims(rows),
        *search_claims(rows),
    ]


def averages_of(rows: Sequence[Record]) -> Averages:
    """The paper's methods under the paper's noise."""
    mine = [r for r in rows if r["what"] == "method" and r["whose"] == "paper"]
    return {r["method"]: (r["median"], r["mean"]) for r in mine if r["noise"] == Local.name}


def order_claims(rows: Sequence[Record], beside: PaperTable, ahead: float) -> list[RowsClaim]:
    """Acc-T first, and by how much, under the paper's noise.

    Parameters
    ----------
    beside
        the paper's table
    ahead
        how many times the median of the next method is that of Acc-T in the paper, at least
    """
    mine = averages_of(rows)
    claims: list[RowsClaim] = []
    for k, what in enumerate(("median", "mean")):
        holds = [_order(lines, k)[0] == "acc-t" for lines in (mine, *beside.values())]
        evidence = ", ".join(f"{TITLES[m]} {mine[m][k]:.4f}" for m in _order(mine, k))
        own = _where(dict(zip(beside, holds[1:], strict=True)))
        claims.append((f"Acc-T has the lowest {what} ECE", holds[0], evidence, own))
    for which, names in (("method", PAPER), ("private method", PAPER_PRIVATE)):
        following = next(m for m in _order(mine, 0) if m in names and m != "acc-t")
        evidence = f"median of {TITLES[following]} over that of Acc-T: {_lead(mine, names):.2f}"
        own = ", ".join(f"{_lead(lines, names):.2f} on {name}" for name, lines in beside.items())
        text = f"In the median Acc-T is at least {ahead:g} times ahead of the next {which}"
        claims.append((text, _lead(mine, names) >= ahead, evidence, own))
    return claims


def _order(lines: Averages, k: int) -> list[str]:
    """Methods, best first; of medians (0) or means (1)."""
    return sorted(lines, key=lambda m: lines[m][k])


def _lead(lines: Averages, names: Sequence[str]) -> float:
    """Median of the best other method over that of Acc-T."""
    return min(lines[m][0] for m in names if m != "acc-t") / lines["acc-t"][0]


def harm_claim(
    rows: Sequence[Record], beside: PaperTable, text: str, harmful: Sequence[str]
) -> RowsClaim:
    """Which private methods leave the model worse than it was, in the median: exactly `harmful`."""
    mine = averages_of(rows)
    worse = [m for m in PAPER_PRIVATE if mine[m][0] > mine["none"][0]]
    names = ", ".join(f"{TITLES[m]} {mine[m][0]:.4f}" for m in worse) or "none"
    evidence = f"worse than no recalibration ({mine['none'][0]:.4f}): {names}"
    holds = {
        name: {m for m in PAPER_PRIVATE if lines[m][0] > lines["none"][0]} == {*harmful}
        for name, lines in beside.items()
    }
    return text, worse == [m for m in PAPER_PRIVATE if m in harmful], evidence, _where(holds)


def _where(holds: Mapping[str, bool]) -> str:
    """On how many data a claim holds in the paper's own numbers."""
    bad = [name for name, held in holds.items() if not held]
    evidence = f"on {len(holds) - len(bad)} of {len(holds)}"
    return evidence + (f"; not on {', '.join(bad)}" if bad else "")


def aggregation_claims(rows: Sequence[Record]) -> list[RowsClaim]:
    """What one noise on the sum buys, next to one of each source."""
    mine = [
        r
        for r in rows
        if r["what"] == "aggregation"
        and r["sweep"] == "sources"
        and SMALLEST <= r["sources"] <= MOST
    ]
    claims: list[RowsClaim] = []
    for method in ("acc-t", "acc-t-posterior-3"):
        ratios = [float(r[method]) for r in mine if method in r]
        text = (
            f"{TITLES[method]}: one noise on the secure sum instead of each source's own makes "
            f"the ECE at least 2 times smaller at {SMALLEST} to {MOST} sources"
        )
        if not ratios:
            claims.append((text, None, "no such number of sources"))
            continue
        evidence = f"{min(ratios):.2f} to {max(ratios):.2f} times, median {median(ratios):.2f}"
        claims.append((text, min(ratios) >= 2, evidence))
    return claims


def search_claims(rows: Sequence[Record]) -> list[RowsClaim]:
    """Which search is best under which noise."""
    claims: list[RowsClaim] = []
    for noise in NOISES:
        mine = [r for r in rows if r["what"] == "search" and r["noise"] == noise]
        order = sorted(mine, key=lambda r: float(r["median"]))
        evidence = ", ".join(f"{r['title']} {r['median']:.4f}" for r in order)
        text = f"Under {noise} noise another search finds a better temperature than golden section"
        claims.append((text, bool(order) and order[0]["title"] != SEARCHES["acc-t"], evidence))
    return claims
