"""Does a study of five hospitals name what is wrong at each, and nothing else? 1,000 years of it.

A year is four releases at epsilon = 1, unit subject, trust `distributed` (quorum 4 of 5, one site
that works with the server): patients of the question and the noise of the plan that a study
makes. A patient has 1 to 8 rows; its log odds differ by row, and one uniform number decides the
outcomes of all of them, so that rows are as dependent as calibration allows.

All tests of a release are one family at 0.05 / 4, so that a year without faults has a false name
with a chance of 5 % at most.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, ndtri

from experiments.studies import rows as shared
from experiments.studies.rows import rng_of, where
from experiments.studies.spec import Record, Rows, RowsClaim
from experiments.studies.spec import Study as Measured
from fedcal.core.numerics import Floats
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.evaluation.sites import site_tests
from fedcal.evaluation.sites.verdicts import SEEN, detectable
from fedcal.mechanisms import NoiseDistribution
from fedcal.metrics.bootstrap import ERROR, holm
from fedcal.run.jobs import job_of
from fedcal.sites.study_file import Model, Study
from fedcal.strategies.server.outcome import Progress

NAME = "five hospitals"
PATIENTS = {"alder": 300, "birch": 600, "cedar": 1000, "dogwood": 2000, "elm": 3000}
"""Hospital -> patients a quarter."""
SITES, QUARTERS, YEARS = tuple(PATIENTS), 4, 1000
LEVEL = ERROR / QUARTERS
MOST_ROWS, GAP, SLOPE, MOVED = 8, -0.2, 0.35, -0.15
"""Rows of a patient; cedar's gap, elm's slope, and dogwood's gap from the third quarter on."""
FALSE, LIMIT, NAMED = 0.05, 0.07, 0.9
"""Targets: years with a false name, its upper limit, releases that name a fault."""
PROMISES = ("promised before anything ran", "promised by a release")
ALIKE, CROSSED = "all alike", ("1, 3", "2, 3", "1, 4")
_SINCE = datetime.date(2026, 1, 1)
TESTS = 2 * len(SITES) + 2 * (len(SITES) + 1)
"""Tests of the last quarter, the largest family: against the first one and the one before."""

Booleans: TypeAlias = NDArray[np.bool_]
Changed: TypeAlias = dict[tuple[int, int], Booleans]

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
    def weights(self) -> Floats:
        """Shares of patients by `_BASE`."""
        p = expit(_BASE)
        share = 1 - p + p * math.exp(self.offset) if self.shifted else np.ones_like(p)
        return np.asarray(share / share.sum())

    @property
    def gap(self) -> float:
        """Mean score less outcome."""
        x = _BASE[:, None] + _BY_ROW
        return float(self.weights @ (expit(x) - expit(self.offset + self.slope * x)).mean(axis=1))


@cache
def with_gap(gap: float, shifted: bool = False) -> Truth:
    """Return a hospital with this gap and a slope of 1."""
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
    """Draw the rows of a quarter."""
    n = np.array(list(PATIENTS.values()))
    base = [_BASE[rng.choice(len(_BASE), m, p=t.weights)] for m, t in zip(n, truths, strict=True)]
    number = rng.integers(1, MOST_ROWS + 1, n.sum())
    of, luck = np.repeat(np.arange(n.sum()), number), rng.random(n.sum())
    x = np.concatenate(base)[of] + rng.choice(_BY_ROW, len(of))
    owner = np.repeat(np.arange(len(n)), n)[of]
    offset, slope = np.array([(t.offset, t.slope) for t in truths]).T
    labels = (luck[of] < expit(offset[owner] + slope[owner] * x)).astype(np.int64)
    logits = np.stack([0 * x, x], axis=1)
    return rows_by_owner(logits, labels, owner, len(n), subjects=of, names=SITES)


@cache
def plan() -> tuple[Any, Any, float]:
    """Plan, question, and std of the noise of each count."""
    study = Study("five", Model(("no", "yes")), PATIENTS, "localhost:9092", since=_SINCE)
    strategy: Any = job_of(study.config(), None).strategy()
    asked: Any = strategy.query(1)
    none = np.zeros(asked.counts)
    made = shared.release_of(strategy.plan, 1, asked, none, len(SITES), rng_of(NAME, 0))
    return strategy.plan, asked, float(made.std[0])


