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


class _Plain:
    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class Interval(_Plain):
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
class SiteVerdict(_Plain):
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
class Change(_Plain):
    """What has changed since an earlier release; fields as of `SiteVerdict`, later less earlier."""

    p_value: float
    adjusted: float
    named: tuple[str, ...]
    gap_change: Interval
    slope_change: Interval
    words: str


@dataclass(frozen=True)
class Verdicts(_Plain):
    """All verdicts of a release: of each site, and earlier release -> site or `ALL` -> change.

    `level` is the chance of any false name among all `tests`.
    """

    sites: Mapping[str, SiteVerdict]
    changes: Mapping[str, Mapping[str, Change]]
    level: float
    tests: int


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
    (names, now), asked = _sites(release, "the release"), release.question
    joint, *own = (part.tolist() for part in site_tests.calibration(now))
    p_values: dict[tuple[str, str], float] = {("", n): joint[k] for k, n in enumerate(names)}
    compared: dict[tuple[str, str], tuple[Interval, Interval, list[float]]] = {}
    for when, other in earlier.items():
        there, then = _sites(other, when)
        same = [name for name in names if name in there]
        if _asked(other) != _asked(release) or not same:
            raise InputError(f"{when} counts otherwise, or other sites: it cannot be compared")
        found = site_tests.changes(then[[*map(there.index, same)]], now[[*map(names.index, same)]])
        for k, name in enumerate((*same, ALL)):
            p_values[when, name] = float(found.p_values[k])
            moved = [(value[k], std[k]) for value, std in (found.gap, found.slope)]
            gap, slope = (Interval.around(*each) for each in moved)
            compared[when, name] = gap, slope, [math.erfc(abs(v / s) / 2**0.5) for v, s in moved]
    adjusted, single = holm(p_values), level / len(p_values)

    def named(key: tuple[str, str], p_gap: float, p_slope: float) -> tuple[str, ...]:
        if adjusted[key] > level:
            return ()
        return ("gap",) * (p_gap <= single) + ("slope",) * (p_slope <= single) or ("joint",)

    limits = np.minimum(site_tests.least_gap(now, single, SEEN), 1.0)
    gaps = [*map(Interval.around, *site_tests.gaps(now, now.shares(now.fit())))]
    slopes, offsets = ([*map(Interval.of, *site_tests.spans(now, of))] for of in (1, 0))
    sites: dict[str, SiteVerdict] = {}
    changes: dict[str, dict[str, Change]] = {when: {} for when in earlier}
    for k, name in enumerate(names):
        key, limit = ("", name), float(limits[k])
        wrong = named(key, *(p[k] for p in own))
        words = _wrong(wrong, gaps[k], slopes[k], asked.score) or _nothing(limit)
        about = gaps[k], slopes[k], offsets[k], limit
        sites[name] = SiteVerdict(p_values[key], adjusted[key], wrong, *about, words)
    for (when, name), (gap, slope, alone) in compared.items():
        key = when, name
        wrong = named(key, *alone)
        words = _changed(wrong, gap, slope, asked.score, when)
        changes[when][name] = Change(p_values[key], adjusted[key], wrong, gap, slope, words)
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
    """Gap that a site will see, by public numbers: named with this chance at least; 1 = none.

    Parameters
    ----------
    patients
        that count once each, at the site
    rate
        of the outcome (or of right predictions), in (0, 1); .5 is the worst. Scores are taken to
        tell nobody apart: those that do see smaller gaps
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


# -- in words --------------------------------------------------------------------------------------


def _points(size: float) -> str:
    shown = f"{100 * abs(size):.{int(abs(size) < 0.0095)}f}"
    return f"{shown} point{'s' * (shown != '1')}"


def _wrong(named: tuple[str, ...], gap: Interval, slope: Interval, score: str) -> str:
    """What is wrong at a site, "" = nothing was found."""
    said, by, turn = [], gap.value or 0.0, slope.value or 0.0
    if "gap" in named and score == "positive":
        said.append(f"predicts {_points(by)} too {'high' if by > 0 else 'low'}")
    elif "gap" in named:
        said.append(f"{'over' if by > 0 else 'under'}confident by {_points(by)}")
    if "slope" in named:
        said.append(f"too {'extreme' if turn < 1 else 'moderate'} (slope {turn:.2g})")
    return ", and ".join(said) or "not calibrated" * bool(named)


def _nothing(limit: float) -> str:
    points = f"{math.ceil(100 * limit - 1e-9)} points"
    if limit <= MOST:
        return f"no fault above {points} found"
    return f"cannot tell: noise hides {f'what is below {points}' if limit < 1 else 'all there is'}"


def _changed(named: tuple[str, ...], gap: Interval, slope: Interval, score: str, when: str) -> str:
    """What has changed since an earlier release."""
    if not named:
        return f"no change since {when} found"
    said, by, turn = [], gap.value or 0.0, slope.value or 0.0
    if "gap" in named and score == "positive":
        said.append(f"predicts {_points(by)} {'higher' if by > 0 else 'lower'}")
    elif "gap" in named:
        said.append(f"{_points(by)} {'more' if by > 0 else 'less'} confident")
    said = [f"{part} against outcomes than then" for part in said]
    if "slope" in named:
        said.append(f"slope {'higher' if turn > 0 else 'lower'} by {abs(turn):.2g}")
    return f"changed since {when}{': ' * bool(said)}{', '.join(said)}"
