"""A result in sentences to act on: the title of its report, the last line on the terminal.

They are made of the content of `result.json` alone, and so of the tests and intervals that the
report shows. `CLAUSES` are asked in their order; each returns a sentence, or "" where the result
has nothing of the kind. A further fact about results is one more function there.
"""

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any

from fedcal.conformal.coverage import SHORT
from fedcal.core import classes, printable
from fedcal.datasets import BLOCKS
from fedcal.evaluation.estimators.calibration import ECES
from fedcal.experiments.report.groups import sentences as of_groups
from fedcal.experiments.runs.config import APP
from fedcal.metrics.gap_change import ERROR, holm
from fedcal.metrics.names import about, decimals, named, shown, unit
from fedcal.personal.at_site import HARM
from fedcal.strategies.server import participation

Result = Mapping[str, Any]
"""The content of `result.json`, or of `reading.json`."""

MOST_NAMED = 3
"""Groups that are named for one kind of error; of more, the worst."""

_LOSSES = ("log_loss", "log_loss_cut", "confidence_log_loss", "confidence_log_loss_cut")


def headline(result: Result) -> str:
    """All that the clauses say, from the most to the least important."""
    sentence = " ".join(text for clause in CLAUSES if (text := clause(result)))
    return sentence or f"{result['method']} has run; nothing of it was measured."


def measured(metric: str, estimate: Mapping[str, Any], of: str = "") -> str:
    """`41 % (38 to 44)`; without a value `38 to 44 %`, and "" where nothing is known.

    Parameters
    ----------
    of
        what it is a share of, such as " of the rows"
    """
    low, high = estimate["low"], estimate["high"]
    if low is None or high is None or (estimate["value"] is None and low <= 0 and high >= 1):
        return ""
    digits = decimals(metric, low, high)
    ends = " to ".join(shown(metric, end, digits=digits) for end in (low, high))
    if estimate["value"] is None:
        return ends + unit(metric) + of
    value = f"{shown(metric, estimate['value'], digits=digits)}{unit(metric)}{of}"
    return value if low == high else f"{value} ({ends})"


# -- evaluations ---------------------------------------------------------------------------------

_ALONE = ("roc_auc", "confidence_auc", "classwise_ece")
"""Metrics told where there is no accuracy."""


def right(result: Result) -> str:
    """State how often predictions are right, or the only metric that was evaluated."""
    metrics = result.get("metrics")
    if metrics is None:
        return ""
    if _nobody_asked(result):
        return "No client was contacted in a round, so nothing is known."
    if "accuracy" in metrics:
        if not (text := measured("accuracy", metrics["accuracy"], " of the rows")):
            return "How often the model is right could not be measured under this noise."
        at = result.get("threshold", 0.5)
        return f"Right in {text}{f' at threshold {at:g}' * (at != 0.5)}."
    sentences = []
    for name in (m for m in _ALONE if m in metrics):
        text = measured(name, metrics[name])
        ending = f": {text}." if text else " could not be measured under this noise."
        sentences.append(_first(named(name).title) + ending)
    return " ".join(sentences)


def calibrated_on_average(result: Result) -> str:
    """State whether the mean score matches the outcome, then whether scores are calibrated."""
    gap = result.get("metrics", {}).get("gap")
    if gap is None or _nobody_asked(result):
        return ""
    subject = _subject(result)
    low, high = gap["low"], gap["high"]
    if low is None or high is None or (gap["value"] is None and low <= 0 <= high):
        return f"Whether {subject} is right on average could not be measured under this noise."
    if low > 0 or high < 0:
        return f"{_first(subject)} is {_off(gap)} on average."
    largest = max(-low, high)
    sentence = f"On average {subject} is right to within {_points(largest)} points"
    tests = result.get("tests", {}).get("metrics", {})
    sure = holm({name: t["p_value"] for name, t in tests.items() if name != "groups"})
    p = min(sure.values(), default=1.0)
    if p < ERROR:
        sentence += f", but not score by score (p = {p:.2g})"
    return f"{sentence}."


