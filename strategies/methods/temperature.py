"""Temperature scaling three ways: averaged optima, Newton on sums, one private draw."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np

from fedcal.calibrators import TemperatureScaling
from fedcal.core.checks import one_of, whole
from fedcal.core.numerics import LOG_A_LIMIT, log_grid
from fedcal.core.types import Floats, override
from fedcal.mechanisms import MECHANISMS, Exponential, Gaussian, Laplace, Mechanism
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import AUTO
from fedcal.privacy.noise_plan import Federation
from fedcal.queries import TemperatureNewton, TemperatureScores, TemperatureUpdate
from fedcal.queries.declared import Range
from fedcal.queries.temperature import LIMIT, MOST_POINTS, Average, check_limit
from fedcal.storage.artifact import at_end
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import check_rounds, nominal_rows, plan_for
from fedcal.strategies.methods.steps.newton_steps import Averaging
from fedcal.strategies.methods.steps.noisy_search import root_posterior
from fedcal.trust import TRUSTS
from fedcal.units import UNITS

_STEP = 0.7  # at most doubling or halving the temperature in a round

LOG_A = Range(-LOG_A_LIMIT, LOG_A_LIMIT)
"""Any log(1/T) that a calibrator may have."""

ASKED = 8
"""Temperatures that FedOneShot asks about where it releases their scores."""


class _Temperature(FederatedStrategy):
    """Base of the three: one number, log(1/T), and the calibrator made from it."""

    classes: int
    log_a: float = 0.0

    def result(self) -> TemperatureScaling:
        """Temperature scaling by exp(-log_a)."""
        return TemperatureScaling(math.exp(-self.log_a), self.classes)


class FedTemp(_Temperature, Averaging):
    """Federated temperature scaling by averaged local optima (Maddock et al., Algorithm 2).

    Each client solves for its own optimum and sends how far it is from the global parameter;
    the server steps by the mean. Without privacy the mean is over the repliers that have rows;
    with privacy updates are clipped to `clip` and the sum is divided by the public q K.
    Averaging local optima is biased where clients are small and the model accurate: a shard
    without errors has its optimum at T = 0. FedNewton does not have that weakness.

    Privacy: as the plan says. A client's update is clipped to `clip`. One row may move it from one
    end to the other, so unit "example" costs twice as much noise as unit "user".

    Parameters
    ----------
    federation
        public facts and budget; default 12 rounds
    clip
        bound of one client's update, in units of the averaged parameter; None = 0.5 with
        privacy, none without (A.3.5 measures what one does there)
    server_lr
        step of the server
    average
        what is averaged, "inverse" (1/T, as in Algorithm 2) or "temperature" (T, A.6)
    limit
        the largest 1/T and T of a client and of the server, in (1, 1e6]; ours, the paper names
        none. It decides what a shard without errors answers, and where there are many, the result
    steps
        most steps of a client's own optimisation, >= 1; the paper stops at 50 (A.6) of a
        solver that it does not name, here Newton's; None = to the optimum, or to `limit`
    """

    name = "fedtemp"
    examples = ({}, {"average": "temperature"}, {"clip": 0.2, "server_lr": 0.5})

    def __init__(
        self,
        federation: Federation,
        *,
        clip: float | None = None,
        server_lr: float = 1.0,
        average: Average = "inverse",
        limit: float = LIMIT,
        steps: int | None = None,
        **base: Any,
    ) -> None:
        self.limit = check_limit("limit", limit)
        self.steps = None if steps is None else whole("steps", steps, 1)
        self.average: Average = average
        one_of("average", average, get_args(Average))
        super().__init__(federation, clip=clip, server_lr=server_lr, **base)

    @property
    def w(self) -> float:
        """The averaged parameter: 1/T or T."""
        return math.exp(self.log_a if self.average == "inverse" else -self.log_a)

    def query(self, round_number: int) -> TemperatureUpdate:
        """Return the question for the step from w to a client's own optimum.

        Without privacy it also asks whether the client has rows.
        """
        return TemperatureUpdate(self.w, self.average, self._count, self.limit, self.steps)

    def at_limits(self) -> list[str]:
        """Say that T is at its limit."""
        t = math.exp(-self.log_a)
        return at_end("The temperature", t, t, (1 / self.limit, self.limit))

    def moving(self) -> dict[str, Range]:
        """Any w within the limit."""
        return {"w": Range(1 / self.limit, self.limit)}

    def update(self, release: Release) -> None:
        """Step by the mean update; the divisor is public under privacy."""
        divisor = self.divisor(release)
        if not divisor:
            return  # nobody with rows was asked
        limit = math.exp(math.log(self.limit))  # as clients bound it
        w = self.w - self.server_lr * float(release.values[0]) / divisor
        log_w = math.log(min(max(w, 1 / limit), limit))
        self.log_a = log_w if self.average == "inverse" else -log_w


class FedNewton(_Temperature):
    """Newton's method on the federation's summed gradient and curvature (ours).

    The query asks for sums, not optima: G and H of the pooled loss in log(1/T). Exact sums reach
    the pooled optimum within 5 to 8 rounds for any partition. Private Newton steps: Ganesh et
    al. 2023.

    Privacy: as the plan says. A client's pair (G / c_g, H / c_h) is clipped to norm 1 with
    c_g = max(0.2 m, 3) and c_h = 3 c_g, where m is the *public nominal* number of rows per client,
    not a maximum and not a count. With unit "example" each row's pair is clipped, with c_g = 4 nats
    and c_h = 2 + log(c)^2 / 2, half of which no row's H exceeds.

    Parameters
    ----------
    federation
        public facts and budget; default 8 rounds, 4 with privacy
    rows_per_client
        m; needed with privacy of unit "user", not used otherwise
    """

    name = "fednewton"

    def __init__(
        self, federation: Federation, *, rows_per_client: float | None = None, **base: Any
    ) -> None:
        self.classes = federation.classes
        clip = gradient_clip(self.name, federation, rows_per_client)
        rounds = federation.rounds or (4 if federation.private else 8)
        super().__init__(plan_for(federation, self.query(1), (clip,), rounds), **base)

    def query(self, round_number: int) -> TemperatureNewton:
        """Gradient and curvature at the current temperature."""
        return TemperatureNewton(self.log_a, self.classes)

    def moving(self) -> dict[str, Range]:
        """Return the range of temperatures."""
        return {"log_a": LOG_A}

    def update(self, release: Release) -> None:
        """One guarded Newton step."""
        g, h = (float(v) for v in release.values)
        h = max(h, 2.0 * float(release.std[1]))  # a curvature lost in noise must not blow the step
        if h <= 0:
            return  # no rows
        log_a = self.log_a - max(-_STEP, min(_STEP, g / h))
        self.log_a = max(-LOG_A_LIMIT, min(LOG_A_LIMIT, log_a))


class FedOneShot(_Temperature):
    """One round: the temperature at which the clients' summed scores cross zero (ours).

    Each client answers with its score S_k(T) at temperatures of a public grid; the sum S(T) falls
    with T and has its root at the pooled optimum. Without privacy the root is interpolated.

    Trust `central`: the exponential mechanism draws T with probability ~
    `exp(-epsilon |S(T)| / (2 C))`; only the drawn temperature is released. Elsewhere, or where the
    user names a mechanism that adds noise, S is asked at 8 temperatures and released with Laplace
    or Gaussian noise, whichever is less; T is the posterior mean of log T, which begins uniform on
    the grid (`root_posterior`). Pure epsilon (delta = 0) but for Gaussian noise.

    Classwise ECE in % on resnet110-cifar10 (100 clients, epsilon = 1; the model 0.98, its pooled
    temperature 0.44), mean and std of seeds 0 to 4 of `fedcal simulate --method METHOD --epsilon 1
    --unit UNIT --trust TRUST --seed SEED`:

    ===============  ============  ============  ============  ============  ============
    unit             user          user          user          example       example
    trust            central       distributed   local         distributed   local
    ===============  ============  ============  ============  ============  ============
    fedoneshot       0.44 +- 0.00  0.48 +- 0.04  0.69 +- 0.20  0.43 +- 0.00  0.58 +- 0.08
    fednewton        0.44 +- 0.01  0.44 +- 0.00  0.97 +- 0.11  0.44 +- 0.00  0.51 +- 0.05
    ===============  ============  ============  ============  ============  ============

    Privacy: as the plan says. Each score of a client is clipped to +-C, C = max(0.2 m, 3), with
    unit "example" each score of a row to +-4.

    Parameters
    ----------
    federation
        public facts and budget; one round
    rows_per_client
        m, the public nominal number of rows per client; needed with privacy of unit
        "user", not used otherwise
    points, low, high
        the log grid of temperatures
    """

    name = "fedoneshot"
    examples = ({"points": 33},)

    def __init__(
        self,
        federation: Federation,
        *,
        rows_per_client: float | None = None,
        points: int = 257,
        low: float = 0.25,
        high: float = 8.0,
        **base: Any,
    ) -> None:
        check_rounds(self.name, federation, 1)
        self.classes = federation.classes
        whole("points", points, 2, MOST_POINTS)
        clip = gradient_clip(self.name, federation, rows_per_client)
        asked, prefers = _one_shot_release(federation, points)
        self._query = query = TemperatureScores(low, high, asked)
        self._log_t = log_grid(query.low, query.high, points)
        super().__init__(plan_for(federation, query, (clip,), 1, prefers=prefers), **base)

    @override
    def query(self, round_number: int) -> TemperatureScores:
        return self._query

    def update(self, release: Release) -> None:
        """Keep the drawn temperature, the posterior's mean, or the interpolated root."""
        score = release.values
        if self.plan.law.answers == "index":
            self.log_a = -float(self._log_t[int(score[0])])
        elif self.plan.private:
            if not self.plan.unanswered(release.std):
                self._learn(score, float(release.std[0]))
        elif score.any():
            # The score falls from positive to negative as T grows; zero everywhere without rows.
            self.log_a = -float(np.interp(0.0, -score, self._log_t))

    def _learn(self, score: Floats, std: float) -> None:
        """Set the temperature to the posterior's mean, given noisy scores."""
        asked = np.linspace(self._log_t[0], self._log_t[-1], len(score))
        belief = root_posterior(asked, score, std, self._log_t, self.plan.tailed)
        self.log_a = -float((belief * self._log_t).sum())

    def at_limits(self) -> list[str]:
        """Say that of all temperatures that were asked the first or the last is the nearest."""
        low, high = self._query.low, self._query.high
        t, near = math.exp(-self.log_a), (high / low) ** (0.5 / self._query.points)
        return at_end("The temperature", t / near, t * near, (low, high))


