"""Tables of a result's metrics, who took part, and a comparison's columns by family of methods."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedcal.core import pages
from fedcal.core.checks import InputError, one_of
from fedcal.core.naming import listed
from fedcal.core.numerics import FLOOR
from fedcal.metrics.bootstrap import GAPS
from fedcal.metrics.names import TEST_ROWS, WIDTH, about, decimals, heading, named, shown

APP, STUDY = "app", "study"
"""Engines of runs with real sites: in a user's own Flower app, which only that app can start,
and over the sites of a study (`fedcal study run`)."""

SIMULATED = (
    *("engine", "ray_address", "partition", "dropout", "noise_source"),
    *("secure_aggregation", "committee", "positive"),
)
"""Options of simulations alone."""


def signed(metric: str, value: float, digits: int | None = None) -> str:
    """Format a difference with its sign; zero has none."""
    text = shown(metric, abs(value), digits=digits)
    sign = "−" if value < 0 else "+"
    return sign + text if float(text) else text


def metric_table(result: dict[str, Any]) -> pages.Table:
    """Metrics before and after, and what changed, each above its interval if a result has any."""
    parts = ("before", "after", "difference")
    rows: list[tuple[pages.Entry, ...]] = [
        (heading(metric, *about(result)), *(entry(result, part, metric) for part in parts))
        for metric in TEST_ROWS
    ]
    return pages.Table("", ("metric", "before", "after", "change"), rows, left=(0,))


def entry(result: Mapping[str, Any], part: str, metric: str) -> pages.Marked:
    """Return a number above its interval, and what makes it better, worse or inflated.

    Parameters
    ----------
    part
        "before", "after" or "difference"
    """
    before, after = (float(result[of][metric]) for of in ("before", "after"))
    value = {"before": before, "after": after, "difference": after - before}[part]
    ends = (result.get("intervals") or {}).get(part, {}).get(metric)
    digits = decimals(metric, *ends) if ends else None
    show = partial(signed if part == "difference" else shown, metric, digits=digits)
    text, interval = show(value), " to ".join(map(show, ends or ()))
    if part == "difference":
        return pages.Marked(text, mark=_says(metric, value, ends), small=interval)
    few = result.get("rows_below_floor", {}).get(part, 0) if metric == "nll" else 0
    notes = {
        interval: ends,
        "noise inflates the number": ends and metric in GAPS and value >= ends[1],
        f"{few:,} row{'s' * (few != 1)} below the floor of {FLOOR:g}": few,
    }
    return pages.Marked(text, small="; ".join(note for note, holds in notes.items() if holds))


def _says(metric: str, change: float, ends: list[float] | None) -> str:
    """Better or worse, where the interval of the difference leaves no doubt."""
    if change == 0:
        return "unchanged"
    if not ends or ends[0] <= 0 <= ends[1]:
        return "" if not ends else "no clear change"
    return "better" if (change > 0) == named(metric).higher else "worse"


def of_clients(engine: str | None) -> str:
    """Name the clients that keep their rows, in the plural."""
    return "clients of a Flower app" if engine == APP else "real sites"


def in_short(sites: Mapping[str, Any], noun: str = "real sites") -> str:
    """Return how many sites took part and which did not: "4 of 5 real sites (not Celle)"."""
    enrolled, absent = sites["enrolled"], sites["absent"]
    if not absent:
        return f"{enrolled} {noun}"
    return f"{enrolled - len(absent)} of {enrolled} {noun} (not {listed(absent)})"


def sentences(sites: Mapping[str, Any] | None) -> list[str]:
    """Return sentences on absent sites and on whose rows a result is about, or []."""
    if sites is None:
        return []
    enrolled, absent = sites["enrolled"], sites["absent"]
    lines = []
    if absent:
        some, asked = enrolled - len(absent), " (the sample of a round is secret)"
        did, secret = ("answered", "") if sites["answered"] is not None else ("were there", asked)
        lines.append(
            f"{some} of the {enrolled} enrolled sites {did}{secret}: {listed(absent)} took no "
            "part. The results and guarantees for the sites' rows hold for the rows of the "
            f"{some} that {did}."
        )
    for name, rounds in sites["missed"].items():
        which = f"round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}"
        lines.append(f"{name} missed {which}.")
    return lines


Numbers = dict[str, float]


@dataclass(frozen=True)
class Family:
    """A family's columns.

    Attributes
    ----------
    name
        of `fedcal.strategies.method.Family`
    columns
        metrics of the table; those that no line has are left out
    what
        the smallest of `best`, in words; or why lines are not ranked
    metrics_of
        a result -> metrics before and after
    best
        the metric that ranks lines, the smallest first: a proper score; "" = they are not ranked
    covers
        lines are ranked whose coverage may be 1 - `alpha`, by its interval and std over seeds
    complete
        metrics that every run has; () = those that noise leaves
    plotted
        those of the figures; () = the first that all lines have
    """

    name: str
    columns: tuple[str, ...]
    what: str
    metrics_of: Callable[[Any], tuple[Numbers, Numbers]]
    best: str = ""
    covers: bool = False
    complete: tuple[str, ...] = ()
    plotted: tuple[str, ...] = ()

    def mean(self, line: Mapping[str, Any]) -> float:
        """Return the metric that ranks a line, the mean over its seeds."""
        return float(line["after"][self.best]["mean"])


def _evaluated(result: Any) -> tuple[Numbers, Numbers]:
    """Released values, and widths of their 95 % intervals; what noise drowns is left out."""
    return {}, {
        name + width: float(number)
        for name, one in result.metrics.items()
        if one["value"] is not None
        for width, number in (("", one["value"]), (WIDTH, one["high"] - one["low"]))
    }


def _tested(result: Any) -> tuple[Numbers, Numbers]:
    """Return metrics of the test rows, and what tells whether a calibrator has collapsed."""
    of = result.reliability
    before, after = (
        {**numbers, "resolution": of[part].resolution, "uncertainty": of[part].uncertainty}
        for part, numbers in (("before", result.before), ("after", result.after))
    )
    return before, after


def _sets(result: Any) -> tuple[Numbers, Numbers]:
    """Return results before and after, with the upper end of the coverage interval."""
    (all_rows,) = result.evaluated["coverage_by"]["whole"].values()
    return result.before, result.after | {"coverage_high": all_rows["high"]}


FAMILIES = {
    "calibrate": Family(
        "calibrate",
        ("accuracy", "ece", "classwise_ece", "nll", "brier"),
        "Smallest mean log loss on the test rows",
        _tested,
        best="nll",
        complete=(*TEST_ROWS, "resolution", "uncertainty"),
        plotted=("nll", "ece", "classwise_ece", "accuracy"),
    ),
    "conformal": Family(
        "conformal",
        ("coverage", "set_size", "singletons", "empty"),
        "Smallest mean sets of those that cover as many test rows as they say",
        _sets,
        best="set_size",
        covers=True,
        plotted=("set_size", "coverage", "singletons", "empty"),
    ),
    "evaluate": Family(
        "evaluate",
        tuple(
            metric + width
            for metric in ("accuracy", "roc_auc", "confidence_auc", "ece", "classwise_ece")
            for width in ("", WIDTH)
        ),
        "Released metrics of the model: the spread over seeds and the widths of their 95 % "
        "intervals say how well each is known",
        _evaluated,
    ),
}
"""Family of methods -> what a comparison of them tells."""


def family_of(methods: Iterable[str]) -> Family:
    """Return the family of the compared methods; baselines belong to calibrate.

    Raises InputError if there are several, or one that a table has no columns for.
    """
    from fedcal.strategies import STRATEGIES  # with Flower, which a check at home does without

    found: dict[str, str] = {}
    for method in methods:
        strategy = STRATEGIES.get(method)
        family = strategy.family if strategy else "calibrate"
        if family not in FAMILIES:
            raise InputError(
                "compare takes methods that calibrate, evaluate or give prediction sets, and "
                f"{method} belongs to the family '{family}': use fedcal "
                f"{'train' if family == 'train' else 'simulate'}"
            )
        found.setdefault(family, method)
    if len(found) > 1:
        each = ", ".join(f"{method} belongs to '{family}'" for family, method in found.items())
        raise InputError(f"compare takes methods of one family: {each}")
    return FAMILIES[next(iter(found), "calibrate")]


def family_in(lines: Sequence[Mapping[str, Any]]) -> Family:
    """Return the family of a comparison's lines, by their methods or by their metrics.

    Another process may not know a method of another package.
    """
    from fedcal.strategies import STRATEGIES

    for line in lines:
        if line["method"] in STRATEGIES:
            return family_of([line["method"]])
    metrics = {name for line in lines for name in line["after"]}
    if "coverage" in metrics:
        return FAMILIES["conformal"]
    return FAMILIES["evaluate" if any(n.endswith(WIDTH) for n in metrics) else "calibrate"]


def columns_of(lines: Sequence[Mapping[str, Any]], metrics: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the metrics of a table of these lines: those asked for, or of their family.

    Raises InputError for a metric that no line has.
    """
    there = dict.fromkeys(name for line in lines for name in line["after"])
    for metric in metrics:
        one_of("metric", metric, there)
    return tuple(m for m in metrics or family_in(lines).columns if m in there)
