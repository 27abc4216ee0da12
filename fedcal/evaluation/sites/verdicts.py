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
from statistics import NormalDist
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
    """What a release says of a site; gaps and `limit` are fractions.

    Attributes
    ----------
    p_value, adjusted
        that it is calibrated, alone and in the family
    named
        "gap", "slope" or both; "joint" = the site is not calibrated, and neither of them shows by
        itself; () = nothing was found
    gap
        mean score less outcome
    slope, intercept
        of outcomes on the log odds of the score
    limit
        gap that is named here with the chance `SEEN` at least, if it is the first one
    words
        in a sentence's part
    """

    p_value: float
    adjusted: float
    named: tuple[str, ...]
    gap: Interval
    slope: Interval
    intercept: Interval
    limit: float
    words: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Change:
    """What has changed since an earlier release; fields as of `SiteVerdict`, later less earlier."""

    p_value: float
    adjusted: float
    named: tuple[str, ...]
    gap_change: Interval
    slope_change: Interval
    words: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Verdicts:
    """All verdicts of a release.

    Attributes
    ----------
    sites
        by name
    changes
        earlier release -> site, or `ALL` -> what has changed
    level
        chance of any false name
    tests
        of the family
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
    """Judge each site of a release, at no further cost.

    Parameters
    ----------
    release
        of counts by site, of the score "positive" or "confidence"
    earlier
        name -> release that it is compared with, at the sites that both have
    level
        chance of any false name, as `fedcal.metrics.holm.ERROR` / releases a year

    Raises
    ------
    InputError
        A release does not count by site, or an earlier one counts otherwise or other sites.
    """
    names, now = _sites(release, "the release")
    joint, *own = site_tests.calibration(now)
    p_values = {("", name): float(p) for name, p in zip(names, joint, strict=True)}
    compared = {}
    for when, other in earlier.items():
        there, then = _sites(other, when)
        same = [name for name in names if name in there]
        if _asked(other) != _asked(release) or not same:
            raise InputError(f"{when} counts otherwise, or other sites: it cannot be compared")
        found = site_tests.changes(then[[*map(there.index, same)]], now[[*map(names.index, same)]])
        compared[when] = (*same, ALL), found
        each = zip((*same, ALL), (*found.p_values, found.common), strict=True)
        p_values |= {(when, name): float(p) for name, p in each}
    adjusted, single = holm(p_values), level / len(p_values)
    noun = release.question.score
    limits = np.minimum(site_tests.least_gap(now, single, SEEN), 1.0)
    off = [*map(Interval.around, *site_tests.gaps(now, now.shares(now.fit())))]
    slope, offset = ([*map(Interval.of, *site_tests.spans(now, of))] for of in (1, 0))
    sites: dict[str, SiteVerdict] = {}
    changes: dict[str, dict[str, Change]] = {}
    for k, name in enumerate(names):
        key, limit = ("", name), float(limits[k])
        named = _named(adjusted[key] <= level, *(p[k] <= single for p in own))
        words = _words(named, off[k], slope[k], noun) or _nothing(limit)
        sites[name] = SiteVerdict(
            p_values[key], adjusted[key], named, off[k], slope[k], offset[k], limit, words
        )
    z = NormalDist().inv_cdf(1 - single / 2)
    for when, (where, found) in compared.items():
        changes[when] = {}
        for k, name in enumerate(where):
            key, moved = (when, name), [(float(a[k]), float(b[k])) for a, b in found.moved]
            named = _named(adjusted[key] <= level, *(abs(a) > z * b for a, b in moved))
            gap, turn = (Interval.around(*each) for each in moved)
            words = f"no change since {when} found"
            if named:
                words = f"changed since {when}{_moved(named, gap, turn, noun)}"
            changes[when][name] = Change(p_values[key], adjusted[key], named, gap, turn, words)
    return Verdicts(sites, changes, level, len(p_values))


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
    """Gap that a site will see, from public numbers: with this chance at least it is named; 1 = none.

    Scores that tell outcomes apart see smaller ones.

    Parameters
    ----------
    patients
        that count once each, at the site
    rate
        of the outcome (or of right predictions), in (0, 1); .5 is the worst
    edges, std, law
        of the buckets, and of the noise of each count
    tests, level
        of the family
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
    names, least = asked.group_names, -math.inf
    if asked.score == "confidence":  # no largest probability is below 1 / c
        least = -math.log(asked.classes - 1)
    hists = [release.histograms["model", site, ""] for site in names]
    counts, first = np.array([h.counts for h in hists]), hists[0]
    sites = Sites.of(counts, first.edges, first.root, first.law, least)
    return names, replace(sites, most=max(asked.subject_rows, 1))


def _asked(release: ScoreRelease) -> tuple[Any, ...]:
    """What must be alike in releases that are compared."""
    asked = release.question
    return (*asked.bucket_edges, asked.score, asked.classes, asked.subject_rows, release.input)


# -- in words --------------------------------------------------------------------------------------


def _named(joint: bool, gap: bool, slope: bool) -> tuple[str, ...]:
    if not joint:
        return ()
    return ("gap",) * bool(gap) + ("slope",) * bool(slope) or ("joint",)


def _points(size: float | None) -> str:
    points = 100 * abs(size or 0.0)
    shown = f"{points:.0f}" if points >= 0.95 else f"{points:.1f}"
    return f"{shown} point{'s' * (shown != '1')}"


def _words(named: tuple[str, ...], gap: Interval, slope: Interval, score: str) -> str:
    """What is wrong, "" = nothing was found."""
    said, over = [], (gap.value or 0.0) > 0
    if "gap" in named and score == "positive":
        said.append(f"predicts {_points(gap.value)} too {'high' if over else 'low'}")
    elif "gap" in named:
        said.append(f"{'over' if over else 'under'}confident by {_points(gap.value)}")
    if "slope" in named:
        value = slope.value or 0.0
        said.append(f"too {'extreme' if value < 1 else 'moderate'} (slope {value:.2g})")
    return ", and ".join(said) or "not calibrated" * bool(named)


def _nothing(limit: float) -> str:
    if limit >= 1:
        return "cannot tell: noise hides all there is"
    points = f"{math.ceil(100 * limit - 1e-9)} points"
    if limit > MOST:
        return f"cannot tell: noise hides what is below {points}"
    return f"no fault above {points} found"


def _moved(named: tuple[str, ...], gap: Interval, slope: Interval, score: str) -> str:
    """How it has changed, after a colon; "" where neither gap nor slope shows it."""
    said, up = [], (gap.value or 0.0) > 0
    if "gap" in named:
        way = ("higher" if up else "lower") if score == "positive" else "more" if up else "less"
        does = "predicts {} {}" if score == "positive" else "{} {} confident"
        said.append(does.format(_points(gap.value), way) + " against outcomes than then")
    if "slope" in named:
        value = slope.value or 0.0
        said.append(f"slope {'higher' if value > 0 else 'lower'} by {abs(value):.2g}")
    return ": " * bool(said) + ", ".join(said)
