"""A verdict for each site of a release in words, and changes since earlier releases.

All tests of a release are one family (Holm): that each site is calibrated, offset 0 and slope 1 of
its log odds; that its scores do not run against outcomes (AUC 1/2 or more); and, against each
earlier release, that nothing has changed at a site, and at all sites alike. What is wrong at a
named site, its gap or its slope, is named by its own test at level / number of tests.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats
from fedcal.evaluation.findings import few
from fedcal.evaluation.intervals import FIRM
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites import site_tests
from fedcal.evaluation.sites.site_tests import Sites
from fedcal.mechanisms import NoiseDistribution
from fedcal.metrics.bootstrap import holm

SEEN = 0.8
"""Smallest probability that a gap is named which counts as detectable at a site."""

MOST, MOST_SHARE = 0.1, 0.5
"""Largest detectable gap of a site with the verdict of no fault, and that as a share of its mean
score, or of 1 less it: a ratio of observed to expected of 1.5 is detectable. Beyond, it cannot
tell."""

ALL = ""
"""Key of changes common to all sites."""

ORDER, ONE_CLASS = "order", "one class"
"""Names of faults of rows: scores run against outcomes, as with swapped labels; and all outcomes
but a few at most are of one class, which calibrated scores exclude. Such sites are left out of what
is said of all sites."""

Record: TypeAlias = dict[str, Any]

_FEW = 0.05
"""Share of rows below which a class that noise alone explains is said to be missing."""

_SPREAD = 0.03
"""Std of what buckets misread of a site's offset, where none has more than a fourth of its rows."""
_NUMBERS = [digits * 10**k for k in range(1, 6) for digits in range(10, 100)]


