"""Claims of Maddock et al. on their tables and figures, and ours beside them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np

from experiments.studies.claims import BASE, LOSS, MEAN, Claim, Found
from experiments.studies.spec import Record, Rows, study_file
from fedcal.core.numerics import Floats

Cells: TypeAlias = dict[str, Record]
"""Title of a method -> its row."""

SCALING = ("FedCal", "FedOPVector", "FedTemp")
BINNING = ("FedBBQ", "FedBBQ all weight")
TEMPERATURES = ("FedTemp", "FedTemp (mean of T)")
PAPER = (*SCALING, *BINNING, "FedTemp (mean of T)", "FedVector")
"""All that are the paper's, those that its tables leave out included."""

KEEPING = (
    *(*SCALING, "FedTemp (mean of T)", "FedOPVector (proximal)"),
    *("FedNewton", "FedOneShot", "FedNewton entropy"),
)

# -- of tables: one row for each title -----------------------------------------------------------


def against(
    title: str, others: Iterable[str], holds: Callable[[Record, Rows], bool]
) -> Callable[[Rows], Found]:
    """Test a condition on a method and those of the others that are present."""

    def found(rows: Rows) -> Found:
        by_title = {row["title"]: row for row in rows}
        beside = [by_title[other] for other in others if other in by_title]
        return holds(by_title[title], beside) if title in by_title and beside else None

    return found


def _lowest(row: Record, beside: Rows) -> bool:
    """Below each of the others, and not marked; what is marked does not stand in its way."""
    rivals = [r[MEAN] for r in beside if not r["loses_accuracy"]]
    return not row["loses_accuracy"] and all(row[MEAN] < rival for rival in rivals)


def _at_most(factor: float, row: Record, beside: Rows) -> bool:
    """Each of the others is at most `factor` times as high."""
    return all(r[MEAN] <= factor * row[MEAN] for r in beside)


def below(title: str, others: Iterable[str]) -> Callable[[Rows], Found]:
    """Test that a method has a lower classwise ECE than each of the others that are present."""
    return against(title, others, _lowest)


def _some_binning(rows: Rows) -> Found:
    found = [below(title, SCALING)(rows) for title in BINNING]
    return None if found == [None, None] else any(found)


def losing(titles: Sequence[str], holds: Callable[[list[float]], bool]) -> Callable[[Rows], Found]:
    """Test a condition on the accuracy that methods lose; None if it is not printed."""

    def found(rows: Rows) -> Found:
        all_of_them = (
            r["accuracy_before"] - r["accuracy_mean"] for r in rows if r["title"] in titles
        )
        losses = [loss for loss in all_of_them if not math.isnan(loss)]
        return holds(losses) if losses else None

    return found


def mean_ratio(rows: Rows, title: str, reference: str) -> float | None:
    """Mean over networks and rows of a method's classwise ECE over the reference's."""
    base = {r["network"]: r[MEAN] for r in rows if r["title"] == reference}
    mine = [r for r in rows if r["title"] == title and r["network"] in base]
    return sum(r[MEAN] / base[r["network"]] for r in mine) / len(mine) if mine else None


def ratio_at_most(title: str, factor: float) -> Callable[[Rows], Found]:
    """Test that the mean ratio to the pooled temperature is at most `factor`."""

    def holds(rows: Rows) -> Found:
        ratio = mean_ratio(rows, title, "pooled temperature")
        return None if ratio is None else ratio <= factor

    return holds


# -- of figures: a curve for each title ----------------------------------------------------------


def after(rows: Rows, part: str, end: Callable[..., int] = max, epsilon: float = math.inf) -> Cells:
    """Return a part's rows by title: those after the most rounds, or the fewest (`end`)."""
    mine = [r for r in rows if (r["part"], r["epsilon"]) == (part, epsilon) and r["rounds"]]
    return {r["title"]: r for r in mine if r["rounds"] == end(m["rounds"] for m in mine)}


def _overtakes(rows: Rows) -> Found:
    """Weighted FedBBQ is above FedTemp after the fewest rounds, and below after the most."""
    few, many = (
        {title: row[MEAN] for title, row in after(rows, "rounds", end).items()}
        for end in (min, max)
    )
    bbq, temp = "FedBBQ all weight", "FedTemp"
    return bool(few[bbq] > few[temp] and many[bbq] < many[temp])


