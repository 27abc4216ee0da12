"""Names of metrics and the form of their numbers: for every table, figure, page and sentence.

Files and Python hold plain numbers, shares as fractions. A metric that is not in the table goes by
its name, in plain numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedcal.core.naming import called
from fedcal.core.numerics import FLOOR

DIGITS, PERCENT_DIGITS = 4, 2
"""Decimals where no interval asks for fewer: of plain numbers, and of those in per cent."""


@dataclass(frozen=True)
class Named:
    """A metric's name for people.

    Attributes
    ----------
    title
        name without unit; {positive} stands for the positive class of two
    meaning
        what the number says, and which are good
    percent
        whether people read it in per cent
    higher
        whether higher is better
    short
        title of a narrow column on a terminal; "" = the title
    """

    title: str
    meaning: str = ""
    percent: bool = False
    higher: bool = False
    short: str = ""


_ECE = (
    "Expected calibration error: how far the confidence of the predicted class is from the share "
    "of correct predictions, averaged over 15 bins of confidence. 0 is best."
)
_ECE_OF_ONE = (
    "Distance between the probability of {positive} and its observed rate, averaged over 15 bins "
    "of that probability. (The mean over both classes: theirs are equal, but for rows on the edge "
    "of a bin.) 0 is best."
)
_LOSS = (
    f"Minus the logarithm of the probability of {{}}, {FLOOR:g} at least, the mean over rows. It "
    "punishes confident errors. Lower is better."
)
_BRIER = (
    "Mean squared distance between probability and what came true: of the positive class of two "
    "(0 to 1), or summed over three classes or more (0 to 2). Lower is better."
)
_CUT = " of scores cut at 1e-4"

METRICS: dict[str, Named] = {
    "accuracy": Named(
        "accuracy",
        "Share of rows whose most probable class is right. Temperatures and order-preserving "
        "calibrators cannot change it. Higher is better.",
        percent=True,
        higher=True,
    ),
    "ece": Named("top-label ECE", _ECE, percent=True, short="ECE"),
    "classwise_ece": Named(
        "classwise ECE",
        "The same for the probability of each class against the rest, averaged over classes. It "
        "sees errors below the top label. 0 is best.",
        percent=True,
        short="cwECE",
    ),
    "nll": Named("log loss", _LOSS.format("the label")),
    "brier": Named("Brier score", _BRIER),
    "precision": Named("precision", percent=True, higher=True),
    "recall": Named("recall (sensitivity)", percent=True, higher=True),
    "specificity": Named("specificity", percent=True, higher=True),
    "prevalence": Named("prevalence", percent=True),
    "net_benefit": Named("net benefit", higher=True),
    "roc_auc": Named("ROC AUC", higher=True),
    "confidence_auc": Named("ROC AUC of confidence", higher=True, short="confidence AUC"),
    "gap": Named("mean predicted minus observed rate", percent=True),
    "confidence_brier": Named("Brier score of the confidence"),
    "log_loss": Named("log loss of {positive}"),
    "log_loss_cut": Named("log loss of {positive} cut at 1e-4"),
    "confidence_log_loss": Named("log loss of the confidence"),
    "confidence_log_loss_cut": Named("log loss of the confidence cut at 1e-4"),
    "calibration_slope_cut": Named(f"calibration slope{_CUT}"),
    "calibration_intercept_cut": Named(f"calibration intercept{_CUT}"),
    "coverage": Named(
        "coverage",
        "Share of test rows whose label is in their set; the target is 1 - alpha.",
        percent=True,
    ),
    "set_size": Named(
        "set size", "Mean number of labels in a set. Among sets that cover, smaller is better."
    ),
    "singletons": Named(
        "one label", "Share of test rows whose set holds one label.", percent=True, higher=True
    ),
    "empty": Named("no label", "Share of test rows whose set is empty.", percent=True),
}
"""Metric -> its name, in the order of tables of test rows."""

TEST_ROWS = tuple(METRICS)[:5]
"""Metrics of rows that are there one by one."""

ON_DEMAND = (
    *("precision", "recall", "specificity", "prevalence", "net_benefit"),
    *("calibration_slope", "calibration_slope_cut"),
    *("calibration_intercept", "calibration_intercept_cut"),
)
"""Metrics of a release that stand under "More metrics"; all others of its score come first."""

WIDTH = "_width"
"""Suffix of a metric's name for the width of its interval."""