def release(truths: Sequence[Truth], rng: np.random.Generator) -> Floats:
    """Return the released counts of a quarter, (S, 2, buckets)."""
    planned, asked, _ = plan()
    total = asked.counts_of(patients(truths, rng)).sum(axis=0)
    made = shared.release_of(planned, 1, asked, total, len(SITES), rng)
    return np.asarray(made.values.reshape(len(SITES), 2, -1))


def sites_of(counts: Floats) -> site_tests.Sites:
    """Prepare counts (..., S, 2, buckets) for the tests of `verdicts_of`."""
    _, asked, std = plan()
    root = std * np.eye(asked.buckets)
    return site_tests.Sites.of(counts, asked.bucket_edges, root, NoiseDistribution(tailed=True))


def named(counts: Floats) -> tuple[Booleans, Booleans, Booleans, Changed]:
    """Test counts (Q, years, S, 2, buckets), as `verdicts_of` and a quarter's report do.

    Each quarter is compared with the first and with the one before it.

    Not calibrated, gap and slope (Q, years, S); (earlier, later) -> changes (years, S + 1).
    """
    sites = sites_of(counts)
    joint, *own = site_tests.calibration(sites)
    reversed_order = site_tests.ranking(sites)[2]
    pairs = [(a, b) for b in range(len(counts)) for a in sorted({0, b - 1} & {*range(b)})]
    changed = {(a, b): site_tests.changes(sites[a], sites[b])[0] for a, b in pairs}
    off, single, changes = [], [], Changed()
    for q in range(len(counts)):
        mine = [pair for pair in pairs if pair[1] == q]
        first = reversed_order[q], joint[q]
        every = np.concatenate([*first, *(changed[pair] for pair in mine)], axis=-1)
        adjusted = np.array([[*holm(dict(enumerate(p))).values()] for p in every.tolist()])
        places = np.arange(len(mine)) * (len(SITES) + 1) + len(SITES)
        parts = np.split(adjusted[:, len(SITES) :] <= LEVEL, places, axis=-1)
        off.append(parts[0])
        changes |= dict(zip(mine, parts[1:], strict=True))
        single.append(np.full((1, 1), LEVEL / every.shape[-1]))
    gap, slope = (np.array(off) & (p <= np.array(single)) for p in own)
    return np.array(off), gap, slope, changes


# -- what is found ---------------------------------------------------------------------------------


def rows(progress: Progress | None = None, *, years: int = YEARS) -> Rows:
    """All worlds, of so many years each; four releases a year of each promise and sign.

    Returns
    -------
    list of dict
        `what` "years": share with a `false` name, and its upper `limit` (Clopper & Pearson, 97.5 %,
        one-sided). "sites": releases that name a hospital, for all that is `right`, or for what is
        `wrong`; `least` is the lower limit of `right`. "changes": the same of pairs of quarters.
        "seen": of releases with a gap as large as a promise, those that name it
    """
    todo = [partial(year_rows, faults, years) for faults in (False, True)]
    todo += [partial(seen_rows, *each, 4 * years) for each in product(PROMISES, (-1.0, 1.0))]
    return [row for part in shared.counted(todo, progress) for row in part()]


def year_rows(faults: bool, years: int) -> Rows:
    """Measure false and true names over simulated years of a world."""
    rng, truths = rng_of(NAME, 1, faults), world(faults)
    counts = [[release(truths[q], rng) for _ in range(years)] for q in range(QUARTERS)]
    joint, gap, slope, changes = named(np.array(counts))
    off = np.array([[abs(t.gap) > 1e-6 for t in now] for now in truths])[:, None]
    steep = np.array([[t.slope != 1 for t in now] for now in truths])[:, None]
    wrong = (joint & ~(off | steep)) | (gap & ~off) | (slope & ~steep)
    right = (off | steep) & (gap | ~off) & (slope | ~steep) & joint
    false, made = wrong.any(axis=(0, 2)), Rows()
    for name, half in product(SITES, (0, 1)):
        parts = (np.ravel(part[2 * half :][:2, :, SITES.index(name)]) for part in (right, wrong))
        here: Record = {"what": "sites", "site": name, "quarters": ("1, 2", "3, 4")[half]}
        made.append(here | _shares(*parts))
    for (a, b), moved in changes.items():
        same = np.array([x == y for x, y in zip(truths[a], truths[b], strict=True)])
        same = np.append(same, same.all())
        false = false | (moved & same).any(axis=-1)
        for k, name in enumerate((*SITES, ALIKE)):
            here = {"what": "changes", "site": name, "quarters": f"{a + 1}, {b + 1}"}
            made.append(here | _shares(moved[:, k] & ~same[k], moved[:, k] & same[k]))
    label: Record = {"world": "faults" if faults else "no faults", "years": years}
    overall: Record = {"what": "years", "false": _five(false.mean()), "limit": _limit(false)}
    return [label | row for row in (overall, *made)]