def by_group(result: Result) -> str:
    """Name the groups whose mean score is off, and the gap that could go unseen in the others."""
    tests = result.get("tests", {}).get("metrics", {}).get("groups")
    if tests is None or "by_group" not in tests:
        return ""
    p_values = tests["by_group"]
    if not p_values:
        return "Of no group could it be measured."
    gaps = {g: result["groups"][g]["metrics"]["gap"] for g in p_values}
    off = {g: gaps[g] for g, p in p_values.items() if p < ERROR}
    low = _worst({g: gap for g, gap in off.items() if gap["low"] + gap["high"] <= 0})
    high = _worst({g: gap for g, gap in off.items() if gap["low"] + gap["high"] > 0})
    unseen = sorted(_unseen(gap, len(gaps)) for g, gap in gaps.items() if g not in off)
    ends = " to ".join(dict.fromkeys(_points(unseen[k]) for k in (0, -1) if unseen))
    hidden = f"gaps below {ends} points could go unseen"
    if off:
        rest = f"; elsewhere {hidden}" if unseen else ""
        sides = [f"too {side} for {some}" for side, some in (("low", low), ("high", high)) if some]
        return f"By group it is {' and '.join(sides)}{rest}."
    if tests["p_value"] < ERROR:
        p = f"p = {tests['p_value']:.2g}"
        return f"Over the {len(gaps)} groups it is off ({p}), but none stands out: {hidden}."
    return f"None of the {len(gaps)} groups stands out: {hidden}."


def against_each_other(result: Result) -> str:
    """Compare the second view with the first: a calibrator's, or another model's."""
    change = result.get("metrics_difference")
    if not change:
        return ""
    calibrated = "metrics_after" in result
    names = ECES if calibrated else ("accuracy",)
    views = ("metrics", "metrics_after" if calibrated else "metrics_other")
    ends = {m: (change[m]["low"], change[m]["high"]) for m in (*names, *_LOSSES) if m in change}
    values = {m: tuple(result[view][m]["value"] for view in views) for m in ends}
    return _compared(_CALIBRATION if calibrated else _SECOND_MODEL, values, ends, about(result))


# -- calibrators, models, sets -------------------------------------------------------------------


def after_calibration(result: Result) -> str:
    """Better, worse, or no difference beyond chance: probabilities before and after."""
    before, after = result.get("before"), result.get("after")
    if "before" not in result or "sets" in result or "personal" in result:
        return ""
    if before is None or after is None:
        if result.get("config", {}).get("engine") == APP:
            return "No rows tell here what this calibrator is worth: the method evaluate does."
        if str(result.get("config", {}).get("data")).startswith(BLOCKS):
            return (
                "Nothing was held out: fedcal evaluate --calibrator tells what this one is worth."
            )
        return "Each site measures the gain of this calibrator on its own rows; it is unknown here."
    names = ("classwise_ece" if _score(result) == "positive" else "ece", "nll")
    values = {m: (before[m], after[m]) for m in (*names, "accuracy")}
    intervals = result.get("intervals")
    if not intervals:
        few = "; too few test rows to tell better from worse" * ("intervals" in result)
        ece = names[0]
        title = named(ece, *about(result)).title
        return f"Calibration: {title} {_moved(ece, *values[ece], None)}{few}."
    ends = {m: tuple(intervals["difference"][m]) for m in values}
    accuracy = _kept(*values.pop("accuracy"), ends.pop("accuracy"), intervals["after"]["accuracy"])
    return f"{_compared(_CALIBRATION, values, ends, about(result))} {accuracy}"


def at_home(result: Result) -> str:
    """State how many sites recalibrate, the gain, whether any is harmed, and what noise hides."""
    sentence, personal = "", result.get("personal")
    if personal is not None:
        before, after = (f"{result[part]['nll']:.3f}" for part in ("before", "after"))
        seen = {name: one for name, one in personal["sites"].items() if "nll_after" in one}
        worse = [name for name, one in seen.items() if one["harmed"]]
        worse.sort(key=lambda name: seen[name]["nll_before"] - seen[name]["nll_after"])
        sites = personal["taken"] + personal["kept"]
        sentence = (
            f"{personal['taken']} of {sites} sites recalibrate at home, {personal['kept']} keep "
            f"the model: log loss from {before} to {after} ({personal['judged_on']}). "
            f"{printable.listed(worse, most=MOST_NAMED) or 'No site'} "
            f"{'are' if len(worse) > 1 else 'is'} shown to be worse by more than {HARM:g}"
            f"{f' (of {len(seen)} with rows to be judged on)' * (len(seen) < sites)}. "
        )
    hidden = "Noise hides how sites differ: their prior is the identity's."
    return (sentence + hidden * bool(result.get("prior", {}).get("hidden"))).strip()


