"""What Maddock et al. claim of their tables and figures, and what we do of ours beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedcal.experiments.reproduce.cells import BASE, Score
from fedcal.experiments.reproduce.claims import Claim, Found, Scores

SCALING = ("FedCal", "FedOPVector", "FedTemp")
BINNING = ("FedBBQ", "FedBBQ all weight")
TEMPERATURES = ("FedTemp", "FedTemp (mean of T)")
PAPER = (*SCALING, *BINNING, "FedTemp (mean of T)", "FedVector")
"""All that are the paper's, those that its tables leave out included."""

KEEPING = (
    *(*SCALING, "FedTemp (mean of T)", "FedOPVector (proximal)"),
    *("FedNewton", "FedOneShot", "FedNewton entropy", "FedNewton OPVector"),
)

# -- of tables: one score for each title ---------------------------------------------------------


def against(
    title: str, others: Iterable[str], holds: Callable[[Score, Sequence[Score]], bool]
) -> Callable[[Scores], Found]:
    """Whether something holds of a method and those of the others that are there."""

    def found(scores: Scores) -> Found:
        by_title = {s.title: s for s in scores}
        beside = [by_title[other] for other in others if other in by_title]
        return holds(by_title[title], beside) if title in by_title and beside else None

    return found


def _lowest(score: Score, beside: Sequence[Score]) -> bool:
    """Below each of the others, and not marked; what is marked does not stand in its way."""
    return not score.marked and all(score.mean < s.mean for s in beside if not s.marked)


def _highest(score: Score, beside: Sequence[Score]) -> bool:
    return all(s.mean <= score.mean for s in beside)


def _within_1_percent(score: Score, beside: Sequence[Score]) -> bool:
    return all(s.mean <= 1.01 * score.mean for s in beside)


def below(title: str, others: Iterable[str]) -> Callable[[Scores], Found]:
    """Whether a method has a lower classwise ECE than each of the others that are there."""
    return against(title, others, _lowest)


def _some_binning(scores: Scores) -> Found:
    found = [below(title, SCALING)(scores) for title in BINNING]
    return None if found == [None, None] else any(found)


def _with_accuracy(scores: Scores, titles: Sequence[str]) -> list[Score]:
    return [s for s in scores if s.title in titles and not math.isnan(s.loss)]


def loses(scores: Scores, title: str) -> Found:
    """Whether any score of the method is marked for its loss of accuracy."""
    mine = _with_accuracy(scores, (title,))
    return any(s.marked for s in mine) if mine else None


def _weighted_keeps(scores: Scores) -> Found:
    found = loses(scores, "FedBBQ all weight")
    return None if found is None else not found


def _keeps(scores: Scores) -> Found:
    """Whether none of the methods that keep the order changes accuracy at all."""
    mine = _with_accuracy(scores, KEEPING)
    return all(abs(s.loss) < 1e-12 for s in mine) if mine else None


def mean_ratio(scores: Scores, title: str, reference: str) -> float | None:
    """Mean over networks and rows of a method's classwise ECE over the reference's."""
    base = {s.network: s.mean for s in scores if s.title == reference}
    mine = [s for s in scores if s.title == title and s.network in base]
    return sum(s.mean / base[s.network] for s in mine) / len(mine) if mine else None


def ratio_at_most(title: str, factor: float) -> Callable[[Scores], Found]:
    """Whether the mean ratio to the pooled temperature is at most `factor`."""

    def holds(scores: Scores) -> Found:
        ratio = mean_ratio(scores, title, "pooled temperature")
        return None if ratio is None else ratio <= factor

    return holds


def _bound_decides(scores: Scores) -> Found:
    """Whether some columns of one line are below the uncalibrated model, and some are not."""
    base = [s.mean for s in scores if s.title == BASE]
    return len({s.mean < base[0] for s in scores if s.title != BASE}) == 2 if base else None


# -- of figures: a curve for each title ----------------------------------------------------------


def curve(scores: Scores, title: str, part: str, epsilon: float | None = None) -> list[Score]:
    """A method in a part, fewest rounds first; None = without privacy."""
    mine = [s for s in scores if (s.title, s.part, s.epsilon) == (title, part, epsilon)]
    return sorted((s for s in mine if s.rounds is not None), key=lambda s: s.rounds or 0)


def _overtakes(scores: Scores) -> Found:
    """Weighted FedBBQ is above FedTemp after the fewest rounds, and below after the most."""
    curves = (curve(scores, t, "rounds") for t in ("FedBBQ all weight", "FedTemp"))
    bbq, temp = ({s.rounds: s.mean for s in found} for found in curves)
    both = [rounds for rounds in bbq if rounds in temp]
    if len(both) < 2:
        return None
    first, last = both[0], both[-1]
    return bbq[first] > temp[first] and bbq[last] < temp[last]


def _few_rounds_cost(scores: Scores) -> Found:
    found = curve(scores, "FedBBQ", "rounds")
    return found[0].marked if found else None


def _most_resilient(scores: Scores) -> Found:
    """FedTemp's classwise ECE grows least, as a ratio, from the largest budget to the smallest."""
    grown = {}
    for title in (*SCALING, *BINNING):
        mine = [s for s in scores if s.title == title and s.part == "budgets"]
        means = {math.inf if s.epsilon is None else s.epsilon: s.mean for s in mine}
        if len(means) > 1:
            grown[title] = means[min(means)] / means[max(means)]
    if "FedTemp" not in grown or len(grown) < 2:
        return None
    return grown["FedTemp"] == min(grown.values())


def _worse_than_base(scores: Scores) -> dict[float, bool]:
    """Budget below 10 -> whether FedCal is above the uncalibrated model there."""
    base = [s.mean for s in scores if s.title == BASE]
    private = {s.epsilon: s.mean for s in scores if s.title == "FedCal" and s.epsilon is not None}
    return {e: mean > base[0] for e, mean in private.items() if base and e < 10}


