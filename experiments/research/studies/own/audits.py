"""Is a claimed epsilon refuted? Our own studies.

`noise`: attacks on every mechanism, trust model and unit. `training`: orthogonal canaries
(`fedcal.experiments.research.canaries`) audit the law of the noisy gradient sums and real runs of
FedSGD, as promised and with planted faults: is a right claim left alone, a false one refuted?
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
from fedcal.experiments.research.benchmarks.audit import (
    ERROR,
    TRIALS,
    attacks,
    name_of,
    row_of,
)
from fedcal.experiments.research.canaries import CanaryFinding, audit_canaries, canary_runs
from fedcal.experiments.research.studies.rows import counted, span, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, Study
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.mechanisms import Gaussian, Laplace
from fedcal.privacy.noise_plan import Federation, Plan
from fedcal.strategies.methods.training import FedSGD
from fedcal.strategies.server.outcome import Progress
from fedcal.units import Example

# -- mechanisms ----------------------------------------------------------------------------------


def _attacked(progress: Progress | None = None, *, trials: int = TRIALS) -> Rows:
    """One row for each attack of `fedcal.experiments.research.benchmarks.audit`.

    Parameters
    ----------
    progress
        called after each attack
    trials
        runs in each of two worlds

    Returns
    -------
    list of dict
        As `row_of`; all bounds hold together but for a probability of `ERROR`
    """
    return [row_of(attack, trials, ERROR) for attack in counted(attacks(), progress)]


def _attacked_claims(found: Rows) -> Iterator[RowsClaim]:
    """No attack succeeds, and those on pure mechanisms are strong enough to say something."""
    bad = [name_of(r) for r in found if r["refuted"]]
    laplace = [r["of_it"] for r in found if r["mechanism"] == Laplace.name]
    shown = f"refuted: {'; '.join(bad)}" if bad else f"{len(found)} attacks"
    yield "No claimed epsilon is refuted", not bad, shown
    yield (
        "Attacks on Laplace noise prove at least three quarters of the claim",
        min(laplace) >= 0.75,
        span(laplace, ".0%").replace("%", " %"),
    )


noise = Study(_attacked, _attacked_claims)

# -- training ------------------------------------------------------------------------------------

DELTA = 1e-5
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
        """The claimed guarantee."""
        multiplier = gaussian_multiplier(self.epsilon, DELTA, self.rounds, self.rate)
        return Stage(multiplier, self.rounds, self.rate)

    def audits(self, count: int) -> list[CanaryFinding]:
        """Run independent audits."""
        noise = 0.5 if self.fault == HALF else 1.0
        rate = 1.0 if self.fault == EVERY else self.rate

        def run(seed: int) -> tuple[NDArray[np.bool_], Floats]:
            if self.real:
                return fedsgd_run(self, seed)
            return canary_runs(self.stage, self.canaries, seed=seed, noise=noise, rate=rate)

        return [audit_canaries(*run(seed), self.stage, DELTA) for seed in range(count)]


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
        return replace(plan, law=Gaussian(multiplier=0.5 * plan.multiplier))


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


def _training_row(of: Audited, count: int) -> Record:
    """Run `count` audits and report them as plain values; bounds are those of the median audit."""
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


def _trainings(progress: Progress | None = None, *, audits: int = 200) -> Rows:
    """One row for each of `CASES`.

    Parameters
    ----------
    progress
        called after each
    audits
        independent ones for each row
    """
    return [_training_row(case, audits) for case in counted(CASES, progress)]


def _training_claims(found: Rows) -> Iterator[RowsClaim]:
    """Right claims are left alone, false ones are refuted."""
    for fault, text, least, most in (
        (RIGHT, "What is promised is refuted in at most 5 % of audits", 0.0, 0.05),
        (HALF, "Half of the noise is caught in at least 95 % of audits", 0.95, 1.0),
        (
            EVERY,
            "Rows in every round, where sampling is counted on, are caught in at least 95 %",
            0.95,
            1.0,
        ),
    ):
        shares = [r["refuted"] / r["audits"] for r in where(found, fault=fault)]
        holds = all(least <= share <= most for share in shares)
        yield text, holds, span(shares, ".1%").replace("%", " %")


training = Study(_trainings, _training_claims)