def verdicts_of(
    release: ScoreRelease, earlier: Mapping[str, ScoreRelease], *, level: float
) -> Record:
    """Evaluate each site of a release of counts by site, at no further cost.

    Parameters
    ----------
    release
        of the score positive or confidence
    earlier
        name -> release that it is compared with, at the sites that both have
    level
        chance of any false name: `fedcal.metrics.bootstrap.ERROR` / releases a year

    Returns
    -------
    dict
        `sites` by name, and `changes`: name of the earlier release -> site, or `ALL` -> change;
        `level`; `tests`, their number. Each has `p_value` (calibrated, or unchanged), `adjusted`,
        that in the family, `named`: "gap", "slope" or both; "joint" = neither shows by itself; none
        = nothing found, and `words`. `ORDER` alone is named where the AUC is below 1/2: a test of
        its own, whose p-values stand there; `ONE_CLASS` in place of the others at a site that has
        `one_class`. Estimates with single 95 % intervals (`value`, `low`, `high`; None = unknown,
        or no end): a site's `auc`, `observed_expected`, `gap` (mean score less outcome), `slope`
        and `intercept` of outcomes on the score's log odds, and `gap_change` and `slope_change`,
        later less earlier. A gap of `limit` (1 = none) is named at a site with the chance `SEEN` at
        least; above `most` it cannot tell: what `hides` is "noise", or "range", the bucket with
        most scores. `all` has the same estimates of all sites together, without those that
        `left_out` names

    Raises
    ------
    InputError
        A release does not count by site, or an earlier one counts other sites, or differently.
    """
    (names, now), score = _sites(release, "the release"), release.question.score
    former = {when: _sites(one, when) for when, one in earlier.items()}
    shared = {when: [n for n in names if n in there] for when, (there, _) in former.items()}
    for when, before in earlier.items():
        if _asked(before) != _asked(release) or not shared[when]:
            raise InputError(f"{when} counts other sites, or differently: it cannot be compared")
    single = level / (2 * len(names) + sum(len(same) + 1 for same in shared.values()))
    joint, *own = (part.tolist() for part in site_tests.calibration(now))
    reversed_order = site_tests.ranking(now)[2].tolist()
    one_class = _one_class(now, release)
    alone: dict[tuple[str, ...], float] = {("", name): joint[k] for k, name in enumerate(names)}
    alone |= {("", name, ORDER): reversed_order[k] for k, name in enumerate(names)}
    moved: dict[tuple[str, str], tuple[float, float, float, Record]] = {}
    for when, same in shared.items():
        pair = [s[[*map(n.index, same)]] for n, s in (former[when], (names, now))]
        usable = np.ones(len(same), bool)
        for of in pair:
            usable &= site_tests.ranking(of)[2] > single
            usable &= [not words for words in _one_class(of, release)]
        changed = site_tests.changes(pair[0], pair[1], np.flatnonzero(usable))
        p_values, gap, std, slope = map(np.ndarray.tolist, (changed[0], *changed[1], changed[2]))
        turned = _slope_changes(*(_spans(of, usable) for of in pair))
        for k, name in enumerate((*same, ALL)):
            alone[when, name] = p_values[k]
            moved[when, name] = gap[k], std[k], slope[k], turned[k]
    adjusted = holm(alone)

    def verdict(key: tuple[str, str], gap: float, slope: float) -> Record:
        parts = ["gap"] * (gap <= single) + ["slope"] * (slope <= single) or ["joint"]
        named = parts if adjusted[key] <= level else []
        return {"p_value": alone[key], "adjusted": adjusted[key], "named": named}

    verdicts: Record = {"sites": {}, "changes": {when: {} for when in earlier}}
    limits, exact = (
        np.minimum(site_tests.least_gap(of, single, SEEN), 1.0)
        for of in (now, replace(now, misread=0 * now.misread))
    )
    most = _most(now, score)
    crowds = (exact <= most) | (exact < limits / 2)
    for k, (name, one) in enumerate(zip(names, _estimates(now), strict=True)):
        one = verdict(("", name), *(p[k] for p in own)) | one
        one |= {"limit": float(limits[k]), "most": float(most[k]), "one_class": bool(one_class[k])}
        one |= {"hides": ("range" if crowds[k] else "noise") * bool(limits[k] > most[k])}
        words = _words(one["named"], one["gap"], one["slope"], score, False)
        words = words or _nothing(one, _crowd(now.rows[k], release))
        if one_class[k]:
            words, one["named"] = one_class[k], [ONE_CLASS] * bool(one["named"])
        if (order := adjusted["", name, ORDER]) <= level:
            words = _REVERSED[score].format(one["auc"]["value"])
            one |= {"p_value": alone["", name, ORDER], "adjusted": order, "named": [ORDER]}
        verdicts["sites"][name] = one | {"words": words}
    for (when, name), (by, spread, slope_p, turn) in moved.items():
        move = _around(by, spread)
        one = verdict((when, name), math.erfc(abs(by / spread) / 2**0.5), slope_p)
        # one interval alone shows which way a joint change went
        likely = one["named"] == ["joint"] and abs(by) > 1.96 * spread
        how = _words(["gap"] if likely else one["named"], move, turn, score, True)
        how = f": {'most likely ' * likely}{how}" if how else ""
        words = f"changed since {when}{how}" if one["named"] else f"no change since {when} found"
        one |= {"gap_change": move, "slope_change": turn, "words": words}
        verdicts["changes"][when][name] = one
    bad = [n for n, one in verdicts["sites"].items() if {ORDER, ONE_CLASS} & {*one["named"]}]
    bad = bad if len(bad) < len(names) else []
    (together,) = _estimates(now.together([name not in bad for name in names]))
    return verdicts | {"all": together, "left_out": bad, "level": level, "tests": len(alone)}


def _estimates(sites: Sites) -> list[Record]:
    """Return the estimates of each site."""
    truth = sites.shares(sites.fit())
    auc, auc_std, _ = site_tests.ranking(sites)
    each: dict[str, Any] = {"auc": map(_around, auc, auc_std, repeat(0.0), repeat(1.0))}
    each["observed_expected"] = map(_interval, *site_tests.observed_expected(sites, truth))
    each["gap"] = map(_around, *site_tests.gaps(sites, truth))
    each |= {k: map(_interval, *site_tests.spans(sites, of)) for of, k in _COEFFICIENTS.items()}
    return [dict(zip(each, one, strict=True)) for one in zip(*each.values(), strict=True)]


_COEFFICIENTS = {1: "slope", 0: "intercept"}


