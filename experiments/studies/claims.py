"""Rows of a grid; and claims, computed and not asserted: predicates over rows, and their verdicts.

A claim about a grid is held against each network by itself, in the paper's own numbers and in
ours. None = it says nothing about these rows (a method is not among them, or the paper prints no
accuracy).

Of a grid there is a row for each method, network and setting, over its seeds. A row is what ships
of it and what `--check` compares; metrics are fractions:

* `network` (short name of the data), `part`, `title`: see `spec.Part`; `baseline`: the method reads
  the rows themselves, and nothing but the data changes its result;
* `epsilon` (inf = without privacy, and for baselines), `rounds`, `sampling_rate`, `clients`,
  `partition` of its runs; None for baselines;
* `classwise_ece`, `accuracy` and `ece` on the test rows, one value for each seed (results of some
  grids were stored without `ece`);
* `failures`: messages of runs that failed; their seeds have no values.

`completed` adds what follows from these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, Literal, TypeAlias

from experiments.studies import spec
from experiments.studies.spec import Outcome, Record, Rows, RowsClaim
from fedcal.results.comparison import Line

BASE = "Base"
"""Title of the model as it is; every grid has it, and its accuracy is the one to keep."""

METRICS = {"classwise_ece": 0.01, "accuracy": 0.001, "ece": 0.01}
"""Metrics that are kept of each run -> share of the value that `--check` tolerates."""

MEAN, STD = "classwise_ece_mean", "classwise_ece_std"

SETTINGS = ("epsilon", "rounds", "sampling_rate", "clients", "partition")

LOSS = 0.01
"""A method that loses more accuracy than this (absolute) is marked, as in the paper."""

POOLED = "pooled temperature"
"""Title of the temperature that all rows in one place give."""


def row_of(line: Line, part: spec.Part, network: str) -> Record:
    """Convert a line of a comparison to a row."""
    baseline, after = line["baseline"], line["after"] if line["seeds"] else {}
    return {
        "network": network,
        "part": part.name,
        "title": part.title_of(line["method"], line["settings"]),
        "baseline": baseline,
        **{k: None if baseline and k == "rounds" else line[k] for k in SETTINGS},
        **{metric: list(after[metric]["values"]) if after else [] for metric in METRICS},
        "failures": [f["error"] for f in line["failures"]],
    }


def completed(experiment: spec.Experiment, rows: Rows) -> Rows:
    """Add each row's place in the tables, means, spread, and what it does to accuracy."""
    parts = {part.name: part for part in experiment.parts}
    base, pooled = (
        {r["network"]: fmean(r[key]) for r in rows if r["title"] == title and r[key]}
        for title, key in ((BASE, "accuracy"), (POOLED, "classwise_ece"))
    )
    found = []
    for row in rows:
        part, before = parts[row["part"]], base.get(row["network"], math.nan)
        place = {"block": part.block, "row": part.row, "method": part.methods[row["title"]]}
        found.append(row | place | {"accuracy_before": before})
        if row["classwise_ece"]:
            accuracy, mean = fmean(row["accuracy"]), fmean(row["classwise_ece"])
            found[-1] |= {
                MEAN: mean,
                STD: spread(row["classwise_ece"]),
                "accuracy_mean": accuracy,
                "accuracy_change": accuracy - before,
                "loses_accuracy": before - accuracy > LOSS,
            }
            if "ece" in row:
                found[-1]["ece_mean"] = fmean(row["ece"])
            if row["network"] in pooled:
                found[-1]["over_pooled"] = mean / pooled[row["network"]]
    return found


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample; 0 for one value."""
    return stdev(values) if len(values) > 1 else 0.0


def place_of(row: Record) -> str:
    """Return the line of the table that a row belongs to."""
    return ", ".join(filter(None, (row["network"], row["row"])))


def without_failures(rows: Rows) -> Rows:
    """Return the rows without a failed run; means of the others would be over other seeds."""
    return [row for row in rows if row["classwise_ece"] and not row["failures"]]


def printed_rows(table: spec.Printed) -> Rows:
    """Convert a table of the paper to rows, to test its own numbers against its claims.

    Means only, and no accuracy: the paper prints marks instead.
    """
    return [
        {
            **{"network": name, "part": "printed", "row": "", "title": title, "rounds": None},
            "epsilon": math.inf if title == BASE else table.epsilon,
            MEAN: value[0] / 100,
            **dict.fromkeys(("accuracy_before", "accuracy_mean", "accuracy_change"), math.nan),
            "loses_accuracy": False,
        }
        for name, values in table.rows.items()
        for title, value in zip(table.columns, values, strict=True)
    ]


# -- verdicts ------------------------------------------------------------------------------------

Found: TypeAlias = bool | None

ERRORS = 3.5
"""Standard errors of a mean that it may be beyond what is claimed."""


@dataclass(frozen=True)
class Claim:
    """One sentence that may be true or not.

    Attributes
    ----------
    text, where
        the sentence; where in the paper it stands, or "ours"
    holds
        of the rows of one network; or of all rows, if over = "all"
    over
        "each": true if it holds on each network; "some": if on any; "all": of all at once
    """

    text: str
    where: str
    holds: Callable[[Rows], Found]
    over: Literal["each", "some", "all"] = "each"


@dataclass(frozen=True)
class Verdict:
    """The outcome of testing a claim.

    Attributes
    ----------
    key, text, where
        of the claim; the key is its text, where it has no other
    holds
        as the claim is meant; None = nothing here to tell it by, or no difference
    said, printed
        where it holds and where not; the same in the paper's own numbers, "" where they do not tell
    partly
        it does not hold, but does on some network
    places
        line of the table -> whether it holds there (None: no difference); `spec.EVERYWHERE` for a
        verdict on all lines
    """

    key: str
    text: str
    where: str
    holds: Found
    evidence: str
    printed: str = ""
    partly: bool = False
    places: Mapping[str, Found] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """The outcome, in a word or two."""
        if self.holds is None:
            return spec.NO_DIFFERENCE if self.places else spec.UNDECIDED
        return "holds" if self.holds else ("holds in part" if self.partly else "does not hold")

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        own = f"; in the paper's own numbers {self.printed}" if self.printed else ""
        return f"{self.word.capitalize()}: {self.text}{where} ({self.evidence}{own})"


def verdict_of(text: str, outcome: Outcome, evidence: str, printed: str = "") -> Verdict:
    """Return the verdict of a function on its own claim: see `spec.RowsClaim`."""
    holds = outcome if isinstance(outcome, bool) else None
    places = {} if outcome is None else {spec.EVERYWHERE: holds}
    return Verdict(text, text, "", holds, evidence, printed, places=places)


def larger(a: float, b: float, margin: float) -> Outcome:
    """Test a > b; no difference if they are within a margin, as noise or too small to matter."""
    return spec.NO_DIFFERENCE if abs(a - b) <= margin else a > b


def all_of(found: Iterable[Outcome]) -> Outcome:
    """Return True if all hold; otherwise the first of False, None and no difference that occurs.

    No verdicts at all give None.
    """
    every = list(found)
    for outcome in (False, None, spec.NO_DIFFERENCE):
        if any(one is outcome for one in every):
            return outcome
    return True if every else None


# -- claims about rows ---------------------------------------------------------------------------


def listed(rows: Iterable[Record], key: str, by: str, form: str = ".4g") -> str:
    """Tell a number of each row, after what the row is called."""
    found = {str(r[by]): f"{r[by]} {r[key]:{form}}" for r in rows if r[key] is not None}
    return ", ".join(found.values())


def above(a: Record, b: Record, key: str, least: float = 0.0, factor: float = 1.0) -> Outcome:
    """Test whether a number is larger in a than in b, so many times.

    No difference: less than `least`, or than a standard deviation (`KEY std`) over seeds.
    """
    noise = math.hypot(a.get(f"{key} std", 0.0), factor * b.get(f"{key} std", 0.0))
    return larger(a[key], factor * b[key], max(least, noise))


def ordered(
    text: str,
    more: Rows,
    less: Rows,
    key: str,
    by: str,
    *,
    least: float = 0.0,
    factor: float = 1.0,
    printed: str = "",
) -> RowsClaim:
    """Claim that a number is larger in each of some rows than in each of others, see `above`."""
    outcome = all_of(above(a, b, key, least, factor) for a in more for b in less)
    return text, outcome, listed([*more, *less], key, by), printed


def between(
    text: str, rows: Rows, key: str, by: str, low: float, high: float, errors: str = ""
) -> RowsClaim:
    """Claim that a number of each row lies in a range, but for 3.5 times its standard error.

    A row without the number is outside.

    Parameters
    ----------
    by
        column that says which rows are outside
    errors
        column of the standard error; "" = none
    """
    slack = [ERRORS * r[errors] + 1e-9 if errors else 0.0 for r in rows]
    out = [
        r
        for r, s in zip(rows, slack, strict=True)
        if r[key] is None or not low - s <= r[key] <= high + s
    ]
    known = [r[key] for r in rows if r[key] is not None]
    ends = " to ".join(f"{end(known):.4g}" for end in (min, max)) if known else "none"
    return text, not out, ends + (f"; outside: {listed(out, key, by)}" if out else "")


# -- claims about grids --------------------------------------------------------------------------

Cell: TypeAlias = str | float | Mapping[str, Any]
"""A number, or one of some rows of a grid.