def _unsuitable(scores: Scores) -> Found:
    """At every budget below 10, of which there must be several."""
    found = _worse_than_base(scores)
    return all(found.values()) if len(found) > 1 else None


def _worse_at_one(scores: Scores) -> Found:
    return _worse_than_base(scores).get(1.0)


def _improves_with_rounds(scores: Scores) -> Found:
    """Weighted FedBBQ at epsilon = 1 has a lower classwise ECE after the most rounds than one."""
    found = curve(scores, "FedBBQ all weight", "rounds-and-budgets", 1.0)
    return found[-1].mean < found[0].mean if len(found) > 1 else None


EACH = "each of the paper's methods, either mean of FedTemp and FedVector included"

CLAIMS: Mapping[str, Claim] = {
    "weighted-beats-scaling": Claim(
        "Without privacy, weighted FedBBQ has a lower classwise ECE than every scaling method "
        "(FedCal, FedOPVector, FedTemp).",
        "conclusion",
        below("FedBBQ all weight", SCALING),
    ),
    "binning-beats-scaling": Claim(
        "Without privacy, some binning method has the lowest classwise ECE of all.",
        "RQ4",
        _some_binning,
    ),
    "unweighted-loses": Claim(
        "FedBBQ without weights loses more than 1 % of accuracy on some data sets.",
        "section 4.1, RQ2, RQ4",
        lambda scores: loses(scores, "FedBBQ"),
        over="some",
    ),
    "weighted-keeps": Claim(
        "FedBBQ with weights never loses more than 1 % of accuracy.",
        "RQ2",
        _weighted_keeps,
    ),
    "order-preserving-keep": Claim(
        "Temperatures and order-preserving scaling never change accuracy.",
        "section 4.2, RQ2",
        _keeps,
    ),
    "temp-best-scaling": Claim(
        "Without privacy, FedTemp has the lowest classwise ECE of the scaling methods of the "
        "paper's tables (FedCal, FedOPVector).",
        "RQ1, RQ2",
        below("FedTemp", ("FedCal", "FedOPVector")),
    ),
    "fedcal-worst": Claim(
        "FedCal has the highest classwise ECE of the scaling methods of the paper's tables "
        "(FedOPVector, FedTemp); the paper says often.",
        "RQ1",
        against("FedCal", ("FedOPVector", "FedTemp"), _highest),
    ),
    "temp-best-private": Claim(
        "With privacy, FedTemp has the lowest classwise ECE of the paper's methods (FedCal, "
        "FedOPVector, FedVector, FedBBQ).",
        "RQ3, RQ4",
        below("FedTemp", {*PAPER} - {*TEMPERATURES}),
    ),
    "fedcal-unsuitable": Claim(
        "FedCal is unsuitable with privacy: it is worse than no calibrator at every epsilon below "
        "10 that was run.",
        "RQ3, figure 3a",
        _unsuitable,
    ),
    "fedcal-worse-at-1": Claim(
        "FedCal is worse than no calibrator at epsilon = 1; the paper says below 10.",
        "RQ3",
        _worse_at_one,
    ),
    "binning-overtakes": Claim(
        "FedTemp is better after few rounds, weighted FedBBQ after many.",
        "RQ1, figure 2a",
        _overtakes,
    ),
    "few-rounds-cost": Claim(
        "After few rounds, FedBBQ without weights loses more than 1 % of accuracy.",
        "RQ2, figure 2b",
        _few_rounds_cost,
    ),
    "temp-resilient": Claim(
        "From the largest budget to the smallest, FedTemp's classwise ECE grows least.",
        "RQ3, figure 3a",
        _most_resilient,
    ),
    "binning-needs-rounds": Claim(
        "At epsilon = 1, weighted FedBBQ improves with more rounds.",
        "RQ3, figure 3c",
        _improves_with_rounds,
    ),
    "newton-reaches-pooled": Claim(
        "Without privacy, FedNewton and FedOneShot are within 1 % of the temperature that all "
        "rows in one place give.",
        "ours",
        against("pooled temperature", ("FedNewton", "FedOneShot"), _within_1_percent),
    ),
    "newton-beats-paper": Claim(
        f"FedNewton has a lower classwise ECE than {EACH}.",
        "ours",
        below("FedNewton", (*PAPER, BASE)),
    ),
    "newton-beats-temp": Claim(
        "FedNewton has a lower classwise ECE than FedTemp, whichever mean that takes.",
        "ours",
        below("FedNewton", TEMPERATURES),
    ),
    "oneshot-beats-paper": Claim(
        f"FedOneShot has a lower classwise ECE than {EACH}.",
        "ours",
        below("FedOneShot", (*PAPER, BASE)),
    ),
    "oneshot-beats-temp": Claim(
        "FedOneShot has a lower classwise ECE than FedTemp, whichever mean that takes.",
        "ours",
        below("FedOneShot", TEMPERATURES),
    ),
    "bound-decides": Claim(
        "Without privacy, it is the bound of 1/T that decides whether FedTemp is better than no "
        "calibrator on some networks.",
        "ours",
        _bound_decides,
        over="some",
    ),
    "newton-ratio": Claim(
        "FedNewton's classwise ECE is on average at most 1.05 times that of the pooled "
        "temperature without privacy.",
        "ours",
        ratio_at_most("FedNewton", 1.05),
        over="all",
    ),
    "oneshot-ratio": Claim(
        "FedOneShot's classwise ECE is on average at most 1.05 times that of the pooled "
        "temperature without privacy.",
        "ours",
        ratio_at_most("FedOneShot", 1.05),
        over="all",
    ),
}
"""By the key that a study names."""
