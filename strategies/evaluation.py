"""How good is a model, and how well calibrated? One release of counts by score (Cormode & Markov).

Cormode & Markov, "Federated calibration and evaluation of binary classifiers": the metrics of a
classifier follow from the histograms of its scores on positive and on negative examples, whatever
the partition. Encodings for Gaussian noise, residual queries and groups are ours.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedcal.bounding import Bound
from fedcal.calibrators import load
from fedcal.checks import one_of, positive, whole
from fedcal.encodings import ENCODINGS, Tree, column_norm, prefix_std
from fedcal.errors import InputError
from fedcal.evaluation.histogram import NoiseLaw
from fedcal.evaluation.release import ScoreRelease
from fedcal.mechanisms import MECHANISMS, Gaussian, Laplace, Mechanism, Target
from fedcal.privacy.federation import AUTO
from fedcal.privacy.plan import Federation, make_plan
from fedcal.queries import ScoreCounts
from fedcal.release import Release
from fedcal.strategies.base import CalibrationStrategy
from fedcal.types import Floats
from fedcal.units import UNITS

Edges = Literal["equal-width", "equi-depth"]

BUCKETS = 240
"""Their edges are those of 2, 3, 5, 8, 10, 12, 15, 16, 20, 24 and 30 bins, too."""

_HEIGHTS = (1, 2, 3, 4)


class FedEvaluate(CalibrationStrategy):
    """Rows by score and outcome, counted once: every metric, curve and calibrator follows.

    Privacy: the federation's unit and trust. Public: the federation and all parameters.

    * Unit `example`, add/remove of one row: a row is a 1 in each of `ScoreCounts.ones` counts; what
      an encoding makes of that is the bound, and clips nothing.
    * Unit `subject`: what all rows of a subject at a client add is clipped to what one row may.
    * Unit `user`, zero-out (replace under `local`): in two rounds. The first asks for counts, the
      second for what differs from m times the shares that the first found: rows of one client
      add up to m, their difference from what is expected of them to about the root of m (a
      residual query, ours). Each answer is clipped as a whole.

    Encoding and mechanism are those under which a prefix sum has the least noise: Gaussian noise on
    the Toeplitz square root of prefix sums, or Laplace noise on a tree.

    Parameters
    ----------
    federation
        public facts and budget
    score
        see `fedcal.buckets`; "" = positive for two classes, else confidence
    bins
        buckets of the score
    edges
        "equal-width", or "equi-depth": a first round finds edges with about as many rows between
        each two; half of the budget is for it
    encoding, height
        see `fedcal.encodings`; "auto" and 0 = as said above
    other
        count a second model's scores beside the model's, too
    calibrator
        file of a calibrator: count also the model's scores after it
    groups
        JSON list of the names of groups that are counted apart
    confusion
        count predicted class by label, too
    rows_per_client
        m, the public nominal number of rows of a client; needed with privacy for unit `user`
    """

    name, family = "evaluate", "evaluate"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"bins": 12},
        {"bins": 8, "edges": "equi-depth", "confusion": True},
    )
    planned = 0

    def __init__(
        self,
        federation: Federation,
        *,
        score: str = "",
        bins: int = BUCKETS,
        edges: str = "equal-width",
        encoding: str = "auto",
        height: int = 0,
        other: bool = False,
        calibrator: str = "",
        groups: str = "",
        confusion: bool = False,
        rows_per_client: float | None = None,
        **base: Any,
    ) -> None:
        one_of("edges", edges, get_args(Edges))
        whole("bins", bins, 2)
        user = federation.private and UNITS[federation.unit].whole_client
        if other and calibrator:
            raise InputError("give other or calibrator, not both: two views are compared at most")
        self._twice = user or edges == "equi-depth"
        rounds = 1 + self._twice
        if federation.rounds not in (None, rounds):
            raise InputError(f"evaluate asks {rounds} times here: rounds = {federation.rounds}")
        if user and rows_per_client is None:
            raise InputError(
                "evaluate with unit 'user' needs rows_per_client, a public nominal number of rows "
                "> 0"
            )
        question = ScoreCounts(
            classes=federation.classes,
            edges=np.array([float(bins)]),
            score=score,
            views="model,other" if other else "model,calibrated" if calibrator else "model",
            groups=groups,
            confusion=confusion,
            calibrator=_text_of(calibrator, federation.classes) if calibrator else "",
        )
        law, self._last = _least_noise(federation, question, rounds, encoding, height)
        self._first = self._last
        if edges == "equi-depth":
            self._first = replace(self._last, edges=log_odds_edges(bins))
        part = question.part(federation.unit)
        if user:  # answers in units of their clips: one bound for both rounds
            rows = positive("rows_per_client", rows_per_client)
            norm = self._last.row_norm(law.order)
            self._first = replace(self._first, gain=1 / (REFERENCE * rows * norm))
            self._last = replace(self._last, gain=1 / (RESIDUAL * rows * norm))
        bound = self._last.bound(part, (1.0,) if part == "client" else (), law.order)
        self._equi_depth, self._user = edges == "equi-depth", user
        self._read: ScoreRelease | None = None
        plan = make_plan(
            federation, rounds=rounds, bound=bound, prefers=(law,), row_sums=question.row_sums
        )
        super().__init__(plan, **base)

    def query(self, round_number: int) -> ScoreCounts:
        """Counts; the second time between better edges, or what differs from the first."""
        return self._last if round_number == self.plan.rounds else self._first

    def update(self, release: Release) -> None:
        """Read counts; after the first of two rounds, make the second question of them."""
        asked = self.query(release.round)
        counts = asked.decode(release.values) / asked.gain
        if asked.reference is not None and self._read is not None:
            counts += max(_rows_in(self._read), 0.0) * asked.reference
        std = float(release.std.max(initial=0.0)) / asked.gain
        law: NoiseLaw = "double-exponential" if self.plan.tailed else "normal"
        self._read = ScoreRelease(asked, counts, std, law)
        if release.round < self.plan.rounds:
            self._last = self._second(self._read)

    def _second(self, first: ScoreRelease) -> ScoreCounts:
        """What to ask after the first of two rounds."""
        asked = self._last
        if self._equi_depth:
            whole = sum(h.counts.sum(axis=0) for h in first.histograms.values())
            asked = replace(asked, edges=equi_depth(first.question.bucket_edges, whole))
        if self._user:
            asked = replace(asked, reference=_shares(first, asked))
        return asked

    def result(self) -> ScoreRelease:
        """What is known so far."""
        if self._read is None:
            return ScoreRelease(self._first, np.zeros(self._first.counts))
        return self._read


REFERENCE, RESIDUAL = 0.6, 0.16
"""Clips of a user's counts and of their residual, in nominal rows at the norm of one row."""


