"""A result in sentences to act on: the title of its report, the last line on the terminal.

They are made of the content of `result.json` alone, and so of the tests and intervals that the
report shows. `CLAUSES` are asked in their order; each returns a sentence, or "" where the result
has nothing of the kind. A further fact about results is one more function there.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from statistics import NormalDist, fmean
from typing import Any

from fedcal.conformal.coverage import SHORT
from fedcal.core import printable
from fedcal.datasets import BLOCKS
from fedcal.evaluation.estimators.calibration import ECES
from fedcal.experiments.report.groups import sentences as of_groups
from fedcal.experiments.runs.config import APP
from fedcal.metrics.gap_change import ERROR, holm
from fedcal.metrics.names import about, decimals, named, shown, unit
from fedcal.personal.posterior import HARM
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
    low, high, value = (estimate[key] for key in ("low", "high", "value"))
    if low is None or high is None or (value is None and low <= 0 and high >= 1):
        return ""
    show = partial(shown, metric, digits=decimals(metric, low, high))
    ends, what = f"{show(low)} to {show(high)}", unit(metric) + of
    if value is None:
        return ends + what
    return f"{show(value)}{what}{f' ({ends})' if low != high else ''}"


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
    texts = {m: measured(m, metrics[m]) for m in _ALONE if m in metrics}
    return " ".join(
        _first(named(m).title)
        + (f": {text}." if text else " could not be measured under this noise.")
        for m, text in texts.items()
    )


def calibrated_on_average(result: Result) -> str:
    """State whether the mean score matches the outcome, then whether scores are calibrated."""
    gap = result.get("metrics", {}).get("gap")
    if gap is None or _nobody_asked(result):
        return ""
    score, name = about(result)
    subject = f"the probability of {name}" if score == "positive" else "its confidence"
    low, high = gap["low"], gap["high"]
    if low is None or high is None or (gap["value"] is None and low <= 0 <= high):
        return f"Whether {subject} is right on average could not be measured under this noise."
    if low > 0 or high < 0:
        return f"{_first(subject)} is {_off(gap)} on average."
    sentence = f"On average {subject} is right to within {_points(max(-low, high))} points"
    tests = result.get("tests", {}).get("metrics", {})
    p = min(holm({k: t["p_value"] for k, t in tests.items() if k != "groups"}).values(), default=1)
    return sentence + (f", but not score by score (p = {p:.2g})." if p < ERROR else ".")


def by_group(result: Result) -> str:
    """Name the groups whose mean score is off, and the gap that could go unseen in the others."""
    tests = result.get("tests", {}).get("metrics", {}).get("groups", {})
    p_values = tests.get("by_group")
    if not p_values:
        return "" if p_values is None else "Of no group could it be measured."
    gaps = {g: result["groups"][g]["metrics"]["gap"] for g in p_values}
    off = {g: gaps[g] for g, p in p_values.items() if p < ERROR}
    sides = {
        "low": {g: gap for g, gap in off.items() if gap["low"] + gap["high"] <= 0},
        "high": {g: gap for g, gap in off.items() if gap["low"] + gap["high"] > 0},
    }
    unseen = sorted(_unseen(gap, len(gaps)) for g, gap in gaps.items() if g not in off)
    ends = " to ".join(dict.fromkeys(_points(unseen[k]) for k in (0, -1) if unseen))
    hidden = f"gaps below {ends} points could go unseen"
    if off:
        wrong = " and ".join(f"too {side} for {_worst(of)}" for side, of in sides.items() if of)
        return f"By group it is {wrong}{f'; elsewhere {hidden}' if unseen else ''}."
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
    views = ("metrics", "metrics_after" if calibrated else "metrics_other")
    names = (*(ECES if calibrated else ("accuracy",)), *_LOSSES)
    ends = {m: (change[m]["low"], change[m]["high"]) for m in names if m in change}
    values = {m: tuple(result[view][m]["value"] for view in views) for m in ends}
    return _compared(0 if calibrated else 1, values, ends, about(result))


# -- calibrators, models, sets -------------------------------------------------------------------


def after_calibration(result: Result) -> str:
    """Better, worse, or no difference beyond chance: probabilities before and after."""
    if "before" not in result or "sets" in result or "personal" in result:
        return ""
    before, after, config = result["before"], result.get("after"), result.get("config", {})
    if before is None or after is None:
        if config.get("engine") == APP:
            return "No rows tell here what this calibrator is worth: the method evaluate does."
        if str(config.get("data")).startswith(BLOCKS):
            return (
                "Nothing was held out: fedcal evaluate --calibrator tells what this one is worth."
            )
        return "Each site measures the gain of this calibrator on its own rows; it is unknown here."
    of = about(result)
    ece = "classwise_ece" if of[0] == "positive" else "ece"
    values = {m: (before[m], after[m]) for m in (ece, "nll", "accuracy")}
    intervals = result.get("intervals")
    if not intervals:
        few = "; too few test rows to tell better from worse" * ("intervals" in result)
        return f"Calibration: {named(ece, *of).title} {_moved(ece, *values[ece], None)}{few}."
    ends = {m: tuple(intervals["difference"][m]) for m in values}
    accuracy = _kept(*values.pop("accuracy"), ends.pop("accuracy"), intervals["after"]["accuracy"])
    return f"{_compared(0, values, ends, of)} {accuracy}"


def without_skill(result: Result) -> str:
    """State that probabilities are no better than the rates of the classes, where that is sure."""
    intervals, rates = result.get("intervals") or {}, result.get("brier_of_rates")
    names = {"before": "the model", "after": "the calibrated model"}
    ends = {part: intervals.get(part, {}).get("brier", (0.0, 0.0)) for part in names}
    flat = [name for part, name in names.items() if rates is not None and ends[part][0] >= rates]
    if not flat:
        return ""
    rates_alone = "no better than always saying how often each class occurs"
    return f"By its Brier score {flat[-1]} is {rates_alone}."


def at_home(result: Result) -> str:
    """State how many sites recalibrate, the gain, whether any is harmed, and what noise hides."""
    sentences, personal = [], result.get("personal")
    if personal is not None:
        before, after = (f"{result[part]['nll']:.3f}" for part in ("before", "after"))
        seen = {name: one for name, one in personal["sites"].items() if "nll_after" in one}
        worse = [name for name, one in seen.items() if one["harmed"]]
        worse.sort(key=lambda name: seen[name]["nll_before"] - seen[name]["nll_after"])
        sites = personal["taken"] + personal["kept"]
        judged = f" (of {len(seen)} with rows to be judged on)" * (len(seen) < sites)
        sentences = [
            f"{personal['taken']} of {sites} sites recalibrate at home, {personal['kept']} keep "
            f"the model: log loss from {before} to {after} ({personal['judged_on']}).",
            f"{printable.listed(worse, most=MOST_NAMED) or 'No site'} "
            f"{'are' if len(worse) > 1 else 'is'} shown to be worse by more than {HARM:g}{judged}.",
        ]
    if result.get("prior", {}).get("hidden"):
        sentences.append("Noise hides how sites differ: their prior is the identity's.")
    return " ".join(sentences)


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
    if (sets := result.get("sets")) is None:
        return ""
    wanted = f"{100 * (1 - sets['alpha']):.4g}\u00a0%"
    if result["after"] is None:
        return f"Sets made for a coverage of {wanted}; without test rows it was not measured."
    coverage, sizes = result["after"]["coverage"], result["after"]["set_size"]
    (whole,) = (
        result.get("coverage_by", {})
        .get("whole", {"": {"low": coverage, "high": coverage}})
        .values()
    )
    share = measured("coverage", {**whole, "value": coverage}, " of the test rows")
    beside = f"; {wanted} wanted"
    if any(warning.startswith(SHORT) for warning in result.get("coverage_warnings", ())):
        beside = f", fewer than the {wanted} wanted by more than chance"
    elif 1 - sets["alpha"] < whole["low"] < whole["high"]:
        beside = f", more than the {wanted} wanted"
    return f"Sets hold the label in {share}{beside}, with {sizes:.3g} labels on average."


_CHANGES = {
    "score": "the scores",
    "calibration": "the outcome at a given score",
    "prevalence": "the share of the outcome",
}


def changed(result: Result) -> str:
    """State the changes since an earlier release."""
    if not (changes := result.get("changes")):
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
    *(after_calibration, without_skill, trained, covered, at_sites),
)
"""Asked in this order."""


# -- words ---------------------------------------------------------------------------------------


_VERDICTS = {
    "unknown": (
        "Calibration could not be judged under this noise",
        "The second model could not be judged under this noise",
    ),
    "same": ("Calibration changed nothing", "The second model says the same"),
    "mixed": (
        "Calibration made {better} better and {worse} worse",
        "The second model is better in {better} and worse in {worse}",
    ),
    "better": ("Calibration made the probabilities better", "The second model is better"),
    "worse": ("Calibration made the probabilities worse", "The second model is worse"),
    "unclear": (
        "Calibration made no difference beyond chance",
        "The second model does not differ beyond chance",
    ),
}
"""Of a calibrator, and of another model."""


def _compared(
    column: int,
    values: Mapping[str, tuple[Any, Any]],
    ends: Mapping[str, tuple[Any, Any]],
    of: tuple[str, str],
) -> str:
    """Better, worse, both or neither, by the intervals of differences; then the numbers.

    Metrics whose interval holds 0 decide nothing, and are told as such where others do.
    """
    titles = {m: named(m, *of).title for m in ends}
    known = {m: e for m, e in ends.items() if None not in e}
    rose = [m for m, (low, _) in known.items() if low > 0]
    fell = [m for m, (_, high) in known.items() if high < 0]
    better = [titles[m] for m in known if m in (rose if named(m).higher else fell)]
    worse = [titles[m] for m in known if m in (fell if named(m).higher else rose)]
    case = "mixed" if better and worse else "better" if better else "worse" if worse else "unclear"
    if all(e == (0, 0) for e in known.values()):
        case = "same" if known else "unknown"
    words = {"better": " and ".join(better), "worse": " and ".join(worse)}
    sentence = _VERDICTS[case][column].format(**words)
    told = {
        m: f"{titles[m]} {_moved(m, *values[m], known.get(m))}"
        for m in ends
        if None not in values[m]
    }
    sure = [m for m in known if m in rose + fell]
    decided = [told.get(m, f"{titles[m]} {'rose' if m in rose else 'fell'}") for m in sure]
    moved = ", ".join(text for m, text in told.items() if m not in sure)
    numbers = ", ".join(decided) + (f" (within chance: {moved})" if decided and moved else moved)
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


def _first(text: str) -> str:
    return text[0].upper() + text[1:]


def _points(share: float) -> str:
    """Format a share in points: whole ones, below two with a digit."""
    return f"{100 * share:.{int(100 * share < 2)}f}"


def _off(gap: Mapping[str, Any]) -> str:
    """`20 points too low (16 to 24)`."""
    low, high = sorted(abs(gap[end]) for end in ("low", "high"))
    show = partial(shown, "gap", digits=decimals("gap", low, high))
    ends, side = f"{show(low)} to {show(high)}", "high" if gap["low"] > 0 else "low"
    if gap["value"] is None:
        return f"{ends} points too {side}"
    return f"{show(abs(gap['value']))} points too {side} ({ends})"


def _unseen(gap: Mapping[str, Any], groups: int) -> float:
    """Return the gap at which one group of so many would just stand out."""
    z = NormalDist().inv_cdf(1 - ERROR / groups / 2)
    return float(gap["binning"] + z * math.hypot(gap["sampling"], gap["noise"]))


def _worst(off: Mapping[str, Mapping[str, Any]]) -> str:
    """List groups by name with their gaps, the largest first; where noise hides it, its ends."""
    known = {
        group: [gap["low"], gap["high"]] if gap["value"] is None else [gap["value"]]
        for group, gap in off.items()
    }
    worst = sorted(known, key=lambda group: abs(fmean(known[group])), reverse=True)
    sizes = (" to ".join(map(_points, sorted(map(abs, known[group])))) for group in worst)
    named_by = [f"{group} (by {by})" for group, by in zip(worst, sizes, strict=True)]
    return printable.listed(named_by, most=MOST_NAMED)
