"""Tables 1 and 7 of Luo et al.: cells, and what they come to.

The paper's data are ImageNet-C, CIFAR-100-C and CIFAR-10-C, its models are not published. Here
the same experiments run on logits of a network on corrupted MNIST, which come with fedcal. So
numbers differ from the paper's; what can be compared is the order of the methods and the ratios
between them.

Table 1 is of severity 5, Table 7 of severity 1, the least shift. The paper's figures show cells:
ECE against sources, samples of each, and epsilon.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from statistics import fmean, median

from experiments.studies.claims import between
from experiments.studies.claims import where as on_how_many
from experiments.studies.luo.trials import (
    COLUMNS,
    METHODS,
    NOISES,
    PRIVATE,
    Tables,
    rows_of,
    run_point,
    settings_for,
)
from experiments.studies.rows import counted, grouped, where
from experiments.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal import datasets
from fedcal.core.fitting import usable_cores
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Local

SHIFTED = "mnist-shift"
TRIALS = 500
"""As in the paper."""

TITLES: Mapping[str, str] = study_file("luo")["shared"]["titles"]
"""Method -> what tables call it; the paper's words for the paper's."""

SMALLEST, MOST = 50, 250
"""Sources between which the gain of secure aggregation is stated."""

AHEAD = 1.3
"""Least ratio of the next method's median to that of Acc-T in the paper: 1.35
(CIFAR-100), 1.38, 2.07 (ImageNet) in Table 1, and 1.35 in Table 7."""

Averages = Mapping[str, Sequence[float]]
"""Method of the paper -> (median, mean) ECE under local noise."""

_SETTING = ("sweep", "sources", "samples", "epsilon")
"""Equal for cells of one setting on different data."""


def printed(table: str) -> Mapping[str, Averages]:
    """Return the paper's table1 or table7, from `luo.toml`, by its data."""
    found: Mapping[str, Averages] = study_file("luo")["printed"][table]
    return found


def cells_of(trials: int, every: int, name: str) -> Rows:
    """Run all settings on one data set.

    A cell has what = "cell", `data` (short), `sweep`, `sources`, `samples`, `epsilon`, `trials`;
    for each column its key -> mean test ECE over trials, and key + " std" -> standard deviation.
    """
    data, found = datasets.load(name), Rows()
    tables = Tables.of(data)
    for point in settings_for(len(rows_of(data)[1]), every):
        ece = run_point(tables, point, COLUMNS, trials)
        row = {"what": "cell", "data": name.split(":")[1], **asdict(point), "trials": trials}
        std = {f"{k} std": float(v.std()) for k, v in ece.items()}
        found.append({**row, **{k: float(v.mean()) for k, v in ece.items()}, **std})
    return found


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

    def rows(
        jobs: int | None = None,
        progress: Progress | None = None,
        *,
        trials: int = TRIALS,
        every: int = 1,
    ) -> Rows:
        """Run all settings on all perturbations.

        `every` takes every k-th setting of each sweep, for a quick look.
        """
        names = [f"{SHIFTED}:{c}:{s}" for c, s in datasets.shifted(SHIFTED) if s == severity]
        work = partial(cells_of, trials, every)
        many = min(jobs or usable_cores(), len(names))
        cells = Rows()
        with ProcessPoolExecutor(many, multiprocessing.get_context("spawn")) as pool:
            for found in counted(pool.map(work, names) if many > 1 else map(work, names), progress):
                cells += found
        parts = _methods(cells, printed(name)), _perturbations(cells), _aggregation(cells)
        return [row for part in (*parts, cells) for row in part]

    def claims(found: Rows) -> Iterator[RowsClaim]:
        mine, beside = averages_of(found), printed(name)
        yield from _order_claims(mine, beside)
        yield _harm_claim(mine, beside, text, harmful)
        yield from _aggregation_claims(found)

    return Study(rows, claims)


def _averages(cells: Rows, key: str) -> dict[str, float]:
    values = [float(row[key]) for row in cells]
    return {"median": median(values), "mean": fmean(values)}