def _one_shot_release(
    federation: Federation, points: int
) -> tuple[int, tuple[type[Mechanism], ...]]:
    """Return FedOneShot's number of temperatures, and the mechanisms that fit their scores."""
    if not federation.private:
        return points, (Laplace, Gaussian)
    if draws_index(federation):
        return points, (Exponential,)
    return ASKED, (Laplace, Gaussian)


def draws_index(federation: Federation) -> bool:
    """Return whether one of several candidates is drawn, by trust model or named mechanism."""
    if federation.mechanism == AUTO:
        return TRUSTS[str(federation.trust)].accepts(Exponential)
    return MECHANISMS[federation.mechanism].answers == "index"


def gradient_clip(name: str, federation: Federation, rows_per_client: float | None) -> float:
    """Clip of one client's gradient in nats: a fifth of a nat per nominal row, at least 3.

    A single confident error weighs 5 to 15 nats. With shards of a few rows a bound below 3 cuts
    most errors off and the optimum drifts to T = 1 (measured, 1000 clients of 5 rows, epsilon
    = 1: classwise ECE 6 % above the pooled optimum's with 3, 16 % with 2, 41 % with 1).

    With unit "example" it is not used: what a row may add follows from the question.
    """
    needed = federation.private and UNITS[federation.unit].whole_client
    if rows_per_client is None and not needed:
        return 1.0  # not used
    return max(0.2 * nominal_rows(f"{name} with privacy", rows_per_client), 3.0)
