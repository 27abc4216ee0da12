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
from pathlib import Path
from statistics import fmean, median

import numpy as np

from experiments.studies.claims import between, listed
from experiments.studies.claims import where as on_how_many
from experiments.studies.luo import trials as methods
from experiments.studies.luo.trials import EXACT, PRIVATE, SweepPoint, Tables, run_point
from experiments.studies.rows import counted, grouped, where
from experiments.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal import datasets
from fedcal.core.fitting import usable_cores
from fedcal.datasets import Dataset
from fedcal.datasets._load import key_of, unpacked
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Local

SHIFTED, PHOTOGRAPHS = "mnist-shift", "cifar10-c"
FILE = Path(__file__).parents[2] / "data" / f"{PHOTOGRAPHS}.npz"
"""Logits on photographs under shift, by `experiments.shipped.cifar10_c`."""

TRIALS = 500
"""As in the paper."""

SHARED = study_file("luo")["shared"]

TITLES: Mapping[str, str] = SHARED["titles"]
"""Method -> what tables call it; the paper's words for the paper's."""

SMALLEST = 50
"""Sources from which on the gain of secure aggregation is stated."""

ACC_T = f"acc-t/{Local.name}"
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


def load(source: str, name: str, severity: int) -> Dataset:
    """Read a network's logits under one corruption, of `SHIFTED` or of `PHOTOGRAPHS`."""
    if source == SHIFTED:
        return datasets.load(f"{SHIFTED}:{name}:{severity}")
    with np.load(FILE) as file:
        logits, labels = unpacked(file[key_of((name, severity))].T), file["labels"]
    return datasets.from_arrays(logits=logits, labels=labels, name=f"{source}:{name}:{severity}")


def cells_of(trials: int, source: str, severity: int, name: str) -> Rows:
    """Run the settings that leave at least half of the rows for the test, on one data set.

    A cell has what = "cell", `data` (short), `sweep`, `sources`, `samples`, `epsilon`, `trials`;
    for each column its key -> mean test ECE over trials, and key + " std" -> standard deviation.
    """
    data, found = load(source, name, severity), Rows()
    tables = Tables.of(data)
    for point in methods.SETTINGS:
        if 2 * point.fit_rows > tables.rows:
            continue
        ece = run_point(tables, point, methods.COLUMNS, trials)
        row = {"what": "cell", "data": name, **asdict(point), "trials": trials}
        std = {f"{k} std": float(v.std()) for k, v in ece.items()}
        found.append({**row, **{k: float(v.mean()) for k, v in ece.items()}, **std})
    return found


# -- tables --------------------------------------------------------------------------------------


def table(name: str, source: str) -> Study:
    """Return a table of the paper: summaries, then the cells; `what` tells them apart.

    Parameters
    ----------
    name
        of the paper's table
    source
        of the data, see `load`
    """
    severity, text, harmful = SHARED["claimed"][name].values()

    def rows(
        jobs: int | None = None, progress: Progress | None = None, *, trials: int = TRIALS
    ) -> Rows:
        """Run all settings on all perturbations."""
        names = [c for c, s in datasets.shifted(SHIFTED) if s == severity]
        work = partial(cells_of, trials, source, severity)
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
        for data, figure in SHARED["figures"].get(f"{name} {source}", {}).items():
            yield from _figure_claims(f"{figure}, {data}", where(found, what="cell", data=data))

    return Study(rows, claims)


def _averages(cells: Rows, key: str) -> dict[str, float]:
    values = [float(row[key]) for row in cells]
    return {"median": median(values), "mean": fmean(values)}


def _methods(cells: Rows, beside: Mapping[str, Averages]) -> Iterator[Record]:
    """Median and mean over all data and settings: what = "method", with the paper's numbers.

    `behind`: median over that of Acc-T under the same noise.
    """
    for c in methods.COLUMNS:
        method, _, noise = c.partition("/")
        noise, own = noise or methods.NOISES[0], _averages(cells, c)
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
        means = {c: fmean(row[c] for row in mine) for c in methods.COLUMNS}
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
    for which, names in (("method", methods.METHODS), ("private method", PRIVATE)):
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
    mine = [r for r in sources if r["sources"] >= SMALLEST]
    text = f"{TITLES['acc-t']}: one noise on the secure sum instead of each source's own makes the "
    text += f"ECE at least 2 times smaller at {SMALLEST} sources or more"
    yield between(text, mine, "acc-t", "sources", 2.0, math.inf)


def _figure_claims(figure: str, cells: Rows) -> Iterator[RowsClaim]:
    """Test what section 5.2 says of the cells of one perturbation."""
    private = [f"{m}/{Local.name}" for m in PRIVATE]
    best = [min((*methods.BASELINES, *private), key=row.__getitem__) for row in cells]
    shown = ", ".join(f"{c} in {best.count(c)}" for c in sorted({*best}))
    yield f"{figure}: Acc-T has the lowest ECE in every setting", {*best} == {ACC_T}, shown
    ends = [(mine[0][ACC_T], mine[-1][ACC_T]) for mine in grouped(cells, "sweep").values()]
    text = f"{figure}: Acc-T's ECE is lower with the most sources, samples and epsilon"
    shown = ", ".join(f"{least:.4f} to {most:.4f}" for least, most in ends)
    yield text, all(most < least for least, most in ends), shown
    first = where(cells, sweep="epsilon")[0]
    one, least = first["one-source"], min(first[c] for c in private)
    text = f"{figure}: at the smallest epsilon one source is better than every private method"
    yield text, one < least, f"{one:.4f}, {least:.4f}"


