"""A result in sentences to act on: the title of its report, the last line on the terminal.

They are made of the content of `result.json` alone, and so of the tests and intervals that the
report shows. The sentences, in their order, are `templates/headline.txt.j2`; here stands what is
computed for them.
"""

import math
from collections.abc import Mapping
from functools import partial
from statistics import NormalDist
from typing import Any

from fedcal.conformal.coverage import SHORT
from fedcal.datasets import BLOCKS
from fedcal.evaluation.estimators.calibration import ECES
from fedcal.evaluation.intervals import HIDES
from fedcal.evaluation.sites.effects import next_site_sentence
from fedcal.metrics.bootstrap import ERROR, holm
from fedcal.metrics.names import about, decimals, named, shown, unit
from fedcal.personal.posterior import HARM
from fedcal.results import labels, page

Result = Mapping[str, Any]
"""The content of `result.json`, or what of it a release that is read again says."""

MOST_NAMED = 3
"""Groups that are named for one kind of error; of more, the worst."""

_LOSSES = ("log_loss", "log_loss_cut", "confidence_log_loss", "confidence_log_loss_cut")


def headline(result: Result) -> str:
    """All that there is to say, from the most to the least important."""
    tests = result.get("tests", {}).get("metrics", {})
    p_values = {m: test["p_value"] for m, test in tests.items() if test["p_value"] is not None}
    sites = (result.get("personal") or {}).get("sites", {})
    harmed = [name for name, one in sites.items() if one.get("harmed") and "nll_after" in one]
    harmed.sort(key=lambda name: sites[name]["nll_before"] - sites[name]["nll_after"])
    warnings = result.get("coverage_warnings", ())
    texts = page.words(
        "headline",
        result=result,
        of=about(result),
        harmed=harmed,
        p_value=min(holm(p_values).values(), default=1),
        at_floor=any(p == tests[m]["floor"] == min(p_values.values()) for m, p in p_values.items()),
        unseen=_unseen(result),
        change=_change(result),
        falls_short=any(warning.startswith(SHORT) for warning in warnings),
        absent=labels.sentences(result.get("sites")),
        **{"most": MOST_NAMED, "harm": HARM, "error": ERROR, "app": labels.APP, "blocks": BLOCKS},
        **{"hides": HIDES, "next_site": next_site_sentence, "measured": measured},
        **{"moved": _moved, "off": _off, "points": _points},
    )
    return " ".join(texts["lines"]) or f"{result['method']} has run; nothing of it was measured."


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


def _unseen(result: Result) -> str:
    """Return the gaps, in points, that could go unseen in groups that are not named."""
    found = result.get("groups_calibration", {}).get("metrics", {"p_values": {}})
    z = NormalDist().inv_cdf(1 - ERROR / max(len(found["p_values"]), 1) / 2)
    others = found["p_values"].keys() - {*found.get("not_calibrated", ())}
    gaps = [result["groups"][group]["metrics"]["gap"] for group in others]
    known = [g for g in gaps if None not in (g["binning"], g["sampling"], g["noise"])]
    sizes = sorted(g["binning"] + z * math.hypot(g["sampling"], g["noise"]) for g in known)
    return " to ".join(dict.fromkeys(_points(sizes[k]) for k in (0, -1) if sizes))


def _change(result: Result) -> dict[str, Any]:
    """Sort metrics by the intervals of their differences, each with its numbers.

    The second view is a calibrator's or another model's; {} if there is none, or no interval.
    Metrics whose interval holds 0 decide nothing.
    """
    of, other = about(result), False
    if change := result.get("metrics_difference"):
        other = "metrics_after" not in result
        first, second = result["metrics"], result["metrics_other" if other else "metrics_after"]
        names = (*(("accuracy",) if other else ECES), *_LOSSES)
        ends = {m: (change[m]["low"], change[m]["high"]) for m in names if m in change}
        values = {m: (first[m]["value"], second[m]["value"]) for m in ends}
    elif result.get("before") and result.get("after") and result.get("intervals"):
        names = ("classwise_ece" if of[0] == "positive" else "ece", "nll")
        ends = {m: tuple(result["intervals"]["difference"][m]) for m in names}
        values = {m: (result["before"][m], result["after"][m]) for m in names}
    else:
        return {}
    titles = {m: named(m, *of).title for m in ends}
    known = {m: e for m, e in ends.items() if None not in e}
    rose = {m: low > 0 for m, (low, high) in known.items() if low > 0 or high < 0}
    texts = {
        m: f"{titles[m]} {_moved(m, *v, known.get(m))}" for m, v in values.items() if None not in v
    }
    return {
        "calibrated": not other,
        "known": known,
        "same": all(float(shown(m, x)) == 0 for m, e in known.items() for x in e),
        "better": [titles[m] for m in rose if rose[m] == named(m).higher],
        "worse": [titles[m] for m in rose if rose[m] != named(m).higher],
        "decided": [
            texts.get(m) or f"{titles[m]} {'rose' if up else 'fell'} by up to {_most(m, *known[m])}"
            for m, up in rose.items()
        ],
        "moved": [text for m, text in texts.items() if m not in rose],
    }


def _moved(
    metric: str, before: float, after: float, ends: tuple[float, float] | None = None
) -> str:
    """`from 4.8 to 1.1 %`, to the digits that the difference deserves."""
    digits = None if ends is None else decimals(metric, *ends)
    one, second = (shown(metric, value, digits=digits) for value in (before, after))
    end = f"{second}{unit(metric)}"
    return f"{end} as before" if one == second else f"from {one} to {end}"


def _most(metric: str, *ends: float) -> str:
    """Return the upper end of a difference's size, of which noise hides the values: `0.53`."""
    most = max(map(abs, ends))
    return shown(metric, most, digits=decimals(metric, *ends)) + unit(metric)


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