def trained(result: Result) -> str:
    """State how often a trained model is right on test rows, and its calibration error."""
    after = result.get("after")
    if not after or "before" in result or "ece" not in after:
        return ""
    return (
        f"Right in {shown('accuracy', after['accuracy'])}\u00a0% of the test rows; its top-label "
        f"ECE is {shown('ece', after['ece'])}\u00a0%."
    )


def covered(result: Result) -> str:
    """Compare the coverage of prediction sets with the target."""
    sets = result.get("sets")
    if sets is None:
        return ""
    wanted = f"{100 * (1 - sets['alpha']):.4g}\u00a0%"
    if result["after"] is None:
        return f"Sets made for a coverage of {wanted}; without test rows it was not measured."
    coverage, sizes = result["after"]["coverage"], result["after"]["set_size"]
    intervals = result.get("coverage_by", {}).get(
        "whole", {"": {"low": coverage, "high": coverage}}
    )
    (whole,) = intervals.values()
    coverage_text = measured("accuracy", {**whole, "value": coverage}, " of the test rows")
    beside = f"; {wanted} wanted"
    if any(warning.startswith(SHORT) for warning in result.get("coverage_warnings", ())):
        beside = f", fewer than the {wanted} wanted by more than chance"
    elif 1 - sets["alpha"] < whole["low"] < whole["high"]:
        beside = f", more than the {wanted} wanted"
    return f"Sets hold the label in {coverage_text}{beside}, with {sizes:.3g} labels on average."


_CHANGES = {
    "score": "the scores",
    "calibration": "the outcome at a given score",
    "prevalence": "the share of the outcome",
}


def changed(result: Result) -> str:
    """State the changes since an earlier release."""
    changes = result.get("changes")
    if not changes:
        return ""
    sure = holm({name: test["p_value"] for name, test in changes.items()})
    names = [_CHANGES[name] for name, p in sure.items() if p < ERROR]
    if not names:
        return "Nothing has changed beyond chance since the earlier release."
    return f"Since the earlier release {printable.listed(names, ' and ')} changed beyond chance."


def at_sites(result: Result) -> str:
    """Name uncalibrated groups, harmed and absent sites, and ranges that ended a search."""
    absent = participation.sentences(result.get("sites"))
    return " ".join([*of_groups(result), *absent, *result.get("at_limits", ())])


CLAUSES: tuple[Callable[[Result], str], ...] = (
    *(at_home, changed, right, calibrated_on_average, by_group, against_each_other),
    *(after_calibration, trained, covered, at_sites),
)
"""Asked in this order."""


# -- words ---------------------------------------------------------------------------------------


_CALIBRATION = {
    "unknown": "Calibration could not be judged under this noise",
    "same": "Calibration changed nothing",
    "mixed": "Calibration made {better} better and {worse} worse",
    "better": "Calibration made the probabilities better",
    "worse": "Calibration made the probabilities worse",
    "unclear": "Calibration made no difference beyond chance",
}
_SECOND_MODEL = {
    "unknown": "The second model could not be judged under this noise",
    "same": "The second model says the same",
    "mixed": "The second model is better in {better} and worse in {worse}",
    "better": "The second model is better",
    "worse": "The second model is worse",
    "unclear": "The second model does not differ beyond chance",
}