def _most(sites: Sites, score: str) -> Floats:
    """Return the largest detectable gap of each site with the verdict of no fault."""
    mean = (sites.rows * sites.shares()).sum(axis=-1) / sites.total
    share = np.minimum(mean, 1 - mean) if score == "positive" else np.ones_like(mean)
    return np.asarray(np.minimum(MOST, MOST_SHARE * share))


def _one_class(sites: Sites, release: ScoreRelease) -> list[str]:
    """Return words on each site whose outcomes are all of one class, or nearly; "" for others."""
    counts, std = sites.counts.sum(axis=-1), float(np.linalg.norm(sites.root.sum(axis=0)))
    names = release.class_names or ("the first class", "the last class")
    descriptions = [""] * len(counts)
    for k, own in enumerate(counts if release.question.score == "positive" else ()):
        total, few, least = own.sum(), int(own.argmin()), max(float(own.min()), 0.0)
        most = math.ceil(least + 1.96 * std)
        if total > FIRM * std * 2**0.5 and own[few] <= 1.96 * std and most <= _FEW * total:
            descriptions[k] = "has one class only, or nearly: at most "
            descriptions[k] += f"{most:,} of {total:,.0f} have {names[few]}"
    return descriptions


def _crowd(rows: Floats, release: ScoreRelease) -> str:
    """Return the bucket with most rows in words."""
    at, edges = int(rows.argmax()), release.question.edges_read
    share = 100 * rows[at] / max(rows.sum(), 1.0)
    return (
        f"{share:.0f} % of scores lie between {edges[at]:.2g} and {edges[at + 1]:.2g}, which hides"
    )


def _spans(sites: Sites, places: Any) -> tuple[Floats, ...]:
    """Return the slopes (value, low and high) of sites, and of some of them together, (S + 1,)."""
    both = (site_tests.spans(of, 1) for of in (sites, sites.together(places)))
    return tuple(np.concatenate(parts) for parts in zip(*both, strict=True))


def _slope_changes(before: tuple[Floats, ...], after: tuple[Floats, ...]) -> list[Record]:
    """Return the differences of slopes, as `fedcal.evaluation.intervals.difference` does."""
    (first, low, high), (second, least, most) = before, after
    move = second - first
    ends = np.hypot(second - least, high - first), np.hypot(most - second, first - low)
    return [*map(_interval, move, move - ends[0], move + ends[1])]


def _interval(*ends: float) -> Record:
    """Return value, low and high, None where not finite."""
    each = (float(x) if math.isfinite(x) else None for x in ends)
    return dict(zip(("value", "low", "high"), each, strict=True))


def _around(value: float, std: float, low: float = -math.inf, high: float = math.inf) -> Record:
    """Return the interval of a normal estimate, between the lowest and the highest value."""
    return _interval(value, max(value - 1.96 * std, low), min(value + 1.96 * std, high))


def detectable(
    patients: float, *, rate: float = 0.5, edges: Floats, std: float, tests: int, level: float
) -> float:
    """Return the gap that a site names with probability `SEEN`, by public numbers; 1 = none.

    Of patients that count once each, and of a score that does not separate outcomes (others see
    smaller gaps); `rate` of the outcome, or of right predictions: .5 is the worst. `edges` are of
    buckets, `std` of the Laplace noise of each count, `tests` and `level` of the family.
    """
    buckets = len(edges) - 1
    nothing = Sites.of(
        np.zeros((2, buckets)), edges, std * np.eye(buckets), NoiseDistribution(True)
    )
    one = np.arange(buckets) == np.searchsorted(edges, rate, side="right") - 1
    points = np.where(one[:, None], math.log(rate / (1 - rate)), nothing.points)
    site = replace(nothing, rows=patients * one, points=points, misread=_SPREAD * one)
    return min(float(site_tests.least_gap(site, level / tests, SEEN)), 1.0)


