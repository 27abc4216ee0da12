"""Does a study of five hospitals name what is wrong at each, and nothing else? 1,000 years of it.

A year is four releases at epsilon = 1, unit subject, trust `distributed` (quorum 4 of 5, one site
that works with the server): patients of the question and the noise of the plan that `fedprior`
makes. A patient has 1 to 8 rows; its log odds differ by row, and one uniform number decides the
outcomes of all of them, so that rows are as dependent as calibration allows.

All tests of a release are one family at 0.05 / 4, so that a year without faults has a false name
with a chance of 5 % at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, ndtri

from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.evaluation.counting import counts_of
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites import site_tests
from fedcal.evaluation.sites.effects import edges_of
from fedcal.evaluation.sites.verdicts import SEEN, detectable
from fedcal.experiments.research.studies import rows as shared
from fedcal.experiments.research.studies.rows import rng_of, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.metrics.holm import ERROR, holm
from fedcal.privacy.federation import Federation
from fedcal.strategies import FedPrior
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Distributed
from fedcal.units import Subject

NAME = "five hospitals"
PATIENTS = {"alder": 300, "birch": 600, "cedar": 1000, "dogwood": 2000, "elm": 3000}
"""Hospital -> patients a quarter."""
SITES, QUARTERS, YEARS = tuple(PATIENTS), 4, 1000
LEVEL = ERROR / QUARTERS
MOST_ROWS, GAP, SLOPE, MOVED = 8, -0.2, 0.35, -0.15
"""Rows of a patient; cedar's gap, elm's slope, and dogwood's gap from the third quarter on."""
FALSE, LIMIT, NAMED = 0.05, 0.07, 0.9
"""Targets: years with a false name, its upper limit, releases that name a fault."""
BETWEEN = [(a, b) for b in range(QUARTERS) for a in range(b)]
TESTS = len(SITES) + (QUARTERS - 1) * (len(SITES) + 1)
"""Of the last quarter, the largest family."""

Booleans: TypeAlias = NDArray[np.bool_]

_BASE = -1.0 + 1.5 * ndtri((np.arange(1000) + 0.5) / 1000)
_BY_ROW = 0.4 * ndtri((np.arange(9) + 0.5) / 9)


@dataclass(frozen=True)
class Truth:
    """A hospital: its outcomes have the log odds offset + slope x, x those of the score.

    With `shifted` the offset is that of a label shift: patients with the outcome are exp(offset)
    times as many, and look as they did.
    """

    offset: float = 0.0
    slope: float = 1.0
    shifted: bool = False

    @property
    def law(self) -> Floats:
        """Shares of patients by `_BASE`."""
        p = expit(_BASE)
        share = 1 - p + p * math.exp(self.offset) if self.shifted else np.ones_like(p)
        return np.asarray(share / share.sum())

    @property
    def gap(self) -> float:
        """Mean score less outcome."""
        x = _BASE[:, None] + _BY_ROW
        return float(self.law @ (expit(x) - expit(self.offset + self.slope * x)).mean(axis=1))

    @property
    def rate(self) -> float:
        """Of the outcome, as the score says."""
        return float(self.law @ expit(_BASE[:, None] + _BY_ROW).mean(axis=1))


@cache
def with_gap(gap: float, shifted: bool = False) -> Truth:
    """A hospital with this gap and a slope of 1."""
    offset = brentq(lambda o: Truth(o, 1.0, shifted).gap - gap, -12, 12)
    return Truth(float(offset), 1.0, shifted)


def world(faults: bool) -> list[list[Truth]]:
    """Hospitals of each quarter."""
    right = [Truth()] * len(SITES)
    if not faults:
        return [right] * QUARTERS
    early = [*right[:2], with_gap(GAP, True), right[3], Truth(slope=SLOPE)]
    late = [*early[:3], with_gap(MOVED), early[4]]
    return [early, early, late, late]


def patients(truths: Sequence[Truth], rng: np.random.Generator) -> Shards:
    """Rows of a quarter."""
    n = np.array(list(PATIENTS.values()))
    base = [_BASE[rng.choice(len(_BASE), m, p=t.law)] for m, t in zip(n, truths, strict=True)]
    number = rng.integers(1, MOST_ROWS + 1, n.sum())
    of, luck = np.repeat(np.arange(n.sum()), number), rng.random(n.sum())
    x = np.concatenate(base)[of] + rng.choice(_BY_ROW, len(of))
    owner = np.repeat(np.arange(len(n)), n)[of]
    offset, slope = np.array([(t.offset, t.slope) for t in truths]).T
    labels = (luck[of] < expit(offset[owner] + slope[owner] * x)).astype(np.int64)
    logits = np.stack([0 * x, x], axis=1)
    return Shards.from_owner(logits, labels, owner, len(n), subjects=of, names=SITES)


