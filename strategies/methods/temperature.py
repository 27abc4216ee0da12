"""Temperature scaling three ways: averaged optima, Newton on sums, one private draw."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, get_args

import numpy as np

from fedcal.calibrators import TemperatureScaling
from fedcal.calibrators.linear_scaling import EntropyTemperature, VectorScaling
from fedcal.calibrators.order_preserving import UNIT
from fedcal.calibrators.parametric import LIMIT, ParametricScaling
from fedcal.clients.questions import (
    ScalingGradients,
    ScalingNewton,
    TemperatureNewton,
    TemperatureScores,
    TemperatureUpdate,
)
from fedcal.clients.questions.scaling import ROW_CLIP
from fedcal.clients.questions.temperature import LIMIT as T_LIMIT
from fedcal.clients.questions.temperature import MOST_POINTS, Average, check_limit
from fedcal.core.checks import one_of, whole
from fedcal.core.errors import InputError
from fedcal.core.numerics import LOG_A_LIMIT, log_grid, softplus
from fedcal.core.types import Floats, override
from fedcal.mechanisms import MECHANISMS, Exponential, Gaussian, Laplace, Mechanism
from fedcal.privacy.curator import Release
from fedcal.privacy.declared import Range
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.noise_plan import make_plan
from fedcal.storage.artifact import at_end
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import Family, check_rounds, nominal_rows, plan_for
from fedcal.strategies.methods.steps.descent import Descent
from fedcal.strategies.methods.steps.newton_steps import (
    Averaging,
    KalmanFilter,
    TrustRegion,
    symmetric,
)
from fedcal.strategies.methods.steps.noisy_search import root_posterior
from fedcal.trust import TRUSTS
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

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
        limit: float = T_LIMIT,
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


EPOCHS = 100


class _Recalibration(Descent):
    """Gradient descent on calibration rows; every row takes part in every round."""

    family: ClassVar[Family] = "calibrate"
    form: ClassVar[str]
    keeps_releases = True
    wider: ClassVar[float]
    """A client's clip over that of its gradient in log(1/T)."""
    examples = ({"rows_per_client": 20.0}, {"rows_per_client": 20.0, "clip": 1.0, "lr": 0.1})

    def __init__(
        self,
        federation: Federation,
        *,
        rows_per_client: float | None = None,
        lr: float = 0.5,
        clip: float | None = None,
        **base: Any,
    ) -> None:
        rows = nominal_rows(self.name, rows_per_client)
        self.classes = federation.classes
        whole = federation.private and UNITS[federation.unit].whole_client
        if clip is None and whole:
            clip = self.wider * gradient_clip(self.name, federation, rows_per_client)
        self._row_clip = None if whole else clip
        super().__init__(
            federation,
            self.first_w(federation.classes),
            rows_per_client=rows,
            batch=rows * federation.clients,
            epochs=None if federation.rounds else float(EPOCHS),
            lr=lr,
            schedule="linear",
            optimiser="sgd",
            momentum=0.0,
            weight_decay=0.0,
            clip=ROW_CLIP if clip is None else clip,  # not used without privacy
            **base,
        )

    @staticmethod
    @abstractmethod
    def first_w(classes: int) -> Floats:
        """Return the parameters of the first round."""

    def query(self, round_number: int) -> ScalingGradients:
        """Return the question for the sum of the gradients at w."""
        return ScalingGradients(self.form, self.w, self.classes, self._row_clip)