def enough(release: ScoreRelease, verdict: Record) -> int | None:
    """Return the number of protected units with which sites that noise hides could see enough.

    That is a gap of `most`. It has two digits and rests on each site's own scores. None = such a
    number does not exist, or noise hides nothing. `verdict` is the
    record that `verdicts_of` returns for the release.
    """
    (_, now), single = _sites(release, "the release"), verdict["level"] / verdict["tests"]
    each = verdict["sites"].values()
    own = now[[k for k, v in enumerate(each) if is_hidden(v, "noise") and v["limit"] < 1]]
    most = _most(own, release.question.score)

    def seen(number: int) -> bool:
        grown = replace(own, rows=own.rows * (number / own.total)[:, None])
        return bool((site_tests.least_gap(grown, single, SEEN) <= most).all())

    at = bisect_left(_NUMBERS, True, key=seen) if len(own.rows) else len(_NUMBERS)
    return _NUMBERS[at] if at < len(_NUMBERS) else None


def groups_of(release: ScoreRelease) -> list[Record]:
    """Return `gap` and `slope` of each group within a site ("" = all); too few rows have none.

    `rows` is their number, `noise` its std.
    """
    groups = []
    for (site, group), h in release.within.items():
        one: Record = {"site": site, "group": group, "rows": h.rows, "noise": h.rows_std}
        (made,) = _estimates(release.sites_of(h.counts[None], h.root, h.distribution))
        unknown = _interval(*[math.nan] * 3)
        groups.append(one | {k: unknown if few(h) else made[k] for k in ("gap", "slope")})
    return groups


def _sites(release: ScoreRelease, name: str) -> tuple[tuple[str, ...], Sites]:
    """Return the names of the sites, and their tests."""
    asked = release.question
    if asked.by != "site" or asked.score == "classes" or asked.buckets < 4:
        raise InputError(f"{name} does not count rows by site in at least 4 buckets of a score")
    return asked.group_names, release.by_site


def _asked(release: ScoreRelease) -> tuple[Any, ...]:
    """Return the settings that must agree in releases that are compared."""
    asked = release.question
    return (*asked.bucket_edges, asked.score, asked.classes, asked.subject_rows, release.input)


_GAPS = {
    ("positive", False): ("predicts {} too low", "predicts {} too high"),
    ("confidence", False): ("underconfident by {}", "overconfident by {}"),
    ("positive", True): ("predicts {} lower", "predicts {} higher"),
    ("confidence", True): ("{} less confident", "{} more confident"),
}
_REVERSED = {
    "positive": "ranks the wrong way round (AUC {:.2f}; are labels or classes swapped?)",
    "confidence": "the surer, the more often wrong (AUC {:.2f}; are labels or classes swapped?)",
}
_SLOPES = {
    False: ("too extreme (slope {:.2g})", "too moderate (slope {:.2g})"),
    True: ("slope lower by {:.2g}", "slope higher by {:.2g}"),
}


def _words(named: Sequence[str], gap: Record, slope: Record, score: str, change: bool) -> str:
    """Return the named deviations in words; "" if none, or a change that gap and slope hide."""
    phrases, by, turn = [], gap["value"] or 0.0, slope["value"] or 0.0
    if "gap" in named:
        points = f"{100 * abs(by):.{int(abs(by) < 0.0095)}f}"
        points += " point" if points == "1" else " points"
        phrases.append(_GAPS[score, change][by > 0].format(points))
        phrases[0] += " relative to outcomes than before" * change
    if "slope" in named:
        size = abs(turn) if change else turn
        phrases.append(_SLOPES[change][turn > (not change)].format(size))
    return ", and ".join(phrases) or "not calibrated" * ("joint" in named and not change)


def least_points(limit: float) -> str:
    """Return the smallest detectable gap in points, rounded up, so that the promise holds."""
    number = math.ceil(100 * limit - 1e-9)
    return f"{number} point{'s' * (number != 1)}"


def is_hidden(one: Record, by: str) -> bool:
    """Return whether noise, or the range of scores, hides a fault of a site."""
    return not (one["named"] or one["one_class"]) and one["hides"] == by


def _nothing(one: Record, crowd: str) -> str:
    points, by = least_points(one["limit"]), {"noise": "noise hides", "range": crowd}
    if not one["hides"]:
        return f"no fault above {points} found"
    below = f" below {points}" * (one["limit"] < 1)
    return f"cannot tell: {by[one['hides']]} any fault{below}"