def _methods(cells: Rows, beside: Mapping[str, Averages]) -> Iterator[Record]:
    """Median and mean over all data and settings: what = "method", with the paper's numbers.

    `behind`: median over that of Acc-T under the same noise.
    """
    for c in COLUMNS:
        method, _, noise = c.partition("/")
        noise, own = noise or NOISES[0], _averages(cells, c)
        paper = {
            f"{name} {what}": lines[method][k] if noise == Local.name and method in lines else None
            for name, lines in beside.items()
            for k, what in enumerate(own)
        }
        yield {
            **{"what": "method", "noise": noise, "method": method, "title": TITLES[method]},
            **own,
            "behind": own["median"] / _averages(cells, f"acc-t/{noise}")["median"],
            **paper,
        }


def _perturbations(cells: Rows) -> Iterator[Record]:
    """Mean over the settings of each data set: what = "perturbation"."""
    for (name,), mine in grouped(cells, "data").items():
        means = {c: fmean(row[c] for row in mine) for c in COLUMNS}
        yield {"what": "perturbation", "data": name, **means}


def _aggregation(cells: Rows) -> Iterator[Record]:
    """ECE under local noise over that under central noise: what = "aggregation".

    One row for each setting; means over data first, then the ratio.
    """
    for key, mine in grouped(cells, *_SETTING).items():
        ratios = {
            m: fmean(r[f"{m}/local"] for r in mine) / fmean(r[f"{m}/central"] for r in mine)
            for m in PRIVATE
        }
        yield {"what": "aggregation", **dict(zip(_SETTING, key, strict=True)), **ratios}


def averages_of(rows: Rows) -> Averages:
    """Return median and mean of the paper's methods under the paper's noise."""
    mine = where(rows, what="method", noise=Local.name)
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
    for which, names in (("method", METHODS), ("private method", PRIVATE)):
        following, lead = _lead(mine, names)
        yield (
            f"In the median Acc-T is at least {AHEAD:g} times ahead of the next {which}",
            lead >= AHEAD,
            f"median of {TITLES[following]} over that of Acc-T: {lead:.2f}",
            ", ".join(f"{_lead(lines, names)[1]:.2f} on {name}" for name, lines in beside.items()),
        )


def _lead(lines: Averages, names: Iterable[str]) -> tuple[str, float]:
    """Return the best other method, and its median over that of Acc-T."""
    following = min((m for m in names if m != "acc-t"), key=lambda m: lines[m][0])
    return following, lines[following][0] / lines["acc-t"][0]


def _harm_claim(
    mine: Averages, beside: Mapping[str, Averages], text: str, harmful: Sequence[str]
) -> RowsClaim:
    """Test that exactly the methods in `harmful` leave the median model worse than it was."""

    def worse(lines: Averages) -> list[str]:
        return [m for m in PRIVATE if lines[m][0] > lines["none"][0]]

    names = ", ".join(f"{TITLES[m]} {mine[m][0]:.4f}" for m in worse(mine)) or "none"
    shown = f"worse than no recalibration ({mine['none'][0]:.4f}): {names}"
    own = {name: {*worse(lines)} == {*harmful} for name, lines in beside.items()}
    return text, {*worse(mine)} == {*harmful}, shown, on_how_many(own)


def _aggregation_claims(rows: Rows) -> Iterator[RowsClaim]:
    """Yield the gain from one noise on the sum over noise at each source."""
    sources = where(rows, what="aggregation", sweep="sources")
    mine = [r for r in sources if SMALLEST <= r["sources"] <= MOST]
    text = f"{TITLES['acc-t']}: one noise on the secure sum instead of each source's own makes the "
    text += f"ECE at least 2 times smaller at {SMALLEST} to {MOST} sources"
    if mine:
        yield between(text, mine, "acc-t", "sources", 2.0, math.inf)
    else:
        yield text, None, "no such number of sources"


table1 = table(
    5, "table1", "No private method leaves the model worse than no recalibration, in the median", ()
)
table7 = table(
    1,
    "table7",
    "In the median, of the private methods Acc-T alone leaves the model no worse than it was",
    ("histogram", "ece-t", "nll-t"),
)
