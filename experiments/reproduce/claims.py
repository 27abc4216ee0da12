"""What the paper claims, and what we do: small predicates over cells, computed, not asserted.

A claim about a table or figure is held against each network by itself, in the paper's own numbers
and in ours. None = it says nothing about these cells (a method is not among them, or the paper
prints no accuracy).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fedcal.experiments.reproduce.cells import Cell, whole

Found: TypeAlias = bool | None
Cells: TypeAlias = Sequence[Cell]

SCALING = ("FedCal", "FedOPVector", "FedTemp")
BINNING = ("FedBBQ", "FedBBQ all weight")
TEMPERATURES = ("FedTemp", "FedTemp (mean of T)")
PAPER = (*SCALING, *BINNING, "FedTemp (mean of T)", "FedVector")
"""All that are the paper's, those that its tables leave out included."""

KEEPING = (
    *(*SCALING, "FedTemp (mean of T)", "FedOPVector (proximal)"),
    *("FedNewton", "FedOneShot", "FedNewton entropy", "FedNewton OPVector"),
)
EVERYWHERE = "all networks"


@dataclass(frozen=True)
class Claim:
    """One sentence that may be true or not.

    Attributes
    ----------
    text : the sentence
    where : in the paper; or "ours"
    holds : of the cells of one network; or of all cells, if over = "all"
    over : "each": true if it holds on each network; "some": if on any; "all": of all at once
    """

    text: str
    where: str
    holds: Callable[[Cells], Found]
    over: Literal["each", "some", "all"] = "each"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes
    ----------
    key : of the claim; its text, where it has no other
    text, where : of the claim
    holds : as the claim is meant; None = nothing here to tell it by
    said : where it holds and where not
    printed : the same, in the paper's own numbers; "" where they do not tell
    partly : it does not hold, but does on some network
    places : line of the table -> whether it holds there; `EVERYWHERE` for what is told of all
    """

    key: str
    text: str
    where: str
    holds: Found
    said: str
    printed: str = ""
    partly: bool = False
    places: Mapping[str, bool] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """What became of it, in a word or two."""
        if self.holds is None:
            return "not told here"
        return "holds" if self.holds else ("holds in part" if self.partly else "does not hold")


def judge(key: str, cells: Cells, printed: Cells = ()) -> Verdict:
    """Hold the claim of that key against cells, and against the paper's own.

    Cells of which a run failed are left out.
    """
    claim = CLAIMS[key]
    here, own = _found(claim, whole(cells)), _found(claim, printed)
    said = _where(here) if claim.over != "all" else "on average over all networks"
    return Verdict(
        key,
        claim.text,
        claim.where,
        _summed(claim, here),
        said if here else "no cells to tell it by",
        _where(own) if own else "",
        partly=any(here.values()),
        places=here,
    )


def _found(claim: Claim, cells: Cells) -> dict[str, bool]:
    """Line of the table -> whether the claim holds there, where it can be told."""
    by_place: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        place = (EVERYWHERE, "") if claim.over == "all" else cell.place
        by_place.setdefault(place, []).append(cell)
    told = {", ".join(filter(None, p)): claim.holds(mine) for p, mine in by_place.items()}
    return {name: found for name, found in told.items() if found is not None}


def _summed(claim: Claim, found: Mapping[str, bool]) -> Found:
    if not found:
        return None
    return any(found.values()) if claim.over == "some" else all(found.values())


def _where(found: Mapping[str, bool]) -> str:
    bad = [name for name, holds in found.items() if not holds]
    said = f"on {len(found) - len(bad)} of {len(found)}"
    return said + (f"; not on {', '.join(bad)}" if bad else "")


# -- of tables: one cell for each title ----------------------------------------------------------


def _titles(cells: Cells, titles: Iterable[str]) -> dict[str, Cell]:
    """Title -> cell, of those titles that are there."""
    wanted = tuple(titles)
    return {c.title: c for c in cells if c.title in wanted}


def _below(cells: Cells, title: str, others: Iterable[str], factor: float = 1.0) -> Found:
    """Whether the method is below each of the others that are there, and not marked."""
    found = _titles(cells, (title,))
    beside = _titles(cells, others)
    if not found or not beside:
        return None
    return not found[title].marked and all(
        found[title].mean < factor * c.mean for c in beside.values() if not c.marked
    )


def _loses(cells: Cells, title: str) -> Found:
    """Whether any cell of the method is marked for its loss of accuracy."""
    mine = [c for c in cells if c.title == title and not math.isnan(c.loss)]
    return any(c.marked for c in mine) if mine else None


def _not(found: Found) -> Found:
    return None if found is None else not found


def _keeps(cells: Cells, titles: Iterable[str]) -> Found:
    """Whether none of the methods changes accuracy at all."""
    wanted = tuple(titles)
    mine = [c for c in cells if c.title in wanted and not math.isnan(c.loss)]
    return all(abs(c.loss) < 1e-12 for c in mine) if mine else None


def _worst(cells: Cells, title: str, others: Iterable[str]) -> Found:
    found, beside = _titles(cells, (title,)), _titles(cells, others)
    if not found or not beside:
        return None
    return all(c.mean <= found[title].mean for c in beside.values())


def _near(cells: Cells, titles: Iterable[str], reference: str, factor: float) -> Found:
    """Whether each of the methods is at most `factor` times the reference."""
    found, beside = _titles(cells, (reference,)), _titles(cells, titles)
    if not found or not beside:
        return None
    return all(c.mean <= factor * found[reference].mean for c in beside.values())


def mean_ratio(cells: Cells, title: str, reference: str) -> float | None:
    """Mean over networks and rows of a method's classwise ECE over the reference's."""
    below = {c.network: c.mean for c in cells if c.title == reference}
    mine = [c for c in cells if c.title == title and c.network in below]
    return sum(c.mean / below[c.network] for c in mine) / len(mine) if mine else None


def _bound_decides(cells: Cells) -> Found:
    """Whether some columns of one line are below the uncalibrated model, and some are not."""
    base = [c.mean for c in cells if c.title == "Base"]
    return len({c.mean < base[0] for c in cells if c.title != "Base"}) == 2 if base else None


def _ratio_at_most(title: str, factor: float) -> Callable[[Cells], Found]:
    def holds(cells: Cells) -> Found:
        ratio = mean_ratio(cells, title, "pooled temperature")
        return None if ratio is None else ratio <= factor

    return holds


# -- of figures: a curve for each title ----------------------------------------------------------


def curve(cells: Cells, title: str, part: str, epsilon: float | None = None) -> dict[int, Cell]:
    """Rounds -> cell of a method in a part; None = without privacy."""
    return {
        c.rounds: c
        for c in cells
        if c.title == title and c.part == part and c.epsilon == epsilon and c.rounds is not None
    }


def _overtakes(cells: Cells) -> Found:
    """Weighted FedBBQ is above FedTemp after the fewest rounds, and below after the most."""
    bbq, temp = (curve(cells, t, "rounds") for t in ("FedBBQ all weight", "FedTemp"))
    shared = sorted(set(bbq) & set(temp))
    if len(shared) < 2:
        return None
    first, last = shared[0], shared[-1]
    return bbq[first].mean > temp[first].mean and bbq[last].mean < temp[last].mean


def _few_rounds_cost(cells: Cells) -> Found:
    found = curve(cells, "FedBBQ", "rounds")
    return found[min(found)].marked if found else None


def _by_epsilon(cells: Cells, title: str) -> dict[float, Cell]:
    mine = [c for c in cells if c.title == title and c.part == "budgets"]
    return {math.inf if c.epsilon is None else c.epsilon: c for c in mine}


def _most_resilient(cells: Cells) -> Found:
    """FedTemp's classwise ECE grows least, as a ratio, from the largest budget to the smallest."""
    grown = {}
    for title in (*SCALING, *BINNING):
        found = _by_epsilon(cells, title)
        if len(found) > 1:
            grown[title] = found[min(found)].mean / found[max(found)].mean
    if "FedTemp" not in grown or len(grown) < 2:
        return None
    return grown["FedTemp"] == min(grown.values())


