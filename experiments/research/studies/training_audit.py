"""Audits of training with noisy gradient sums: is a right claim left alone, a false one refuted?

Orthogonal canaries (`fedcal.experiments.research.canaries`) audit the law of the noisy sums and
real runs of FedSGD, as promised and with planted faults. Our own study.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcal.accounting import Stage, gaussian_multiplier
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats
from fedcal.experiments.research.canaries import CanaryFinding, audit_canaries, canary_runs
from fedcal.experiments.research.studies.rows import counted
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.mechanisms import Gaussian
from fedcal.privacy.noise_plan import Federation, Plan
from fedcal.strategies.methods.training import FedSGD
from fedcal.strategies.server.outcome import Progress
from fedcal.units import Example

DELTA = 1e-5
AUDITS = 200
RIGHT, HALF, EVERY = "none", "noise x 0.5", "every row in every round"
_LONG = 16.0  # features of a canary: its constant 1 is a small part of them
_CLIENTS, _CLASSES = 5, 2
_STILL = 1e-12  # learning rate


@dataclass(frozen=True)
class Audited:
    """A row of the table.

    Attributes
    ----------
    epsilon, rounds, rate
        what is promised
    fault
        what is wrong: `RIGHT`, `HALF`, `EVERY`
    real
        runs of FedSGD, not only the law of its sums
    """

    epsilon: float
    rounds: int
    rate: float
    canaries: int
    fault: str
    real: bool = False

    @property
    def stage(self) -> Stage:
        """What is promised."""
        multiplier = gaussian_multiplier(self.epsilon, DELTA, self.rounds, self.rate)
        return Stage(multiplier, self.rounds, self.rate)

    def audits(self, count: int) -> list[CanaryFinding]:
        """Independent audits."""
        noise = 0.5 if self.fault == HALF else 1.0
        rate = 1.0 if self.fault == EVERY else self.rate
        found = []
        for seed in range(count):
            if self.real:
                run = fedsgd_run(self, seed)
            else:
                run = canary_runs(self.stage, self.canaries, seed=seed, noise=noise, rate=rate)
            found.append(audit_canaries(*run, self.stage, DELTA))
        return found


CASES = tuple(
    Audited(*promised, fault, real)
    for promised, real in (
        ((8.0, 200, 0.05, 500), False),
        ((3.0, 200, 0.05, 1000), False),
        ((1.0, 200, 0.05, 3000), False),
        ((1.0, 10, 1.0, 3000), False),
        ((8.0, 20, 0.1, 500), True),
    )
    for fault in (RIGHT, HALF, EVERY)
    if fault != EVERY or (promised[2] < 1 and not real)
)


class _Half(FedSGD):
    """FedSGD with a planted fault: half of the noise that its plan promises."""

    def _planned(self, federation: Federation, epochs: float | None, rate: float) -> Plan:
        plan = super()._planned(federation, epochs, rate)
        return replace(plan, law=Gaussian(0.5 * plan.multiplier))


def fedsgd_run(of: Audited, seed: int) -> tuple[NDArray[np.bool_], Floats]:
    """Canaries' projections in a run of FedSGD over clients; as `canary_runs`.

    A canary's features are zero but for one of its own. The learning rate is too small to move a
    weight, so that all gradients stay what they are.
    """
    rows = of.canaries / 2
    kind = _Half if of.fault == HALF else FedSGD
    method = kind(
        Federation(
            clients=_CLIENTS,
            classes=_CLASSES,
            epsilon=of.epsilon,
            delta=DELTA,
            unit=Example.name,
            rounds=of.rounds,
            seed=seed,
        ),
        shape=str(of.canaries),
        rows_per_client=rows / _CLIENTS,
        batch=of.rate * rows,
        lr=_STILL,
    )
    released: list[Floats] = []
    method.on_release = lambda release: released.append(release.values)
    present = stream(seed, Purpose.SPLIT, 0, "canaries of FedSGD").random(of.canaries) < 0.5
    inside = np.flatnonzero(present)
    features = np.zeros((len(inside), of.canaries), np.float32)
    features[np.arange(len(inside)), inside] = _LONG
    logits = np.zeros((len(inside), _CLASSES))
    labels = np.zeros(len(inside), np.int64)
    shards = Shards.from_owner(logits, labels, inside % _CLIENTS, _CLIENTS, inputs=features)
    run_inline(method, shards)
    sums = np.stack(released).reshape(of.rounds, _CLASSES, of.canaries + 1)
    direction = np.array([-1.0, 1.0]) / np.sqrt(2.0)  # p - y, of label 0 at p = 1/2
    return present, np.einsum("tcj,c->tj", sums[:, :, :-1], direction) / method.clip


def row_of(of: Audited, count: int) -> Record:
    """What so many audits found, in plain values; bounds are those of the median audit."""
    found = sorted(of.audits(count), key=lambda one: one.correct)
    middle = found[len(found) // 2]
    return {
        "audited": "runs of FedSGD" if of.real else "law of the sums",
        "epsilon": of.epsilon,
        "rounds": of.rounds,
        "sampling_rate": of.rate,
        "fault": of.fault,
        "canaries": of.canaries,
        "audits": count,
        "refuted": sum(one.refuted for one in found),
        "at_least": middle.lower_bound,
        "any_mechanism": middle.lower_bound_any,
        "noise_at_most": middle.noise_at_most,
    }


def rows(progress: Progress | None = None, *, audits: int = AUDITS) -> Rows:
    """One row for each of `CASES`.

    Parameters
    ----------
    progress
        called after each
    audits
        independent ones for each row
    """
    return [row_of(case, audits) for case in counted(CASES, progress)]


def claims(found: Rows) -> list[RowsClaim]:
    """Right claims are left alone, false ones are refuted."""
    return [
        _claim(found, RIGHT, "What is promised is refuted in at most 5 % of audits", most=0.05),
        _claim(found, HALF, "Half of the noise is caught in at least 95 % of audits", least=0.95),
        _claim(
            found,
            EVERY,
            "Rows in every round, where sampling is counted on, are caught in at least 95 %",
            least=0.95,
        ),
    ]


def _claim(
    found: Rows, fault: str, text: str, *, least: float = 0.0, most: float = 1.0
) -> RowsClaim:
    shares = list(_shares(found, fault))
    said = f"{min(shares):.1%} to {max(shares):.1%}".replace("%", " %")
    return text, all(least <= share <= most for share in shares), said


def _shares(found: Rows, fault: str) -> Iterator[float]:
    return (r["refuted"] / r["audits"] for r in found if r["fault"] == fault)