def _shares(right: Booleans, wrong: Booleans) -> Record:
    shares = {"right": right.mean(), "wrong": wrong.mean(), "least": 1 - _limit(~right)}
    return {key: _five(x) for key, x in shares.items()}


def _limit(hits: Booleans) -> float:
    """Upper limit of a share."""
    k, n = int(hits.sum()), hits.size
    return 1.0 if k == n else _five(betaincinv(k + 1, n - k, 0.975))


def _five(value: Any) -> float:
    return round(float(value), 5)


def promised(by: str) -> list[float]:
    """Gap that each hospital is said to see, in the largest family."""
    if by == PROMISES[0]:
        facts: dict[str, Any] = {"edges": plan()[1].bucket_edges, "std": plan()[2]}
        facts |= {"tests": TESTS, "level": LEVEL}
        return [detectable(n, **facts) for n in PATIENTS.values()]
    rng = rng_of(NAME, 2)
    some = sites_of(np.array([release(world(False)[0], rng) for _ in range(100)]))
    return [*map(float, site_tests.least_gap(some, LEVEL / TESTS, SEEN).mean(axis=0))]


def seen_rows(by: str, sign: float, releases: int) -> Rows:
    """Measure how often gaps of the promised size are named at the hardest level."""
    rng, gaps = rng_of(NAME, 3, by, sign), promised(by)
    truths = [with_gap(sign * gap) for gap in gaps]
    sites = sites_of(np.array([release(truths, rng) for _ in range(releases)]))
    joint, gap, _ = site_tests.calibration(sites)
    hits = np.maximum(joint, gap) <= LEVEL / TESTS
    here = {"what": "seen", "promise": by, "sign": sign, "releases": releases}
    return [
        {**here, "site": name, "gap": _five(gaps[k]), "seen": _five(hits[:, k].mean())}
        for k, name in enumerate(SITES)
    ]


def claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the targets, their verdicts and the measurements."""
    for r in where(found, what="years"):
        evidence = f"{100 * r['false']:.1f} %, upper limit {100 * r['limit']:.1f} %"
        text = f"{r['world']}: at most 5 % of years have a false name, upper limit at most 7 %"
        yield text, r["false"] <= FALSE and r["limit"] <= LIMIT, evidence
    faults = {"cedar": "20 points off, 1,000 patients", "elm": "slope 0.35, 3,000 patients"}
    named = {text: where(found, what="sites", site=name) for name, text in faults.items()}
    moved = [r for r in where(found, what="changes", site="dogwood") if r["quarters"] in CROSSED]
    for text, mine in (named | {"changed by 15 points, 2,000 patients": moved}).items():
        few = min(where(mine, world="faults"), key=lambda r: r["right"])
        evidence = f"{100 * few['right']:.1f} % (at least {100 * few['least']:.1f} %)"
        yield f"{text}: named for it in at least 90 %", few["right"] >= NAMED, evidence
    for (by,), mine in shared.grouped(where(found, what="seen"), "promise").items():
        few = min(mine, key=lambda r: r["seen"])
        evidence = f"least often {100 * few['seen']:.1f} %: {PATIENTS[few['site']]:,} patients, "
        evidence += f"{100 * few['gap']:.1f} points too {'high' if few['sign'] > 0 else 'low'}"
        yield f"{by}: a gap of that size is named in at least 80 %", few["seen"] >= SEEN, evidence


study = Measured(rows, claims)
