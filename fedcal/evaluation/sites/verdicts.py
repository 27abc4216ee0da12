"""A verdict for each site of a release in words, and what has changed since earlier releases.

All tests of a release are one family (Holm): that each site is calibrated, offset 0 and slope 1 of
its log odds; and, against each earlier release, that nothing has changed at a site, and at all
sites alike. What is wrong at a named site, its gap or its slope, is named by its own test at
level / number of tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.evaluation.histogram import NoiseLaw
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites import site_tests
from fedcal.evaluation.sites.site_tests import Sites
from fedcal.metrics.holm import holm

SEEN = 0.8
"""Chance with which a gap is named that a site is said to see, at the least."""

MOST = 0.1
"""Gap up to which a site without a finding is said to have none; beyond, it cannot tell."""

ALL = ""
"""Key of what has changed at all sites alike."""

_SPREAD = 0.03
"""Std of what buckets misread of a site's offset, where none has more than a fourth of its rows."""


@dataclass(frozen=True)
class Interval:
    """A value and its 95 % interval, not corrected for others; None = unknown, or no end."""

    value: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, *ends: float) -> Interval:
        """Of value, low and high, where not finite is unknown."""
        return cls(*(float(x) if math.isfinite(x) else None for x in ends))

    @classmethod
    def around(cls, value: float, std: float) -> Interval:
        """Of a normal estimate."""
        return cls.of(value, value - 1.96 * std, value + 1.96 * std)


@dataclass(frozen=True)
class SiteVerdict:
    """What a release says of a site; gaps (mean score less outcome) and `limit` are fractions.

    `p_value` is that it is calibrated, `adjusted` that in the family. `named` is "gap", "slope",
    or both; "joint" = not calibrated, and neither shows by itself; () = nothing found. `slope` and
    `intercept` are those of outcomes on the score's log odds. A gap of `limit` (1 = none) is named
    here with the chance `SEEN` at least.
    """

    p_value: float
    adjusted: float
    named: tuple[str, ...]
    gap: Interval
    slope: Interval
    intercept: Interval
    limit: float
    words: str


@dataclass(frozen=True)
class Change:
    """What has changed since an earlier release; fields as of `SiteVerdict`, later less earlier."""

    p_value: float
    adjusted: float
    named: tuple[str, ...]
    gap_change: Interval
    slope_change: Interval
    words: str


@dataclass(frozen=True)
class Verdicts:
    """All verdicts of a release: of each site, and earlier release -> site or `ALL` -> change.

    `level` is the chance of any false name among all `tests`.
    """

    sites: Mapping[str, SiteVerdict]
    changes: Mapping[str, Mapping[str, Change]]
    level: float
    tests: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def verdicts_of(
    release: ScoreRelease, earlier: Mapping[str, ScoreRelease], *, level: float
) -> Verdicts:
    """Judge each site of a release of counts by site, at no further cost.

    `earlier` are those that it is compared with, by name, at the sites that both have; `level` is
    `fedcal.metrics.holm.ERROR` / releases a year.

    Raises
    ------
    InputError
        A release does not count by site, or an earlier one counts otherwise or other sites.
    """
    (names, now), score = _sites(release, "the release"), release.question.score
    joint, *own = (part.tolist() for part in site_tests.calibration(now))
    alone = {("", name): joint[k] for k, name in enumerate(names)}
    moved: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for when, other in earlier.items():
        there, then = _sites(other, when)
        same = [name for name in names if name in there]
        if _asked(other) != _asked(release) or not same:
            raise InputError(f"{when} counts otherwise, or other sites: it cannot be compared")
        found = site_tests.changes(
            *(s[[*map(n.index, same)]] for n, s in ((there, then), (names, now)))
        )
        for k, name in enumerate((*same, ALL)):
            alone[when, name] = float(found.p_values[k])
            moved[when, name] = [(v[k], std[k]) for v, std in (found.gap, found.slope)]
    adjusted, single = holm(alone), level / len(alone)

    def judged(key: tuple[str, str], gap: float, slope: float) -> dict[str, Any]:
        parts = ("gap",) * (gap <= single) + ("slope",) * (slope <= single) or ("joint",)
        named = parts if adjusted[key] <= level else ()
        return {"p_value": alone[key], "adjusted": adjusted[key], "named": named}

    gaps = [*map(Interval.around, *site_tests.gaps(now, now.shares(now.fit())))]
    slopes, offsets = ([*map(Interval.of, *site_tests.spans(now, of))] for of in (1, 0))
    sites: dict[str, SiteVerdict] = {}
    changes: dict[str, dict[str, Change]] = {when: {} for when in earlier}
    for k, least in enumerate(site_tests.least_gap(now, single, SEEN).tolist()):
        known, limit = judged(("", names[k]), *(p[k] for p in own)), min(least, 1.0)
        words = _words(known["named"], gaps[k], slopes[k], score, False) or _nothing(limit)
        about = {"gap": gaps[k], "slope": slopes[k], "intercept": offsets[k], "limit": limit}
        sites[names[k]] = SiteVerdict(**known, **about, words=words)
    for (when, name), each in moved.items():
        known = judged((when, name), *(math.erfc(abs(v / std) / 2**0.5) for v, std in each))
        gap, slope = (Interval.around(*both) for both in each)
        words = f"changed since {when}" if known["named"] else f"no change since {when} found"
        if how := _words(known["named"], gap, slope, score, True):
            words += f": {how}"
        changes[when][name] = Change(**known, gap_change=gap, slope_change=slope, words=words)
    return Verdicts(sites, changes, level, len(alone))