def _text_of(calibrator: str, classes: int) -> str:
    """The file of a calibrator, checked, as text."""
    found = load(Path(calibrator))
    if found.classes != classes:
        raise InputError(
            f"the calibrator {calibrator!r} is for {found.classes} classes, not for {classes}"
        )
    return base64.b64encode(Path(calibrator).read_bytes()).decode()


def _least_noise(
    federation: Federation, question: ScoreCounts, rounds: int, encoding: str, height: int
) -> tuple[type[Mechanism], ScoreCounts]:
    """Mechanism and encoding of the least noise in prefix sums, of those that the user allows."""
    one_of("encoding", encoding, (AUTO, *ENCODINGS))
    if height and encoding not in (AUTO, Tree.name):
        raise InputError(f"height = {height} is of encoding 'tree', not of '{encoding}'")
    names = (Tree.name,) if height else tuple(ENCODINGS) if encoding == AUTO else (encoding,)
    if not federation.private:
        for name, value, unset in (("encoding", encoding, AUTO), ("height", height, 0)):
            if value != unset:
                raise InputError(f"{name} has no effect without privacy: nothing is noisy")
        return Laplace, question
    order = None if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order
    target = Target(federation.epsilon, federation.delta, rounds)
    best: tuple[float, type[Mechanism], ScoreCounts] | None = None
    for law in (Laplace, Gaussian):
        if order not in (None, law.order) or not (law.pure or federation.delta > 0):
            continue
        made = law.calibrate(target)
        for name in names:
            for levels in ((height,) if height else _HEIGHTS) if name == Tree.name else (1,):
                asked = replace(question, encoding=name, height=levels)
                one = column_norm(name, asked.buckets, levels, law.order)
                bound = Bound((1,), (asked.row_norm(law.order) / one,), order=law.order)
                noise = float(made.std(made.scale(bound, 1), 1.0, bound).max())
                noise *= prefix_std(name, asked.buckets, levels, law.order)
                if best is None or noise < best[0]:
                    best = noise, law, asked
    if best is None:
        raise InputError(f"mechanism '{federation.mechanism}' needs delta > 0")
    return best[1], best[2]


