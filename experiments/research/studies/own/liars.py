"""What liars do to a calibrator and to an evaluation: clients that send what they like.

A hundred clients of resnet110-cifar10, some of whom lie in every round. They know the honest
clients' exact sum (the worst case), and add no noise:

* `labels`: honest clients whose labels are all wrong, the next class in place of the right one;
* `bound`: the worst answer that one client may give, of each liar: all of its bound where a
  client's answer is clipped; what its nominal rows add where rows are; where nothing is, as much as
  the largest honest answer;
* `limit`: one liar sends as much of it as is not refused (`fedcal.privacy.plausible`); where
nothing is
  bounded, a thousand times what all honest clients send;
* `random`: one liar sends random integers modulo 2**64.

The worst answer is what makes the model less confident: of histograms the honest ones with positive
and negative rows exchanged, of score counts all that was right as wrong. It aims at what is asked
for, not at the ECE after it. Counts of classes are not lied about.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np

from fedcal import datasets
from fedcal.calibrators import Calibrator
from fedcal.clients.answers import answer, contribute
from fedcal.core.errors import RoundFailed
from fedcal.core.numerics import softmax
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, Integers, Words
from fedcal.experiments.research.studies.rows import counted, grouped, standard_error, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.runs.config import merge
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.jobs import job_of
from fedcal.experiments.runs.load import test_part
from fedcal.metrics import summary
from fedcal.partition import deal
from fedcal.privacy.curator import Asked
from fedcal.privacy.plausible import honest_range
from fedcal.queries import (
    AccuracyGap,
    ClassCounts,
    ClassHistograms,
    PooledHistograms,
    Query,
    ScoreCounts,
    TemperatureNewton,
    TemperatureUpdate,
)
from fedcal.queries.request import Request
from fedcal.storage.artifact import Artifact, Holdout
from fedcal.strategies.method import Method
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Distributed
from fedcal.units import Example

DATA, CLIENTS, SEEDS = "resnet110-cifar10", 100, 20
METHODS = ("fednewton", "fedtemp", "acct", "fedbbq", "evaluate")
LIARS = (1, 5, 20)
ALONE = ("limit", "random")
"""Lies of which one is enough."""

SETTINGS: dict[str, dict[str, Any]] = {
    "exact sums": {},
    "unit user, epsilon 8": {"epsilon": 8.0, "trust": Distributed.name},
    "unit example, epsilon 1": {"epsilon": 1.0, "trust": Distributed.name, "unit": Example.name},
}
MEASURED = ("ece", "nll", "accuracy")
TEMPERATURES = ("fednewton", "fedtemp", "acct")

_TIMES = 1000.0
"""Honest sums in a lie that nothing bounds."""

_STEPS = 2.0**62  # of a lie: no float above is an integer of the ring for sure


@dataclass(frozen=True)
class Cell:
    """A line of the table."""

    setting: str
    method: str
    lie: str
    liars: int


LIES = (("none", 0), *product(("labels", "bound"), LIARS), *((lie, 1) for lie in ALONE))
"""(lie, liars)."""


def cells() -> Iterator[Cell]:
    """Return all lines of the table."""
    return (Cell(*place, *lie) for place, lie in product(product(SETTINGS, METHODS), LIES))


@dataclass(frozen=True, eq=False)
class World:
    """A federation without liars, and the rows that judge it."""

    job: Job
    shards: Shards
    test: Holdout


@cache
def world(setting: str, method: str, seed: int) -> World:
    """Rows dealt by Dirichlet(0.1) labels, as everywhere by default."""
    change: dict[str, Any] = {"set": {"search": "auto"}} if method == "acct" else {}
    given = {"data": DATA, "method": method, "clients": CLIENTS, "seed": seed}
    config = merge(given, SETTINGS[setting], change)
    loaded = datasets.load(DATA).split(seed)
    shards = deal(loaded, config.partition, CLIENTS, seed)
    test = test_part(loaded, seed)
    if test is None:
        raise TypeError(f"{DATA} has no test rows")
    return World(job_of(config, shards), shards, test)


# --- lies -----------------------------------------------------------------------------------------


def worst(sums: Floats, query: Query) -> Floats:
    """Return the direction of the worst answer if honest clients add up to `sums`; (length,)."""
    way = np.zeros(len(sums))
    if isinstance(query, ClassHistograms | PooledHistograms):  # P and N, of as many numbers
        return np.roll(sums, len(sums) // 2)
    if isinstance(query, ScoreCounts):
        size = math.prod(query.shape[:-1]) * len(query.matrix)
        halves = way[:size].reshape(-1, 2, len(query.matrix))
        halves[:, 0] = sums[:size].reshape(halves.shape)[:, 1]
    elif isinstance(query, TemperatureNewton | TemperatureUpdate):
        way[0] = 1.0
    elif isinstance(query, AccuracyGap):
        way[0] = -1.0
    elif not isinstance(query, ClassCounts):
        raise TypeError(f"no lie is known to {query.kind}")
    return way


def _norm(request: Request, x: Floats) -> float:
    if not request.bound.finite:
        return float(np.linalg.norm(x))
    return float(request.bound.norms_of(x[None]).max())


def _farthest(method: Method, request: Request, total: Floats, way: Floats) -> float:
    """Return the longest step in a direction that leaves a bounded sum plausible, but for 5 std."""
    least, most = honest_range(method.plan, request)
    noise = 5 * method.plan.std_of_sum(CLIENTS) if method.plan.private else 0.0
    room = np.where(way > 0, most - noise - total, least + noise - total)
    return max(0.0, float((room[way != 0] / way[way != 0]).min()))


class Liars:
    """The sums of a federation in which some clients lie.

    Parameters
    ----------
    cell, of
        what they do, and in which federation
    method
        that asks
    """

    def __init__(self, cell: Cell, of: World, method: Method) -> None:
        self._cell, self._seed, self._method = cell, of.job.federation.seed, method
        lot = stream(self._seed, Purpose.SPLIT, 0, "liars").permutation(CLIENTS)
        self._liars = lot[: cell.liars]
        self._unbounded: dict[str, tuple[float, float]] = {}  # of each question: where it began
        self._shards = of.shards
        if cell.lie == "labels":
            lying = np.isin(of.shards.owner, self._liars)
            labels = np.where(lying, (of.shards.labels + 1) % of.shards.classes, of.shards.labels)
            self._shards = replace(of.shards, labels=labels)

    def sums(self, asked: Asked, alive: Integers) -> Words:
        """Return the sum of all answers, honest and false, (length,)."""
        request = asked.request
        words = contribute(self._shards.take(alive), request, alive)
        if self._cell.lie in ("none", "labels"):
            return np.asarray(words.sum(axis=0, dtype=np.uint64))
        lying = np.isin(alive, self._liars)
        total = np.asarray(words[~lying].sum(axis=0, dtype=np.uint64))
        if self._cell.lie == "random":
            rng = stream(self._seed, Purpose.SPLIT, asked.round, f"lie to {self._cell.method}")
            return np.asarray(total + rng.integers(0, 2**64, len(total), dtype=np.uint64))
        honest = request.ring.decode(answer(self._shards.take(alive[~lying]), request))
        way = worst(honest.sum(axis=0), request.query)
        if not way.any():
            return total
        way /= _norm(request, way)
        much = self._size(request, honest, way) * (1 if self._alone else int(lying.sum()))
        steps = np.clip(np.rint(much * way / request.ring.grid), -_STEPS, _STEPS)
        return request.ring.add(total, steps.astype(np.int64))

    @property
    def _alone(self) -> bool:
        return self._cell.lie in ALONE

    def _size(self, request: Request, honest: Floats, way: Floats) -> float:
        """Return the size of a lie, in the norm of the bound (L2 if there is none).

        `honest` : (clients, length). What nothing bounds is as large in all rounds.
        """
        if not request.bound.finite:
            sizes = np.linalg.norm(honest, axis=1)
            first = float(sizes.max()), _TIMES * float(sizes.sum())
            return self._unbounded.setdefault(request.query.kind, first)[self._alone]
        if self._alone:
            return _farthest(self._method, request, honest.sum(axis=0), way)
        return 1.0 if request.bound.per == "client" else len(self._shards.labels) / CLIENTS


# --- runs -----------------------------------------------------------------------------------------


def run(cell: Cell, seed: int) -> Record:
    """ECE, NLL and accuracy after one run, and whether a round was refused; None = no such."""
    of = world(cell.setting, cell.method, seed)
    method = of.job.strategy()
    try:
        artifact = run_inline(method, of.shards, sum_of=Liars(cell, of, method).sums)
    except RoundFailed:
        return {"refused": True, **dict.fromkeys(MEASURED)}
    return {"refused": False, **_judged(artifact, of)}


def _judged(artifact: Artifact, of: World) -> Record:
    """Score a calibrator on test rows, or return the error of an evaluation that has figures."""
    if isinstance(artifact, Calibrator):
        after = summary(artifact.test_probs(of.test), of.test.labels)
        return {k: float(after[k]) for k in MEASURED}
    truth = summary(np.asarray(softmax(of.shards.logits)), of.shards.labels)
    metrics = artifact.results()["metrics"]
    found = {k: metrics[k]["value"] for k in ("ece", "accuracy")}
    if None in found.values():
        return dict.fromkeys(MEASURED)
    return {k: abs(float(v) - truth[k]) for k, v in found.items()} | {"nll": None}


def rows(progress: Progress | None = None, *, seeds: int = SEEDS) -> Rows:
    """Measure each of `cells`, a row each.

    Returns
    -------
    list of dict
        `what` ("calibrators", "evaluation", or "refused" where all runs were), `setting`,
        `method`, `lie`, `liars`, `seeds`, `refused` (share of runs), and over runs with a result
        the means of `ece`, `nll`, `accuracy` on test rows (of an evaluation what it is off by),
        `worse`: how much larger the ECE (the error of the ECE) is than without liars, and
        `worse_error`, half a 95 % interval of that over seeds; None where there are none
    """
    base = dict[tuple[str, str], Rows]()
    found: Rows = []
    for cell in counted(tuple(cells()), progress):
        runs = [run(cell, seed) for seed in range(seeds)]
        honest = base.setdefault((cell.setting, cell.method), runs)
        found.append(_row(cell, runs, honest))
    return found


def _row(cell: Cell, runs: Rows, honest: Rows) -> Record:
    pairs = zip(runs, honest, strict=True)
    kept = [(r, h) for r, h in pairs if r["ece"] is not None and h["ece"] is not None]
    change = [r["ece"] - h["ece"] for r, h in kept]
    what = "evaluation" if cell.method == "evaluate" else "calibrators"
    return {
        "what": what if kept else "refused",
        **vars(cell),
        "seeds": len(runs),
        "refused": sum(r["refused"] for r in runs) / len(runs),
        **{k: _mean([r[k] for r, _ in kept]) for k in MEASURED},
        "worse": _mean(change),
        "worse_error": _half(change),
    }


def claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield which lies are refused, and what liars achieve within their bound and at the limit."""
    for (setting,), here in grouped(found, "setting").items():
        passed = [r["method"] for r in where(here, lie="random") if r["refused"] < 1]
        yield (
            f"{setting}: random integers are always refused",
            not passed,
            f"not of {', '.join(passed)}" if passed else "of all methods",
        )
        share = max(r["refused"] for r in here if r["lie"] in ("none", "labels", "bound"))
        yield f"{setting}: nobody within the bound is refused", share == 0, f"{100 * share:.0f} %"
        calibrators = where(here, what="calibrators")
        one = where(calibrators, lie="bound", liars=1)
        yield _raised(f"{setting}: one liar within its bound", one, 0.02)
        many = where(calibrators, lie="labels", liars=20)
        warm = [r for r in many if r["method"] in TEMPERATURES]
        yield _raised(f"{setting}: 20 liars with wrong labels, temperatures", warm, 0.01)
        at_limit = where(calibrators, lie="limit", liars=1)
        lowest = min(r["worse"] - r["worse_error"] for r in at_limit)
        text = f"{setting}: one liar at the limit raises the ECE of every calibrator by .01 or more"
        yield text, lowest >= 0.01, f"{lowest:.3f} or more"
        kept = {r["lie"]: r["accuracy"] for r in where(here, method="fedbbq")}
        lost = kept["none"] - kept["limit"]
        text = f"{setting}: one liar at the limit leaves fedbbq its accuracy to .01"
        yield text, lost <= 0.01, f"{lost:.3f} lost"
    same = {r["accuracy"] for r in found if r["method"] in TEMPERATURES and r["ece"] is not None}
    yield (
        "No lie changes a prediction of a temperature",
        max(same) - min(same) < 1e-12,
        f"accuracy {min(same):.4f}",
    )


def _raised(who: str, rows: Rows, most: float) -> RowsClaim:
    """Test the most that liars add to the ECE of calibrators, by the 95 % intervals."""
    highest = max(r["worse"] + r["worse_error"] for r in rows)
    return f"{who}: the ECE rises by at most {most:g}", highest <= most, f"{highest:.3f} at most"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def _half(values: Sequence[float]) -> float | None:
    """Half of a 95 % interval of the mean."""
    if len(values) < 2:
        return 0.0 if values else None
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1)) * standard_error(values)