def _worse_than_base(cells: Cells) -> dict[float, bool]:
    """Budget below 10 -> whether FedCal is above the uncalibrated model there."""
    base = [c.mean for c in cells if c.title == "Base"]
    private = {c.epsilon: c.mean for c in cells if c.title == "FedCal" and c.epsilon is not None}
    return {e: mean > base[0] for e, mean in private.items() if base and e < 10}


def _unsuitable(cells: Cells) -> Found:
    """At every budget below 10, of which there must be several."""
    found = _worse_than_base(cells)
    return all(found.values()) if len(found) > 1 else None


def _worse_at_one(cells: Cells) -> Found:
    return _worse_than_base(cells).get(1.0)


def _improves_with_rounds(cells: Cells) -> Found:
    """Weighted FedBBQ at epsilon = 1 has a lower classwise ECE after the most rounds than one."""
    found = curve(cells, "FedBBQ all weight", "rounds-and-budgets", 1.0)
    return found[max(found)].mean < found[min(found)].mean if len(found) > 1 else None


EACH = "each of the paper's methods, either mean of FedTemp and FedVector included"

CLAIMS: Mapping[str, Claim] = {
    "weighted-beats-scaling": Claim(
        "Without privacy, weighted FedBBQ has a lower classwise ECE than every scaling method "
        "(FedCal, FedOPVector, FedTemp).",
        "conclusion",
        lambda cells: _below(cells, "FedBBQ all weight", SCALING),
    ),
    "binning-beats-scaling": Claim(
        "Without privacy, some binning method has the lowest classwise ECE of all.",
        "RQ4",
        lambda cells: _any(_below(cells, title, SCALING) for title in BINNING),
    ),
    "unweighted-loses": Claim(
        "FedBBQ without weights loses more than 1 % of accuracy on some data sets.",
        "section 4.1, RQ2, RQ4",
        lambda cells: _loses(cells, "FedBBQ"),
        over="some",
    ),
    "weighted-keeps": Claim(
        "FedBBQ with weights never loses more than 1 % of accuracy.",
        "RQ2",
        lambda cells: _not(_loses(cells, "FedBBQ all weight")),
    ),
    "order-preserving-keep": Claim(
        "Temperatures and order-preserving scaling never change accuracy.",
        "section 4.2, RQ2",
        lambda cells: _keeps(cells, KEEPING),
    ),
    "temp-best-scaling": Claim(
        "Without privacy, FedTemp has the lowest classwise ECE of the scaling methods of the "
        "paper's tables (FedCal, FedOPVector).",
        "RQ1, RQ2",
        lambda cells: _below(cells, "FedTemp", ("FedCal", "FedOPVector")),
    ),
    "fedcal-worst": Claim(
        "FedCal has the highest classwise ECE of the scaling methods of the paper's tables "
        "(FedOPVector, FedTemp); the paper says often.",
        "RQ1",
        lambda cells: _worst(cells, "FedCal", ("FedOPVector", "FedTemp")),
    ),
    "temp-best-private": Claim(
        "With privacy, FedTemp has the lowest classwise ECE of the paper's methods (FedCal, "
        "FedOPVector, FedVector, FedBBQ).",
        "RQ3, RQ4",
        lambda cells: _below(cells, "FedTemp", {*PAPER} - {*TEMPERATURES}),
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
        lambda cells: _near(cells, ("FedNewton", "FedOneShot"), "pooled temperature", 1.01),
    ),
    "newton-beats-paper": Claim(
        f"FedNewton has a lower classwise ECE than {EACH}.",
        "ours",
        lambda cells: _below(cells, "FedNewton", (*PAPER, "Base")),
    ),
    "newton-beats-temp": Claim(
        "FedNewton has a lower classwise ECE than FedTemp, whichever mean that takes.",
        "ours",
        lambda cells: _below(cells, "FedNewton", TEMPERATURES),
    ),
    "oneshot-beats-paper": Claim(
        f"FedOneShot has a lower classwise ECE than {EACH}.",
        "ours",
        lambda cells: _below(cells, "FedOneShot", (*PAPER, "Base")),
    ),
    "oneshot-beats-temp": Claim(
        "FedOneShot has a lower classwise ECE than FedTemp, whichever mean that takes.",
        "ours",
        lambda cells: _below(cells, "FedOneShot", TEMPERATURES),
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
        _ratio_at_most("FedNewton", 1.05),
        over="all",
    ),
    "oneshot-ratio": Claim(
        "FedOneShot's classwise ECE is on average at most 1.05 times that of the pooled "
        "temperature without privacy.",
        "ours",
        _ratio_at_most("FedOneShot", 1.05),
        over="all",
    ),
}
"""By the key that a config names."""


def _any(found: Iterable[Found]) -> Found:
    told = [f for f in found if f is not None]
    return any(told) if told else None
