"""Newton's method on summed derivatives for scaling with more than one parameter (ours)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.entropy import EntropyTemperature
from fedcal.calibrators.linear_scaling import VectorScaling
from fedcal.calibrators.order_preserving import OrderPreservingVector
from fedcal.calibrators.parametric import LIMIT, ParametricScaling
from fedcal.calibrators.scaling import TemperatureScaling
from fedcal.core.checks import positive, unused
from fedcal.core.errors import InputError
from fedcal.core.numerics import LOG_A_LIMIT
from fedcal.core.types import override
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation, make_plan
from fedcal.queries import OffsetNewton, ScalingNewton
from fedcal.queries.declared import Question, Range
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import nominal_rows, plan_for
from fedcal.strategies.methods.steps.class_offsets import LOOK_ON, OFFSET_LIMIT, ClassOffsets
from fedcal.strategies.methods.steps.newton_steps import (
    RADIUS,
    KalmanFilter,
    TrustRegion,
    symmetric,
)
from fedcal.strategies.methods.temperature import LOG_A, FedNewton, gradient_clip
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

_TEMPERATURE: Literal["temperature"] = "temperature"
_CLASSES: Literal["classes"] = "classes"

_SHARPER = 0.25
"""Of log(1/T): after a longer step up what was learnt before is forgotten. The loss of a model that
is too flat has little curvature, which grows on the way: a step from there goes too far."""

_ASIDE = 0.05
"""Std of what offsets move the optimum of log(1/T) by."""


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
        return ScalingNewton(self.form.kind, self.w, "full", self.classes)

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


class FedNewtonClass(FederatedStrategy):
    """Temperature, and an offset for each class where it shows through the noise and pays (ours).

    The first round and the last are about log(1/T), by Newton's steps. Rounds between look at the
    gradient of the offsets of all classes (`ClassOffsets`). With unit "user" nothing is spent on
    them where the noise is too large, as public numbers say. A look waits until the temperature's
    last step was short. If the first look says that there is nothing, the remaining rounds are the
    temperature's. If offsets are found, later rounds tell what they gain, and they are kept if that
    is more than noise and fitting explain. `verdict` says what was kept, and why.

    The calibrator is `VectorScaling` with one slope, or, without offsets, `TemperatureScaling`.
    With offsets, predictions may change.

    Privacy: as the plan says. An answer is about the temperature or about the offsets, with
    zeros for the other, so each has the whole bound. Unit "user": the gradient in log(1/T) to
    c_g = max(0.2 m, 3) nats, its curvature to 3 c_g, the gain to .03 m to .5 m (at least half a
    nat), and the gradients of all offsets with their curvature to .07 m to .5 m (at least one),
    wider where the noise is less; m is the *public nominal* number of rows per client. Unit
    "example" and "subject": 4 nats, 2 + log(c)^2 / 2, 1 and 1.2. All that is decided after is
    computed from releases.

    Not seen: rows that clipping takes from a few large clients bias the offsets where classes
    lie with few clients. The gain is asked for that reason, and is clipped as well. One number
    stands for the curvature of all classes: where classes are rare, or few are confused, steps
    go too far, and effects that are there may be refused.

    Parameters
    ----------
    federation
        public facts and budget; default 8 rounds, with privacy 5, or 4 where nothing is spent on
        offsets
    rows_per_client
        m; needed with privacy of unit "user", not used otherwise
    copies
        how often each row stands in the data, where a simulation repeats rows to have more: they
        vary together, and would look like evidence; None = once
    """

    name = "fednewton-class"

    def __init__(
        self,
        federation: Federation,
        *,
        rows_per_client: float | None = None,
        copies: float | None = None,
        **base: Any,
    ) -> None:
        self.classes, self.log_a = federation.classes, 0.0
        self.verdict = "not looked for: they take three rounds or more"
        times = 1.0 if copies is None else positive("copies", copies)
        self._effects = ClassOffsets(self.classes, times)
        self._gains: list[tuple[float, float]] = []  # with the std of their noise
        self._kept = False
        self._cut = True  # whether the temperature's last step was, or led too far
        self._filter, self._trust = KalmanFilter(np.ones(1)), TrustRegion()
        rounds = federation.rounds or (5 if federation.private else 8)
        clip = gradient_clip(self.name, federation, rows_per_client)
        clips = _class_clips(federation, rounds, rows_per_client)
        if clips is None:
            unused(f"{self.name} looks for no class effects here", copies=copies)
            self.verdict = "not looked for: as public numbers say, they would not show"
            rounds, clips = federation.rounds or (4 if federation.private else 8), (clip, clip)
            self._looks = 0
        else:
            self._looks = max(1, rounds - 3) if rounds > 2 else 0
        super().__init__(plan_for(federation, self.query(1), (clip, *clips), rounds), **base)
        q, bound = federation.sampling_rate, self.plan.bound
        one = 0.0 if bound is None else bound.norms[-1]
        self._spread = q * (1 - q) * federation.clients * one**2 / (self.classes - 1)

    def query(self, round_number: int) -> OffsetNewton:
        """Return the question for derivatives at the current temperature and offsets."""
        asks = _CLASSES if self._looks_in(round_number) else _TEMPERATURE
        return OffsetNewton(self.log_a, self._effects.offsets, asks, self.classes)

    def _looks_in(self, round_number: int) -> bool:
        """Return whether a round asks about offsets."""
        looks = self._effects.looks
        if self._cut or looks >= self._looks or round_number in (1, self.plan.rounds):
            return False
        if not self.plan.private:
            return not looks or round_number % 2 == 0  # each moves the other's optimum
        return not looks or self._effects.p < LOOK_ON

    def questions(self) -> tuple[Question, ...]:
        """About the temperature in all rounds, about offsets in those between."""
        moving = {"log_a": LOG_A, "offsets": Range(-OFFSET_LIMIT, OFFSET_LIMIT)}
        of = OffsetNewton(0.0, np.zeros(self.classes), _TEMPERATURE, self.classes)
        asked = [Question.like(of, self._all_rounds, **moving)]
        if self._looks:
            between = 2, self.plan.rounds - 1
            asked.append(Question.like(replace(of, asks=_CLASSES), between, **moving))
        return tuple(asked)

    def update(self, release: Release) -> None:
        """Take a guarded step of the temperature, or judge the offsets."""
        if not self.plan.unanswered(release.std):
            if self._looks_in(release.round):
                self._look(release)
            else:
                self._step(release)
        if release.round == self.plan.rounds:
            self._end()

    def _look(self, release: Release) -> None:
        values, std, effects = release.values, release.std, self._effects
        effects.learn(values[4:], float(values[3]), float(std[4]), self._spread)
        self._gains, self._trust = [], TrustRegion()  # the loss is another one, and its optimum
        nonzero = bool(effects.offsets.any())
        self.verdict = f"{'seen' if nonzero else 'not seen'} (p = {effects.p:.2g})"
        if nonzero:
            self._filter.covariance = self._filter.covariance + _ASIDE**2

    def _step(self, release: Release) -> None:
        values, std = release.values, release.std
        if self._effects.offsets.any():
            self._gains.append((float(values[2]), float(std[2])))
            if values[2] < 0:  # the last round is better spent on what is kept
                self._end()
                return
        if self.plan.private:
            step = self._filter.step(values[:1], values[1:2], std[:1], std[1:2])[0]
        else:
            step = self._trust.step(values[:1], values[1:2, None])[0]
        self._cut = abs(step) > 0.99 * RADIUS or step > _SHARPER
        if step > _SHARPER:
            self._filter = KalmanFilter(np.ones(1))
        self.log_a = max(-LOG_A_LIMIT, min(LOG_A_LIMIT, self.log_a + float(step)))

    def _end(self) -> None:
        """Keep the offsets if what they gain is more than noise and fitting explain."""
        effects, p = self._effects, f"(p = {self._effects.p:.2g})"
        if self._looks and not effects.looks:
            self.verdict = "not looked for: the temperature was not found before the last round"
        if not effects.offsets.any():
            return
        if not self._gains:
            self.verdict = f"seen and not kept {p}: no round measured their gain"
            self._effects.refuse()
            return
        gains, stds = np.array(self._gains).T
        gain = float(gains.mean())
        least = effects.threshold(float(np.sqrt((stds**2).sum())) / len(gains))
        self._kept = gain > least
        self.verdict = (
            f"{'kept' if self._kept else 'seen and not kept'} {p}: with them the log loss of the "
            f"rows asked is, as released, {gain:.3g} nats lower, and less than {least:.3g} could "
            "be chance"
        )
        if not self._kept:
            self._effects.refuse()

    def round_record(self, round_number: int) -> dict[str, Any]:
        """Return what is known of class effects after a round."""
        return {"class_effects": f"Class effects were {self.verdict}."}

    def result(self) -> Calibrator:
        """Temperature scaling, or with offsets vector scaling by one slope."""
        a, offsets = math.exp(self.log_a), self._effects.offsets
        if not self._kept:
            return TemperatureScaling(1 / a, self.classes)
        return VectorScaling(np.concatenate([np.full(self.classes, a), offsets]), self.classes)


def _class_clips(
    federation: Federation, rounds: int, rows_per_client: float | None
) -> tuple[float, float] | None:
    """Clips of a client's gain and of its gradients of offsets; None = they would not show.

    Of whole clients offsets are looked for if one of half a nat, for every class and with a row
    in ten in doubt, exceeded the noise. Of two classes they are not: where labels differ by
    client, a client's gradient says which class it has more of, and clipping makes a vote of
    it. The clip is as wide as keeps the noise below seven tenths of that: a narrow one costs
    large clients their say. Where clients are not clipped, a sample of them may differ by
    anything: nothing is looked for. All of it follows from public numbers.
    """
    whole = federation.private and UNITS[federation.unit].whole_client
    if not whole and federation.sampling_rate < 1:
        return None
    if not whole:
        return 1.0, 1.0  # not used
    m = nominal_rows(FedNewtonClass.name, rows_per_client)
    one = make_plan(federation, rounds=rounds, bound=Bound((1,), (1.0,)), row_sums=True)
    noise = one.noise_std[0] if one.noise_std else 0.0
    noise = max(noise, 1e-9)
    rows = federation.sampling_rate * federation.clients * m
    effect = 0.05 * rows / (federation.classes - 1)
    looks = math.sqrt(max(1, rounds - 3))
    narrow, widest = max(0.07 * m, 1.0), 0.5 * m
    if rounds < 3 or federation.classes == 2 or narrow * noise / looks >= effect:
        return None
    of_classes = max(narrow, min(widest, 0.7 * effect * looks / noise))
    return max(0.03 * m, 0.5, min(widest, 0.006 * rows / noise)), of_classes


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


class FedNewtonOPVector(_Newton):
    """Order-preserving vector scaling by Newton's method on sums (ours). No prediction changes.

    The loss is not convex and flat for deep ranks: it comes near a pooled optimum and goes on
    slowly. A budget is refused, as by FedNewtonVector: with noise it is behind FedNewtonEntropy.

    Parameters
    ----------
    federation
        public facts; default 8 rounds
    rows_per_client
        not used
    """

    name, form = "fednewton-opvector", OrderPreservingVector
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