def log_odds_edges(buckets: int) -> Floats:
    """Edges equally far apart in log-odds from -9 to 9, and 0 and 1, (buckets + 1,)."""
    inner = 1.0 / (1.0 + np.exp(-np.linspace(-9.0, 9.0, buckets - 1)))
    return np.concatenate([[0.0], inner, [1.0]])


def equi_depth(edges: Floats, counts: Floats) -> Floats:
    """As many edges with about as much between each two, one half among them.

    Parameters
    ----------
    edges, counts
        (buckets + 1,) and (buckets,), the counts noisy
    """
    buckets = len(counts)
    below = np.concatenate([[0.0], np.cumsum(np.maximum(counts, 0.0))])
    total = max(below[-1], 1e-9)
    inner = np.interp(np.arange(1, buckets) / buckets * total, below, edges)
    kept = np.unique(np.concatenate([[0.0, 0.5, 1.0], np.round(inner, 9)]))
    while len(kept) < buckets + 1:  # equal ones: halve the widest
        widest = int(np.argmax(np.diff(kept)))
        kept = np.insert(kept, widest + 1, (kept[widest] + kept[widest + 1]) / 2)
    while len(kept) > buckets + 1:  # the two whose middle is missed least, but 0, 1/2 and 1
        gaps = kept[2:] - kept[:-2]
        gaps[kept[1:-1] == 0.5] = np.inf
        kept = np.delete(kept, int(np.argmin(gaps)) + 1)
    return kept


def _rows_in(release: ScoreRelease) -> float:
    """How many rows were counted, from each histogram of the model's scores alike."""
    whole = [h.counts.sum() for (_, group, _), h in release.histograms.items() if group == ""]
    return float(np.mean(whole))


def _shares(first: ScoreRelease, asked: ScoreCounts) -> Floats:
    """Expected counts of one row in the buckets of `asked`, (asked.counts,)."""
    size = math.prod(asked.shape)
    old, new = first.question.bucket_edges, asked.bucket_edges
    halves = np.maximum(first.counts[:size], 0.0).reshape(-1, asked.buckets)
    below = np.concatenate([np.zeros((len(halves), 1)), np.cumsum(halves, axis=1)], axis=1)
    moved = np.stack([np.diff(np.interp(new, old, one)) for one in below])
    views, groups, parts, _, buckets = asked.shape
    each = moved.reshape(views, groups, parts, 2, buckets)
    each = each / np.maximum(each.sum(axis=(1, 3, 4), keepdims=True), 1e-9)
    rest = np.maximum(first.counts[size:], 0.0)
    return np.concatenate([each.ravel(), rest / max(_rows_in(first), 1.0)])