@cache
def plan() -> tuple[Any, Any, float]:
    """Plan, question, and std of the noise of each count."""
    trust: dict[str, Any] = {"trust": Distributed.name, "quorum": 0.8, "colluding": 1}
    trust |= {"committee": 5, "threshold": 4}
    federation = Federation(len(SITES), 2, epsilon=1.0, unit=Subject.name, seed=0, **trust)
    strategy = FedPrior(federation, groups=SITES, secure_aggregation="protocol")
    asked: Any = strategy.query(1)
    none = np.zeros(asked.counts)
    made = shared.release_of(strategy.plan, 1, asked, none, len(SITES), rng_of(NAME, 0))
    return strategy.plan, asked, float(made.std[0])


def release(truths: Sequence[Truth], rng: np.random.Generator) -> Floats:
    """Counts of a quarter as they are released, (S, 2, 10)."""
    planned, asked, _ = plan()
    total = counts_of(patients(truths, rng), asked).sum(axis=0)
    made = shared.release_of(planned, 1, asked, total, len(SITES), rng)
    return np.asarray(made.values.reshape(len(SITES), 2, -1))


def sites_of(counts: Floats) -> site_tests.Sites:
    """Of counts (..., S, 2, 10), as `verdicts_of` reads them."""
    edges, root = edges_of("positive"), plan()[2] * np.eye(10)
    return site_tests.Sites.of(counts, edges, root, "double-exponential")


def as_release(counts: Floats) -> ScoreRelease:
    """A quarter's counts (S, 2, 10), as a file keeps them."""
    _, asked, std = plan()
    return ScoreRelease(asked, counts.ravel(), std, "double-exponential", unit=Subject.name)


@dataclass(frozen=True, eq=False)
class Named:
    """What is named: of sites (Q, years, S), and (later, earlier) -> of changes (years, S + 1)."""

    joint: Booleans
    gap: Booleans
    slope: Booleans
    changes: Mapping[tuple[int, int], Booleans]


def named(counts: Floats) -> Named:
    """As `verdicts_of` names, of counts (Q, years, S, 2, 10), each with all quarters before it."""
    sites = sites_of(counts)
    joint, *own = site_tests.calibration(sites)
    changed = {}
    for a, b in BETWEEN:
        changed[a, b] = site_tests.changes(sites[a], sites[b]).p_values
    parts: list[list[Floats]] = []
    singles = []
    for q in range(len(counts)):
        every = [joint[q], *(p for (_, b), p in changed.items() if b == q)]
        together = np.concatenate(every, axis=-1)
        adjusted = np.array([[*holm(dict(enumerate(row))).values()] for row in together.tolist()])
        ends = np.cumsum([part.shape[-1] for part in every])[:-1]
        parts.append(np.split(adjusted <= LEVEL, ends, axis=-1))
        singles.append(LEVEL / together.shape[-1])
    single, off = np.array(singles)[:, None, None], np.array([part[0] for part in parts])
    changes = {(a, b): parts[b][1 + a] for a, b in BETWEEN if b < len(counts)}
    return Named(off, off & (own[0] <= single), off & (own[1] <= single), changes)


# -- what is found ---------------------------------------------------------------------------------


def rows(quick: bool = False, progress: Progress | None = None, *, years: int = YEARS) -> Rows:
    """All worlds.

    Parameters
    ----------
    quick
        10 years
    progress
        called after each part
    years
        of each world, and releases of each promise and sign

    Returns
    -------
    list of dict
        `what` "years": share of them with a `false` name, and its upper `limit` (Clopper &
        Pearson, one-sided 97.5 %). "sites": of all releases of a hospital, those `named`, for what
        is `right`, or for what is `wrong`; "changes": the same of pairs of quarters; `least` is the
        lower limit of `right`. "seen": releases that name a gap as large as a promise
    """
    years = 10 if quick else years
    todo: list[tuple[Any, ...]] = [(False,), (True,)]
    todo += [(by, sign) for by in _promises(years) for sign in (-1.0, 1.0)]
    found: Rows = []
    for task in shared.counted(todo, progress):
        found += seen_rows(*task, years) if len(task) == 2 else year_rows(*task, years)
    return found


def year_rows(faults: bool, years: int) -> Rows:
    """Years of a world."""
    rng, truths = rng_of(NAME, 1, faults), world(faults)
    counts = [[release(truths[q], rng) for q in range(QUARTERS)] for _ in range(years)]
    seen = named(np.moveaxis(np.array(counts), 1, 0))
    off, steep = (np.array([[bad(t) for t in now] for now in truths]) for bad in (_off, _steep))
    wrong = seen.joint & ~(off | steep)[:, None]
    wrong = wrong | (seen.gap & ~off[:, None]) | (seen.slope & ~steep[:, None])
    right = (seen.gap | ~off[:, None]) & (seen.slope | ~steep[:, None]) & seen.joint
    false = wrong.any(axis=(0, 2))
    told: Rows = []
    for k, (name, size) in enumerate(PATIENTS.items()):
        fault = _FAULTS.get(name, "none") if faults else "none"
        for q in range(QUARTERS) if name == "dogwood" and faults else (slice(None),):
            here = {"what": "sites", "site": name, "patients": size, "fault": fault}
            when = {"quarters": "1 to 4" if isinstance(q, slice) else str(q + 1)}
            parts = [np.ravel(part[q, :, k]) for part in (seen.joint, right, wrong)]
            told.append(here | when | _shares(*parts))
    for (a, b), moved in seen.changes.items():
        same = np.array([x == y for x, y in zip(truths[a], truths[b], strict=True)])
        same = np.append(same, same.all())
        false = false | (moved & same).any(axis=-1)
        for k, name in enumerate((*SITES, "all alike")):
            here = {"what": "changes", "site": name, "quarters": f"{a + 1} and {b + 1}"}
            fault = "none" if same[k] else "changed"
            parts = [moved[:, k], moved[:, k] & ~same[k], moved[:, k] & same[k]]
            told.append(here | {"fault": fault} | _shares(*parts))
    label = {"world": "faults" if faults else "no faults", "years": years}
    whole = {"what": "years", "false": _five(false.mean()), "limit": _limit(false)}
    return [label | row for row in (whole, *told)]