def _compared(
    sentences: Mapping[str, str],
    values: Mapping[str, tuple[Any, Any]],
    ends: Mapping[str, tuple[Any, Any]],
    of: tuple[str, str],
) -> str:
    """Better, worse, both or neither, by the intervals of differences; then the numbers."""
    titles = {m: named(m, *of).title for m in ends}
    known = {m: e for m, e in ends.items() if None not in e}
    rose = [m for m, (low, _) in known.items() if low > 0]
    fell = [m for m, (_, high) in known.items() if high < 0]
    better = [titles[m] for m in known if m in (rose if named(m).higher else fell)]
    worse = [titles[m] for m in known if m in (fell if named(m).higher else rose)]
    case = {(True, True): "mixed", (True, False): "better", (False, True): "worse"}.get(
        (bool(better), bool(worse)), "unclear"
    )
    if all(e == (0, 0) for e in known.values()):
        case = "same" if known else "unknown"
    sentence = sentences[case].format(better=" and ".join(better), worse=" and ".join(worse))
    told = {
        m: f"{titles[m]} {_moved(m, *values[m], known.get(m))}"
        for m in ends
        if None not in values[m]
    }
    sure = [m for m in known if m in rose + fell]
    decided = [told.get(m, f"{titles[m]} {'rose' if m in rose else 'fell'}") for m in sure]
    moved = ", ".join(text for m, text in told.items() if m not in sure)
    if decided and moved:
        moved = f" (within chance: {moved})"
    numbers = ", ".join(decided) + moved
    return f"{sentence}: {numbers}." if numbers else f"{sentence}."


def _moved(metric: str, before: float, after: float, ends: tuple[float, float] | None) -> str:
    """`from 4.8 to 1.1 %`, to the digits that the difference deserves."""
    digits = None if ends is None else decimals(metric, *ends)
    one, second = (shown(metric, value, digits=digits) for value in (before, after))
    end = f"{second}{unit(metric)}"
    return f"{end} as before" if one == second else f"from {one} to {end}"


def _kept(
    before: float, after: float, change: tuple[float, float], ends: tuple[float, float]
) -> str:
    """Describe the change of accuracy, by the intervals of its change and of itself."""
    if before == after:
        whole = {"value": after, "low": ends[0], "high": ends[1]}
        return f"Accuracy stays {measured('accuracy', whole)}."
    moved = _moved("accuracy", before, after, change)
    if change[0] > 0 or change[1] < 0:
        return f"Accuracy {'rose' if after > before else 'fell'} {moved}."
    return f"Accuracy went {moved}, no difference beyond chance."


def _nobody_asked(result: Result) -> bool:
    return "rows" in result and result.get("counted", result["rows"])["value"] is None


def _score(result: Result) -> str:
    return str(result.get("score", ""))


def _subject(result: Result) -> str:
    if _score(result) == "positive":
        return f"the probability of {classes.called(result.get('class_names'), 1)}"
    return "its confidence"


def _first(text: str) -> str:
    return text[0].upper() + text[1:]


def _points(share: float) -> str:
    """Format a share in points: whole ones, below two with a digit."""
    points = 100 * share
    return f"{points:.1f}" if points < 2 else f"{points:.0f}"


def _direction(gap: float) -> str:
    return "high" if gap > 0 else "low"


def _off(gap: Mapping[str, Any]) -> str:
    """`20 points too low (16 to 24)`."""
    low, high = sorted(abs(gap[end]) for end in ("low", "high"))
    digits = decimals("gap", low, high)
    ends = f"{100 * low:.{digits}f} to {100 * high:.{digits}f}"
    if gap["value"] is None:
        return f"{ends} points too {_direction(gap['low'])}"
    return f"{100 * abs(gap['value']):.{digits}f} points too {_direction(gap['low'])} ({ends})"


def _unseen(gap: Mapping[str, Any], groups: int) -> float:
    """Return the gap at which one group of so many would just stand out."""
    z = NormalDist().inv_cdf(1 - ERROR / groups / 2)
    return float(gap["binning"] + z * math.hypot(gap["sampling"], gap["noise"]))


def _worst(off: Mapping[str, Mapping[str, Any]]) -> str:
    """List groups by name with their gaps, the largest first."""

    def size(group: str) -> float:
        gap = off[group]
        middle = (gap["low"] + gap["high"]) / 2 if gap["value"] is None else gap["value"]
        return abs(float(middle))

    worst = sorted(off, key=size, reverse=True)
    return printable.listed([f"{group} (by {_by(off[group])})" for group in worst], most=MOST_NAMED)


def _by(gap: Mapping[str, Any]) -> str:
    """Size of a gap; where noise hides it, between what."""
    if gap["value"] is not None:
        return _points(abs(gap["value"]))
    return " to ".join(map(_points, sorted(abs(gap[end]) for end in ("low", "high"))))