class DPTS(_Recalibration):
    """Temperature scaling by DP-SGD, DP-TS (Zhang et al., Algorithm 1 and B.2).

    The paper's: T = 1 at the start, 100 epochs of DP-SGD, a step that falls linearly. From the
    code that its authors published: full batches, so an epoch is a round, and 1/T = log(1 +
    exp(u)), descent in u. Ours: C = 10 and lr 0.5. With their C = 1, which cuts one row in ten to
    less than half, the ECE of a CIFAR-10 probe at epsilon = 8 stays at .052; with their lr 0.1, 100
    steps do not reach the optimum everywhere (.026; on Adult .053; here .019 and .012); with both
    it is .071 (three seeds).

    FedNewton needs four rounds for the same.

    Privacy: as the plan says. Unit "example" (and "subject"): the gradient of a row (and the sum of
    a subject) is clipped to norm C. Unit "user": a client's sum, to max(0.2 m, 3) nats by default.
    Rates and denominators are public: every row takes part in each round, and sums are divided by
    the nominal number of rows.

    Parameters
    ----------
    federation
        public facts and budget; default 100 rounds
    rows_per_client
        m, the public nominal number of rows per client
    lr
        first step
    clip
        C, in nats; without privacy None = no clipping
    """

    name, form = "dp-ts", TemperatureScaling.kind
    wider = 1.0

    @staticmethod
    @override
    def first_w(classes: int) -> Floats:
        return np.array([UNIT])

    def result(self) -> TemperatureScaling:
        """Temperature scaling by T, kept in [1/20, 20]."""
        log_a = math.log(max(float(softplus(self.w)[0]), 1e-300))
        log_a = max(-LOG_A_LIMIT, min(LOG_A_LIMIT, log_a))
        return TemperatureScaling(math.exp(-log_a), self.classes)


class DPPlatt(_Recalibration):
    """Vector scaling by DP-SGD, DP-PS (Zhang et al., B.2; Platt scaling of several classes).

    A slope and an offset for each class, from the identity, by the paper's DP-SGD as in `DPTS`;
    with two classes Platt scaling follows. Ours: C = 10 and lr 1 (with the C = 1 of the authors'
    code the ECE of a CIFAR-10 probe at epsilon = 8 stays at .10; here .020). Predictions may
    change.

    For unit "example": with whole users protected, 2c numbers in 100 rounds drown in noise at all
    but large budgets, and accuracy with them.

    Privacy: as DPTS's; unit "user" clips a client's sum to 5 max(0.2 m, 3) by default.

    Parameters
    ----------
    federation
        public facts and budget; default 100 rounds
    rows_per_client, lr, clip
        as DPTS's, but a first step of 1 if none is given
    """

    name, form = "dp-platt", VectorScaling.kind
    wider = 5.0

    def __init__(self, federation: Federation, *, lr: float = 1.0, **options: Any) -> None:
        super().__init__(federation, lr=lr, **options)

    @staticmethod
    @override
    def first_w(classes: int) -> Floats:
        return VectorScaling.identity(classes)

    def update(self, release: Release) -> None:
        """One step; no parameter leaves its identity by more than 20."""
        super().update(release)
        identity = self.first_w(self.classes)
        self.w = np.clip(self.w, identity - LIMIT, identity + LIMIT)

    @override
    def result(self) -> VectorScaling:
        return VectorScaling(self.w, self.classes)