def _improves_with_rounds(rows: Rows) -> Found:
    """Weighted FedBBQ at epsilon = 1 has a lower classwise ECE after the most rounds than one."""
    few, many = (after(rows, "rounds-and-budgets", end, 1.0) for end in (min, max))
    return bool(many["FedBBQ all weight"][MEAN] < few["FedBBQ all weight"][MEAN])


def _nearer_by_ece(rows: Rows) -> Found:
    """FedTemp and weighted FedBBQ differ by a smaller factor in ECE than in classwise ECE."""
    a, b = (after(rows, "rounds")[title] for title in ("FedTemp", "FedBBQ all weight"))
    ece, classwise = (abs(math.log(fmean(a[m]) / fmean(b[m]))) for m in ("ece", "classwise_ece"))
    return ece < classwise


def _lowest_ece(rows: Rows) -> Found:
    """FedTemp has a lower ECE than binning at epsilon = 1."""
    found = {t: fmean(r["ece"]) for t, r in after(rows, "budgets", epsilon=1.0).items()}
    return all(found["FedTemp"] < found[title] for title in BINNING)


def _rising(values: Iterable[float]) -> Found:
    return all(a < b for a, b in pairwise(values))


def _of_bins(found: Cells, weights: str, key: str = MEAN) -> dict[int, float]:
    """M -> a number of FedBBQ with 2^M bins."""
    title = f"{weights}, M = "
    return {int(t.removeprefix(title)): r[key] for t, r in found.items() if t.startswith(title)}


def _steadier(rows: Rows) -> Found:
    """Weighted FedBBQ's classwise ECE has the smaller range over M."""
    found = (_of_bins(after(rows, "bins"), w).values() for w in ("all weight", "no weight"))
    weighted, plain = (max(means) - min(means) for means in found)
    return weighted < plain


def _many_bins_cost(rows: Rows) -> Found:
    accuracy = _of_bins(after(rows, "rounds"), "no weight", "accuracy_mean")
    return accuracy[10] < accuracy[7]


def _few_bins_private(rows: Rows) -> Found:
    exact = _of_bins(after(rows, "rounds"), "all weight")
    private = _of_bins(after(rows, "private", epsilon=3.0), "all weight")
    return exact[4] < exact[7] and private[4] > private[7]


def _by_clips(holds: Callable[[Floats, Floats], Any]) -> Callable[[Rows], Found]:
    """Test a condition on classwise ECE and accuracy at each (C+, C-), both ascending."""

    def found(rows: Rows) -> Found:
        mine = sorted(
            (json.loads(r["title"]), r[MEAN], r["accuracy_mean"])
            for r in rows
            if r["title"] != BASE
        )
        size = math.isqrt(len(mine))
        error, accuracy = (np.reshape([r[k] for r in mine], (size, size)) for k in (1, 2))
        return bool(holds(error, accuracy))

    return found


def _by_axis(of: Floats) -> bool:
    """Return whether the means over C- differ more than those over C+."""
    return bool(np.ptp(of.mean(axis=1)) > np.ptp(of.mean(axis=0)))


def _clip_helps(rows: Rows, chosen: Callable[[int], bool]) -> list[bool]:
    """For each number of rounds chosen: whether some clip is better than none."""
    found: dict[int, dict[str, float]] = {}
    for r in rows:
        if r["title"] != BASE and chosen(r["rounds"]):
            found.setdefault(r["rounds"], {})[r["title"]] = r[MEAN]
    return [min(means.values()) < means["no clip"] for means in found.values()]


def _most_resilient(rows: Rows) -> Found:
    """FedTemp's classwise ECE grows least, as a ratio, from the largest budget to the smallest."""
    grown = {}
    for title in (*SCALING, *BINNING):
        mine = [r for r in rows if (r["title"], r["part"]) == (title, "budgets")]
        means = {r["epsilon"]: r[MEAN] for r in mine}
        if len(means) > 1:
            grown[title] = means[min(means)] / means[max(means)]
    known = "FedTemp" in grown and len(grown) > 1
    return bool(grown["FedTemp"] == min(grown.values())) if known else None