# -- at one point ---------------------------------------------------------------------------------

POINT = SweepPoint("epsilon", 50, 30, 1.0)
"""The setting of Figure 52; the paper does not say how it divides rows for Tables 4 to 6."""

AT_POINT = ("none", *(f"{m}/{n}" for n in (EXACT, Local.name) for m in ("nll-t", "acc-t", "ece-t")))
"""Columns of Table 4, then the same searches under the paper's noise."""

PRINTED = ("accuracy", *AT_POINT[:4])


def at_one_point(progress: Progress | None = None, *, trials: int = TRIALS) -> Rows:
    """Run Tables 3 and 4 of the paper, Figure 52, and iterations of Acc-T for Table 2.

    what = "perturbation": `accuracy`, mean test ECE by column, and what the paper prints;
    what = "clip", at severity 1 of snow, and "iterations", at severity 5 of fog: mean test `ece`.
    """

    def means(name: str, severity: int, columns: Sequence[str]) -> Record:
        tables = Tables.of(load(PHOTOGRAPHS, name, severity), methods.TRIED)
        ece = run_point(tables, POINT, columns, trials)
        right = float((tables.gaps[0] >= 0).mean())
        return {"accuracy": right, **{k: float(v.mean()) for k, v in ece.items()}}

    found, paper = Rows(), study_file("luo")["printed"]["table4"]
    for name, values in counted(paper.items(), progress):
        beside = {f"paper {k}": v for k, v in zip(PRINTED, values, strict=True)}
        mine = means(name, 0 if name == "none" else 5, AT_POINT)
        found.append({"what": "perturbation", "data": name, **mine, **beside})
    clips = (ACC_T, *(f"{name}/{Local.name}" for name in methods.CLIPPED))
    searches = [f"{name}/{noise}" for noise in (EXACT, Local.name) for name in methods.SEARCHED]
    tried = {("clip", "snow", 1): clips, ("iterations", "fog", 5): searches}
    for (what, name, severity), columns in tried.items():
        ece = means(name, severity, columns)
        found += [{"what": what, "column": c, "ece": ece[c]} for c in columns]
    return found


def _point_claims(found: Rows) -> Iterator[RowsClaim]:
    """Test what the paper says of Tables 3 to 6 and of Figure 52."""
    mine = where(found, what="perturbation")
    right, base, nll, acc, ece, noisy_nll, noisy_acc, _ = (
        np.array([row[key] for row in mine]) for key in ("accuracy", *AT_POINT)
    )
    shown = ", ".join(f"{k} {fmean(row[k] for row in mine):.4f}" for k in AT_POINT)
    text = "The accuracy is highest without a perturbation"
    yield text, bool(right.argmax() == 0), f"{right[0]:.4f}, otherwise up to {right[1:].max():.4f}"
    best = max(nll.mean(), acc.mean(), ece.mean()) < base.mean()
    yield "Without noise each search has a lower mean ECE than no recalibration", bool(best), shown
    text, many = "Without noise Acc-T is no worse than NLL-T under most perturbations", acc <= nll
    yield text, bool(many.mean() > 0.5), f"{many.sum()} of {len(many)}"
    text, close = "Without noise Acc-T's ECE is at most 1.1 times ECE-T's", acc.mean() / ece.mean()
    yield text, bool(close <= 1.1), f"{close:.3f} times"
    lead, noisy = nll.mean() / acc.mean(), noisy_nll.mean() / noisy_acc.mean()
    text = "Noise at epsilon 1 at least doubles Acc-T's lead over NLL-T in mean ECE"
    yield text, bool(noisy - 1 >= 2 * max(lead - 1, 0)), f"{lead:.3f} without, {noisy:.3f} with"
    first, *clips = where(found, what="clip")
    text = "Acc-T is better than NLL-T at every clip (snow, severity 1)"
    shown = listed([first, *clips], "ece", "column")
    yield text, first["ece"] < min(c["ece"] for c in clips), shown
    searches = where(found, what="iterations")
    (coarse, *_, fine), noisy = np.reshape([row["ece"] for row in searches], (2, -1))
    text = "8 iterations instead of 2 lower Acc-T's ECE without noise and raise it with noise"
    falls = bool(fine < coarse and noisy[-1] > noisy[0])
    yield text, falls, listed(searches, "ece", "column")


table1, table7 = table("table1", SHIFTED), table("table7", SHIFTED)
photographs1, photographs7 = table("table1", PHOTOGRAPHS), table("table7", PHOTOGRAPHS)
point = Study(at_one_point, _point_claims)