_FAULTS = {"cedar": "label shift, 20 points", "dogwood": "changes", "elm": "slope 0.35"}


def _off(truth: Truth) -> bool:
    return abs(truth.gap) > 1e-6


def _steep(truth: Truth) -> bool:
    return truth.slope != 1


def _shares(off: Booleans, right: Booleans, wrong: Booleans) -> Record:
    """Of releases or pairs."""
    shares = {"named": off.mean(), "right": right.mean(), "wrong": wrong.mean()}
    least = 1 - _limit(~right)
    return {key: _five(x) for key, x in (shares | {"least": least}).items()}


def _limit(hits: Booleans) -> float:
    """Upper limit of a share."""
    k, n = int(hits.sum()), hits.size
    return 1.0 if k == n else _five(betaincinv(k + 1, n - k, 0.975))


def _five(value: Any) -> float:
    return round(float(value), 5)


@cache
def _promises(releases: int) -> Mapping[str, Sequence[float]]:
    """What promises -> the gap that each hospital is said to see."""
    rng, std, edges = rng_of(NAME, 2), plan()[2], edges_of("positive")
    some = sites_of(np.array([release([Truth()] * 5, rng) for _ in range(min(releases, 100))]))
    limits = site_tests.least_gap(some, LEVEL / TESTS, SEEN).mean(axis=0)

    def planned(rate: float) -> list[float]:
        common: dict[str, Any] = {"edges": edges, "std": std, "tests": TESTS, "level": LEVEL}
        return [detectable(size, rate=rate, **common) for size in PATIENTS.values()]

    known = planned(Truth().rate)
    return {"plan, rate 0.5": planned(0.5), "plan, rate known": known, "release": [*limits]}


def seen_rows(by: str, sign: float, releases: int) -> Rows:
    """How often gaps of the promised size are named, at the hardest level of the largest family."""
    rng, gaps = rng_of(NAME, 3, by, sign), _promises(releases)[by]
    truths = [with_gap(sign * gap) for gap in gaps]
    sites = sites_of(np.array([release(truths, rng) for _ in range(releases)]))
    joint, gap, _ = site_tests.calibration(sites)
    single = LEVEL / TESTS
    told = zip(PATIENTS.items(), gaps, ((joint <= single) & (gap <= single)).T, strict=True)
    return [
        {
            **{"what": "seen", "promise": by, "site": name, "patients": size, "gap": _five(g)},
            **{"says": "too high" if sign > 0 else "too low", "releases": releases},
            **{"seen": _five(hits.mean()), "limit": _limit(hits)},
        }
        for (name, size), g, hits in told
    ]


def claims(found: Rows) -> Iterator[RowsClaim]:
    """The targets, and what was found."""
    for r in where(found, what="years"):
        told = f"{100 * r['false']:.1f} %, at most {100 * r['limit']:.1f} %"
        text = f"Years with {r['world']}: at most 5 % have a false name, upper limit 7 %"
        yield text, r["false"] <= FALSE and r["limit"] <= LIMIT, told
    for name in ("cedar", "elm"):
        for r in where(found, what="sites", site=name, world="faults"):
            told = f"{100 * r['right']:.1f} % (at least {100 * r['least']:.1f} %)"
            text = f"{r['fault']} at {r['patients']:,} patients: named for it in at least 90 %"
            yield text, r["right"] >= NAMED, told
    moved = where(found, what="changes", site="dogwood", fault="changed")
    if moved:
        told = f"{100 * min(r['named'] for r in moved):.1f} % at least"
        text = "The change of 15 points at 2,000 patients: found in at least 90 %"
        yield text, min(r["named"] for r in moved) >= NAMED, told
    for (by,), mine in shared.grouped(where(found, what="seen"), "promise").items():
        few = min(mine, key=lambda r: r["seen"])
        told = f"least often {100 * few['seen']:.1f} % ({few['patients']:,} patients, "
        told += f"{100 * few['gap']:.1f} points {few['says']})"
        yield f"{by}: what is promised is seen in at least 80 %", few["seen"] >= SEEN, told