def _worse_than_base(rows: Rows) -> dict[float, bool]:
    """Budget below 10 -> whether FedCal is above the uncalibrated model there."""
    base = [r[MEAN] for r in rows if r["title"] == BASE]
    found = {r["epsilon"]: r[MEAN] for r in rows if r["title"] == "FedCal"}
    return {e: mean > base[0] for e, mean in found.items() if base and e < 10}


def _unsuitable(rows: Rows) -> Found:
    """At every budget below 10, of which there must be several."""
    found = _worse_than_base(rows)
    return all(found.values()) if len(found) > 1 else None


HOLDS: Mapping[str, Callable[[Rows], Found]] = {
    "weighted-beats-scaling": below("FedBBQ all weight", SCALING),
    "binning-beats-scaling": _some_binning,
    "unweighted-loses": losing(["FedBBQ"], lambda losses: max(losses) > LOSS),
    "weighted-keeps": losing(["FedBBQ all weight"], lambda losses: max(losses) <= LOSS),
    "order-preserving-keep": losing(
        KEEPING, lambda losses: all(abs(loss) < 1e-12 for loss in losses)
    ),
    "temp-best-scaling": below("FedTemp", ("FedCal", "FedOPVector")),
    "changed-loses": losing(["FedBBQ changed weight"], lambda losses: max(losses) <= LOSS),
    "fedbin-loses": lambda rows: bool(after(rows, "naive", min)["FedBin"]["loses_accuracy"]),
    "fedbin-skew": lambda rows: _rising(
        r["accuracy_mean"] - r["accuracy_before"]
        for r in rows
        if r["title"] == "FedBin" and r["rounds"] == 1
    ),
    "accuracy-skew": lambda rows: _rising(r["accuracy_mean"] for r in rows if r["title"] == BASE),
    "ece-alike": _nearer_by_ece,
    "ece-private": _lowest_ece,
    "bins-steady": _steadier,
    "many-bins-cost": _many_bins_cost,
    "few-bins-private": _few_bins_private,
    "clips-matter": _by_clips(lambda error, _: error.max() >= 2 * error.min()),
    "positive-clip": _by_clips(lambda *both: all(map(_by_axis, both))),
    "small-clip": _by_clips(
        lambda error, accuracy: (
            error[0].min() == error.min() and accuracy[0].max() == accuracy.max()
        )
    ),
    "clip-helps": lambda rows: all(_clip_helps(rows, range(6, 30).__contains__)),
    "clip-late": lambda rows: not any(_clip_helps(rows, (1, 60).__contains__)),
    "fedcal-worst": against("FedCal", ("FedOPVector", "FedTemp"), partial(_at_most, 1.0)),
    "temp-best-private": below("FedTemp", {*PAPER} - {*TEMPERATURES}),
    "fedcal-unsuitable": _unsuitable,
    "fedcal-worse-at-1": lambda rows: _worse_than_base(rows).get(1.0),
    "binning-overtakes": _overtakes,
    "few-rounds-cost": lambda rows: bool(after(rows, "rounds", min)["FedBBQ"]["loses_accuracy"]),
    "temp-resilient": _most_resilient,
    "binning-needs-rounds": _improves_with_rounds,
    "newton-reaches-pooled": against(
        "pooled temperature", ("FedNewton", "FedOneShot"), partial(_at_most, 1.01)
    ),
    "newton-beats-paper": below("FedNewton", (*PAPER, BASE)),
    "newton-beats-temp": below("FedNewton", TEMPERATURES),
    "oneshot-beats-paper": below("FedOneShot", (*PAPER, BASE)),
    "oneshot-beats-temp": below("FedOneShot", TEMPERATURES),
    "newton-ratio": ratio_at_most("FedNewton", 1.05),
    "oneshot-ratio": ratio_at_most("FedOneShot", 1.05),
}
"""Key of a claim of `maddock.toml` -> whether it holds of rows."""

CLAIMS: Mapping[str, Claim] = {
    key: Claim(holds=HOLDS[key], **words)
    for key, words in study_file("maddock")["shared"]["claims"].items()
}
"""By the key that a study names."""
