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
from typing import Any, TypeAlias

import numpy as np
from scipy.special import expit

from fedcal.calibrators.histogram_binning import least_value
from fedcal.calibrators.score_map import OfScore
from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.evaluation.drift import few
from fedcal.evaluation.estimators.metrics import Gap
from fedcal.evaluation.intervals import DROWNED
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites import site_tests
from fedcal.evaluation.sites.site_tests import Sites
from fedcal.mechanisms import NoiseLaw
from fedcal.metrics.buckets import Score, bucket_of, scored
from fedcal.metrics.gap_change import GapChange, gap_change, holm

SEEN = 0.8
"""Smallest probability that a gap is named which counts as detectable at a site."""

MOST = 0.1
"""Largest detectable gap of a site with the verdict of no fault; beyond, it cannot tell."""

ALL = ""
"""Key of changes common to all sites."""

ORDER = "order"
"""Name of the fault that scores run against outcomes, as with swapped labels."""

Record: TypeAlias = dict[str, Any]

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
        chance of any false name: `fedcal.metrics.gap_change.ERROR` / releases a year

    Returns
    -------
    dict
        `sites` by name, and `changes`: name of the earlier release -> site, or `ALL` -> change;
        `level`; `tests`, their number. Each has `p_value` (calibrated, or unchanged), `adjusted`,
        that in the family, `named`: "gap", "slope" or both; "joint" = neither shows by itself; none
        = nothing found, and `words`. `ORDER` alone is named where the AUC is below 1/2: a test of
        its own, whose p-values stand there. Estimates with single 95 % intervals (`value`, `low`,
        `high`; None = unknown, or no end): a site's `auc`, `gap` (mean score less outcome), `slope`
        and `intercept` of outcomes on the score's log odds, and `gap_change` and `slope_change`,
        later less earlier. A gap of `limit` (1 = none) is named at a site with the chance `SEEN` at
        least

    Raises
    ------
    InputError
        A release does not count by site, or an earlier one counts other sites, or differently.
    """
    (names, now), score = _sites(release, "the release"), release.question.score
    joint, *own = (part.tolist() for part in site_tests.calibration(now))
    auc, auc_std, reversed_order = (part.tolist() for part in site_tests.ranking(now))
    alone: dict[tuple[str, ...], float] = {("", name): joint[k] for k, name in enumerate(names)}
    alone |= {("", name, ORDER): reversed_order[k] for k, name in enumerate(names)}
    moved: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for when, former in earlier.items():
        there, then = _sites(former, when)
        same = [name for name in names if name in there]
        if _asked(former) != _asked(release) or not same:
            raise InputError(f"{when} counts other sites, or differently: it cannot be compared")
        pair = (s[[*map(n.index, same)]] for n, s in ((there, then), (names, now)))
        p_values, *parts = site_tests.changes(*pair)
        for k, name in enumerate((*same, ALL)):
            alone[when, name] = float(p_values[k])
            moved[when, name] = [(v[k], std[k]) for v, std in parts]
    adjusted, single = holm(alone), level / len(alone)

    def judged(key: tuple[str, str], gap: float, slope: float) -> Record:
        parts = ["gap"] * (gap <= single) + ["slope"] * (slope <= single) or ["joint"]
        named = parts if adjusted[key] <= level else []
        return {"p_value": alone[key], "adjusted": adjusted[key], "named": named}

    verdicts: Record = {"sites": {}, "changes": {when: {} for when in earlier}}
    gaps = [*map(_around, *site_tests.gaps(now, now.shares(now.fit())))]
    slopes, offsets = ([*map(_interval, *site_tests.spans(now, of))] for of in (1, 0))
    limits = np.minimum(site_tests.least_gap(now, single, SEEN), 1.0).tolist()
    for k, (name, limit) in enumerate(zip(names, limits, strict=True)):
        one = judged(("", name), *(p[k] for p in own))
        one |= {"gap": gaps[k], "slope": slopes[k], "intercept": offsets[k], "limit": limit}
        one |= {"auc": _around(auc[k], auc_std[k])}
        words = _words(one["named"], gaps[k], slopes[k], score, False) or _nothing(limit)
        if (order := adjusted["", name, ORDER]) <= level:
            words = _REVERSED[score].format(auc[k])
            one |= {"p_value": alone["", name, ORDER], "adjusted": order, "named": [ORDER]}
        verdicts["sites"][name] = one | {"words": words}
    for (when, name), each in moved.items():
        one = judged((when, name), *(math.erfc(abs(v / std) / 2**0.5) for v, std in each))
        gap, slope = (_around(*both) for both in each)
        (moved_by, std), _ = each  # one interval alone shows which way a joint change went
        likely = one["named"] == ["joint"] and abs(moved_by) > 1.96 * std
        how = _words(["gap"] if likely else one["named"], gap, slope, score, True)
        how = f": {'most likely ' * likely}{how}" if how else ""
        words = f"changed since {when}{how}" if one["named"] else f"no change since {when} found"
        one |= {"gap_change": gap, "slope_change": slope, "words": words}
        verdicts["changes"][when][name] = one
    return verdicts | {"level": level, "tests": len(alone)}


def _interval(*ends: float) -> Record:
    """Return value, low and high, None where not finite."""
    each = (float(x) if math.isfinite(x) else None for x in ends)
    return dict(zip(("value", "low", "high"), each, strict=True))


def _around(value: float, std: float) -> Record:
    """Return the interval of a normal estimate."""
    return _interval(value, value - 1.96 * std, value + 1.96 * std)


def detectable(
    patients: float, *, rate: float = 0.5, edges: Floats, std: float, tests: int, level: float
) -> float:
    """Return the gap that a site names with probability `SEEN`, by public numbers; 1 = none.

    Of patients that count once each, and of a score that does not separate outcomes (others see
    smaller gaps); `rate` of the outcome, or of right predictions: .5 is the worst. `edges` are of
    buckets, `std` of the Laplace noise of each count, `tests` and `level` of the family.
    """
    buckets = len(edges) - 1
    nothing = Sites.of(np.zeros((2, buckets)), edges, std * np.eye(buckets), NoiseLaw(True))
    one = np.arange(buckets) == np.searchsorted(edges, rate, side="right") - 1
    points = np.where(one[:, None], math.log(rate / (1 - rate)), nothing.points)
    site = replace(nothing, rows=patients * one, points=points, misread=_SPREAD * one)
    return min(float(site_tests.least_gap(site, level / tests, SEEN)), 1.0)


def misread(rows: Shards, score: str, edges: Floats, subject_rows: int) -> float:
    """Return the mean score read from buckets minus the exact one; few values make it large.

    For the site alone, before it takes part. `subject_rows` as in `Shards.weights`.
    """
    kind: Score = score  # type: ignore[assignment]
    value, _ = scored(rows.probs, rows.labels, kind)
    weights = rows.weights(subject_rows)
    count = np.bincount(bucket_of(value, edges)[:, 0], weights, len(edges) - 1)
    root, least = np.zeros((len(count), 0)), _least(score, rows.classes)
    read = Sites.of(np.stack([count, 0 * count]), edges, root, NoiseLaw(), least)
    return float(count @ read.shares() - weights @ value[:, 0]) / float(read.total)


def enough(release: ScoreRelease, judged: Record) -> int | None:
    """Return the number of protected units with which undecided sites could see a gap of `MOST`.

    It has two digits and rests on each site's own scores. None = such a number does not exist, or
    all sites are decided. `judged` is the result of `verdicts_of` for the release.
    """
    (_, now), single = _sites(release, "the release"), judged["level"] / judged["tests"]
    each = judged["sites"].values()
    own = now[[k for k, v in enumerate(each) if not v["named"] and MOST < v["limit"] < 1]]

    def seen(number: int) -> bool:
        grown = replace(own, rows=own.rows * (number / own.total)[:, None])
        return bool((site_tests.least_gap(grown, single, SEEN) <= MOST).all())

    at = bisect_left(_NUMBERS, True, key=seen) if len(own.rows) else len(_NUMBERS)
    return _NUMBERS[at] if at < len(_NUMBERS) else None


def changes_under(release: ScoreRelease, calibrator: OfScore) -> dict[str, GapChange]:
    """Return each site's or group's gap before and after a calibrator of the score, of one view.

    Both are read from the same counts, so the change is known better than either gap. Those with
    too few rows are left out.
    """
    changes = {}
    for (_, group, _), h in release.histograms.items():
        if not group or few(h):
            continue
        own = _read(release, h.counts, h.root, h.law)
        scores, truth, share = expit(own.points), own.shares(own.fit()), own.shares()
        values = calibrator.value(scores.ravel()).reshape(scores.shape)
        if calibrator.score == "confidence":
            values = np.maximum(values, least_value(calibrator.classes))
        after = (own.within * values).sum(axis=-1)
        middle = (share + after) / 2
        each = [map(float, site_tests.gaps(own, truth, at)) for at in (share, after, middle)]
        (old, _), (new, _), (_, std) = each
        rises, widths = (x[:, -1] - x[:, 0] for x in (values - scores, own.points))
        off = after - share - (new - old)
        rows = own.most * own.rows * off**2 + (own.misread * own.rows * rises / widths) ** 2
        move = math.hypot(rows.sum() ** 0.5, h.noise_std(np.stack([off, off]))) / own.total
        hides = 1.96 * h.noise_std(np.stack([middle, middle - 1])) / own.total > DROWNED * Gap.scale
        changes[group] = replace(gap_change(old, new, std, float(move)), hidden=bool(hides))
    return changes


def groups_of(release: ScoreRelease) -> list[Record]:
    """Return `gap` and `slope` of each group within a site ("" = all); too few rows have none.

    `rows` is their number, `noise` its std.
    """
    groups = []
    for (site, group), h in release.within.items():
        one: Record = {"site": site, "group": group, "rows": h.rows, "noise": h.rows_std}
        own = _read(release, h.counts, h.root, h.law)
        both = (site_tests.gaps(own, own.shares(own.fit())), site_tests.spans(own, 1))
        gap, slope = ((math.nan,) * 3 if few(h) else [*map(float, of)] for of in both)
        groups.append(one | {"gap": _around(*gap[:2]), "slope": _interval(*slope)})
    return groups


def _sites(release: ScoreRelease, name: str) -> tuple[tuple[str, ...], Sites]:
    """Return the names of the sites, and their tests."""
    asked = release.question
    if asked.by != "site" or asked.score == "classes" or asked.buckets < 4:
        raise InputError(f"{name} does not count rows by site in at least 4 buckets of a score")
    return asked.group_names, _read(release, *release.by_site, release.law)


def _read(release: ScoreRelease, counts: Floats, root: Floats, law: NoiseLaw) -> Sites:
    asked = release.question
    least = _least(asked.score, asked.classes)
    sites = Sites.of(counts, asked.edges_read, root, law, least)
    return replace(sites, most=max(asked.subject_rows, 1))


def _least(score: str, classes: int) -> float:
    """Return the lowest log odds: the largest probability is at least 1 / c."""
    return -math.log(classes - 1) if score == "confidence" else -math.inf


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


def _nothing(limit: float) -> str:
    points = least_points(limit)
    if limit <= MOST:
        return f"no fault above {points} found"
    return f"cannot tell: noise hides {f'any fault below {points}' if limit < 1 else 'any fault'}"