A mapping from facts that the rows have ("title", "part", "network", "epsilon"; a value or a list)
and `rounds` (a value, "fewest" or "most" of these rows); or a title alone. Of their `key` ("error":
the mean classwise ECE, inf for one that loses accuracy) it is `of` ("max" on the left of a
comparison, "min" on the right, "mean", "range", or "ratio" of the largest to the smallest), times
`times`.
"""

_REDUCE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": fmean,
    "range": lambda values: max(values) - min(values),
    "ratio": lambda values: max(values) / min(values),
}


def number(rows: Rows, cell: Cell, of: str) -> float:
    """Return the number of a cell; nan if no row has it."""
    if isinstance(cell, (int, float)):
        return float(cell)
    facts: dict[str, Any] = {"key": "error", "of": of, "times": 1.0}
    facts |= {"title": cell} if isinstance(cell, str) else cell
    key, of, times = (facts.pop(k) for k in ("key", "of", "times"))
    end = {"fewest": min, "most": max}.get(str(facts.get("rounds")))
    if end:
        del facts["rounds"]
    sets = {k: v if isinstance(v, list) else [v] for k, v in facts.items()}
    mine = [r for r in rows if all(r[k] in values for k, values in sets.items())]
    if end and mine:
        last = end(r["rounds"] for r in mine if r["rounds"] is not None)
        mine = [r for r in mine if r["rounds"] == last]
    kept = ({"error": math.inf if r["loses_accuracy"] else r[MEAN]} | r for r in mine)
    values = [r.get(key, math.nan) for r in kept]
    known = values and not any(map(math.isnan, values))
    return float(times * _REDUCE[of](values)) if known else math.nan


def compared(pairs: Iterable[tuple[Cell, Cell]]) -> Callable[[Rows], Found]:
    """Test that the first of each pair of cells is below the second; None if one is nan."""

    def holds(rows: Rows) -> Found:
        found = [(number(rows, a, "max"), number(rows, b, "min")) for a, b in pairs]
        if any(math.isnan(value) for pair in found for value in pair):
            return None
        return all(a < b for a, b in found)

    return holds


CLAIMS: Mapping[str, Claim] = {
    key: Claim(holds=compared(claim.pop("lower")), **claim)
    for key, claim in spec.study_file("maddock")["shared"]["claims"].items()
}
"""Claims of `maddock.toml` by the key that a study names; `lower` has the pairs."""


def judge(key: str, claim: Claim, rows: Rows, printed: Rows) -> Verdict:
    """Hold a claim against the rows of a grid, and against the paper's own.

    Rows of which a run failed are left out.
    """
    here, own = _found(claim, without_failures(rows)), _found(claim, printed)
    holds, evidence = None, "no cells to tell it by"
    if here:
        holds = any(here.values()) if claim.over == "some" else all(here.values())
        evidence = "over all networks" if claim.over == "all" else where(here)
    beside, partly = where(own) if own else "", any(here.values())
    return Verdict(key, claim.text, claim.where, holds, evidence, beside, partly, here)


def _found(claim: Claim, rows: Rows) -> dict[str, bool]:
    """Line of the table -> whether the claim holds there, where it can be judged."""
    by_place: dict[str, Rows] = {}
    for row in rows:
        place = spec.EVERYWHERE if claim.over == "all" else place_of(row)
        by_place.setdefault(place, []).append(row)
    found = {place: claim.holds(mine) for place, mine in by_place.items()}
    return {place: holds for place, holds in found.items() if holds is not None}


def where(found: Mapping[str, bool]) -> str:
    """On how many lines or data a claim holds, and on which not."""
    bad = [name for name, holds in found.items() if not holds]
    evidence = f"on {len(found) - len(bad)} of {len(found)}"
    return evidence + (f"; not on {', '.join(bad)}" if bad else "")
