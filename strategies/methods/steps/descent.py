"""Descent by sums of bounded gradients: what training and recalibration by DP-SGD share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcal.core.checks import one_of, positive, unused, whole
from fedcal.core.errors import InputError, RoundFailed
from fedcal.core.types import Floats
from fedcal.mechanisms import Gaussian
from fedcal.privacy.curator import Release
from fedcal.privacy.declared import Range
from fedcal.privacy.federation import MOST_ROUNDS, Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.query import Query
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import nominal_rows, plan_for
from fedcal.training.optimisers import (
    OPTIMISERS,
    SCHEDULES,
    Optimiser,
    Schedule,
    langevin_lr,
    scheduled,
)


class Descent(FederatedStrategy):
    """Steps against the mean of rows' gradients, released as noisy sums.

    In each round every row takes part with the same probability, batch / rows, by a coin at its
    client (Poisson sampling, on which the epsilon counts); the sum of the bounded gradients is
    released, and divided by `batch`. That is DP-SGD (Abadi et al. 2016) on the union of the
    clients' rows, wherever they lie. Public: `rows_per_client`, `batch`, and all else but the rows;
    how many rows there are, or take part, is in no denominator.

    Units "user" and "subject" clip a client's or a subject's sum as a whole. No amplification is
    claimed for them: all rows take part in each round (`batch` = None).

    Parameters
    ----------
    rows_per_client
        public nominal number of rows per client
    batch
        rows that are expected to take part in a round; None = all
    epochs
        rounds * batch / rows; not with rounds of the federation's own
    lr, schedule
        step, and how it changes: "constant", or "linear" towards 0
    optimiser, momentum
        see `OPTIMISERS`
    weight_decay
        of the weights' half squared norm, added to the mean loss
    """

    keeps_releases = False

    def __init__(
        self,
        federation: Federation,
        start: Floats,
        rows_per_client: float | None,
        batch: float | None,
        epochs: float | None,
        lr: float,
        schedule: Schedule,
        optimiser: str,
        momentum: float,
        weight_decay: float,
        clip: float,
        **base: Any,
    ) -> None:
        self.rows = nominal_rows(self.name, rows_per_client) * federation.clients
        self.batch = self.rows if batch is None else min(positive("batch", batch), self.rows)
        self.w = start
        one_of("optimiser", optimiser, OPTIMISERS)
        one_of("schedule", schedule, SCHEDULES)
        chosen = OPTIMISERS[optimiser]
        if momentum and not chosen.has_momentum:
            unused(f"the optimiser {optimiser} has none", momentum=momentum)
        self.optimiser: Optimiser = chosen(start.size, momentum)
        if self.optimiser.by_noise and not federation.private:
            raise InputError(f"the optimiser {optimiser} takes its step from the noise: epsilon")
        self.lr, self.schedule = positive("lr", lr), schedule
        if not (math.isfinite(weight_decay) and weight_decay >= 0):
            raise InputError(f"weight_decay must be >= 0, got {weight_decay!r}")
        self.weight_decay, self.clip = weight_decay, positive("clip", clip)
        self.done = 0
        super().__init__(self._planned(federation, epochs, self.batch / self.rows), **base)
        if self.optimiser.by_noise and self.plan.noise_std is not None:
            self.lr = langevin_lr(self.batch, self.rows, self.plan.noise_std[0])

    def _planned(self, federation: Federation, epochs: float | None, rate: float) -> Plan:
        steps = federation.rounds
        if epochs is not None:
            steps = math.ceil(positive("epochs", epochs) * self.rows / self.batch)
            if federation.rounds not in (None, steps):
                unused("rounds are given, and these are others", epochs=epochs)
        steps = whole("rounds", steps, 1, MOST_ROUNDS)
        query = self.query(1)
        more: dict[str, Any] = {"prefers": (Gaussian,), "row_rate": rate, "fine": query.fine}
        return plan_for(federation, query, (self.clip,), steps, **more)

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Return True: rates and denominators are public."""
        return True

    @abstractmethod
    def query(self, round_number: int) -> Query:
        """Return the question for the gradient at w."""

    def moving(self) -> dict[str, Range]:
        """Any w: steps are not bounded."""
        return {"w": Range()}

    def update(self, release: Release) -> None:
        """One step of the optimiser.

        Raises RoundFailed if the weights leave what floats hold.
        """
        self.done += 1
        gradient = release.values / (self.batch * self.plan.sampling_rate)
        gradient = gradient + self.weight_decay * self.w
        lr = self.lr * scheduled(self.schedule, self.done, self.plan.rounds)
        self.w = self.w + self.optimiser.step(gradient, lr)
        if not np.isfinite(self.w).all():
            raise RoundFailed(f"round {release.round}: the training diverged; lower lr ({self.lr})")

    def state(self) -> dict[str, Floats] | None:
        """All that later rounds depend on, by name; noisy with privacy, as the releases are."""
        if self.keeps_releases:
            return None
        return {"w": self.w, "done": np.array([float(self.done)]), **self.optimiser.state()}

    def restore(self, run: str, state: Mapping[str, Floats]) -> None:
        """Go on with a run that another process began, after the releases that `state` has seen."""
        self.w = np.array(state["w"], np.float64)
        self.done = int(state["done"][0])
        self.optimiser.restore(state)
        self.resume_after(run, self.done)
