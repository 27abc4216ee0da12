"""What candidates were worth in their runs, and which of them is taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from fedcal.experiments.planner.candidates import Estimate
from fedcal.experiments.planner.estimate import Trial
from fedcal.experiments.runs.config import Config

PAYS = 0.9
"""A method pays if it leaves at most so much of the model's own error, on average, ..."""

MOST_WORSE = 0.25
"""... and at most so many of its runs end worse than the model itself ..."""

MOST_ACCURACY_LOST = 0.01
"""... and it loses no more accuracy than that, on average (Maddock et al. allow as much)."""

MOST_ALL = 0.05
"""A rule for sets is of use if at most so many of its runs give sets of all labels, ..."""

MOST_LOST = 0.5
"""... and sets miss at least this share of the labels that they may miss."""

NEAR = 1.05
"""Of methods whose error is within this factor of the least, the one that sends least is taken."""

NEAR_GRPC = 1.15
"""As `NEAR`, over gRPC, where the one with fewest rounds is taken. In the made-up worlds two
standard errors of a difference are 10 to 15 %: closer than that they do not tell methods apart."""


@dataclass
class CandidateEstimate(Estimate):
    """Performance of a candidate in the runs so far."""

    runs: list[Trial] = field(default_factory=list)

    @property
    def _by_world(self) -> list[list[Trial]]:
        names = dict.fromkeys(run.population.world.name for run in self.runs)
        return [[r for r in self.runs if r.population.world.name == name] for name in names]

    @property
    def left(self) -> float:
        """Share of the model's own error that is left: mean over worlds of means over runs."""
        return fmean(fmean(run.left for run in runs) for runs in self._by_world)

    @property
    def worse(self) -> float:
        """Share of the runs that ended worse than the model itself."""
        return fmean(run.left > 1.0 for run in self.runs)

    @property
    def accuracy_lost(self) -> float:
        """Loss of accuracy, averaged over runs."""
        return fmean(run.accuracy_lost for run in self.runs)

    @property
    def pays(self) -> bool:
        """True if it is expected to be better than the uncalibrated model."""
        return (
            self.left <= PAYS
            and self.worse <= MOST_WORSE
            and self.accuracy_lost <= MOST_ACCURACY_LOST
        )

    @property
    def spread(self) -> float | None:
        """Std from run to run of the calibrated confidence of a row, root mean square."""
        repeated = [[r.confidence for r in runs] for runs in self._by_world if len(runs) > 1]
        variances = [np.var(rows, axis=0, ddof=1).mean() for rows in repeated]
        return math.sqrt(fmean(variances)) if variances else None

    @property
    def bytes(self) -> tuple[int, int]:
        """Payload that a client sends and gets, over the run."""
        return self.runs[0].bytes

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        plan, bound = self.plan, self.plan.bound
        std = plan.noise_std
        up, down = self.bytes
        ece, classwise = self._mean("ece"), self._mean("classwise_ece")
        return {
            "method": self.candidate.method,
            "settings": dict(self.candidate.settings),
            "rounds": plan.rounds - plan.counting_rounds,
            "sampling_rate": plan.sampling_rate,
            "mechanism": plan.mechanism,
            "clip": bound and list(bound.norms),
            "clip_rule": bound and f"{bound.rule}, L{bound.order}, per {bound.per}",
            "noise_std": std and list(std),
            "expected": {
                "ece": ece[0],
                "ece_above_pooled": ece[1],
                "classwise_ece": classwise[0],
                "classwise_ece_above_pooled": classwise[1],
                "error_left": self.left,
                "worse_than_none": self.worse,
                "accuracy_lost": self.accuracy_lost,
                "noise_in_result": self.spread,
            },
            "pays": self.pays,
            "runs": len(self.runs),
            "bytes_up_per_client": up,
            "bytes_down_per_client": down,
        }

    def _mean(self, metric: str) -> tuple[float, float]:
        """Return a metric averaged over all runs, and its excess over one pooled temperature."""
        pairs = [
            (getattr(r.errors, metric), getattr(r.population.pooled, metric)) for r in self.runs
        ]
        return fmean(after for after, _ in pairs), fmean(a - pooled for a, pooled in pairs)


def rank(estimate: CandidateEstimate) -> tuple[bool, float]:
    """Best first; what loses accuracy last."""
    return (estimate.accuracy_lost > MOST_ACCURACY_LOST, estimate.left)


def _paying(estimates: Sequence[CandidateEstimate]) -> list[CandidateEstimate]:
    """Return the candidates that pay, among those with most runs."""
    most = max(len(e.runs) for e in estimates)
    return [e for e in estimates if e.pays and len(e.runs) == most]


def best_of(estimates: Sequence[CandidateEstimate]) -> CandidateEstimate | None:
    """Return the paying candidate that leaves the least error."""
    return min(_paying(estimates), key=lambda e: e.left, default=None)


def about_as_good(estimate: CandidateEstimate, best: CandidateEstimate, engine: str) -> bool:
    """Return whether a method leaves hardly more error than the best one."""
    return estimate.left <= best.left * (NEAR_GRPC if engine == "grpc" else NEAR)


def choose(
    estimates: Sequence[CandidateEstimate], engine: str = Config.engine
) -> CandidateEstimate | None:
    """Return the candidate that sends least, of those that pay and are near the best.

    Over gRPC it is the one with fewest rounds, and then the one that sends least.
    """
    best = best_of(estimates)
    if best is None:
        return None
    near = [e for e in _paying(estimates) if about_as_good(e, best, engine)]
    few = engine == "grpc"
    return min(near, key=lambda e: (e.plan.rounds if few else 0, sum(e.bytes), e.left))
