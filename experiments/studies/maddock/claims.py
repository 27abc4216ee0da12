"""Claims of Maddock et al. on their tables and figures, and ours beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from experiments.studies.claims import BASE, LOSS, MEAN, Claim, Found
from experiments.studies.spec import Record, Rows, study_file

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


def curve(rows: Rows, title: str, part: str, epsilon: float = math.inf) -> Rows:
    """Return a method's rows in a part, fewest rounds first."""
    mine = [r for r in rows if (r["title"], r["part"], r["epsilon"]) == (title, part, epsilon)]
    return sorted((r for r in mine if r["rounds"] is not None), key=lambda r: int(r["rounds"]))


def _overtakes(rows: Rows) -> Found:
    """Weighted FedBBQ is above FedTemp after the fewest rounds, and below after the most."""
    curves = (curve(rows, title, "rounds") for title in ("FedBBQ all weight", "FedTemp"))
    bbq, temp = ({r["rounds"]: r[MEAN] for r in found} for found in curves)
    both = [rounds for rounds in bbq if rounds in temp]
    crossed = both and bbq[both[0]] > temp[both[0]] and bbq[both[-1]] < temp[both[-1]]
    return bool(crossed) if len(both) > 1 else None


def _few_rounds_cost(rows: Rows) -> Found:
    found = curve(rows, "FedBBQ", "rounds")
    return bool(found[0]["loses_accuracy"]) if found else None


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


def _improves_with_rounds(rows: Rows) -> Found:
    """Weighted FedBBQ at epsilon = 1 has a lower classwise ECE after the most rounds than one."""
    found = curve(rows, "FedBBQ all weight", "rounds-and-budgets", 1.0)
    return bool(found[-1][MEAN] < found[0][MEAN]) if len(found) > 1 else None


HOLDS: Mapping[str, Callable[[Rows], Found]] = {
    "weighted-beats-scaling": below("FedBBQ all weight", SCALING),
    "binning-beats-scaling": _some_binning,
    "unweighted-loses": losing(["FedBBQ"], lambda losses: max(losses) > LOSS),
    "weighted-keeps": losing(["FedBBQ all weight"], lambda losses: max(losses) <= LOSS),
    "order-preserving-keep": losing(
        KEEPING, lambda losses: all(abs(loss) < 1e-12 for loss in losses)
    ),
    "temp-best-scaling": below("FedTemp", ("FedCal", "FedOPVector")),
    "fedcal-worst": against("FedCal", ("FedOPVector", "FedTemp"), partial(_at_most, 1.0)),
    "temp-best-private": below("FedTemp", {*PAPER} - {*TEMPERATURES}),
    "fedcal-unsuitable": _unsuitable,
    "fedcal-worse-at-1": lambda rows: _worse_than_base(rows).get(1.0),
    "binning-overtakes": _overtakes,
    "few-rounds-cost": _few_rounds_cost,
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