class _Newton(FederatedStrategy):
    """Newton steps on the federation's gradient G and curvature H at w.

    Sums over clients are sums over rows: without privacy, and if everybody is asked, every
    partition of the same rows takes the same way to the pooled optimum. (With a sampling rate
    below 1 each round heads for the optimum of its own sample.) Steps are those of a
    `TrustRegion` without privacy and of a `KalmanFilter` with it, which is post-processing of
    releases.

    Privacy: as the plan says. G and H of a client are clipped together to norm 1 in units of the
    bound; with unit "example" those of a row, to a bound of its own. Public: the federation, all
    parameters, and the bound, which follows from them; `rows_per_client` is a *nominal* number,
    not a maximum and not a count.

    Parameters
    ----------
    federation
        public facts and budget
    rows_per_client
        needed with privacy of unit "user", not used otherwise
    """

    form: ClassVar[type[ParametricScaling]]
    rounds: ClassVar[tuple[int, int]] = 8, 4  # without and with privacy
    prior: ClassVar[tuple[float, ...]] = ()
    """With privacy: std of each parameter's distance from the identity before anything is known."""

    def __init__(
        self, federation: Federation, *, rows_per_client: float | None = None, **base: Any
    ) -> None:
        if federation.private and self.exact_only:
            raise InputError(
                f"{self.name} cannot be run with privacy, where its noise made models worse: use "
                f"{FedNewton.name}, or epsilon inf where exact sums may be seen"
            )
        self.classes = federation.classes
        self.w = self.form.identity(self.classes)
        self._trust, self._filter = TrustRegion(), KalmanFilter(np.array(self.prior))
        rounds, query = federation.rounds or self.rounds[federation.private], self.query(1)
        clip = _clip(self.name, federation, rounds, rows_per_client)
        super().__init__(plan_for(federation, query, (clip,), rounds), **base)

    def query(self, round_number: int) -> ScalingNewton:
        """Gradient and curvature at w."""
        return ScalingNewton(self.form.kind, self.w, self.classes)

    def moving(self) -> dict[str, Range]:
        """Any w that is near enough to the identity."""
        return {"w": near_identity(self.form, self.classes)}

    def update(self, release: Release) -> None:
        """Take one guarded Newton step."""
        if self.plan.unanswered(release.std):
            return
        size = len(self.w)
        g, h = release.values[:size], release.values[size:]
        if self.plan.private:
            step = self._filter.step(g, h, release.std[:size], release.std[size:])
        else:
            step = self._trust.step(g, symmetric(h, size))
        identity = self.form.identity(self.classes)
        self.w = np.clip(self.w + step, identity - LIMIT, identity + LIMIT)

    @override
    def result(self) -> ParametricScaling:
        return self.form(self.w, self.classes)


class FedNewtonEntropy(_Newton):
    """A temperature that depends on the entropy of the row: two parameters (ours).

    The calibrator is `EntropyTemperature`; no prediction changes. With privacy the slope has a
    prior around 0 (std 0.35), that is around temperature scaling.

    Privacy: as the plan says; the five numbers are clipped together. Unit "user": G to
    c_g = max(0.2 m, 3) nats, or up to 6 where many clients drown the noise, and H to 3 c_g. Unit
    "example": G of a row to 4 nats and its H to 2 + log(c)^2 / 2.

    Parameters
    ----------
    federation
        public facts and budget; default 8 rounds, 4 with privacy
    rows_per_client
        m, the public nominal number of rows per client; needed with privacy of unit
        "user", not used otherwise
    """

    name, form = "fednewton-entropy", EntropyTemperature
    prior = 1.0, 0.35  # of log(1/T) and of the slope


class FedNewtonVector(_Newton):
    """Vector scaling by Newton's method on sums (ours); FedVector without its bias.

    For sums that may be seen: it is pooled vector scaling, whatever the partition. A budget is
    refused: 2c parameters with noise on each end worse than the model itself too often (classwise
    ECE on resnet110-cifar10 with 100 clients at epsilon = 1: 1.06 %; the model 0.98 %, temperature
    0.44 %).

    Parameters
    ----------
    federation
        public facts; default 8 rounds
    rows_per_client
        not used
    """

    name, form = "fednewton-vector", VectorScaling
    exact_only = True


def near_identity(form: type[ParametricScaling], classes: int) -> Range:
    """Return the range of parameters that the server keeps a form's in."""
    identity = form.identity(classes)
    return Range(float(identity.min()) - LIMIT, float(identity.max()) + LIMIT)


def _clip(name: str, federation: Federation, rounds: int, rows_per_client: float | None) -> float:
    """FedNewton's bound of a gradient, but up to 6 nats, not 3, where the noise is small for it.

    All that it depends on is public.
    """
    clip = gradient_clip(name, federation, rows_per_client)
    if rows_per_client is None or not federation.private or not UNITS[federation.unit].whole_client:
        return clip
    one = make_plan(federation, rounds=rounds, bound=Bound((1,), (1.0,)), row_sums=True)
    noise = one.noise_std[0] if one.noise_std else 0.0  # of a sum of numbers up to 1
    affordable = 0.008 * federation.sampling_rate * federation.clients * rows_per_client / noise
    return max(clip, min(6.0, affordable))
