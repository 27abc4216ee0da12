"""What the table of a comparison tells of methods of one family, and which of them did best."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcal.core.errors import InputError
from fedcal.metrics.names import TEST_ROWS, WIDTH, column
from fedcal.strategies import STRATEGIES

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
    told
        a result -> metrics before and after
    best
        the metric that ranks lines, the smallest first; "" = they are not ranked
    covers
        lines are ranked whose coverage may be 1 - `alpha`, by its interval and std over seeds
    complete
        metrics that every run has; () = those that noise leaves
    plotted
        those of the figures; () = what all lines have
    pair
        those of figures with two panels; () = the first two
    first
        how lines of a group are ordered in the report, in a sentence
    order
        by the smallest of this metric; "" = as they come
    starred
        whether the best of a column is marked
    """

    name: str
    columns: tuple[str, ...]
    what: str
    told: Callable[[Any], tuple[Numbers, Numbers]]
    best: str = ""
    covers: bool = False
    complete: tuple[str, ...] = ()
    plotted: tuple[str, ...] = ()
    pair: tuple[str, ...] = ()
    first: str = ""
    order: str = ""
    starred: bool = False

    def mean(self, line: Mapping[str, Any]) -> float:
        """Return the metric that ranks a line, the mean over its seeds."""
        return float(line["after"][self.best]["mean"])


def _evaluated(result: Any) -> tuple[Numbers, Numbers]:
    """Released values, and widths of their 95 % intervals; what noise drowns is left out."""
    after: Numbers = {}
    for name, one in result.metrics.items():
        if one["value"] is not None:
            after[name] = float(one["value"])
            after[name + WIDTH] = float(one["high"]) - float(one["low"])
    return {}, after


def _tested(result: Any) -> tuple[Numbers, Numbers]:
    return result.before, result.after


def _sets(result: Any) -> tuple[Numbers, Numbers]:
    """Return results before and after, with the upper end of the coverage interval."""
    (all_rows,) = result.judged["coverage_by"]["whole"].values()
    return result.before, result.after | {"coverage_high": all_rows["high"]}


FAMILIES = {
    "calibrate": Family(
        "calibrate",
        ("accuracy", "ece", "classwise_ece", "nll"),
        "Smallest mean classwise ECE on the test rows",
        _tested,
        best="classwise_ece",
        complete=TEST_ROWS,
        plotted=("ece", "classwise_ece", "nll", "accuracy"),
        pair=("ece", "nll"),
        first="Within a group the smallest ECE comes first; a star marks the best of its column "
        "(as printed). Test metrics are exact, for the researcher's eyes.",
        order="ece",
        starred=True,
    ),
    "conformal": Family(
        "conformal",
        ("coverage", "set_size", "singletons", "empty"),
        "Smallest mean sets of those that cover as many test rows as they say",
        _sets,
        best="set_size",
        covers=True,
        plotted=("set_size", "coverage", "singletons", "empty"),
        first="Within a group the smallest sets come first. Numbers of the test rows are exact, "
        "for the researcher's eyes.",
        order="set_size",
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
    families: dict[str, str] = {}
    for method in methods:
        strategy = STRATEGIES.get(method)
        family = "calibrate" if strategy is None else strategy.family
        if family not in FAMILIES:
            run = "train" if family == "train" else "simulate"
            raise InputError(
                "compare takes methods that calibrate, evaluate or give prediction sets, and "
                f"{method} belongs to the family '{family}': use fedcal {run}"
            )
        families.setdefault(family, method)
    if len(families) > 1:
        (one, first), (second_family, second) = list(families.items())[:2]
        raise InputError(
            f"compare takes methods of one family: {first} belongs to '{one}', {second} to "
            f"'{second_family}'"
        )
    return FAMILIES[next(iter(families), "calibrate")]


def family_in(lines: Iterable[Mapping[str, Any]]) -> Family:
    """Return the family of a comparison's lines, by their methods or by their metrics.

    Another process may not know a method of another package.
    """
    lines = list(lines)
    for line in lines:
        if line["method"] in STRATEGIES:
            return family_of([line["method"]])
    metrics = {name for line in lines for name in line["after"]}
    if "coverage" in metrics:
        return FAMILIES["conformal"]
    return FAMILIES["evaluate" if any(n.endswith(WIDTH) for n in metrics) else "calibrate"]


def columns_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Metric -> heading of a table of these lines: of their family's, those that any line has."""
    there = {name for line in lines for name in line["after"]}
    return {metric: column(metric) for metric in family_in(lines).columns if metric in there}