def detectable(
    patients: float,
    *,
    rate: float = 0.5,
    edges: Floats,
    std: float,
    tests: int,
    level: float,
    seen: float = SEEN,
    law: NoiseLaw = "double-exponential",
) -> float:
    """Gap that a site will see, by public numbers: named with the chance `seen` at least; 1 = none.

    Of patients that count once each, and of a score that does not tell outcomes apart (others see
    smaller gaps); `rate` of the outcome, or of right predictions: .5 is the worst. `edges`, `std`
    and `law` are of buckets and of the noise of each count, `tests` and `level` of the family.
    """
    buckets = len(edges) - 1
    nothing = Sites.of(np.zeros((2, buckets)), edges, std * np.eye(buckets), law)
    one = np.arange(buckets) == np.searchsorted(edges, rate, side="right") - 1
    points = np.where(one[:, None], math.log(rate / (1 - rate)), nothing.points)
    site = replace(nothing, rows=patients * one, points=points, misread=_SPREAD * one)
    return min(float(site_tests.least_gap(site, level / tests, seen)), 1.0)


def _sites(release: ScoreRelease, name: str) -> tuple[tuple[str, ...], Sites]:
    """Names of the sites, and what is told of them."""
    asked = release.question
    if asked.by != "site" or asked.score == "classes" or asked.buckets < 4:
        raise InputError(f"{name} does not count rows by site in 4 buckets of a score, or more")
    hists = [release.histograms["model", site, ""] for site in asked.group_names]
    # no largest probability is below 1 / c
    least = -math.log(asked.classes - 1) if asked.score == "confidence" else -math.inf
    first, counts = hists[0], np.array([h.counts for h in hists])
    sites = Sites.of(counts, first.edges, first.root, first.law, least)
    return asked.group_names, replace(sites, most=max(asked.subject_rows, 1))


def _asked(release: ScoreRelease) -> tuple[Any, ...]:
    """What must be alike in releases that are compared."""
    asked = release.question
    return (*asked.bucket_edges, asked.score, asked.classes, asked.subject_rows, release.input)


_GAPS = {
    ("positive", False): ("predicts {} too low", "predicts {} too high"),
    ("confidence", False): ("underconfident by {}", "overconfident by {}"),
    ("positive", True): ("predicts {} lower", "predicts {} higher"),
    ("confidence", True): ("{} less confident", "{} more confident"),
}
_SLOPES = {
    False: ("too extreme (slope {:.2g})", "too moderate (slope {:.2g})"),
    True: ("slope lower by {:.2g}", "slope higher by {:.2g}"),
}


def _words(named: tuple[str, ...], gap: Interval, slope: Interval, score: str, change: bool) -> str:
    """What is named, "" = nothing; of a change, "" also where gap and slope do not show it."""
    said, by, turn = [], gap.value or 0.0, slope.value or 0.0
    if "gap" in named:
        points = f"{100 * abs(by):.{int(abs(by) < 0.0095)}f}"
        points += " point" if points == "1" else " points"
        said.append(_GAPS[score, change][by > 0].format(points))
        said[0] += " against outcomes than then" * change
    if "slope" in named:
        size = abs(turn) if change else turn
        said.append(_SLOPES[change][turn > (not change)].format(size))
    return ", and ".join(said) or "not calibrated" * ("joint" in named and not change)


def _nothing(limit: float) -> str:
    points = f"{math.ceil(100 * limit - 1e-9)} points"
    if limit <= MOST:
        return f"no fault above {points} found"
    return f"cannot tell: noise hides {f'what is below {points}' if limit < 1 else 'all there is'}"