_WIDTH = (
    "Width of the 95 % interval of a metric: what noise, the choice of rows and the buckets of "
    "scores leave open."
)

METRICS |= {
    metric + WIDTH: replace(
        METRICS[metric],
        title=f"{METRICS[metric].title} interval",
        short=f"{METRICS[metric].short or METRICS[metric].title} interval",
        meaning=_WIDTH * (metric == "accuracy"),  # once is enough
        higher=False,
    )
    for metric in ("accuracy", "roc_auc", "confidence_auc", "ece", "classwise_ece")
}

_OF_SCORE = {
    ("positive", "ece"): Named("top-label ECE", _ECE, percent=True),
    ("confidence", "gap"): Named("confidence minus accuracy", percent=True),
    ("classes", "gap"): Named("confidence minus accuracy", percent=True),
    ("positive", "gap"): Named("predicted minus observed rate of {positive}", percent=True),
    ("positive", "classwise_ece"): Named("ECE of {positive}", _ECE_OF_ONE, percent=True),
}
"""Names of a metric of a score ("positive", "confidence", "classes") that say more."""

THE_POSITIVE = "the positive class"


def about(result: Mapping[str, Any]) -> tuple[str, str]:
    """Return the score of a result, and what its positive class is called."""
    return str(result.get("score", "")), called(result.get("class_names"), 1)


def named(metric: str, score: str = "", positive: str = THE_POSITIVE) -> Named:
    """Return a metric's name of a score ("" = any), where the positive class is called so."""
    one = _OF_SCORE.get((score, metric)) or METRICS.get(metric) or Named(metric.replace("_", " "))
    parts = (one.title, one.meaning, one.short)
    title, meaning, short = (part.replace("{positive}", positive) for part in parts)
    return replace(one, title=title, meaning=meaning, short=short)


def heading(metric: str, score: str = "", positive: str = THE_POSITIVE) -> str:
    """Return the heading of a metric in tables and figures, with its unit."""
    one = named(metric, score, positive)
    return f"{one.title}, %" if one.percent else one.title


def column(metric: str, score: str = "", positive: str = THE_POSITIVE) -> str:
    """Return the heading of a narrow column on a terminal, with its unit."""
    one = named(metric, score, positive)
    return (one.short or one.title) + " %" * one.percent


def unit(metric: str) -> str:
    """Return what follows a number in a sentence: a space and the per cent sign, or nothing."""
    return "\u00a0%" if named(metric).percent else ""


def scaled(metric: str, value: float) -> float:
    """Return the number as people read it, in per cent where they do."""
    return 100 * value if named(metric).percent else value


def decimals(metric: str, low: float, high: float) -> int:
    """Return the number of decimals that a value with this interval deserves.

    Half of the interval is two units of the last digit at least.
    """
    half = scaled(metric, high - low) / 2
    most = PERCENT_DIGITS if named(metric).percent else DIGITS
    if not 0 < half < math.inf:
        return most
    return min(max(math.ceil(-math.log10(half / 2)), 0), most)


def shown(metric: str, value: float, sign: bool = False, digits: int | None = None) -> str:
    """Return a metric's value as text, beside an interval to `decimals` digits."""
    if digits is None:
        digits = PERCENT_DIGITS if named(metric).percent else DIGITS
    mark = "+z" if sign else "z"  # z: no minus before a zero
    return f"{scaled(metric, value):{mark}.{digits}f}"


def line(values: Mapping[str, float], score: str = "", positive: str = THE_POSITIVE) -> str:
    """Return the metrics of test rows in a line."""
    pairs = ((column(m, score, positive), shown(m, values[m])) for m in TEST_ROWS)
    return ", ".join(map(" ".join, pairs))


def floored(rows: Mapping[str, int]) -> str:
    """Return a sentence on rows below the floor of log loss, by part; "" if there are none."""
    if not any(rows.values()):
        return ""
    counts = ", ".join(f"{number:,} {part}" for part, number in rows.items())
    return f"Log loss takes a label's probability as at least {FLOOR:g}; rows below it: {counts}."
