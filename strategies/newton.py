"""Newton's method on summed derivatives for scaling with more than one parameter (ours)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from fedcal.calibrators.entropy import EntropyTemperature
from fedcal.calibrators.linear import VectorScaling
from fedcal.calibrators.local_fit import LIMIT
from fedcal.calibrators.order_preserving import OrderPreservingVector
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.checks import positive
from fedcal.errors import InputError
from fedcal.privacy.accounting import gaussian_multiplier
from fedcal.privacy.bounding import Bound
from fedcal.privacy.plan import Federation, make_plan
from fedcal.query import Ask, Param
from fedcal.release import Release
from fedcal.types import Floats
from strategies.base import CalibrationStrategy

_RADIUS = 0.7  # of the first step, in units of the parameters
_DAMPING = 1e-9  # of the largest curvature: directions that no row sees stay where they are


class _Newton(CalibrationStrategy):
    """Damped Newton steps on the federation's gradient G and curvature H at w.

    Sums over clients are sums over rows: without privacy every partition of the same rows takes
    the same way to the pooled optimum. No line search, which would cost a round for each look,
    but a trust region: an early step may make the loss higher; the next one sees it and goes
    back.

    With privacy the sums are noisy by a known amount, and a step is that of a Kalman filter: the
    optimum has a prior around the identity, each release G = H (w - optimum) + noise is a
    measurement of it, and later rounds average with what earlier ones found instead of starting
    over. Where noise drowns the curvature, a parameter stays near where the prior put it. All
    of this is post-processing of releases.

    Privacy: user-level, zero-out, central; G and H of a client are clipped together to L2 norm
    1 in units of the bound, which comes from `rows_per_client`, a *public nominal* number.

    Parameters
    ----------
    federation : public facts and budget
    rows_per_client : needed with privacy
    """

    form: ClassVar[type[ParametricScaling]]
    rounds: ClassVar[tuple[int, int]]  # without and with privacy
    private_curvature: ClassVar[str]

    def __init__(
        self, federation: Federation, *, rows_per_client: float | None = None, **base: Any
    ) -> None:
        self.classes = federation.classes
        self.w = self.form.identity(self.classes)
        self._prior = np.diag(self.prior() ** 2)
        self._trust = _TrustRegion()
        rounds = federation.rounds or self.rounds[federation.private]
        bound = self.bound(_clip(self.name, federation, rounds, rows_per_client))
        super().__init__(make_plan(federation, rounds=rounds, bound=bound), **base)

    @abstractmethod
    def prior(self) -> Floats:
        """Std of each parameter's distance from the identity before anything is known, (size,)."""

    @abstractmethod
    def bound(self, clip: float) -> Bound:
        """What one client may add; `clip` is the bound of a gradient in nats."""

    def query(self, round_number: int) -> Ask:
        """Gradient and curvature at w."""
        size, private = len(self.w), self.plan.private
        curvature = self.private_curvature if private else "full"
        params: dict[str, Param] = {"form": self.form.kind, "w": self.w, "curvature": curvature}
        lengths: tuple[int, ...] = (size, size * (size + 1) // 2)
        if private and self.plan.bound is not None:
            lengths = self.plan.bound.lengths
        return Ask("scaling_newton", lengths, params)

    def update(self, release: Release) -> None:
        """One guarded step."""
        size = len(self.w)
        g, h = release.values[:size], release.values[size:]
        if self.plan.private:
            step = self._filtered(g, h, release.std[:size], release.std[size:])
        else:
            step = self._trust.step(g, symmetric(h, size))
        identity = self.form.identity(self.classes)
        self.w = np.clip(self.w + step, identity - LIMIT, identity + LIMIT)

    def _filtered(self, g: Floats, h: Floats, g_std: Floats, h_std: Floats) -> Floats:
        """The step of a Kalman filter; updates what is known of the optimum."""
        h = _lifted(h, h_std, len(g))
        gain = self._prior @ h @ np.linalg.inv(h @ self._prior @ h + np.diag(g_std**2))
        wanted = -gain @ g
        step = wanted * min(1.0, _RADIUS / max(np.abs(wanted).max(), 1e-300))
        left = self._prior - gain @ h @ self._prior
        # what the linear model and the noise in h may have got wrong about so long a step
        curved, blurred = np.abs(step).max() ** 2 / 2, step * h_std[: len(g)] / np.diag(h)
        wrong = curved**2 + blurred**2
        self._prior = (left + left.T) / 2 + np.diag(wrong) + np.outer(wanted - step, wanted - step)
        return np.asarray(step)

    def result(self) -> ParametricScaling:
        """The form with the current parameters."""
        return self.form(self.w, self.classes)


class FedNewtonEntropy(_Newton):
    """A temperature that depends on the entropy of the row: two parameters (ours).

    The calibrator is `EntropyTemperature`; no prediction changes. With privacy the slope's prior
    (std 0.35) shrinks it to 0, that is to temperature scaling, where the data do not tell more
    than the noise.

    Parameters
    ----------
    federation : public facts and budget; default 8 rounds, 4 with privacy
    rows_per_client : m, the public nominal number of rows per client; needed with privacy.
        c_g = max(0.2 m, 3) nats, or up to 6 where many clients drown the noise; c_h = 3 c_g
    """

    name, form, rounds = "fednewton-entropy", EntropyTemperature, (8, 4)
    private_curvature = "full"

    def prior(self) -> Floats:
        """1 for log(1/T), 0.35 for the slope."""
        return np.array([1.0, 0.35])

    def bound(self, clip: float) -> Bound:
        """G to c_g and H to c_h, together."""
        return Bound((2, 3), (clip, 3.0 * clip))


class _ByForm(_Newton):
    """Forms with 2c parameters: all of the curvature, or, with privacy, its diagonal."""

    rounds, private_curvature = (8, 4), "diagonal"
    stds: ClassVar[tuple[float, float]]  # of the prior: slopes, offsets
    norms: ClassVar[tuple[float, float, float, float]]  # of G and H, each slopes, offsets

    def prior(self) -> Floats:
        """One std for the slopes and one for the offsets."""
        return np.repeat(self.stds, self.classes)

    def bound(self, clip: float) -> Bound:
        """G and H, slopes and offsets of each, in multiples of `clip`, together."""
        return Bound((self.classes,) * 4, tuple(clip * n for n in self.norms))


class FedNewtonVector(_ByForm):
    """Vector scaling by Newton's method on sums (ours); FedVector without its bias.

    Meant for sums that may be seen: without privacy it is pooled vector scaling, whatever the
    partition. With privacy 2c parameters are too many: classwise ECE on resnet110-cifar10 with
    100 clients 1.06 % at epsilon = 1 and 0.85 % at 8; the model has 0.98 %, temperature 0.44 %.

    Parameters
    ----------
    federation : public facts and budget; default 8 rounds, 4 with privacy
    rows_per_client : m, the public nominal number of rows per client; needed with privacy
    """

    name, form = "fednewton-vector", VectorScaling
    stds, norms = (0.3, 0.3), (5.0, 1.0, 15.0, 1.0)


class FedNewtonOPVector(_ByForm):
    """Order-preserving vector scaling by Newton's method on sums (ours). No prediction changes.

    The loss is not convex and flat for deep ranks: without privacy it comes near a pooled
    optimum and goes on slowly. With privacy it is behind FedNewtonEntropy (classwise ECE on
    resnet110-cifar10 with 100 clients 0.46 % at epsilon = 1, with a spread of 0.07).

    Parameters
    ----------
    federation : public facts and budget; default 8 rounds, 4 with privacy
    rows_per_client : m, the public nominal number of rows per client; needed with privacy
    """

    name, form = "fednewton-opvector", OrderPreservingVector
    stds, norms = (0.2, 1.0), (3.0, 1.0, 9.0, 3.0)


class _TrustRegion:
    """How far Newton's steps may go, from gradients alone.

    Along a step the loss falls with slope `promised` at its start, and with `now`, below 0 where
    it rises again, at its end. Where it rises as steeply as it fell, the end is no lower than
    the start, and the next step begins at the start again. The radius shrinks where the loss
    rises at all steeply, and grows where `now` is what the curvature foretold.
    """

    def __init__(self) -> None:
        self.radius = _RADIUS
        self._before: tuple[Floats, Floats, Floats] | None = None  # g, h, step

    def step(self, g: Floats, h: Floats) -> Floats:
        """From where the gradient is g (size,) and the curvature h (size, size)."""
        back = np.zeros_like(g)
        if self._before is not None:
            old_g, old_h, last = self._before
            promised, now = float(-old_g @ last), float(-g @ last)
            expected = promised - float(last @ old_h @ last)
            longest = float(np.abs(last).max())
            if now <= -promised:
                self.radius = longest / 4
                g, h, back = old_g, old_h, -last
            elif 2 * now < -promised:
                self.radius = longest / 2
            elif longest > 0.99 * self.radius and abs(now - expected) < promised / 8:
                self.radius *= 2
        step = _bounded_step(g, h, self.radius)
        self._before = (g, h, step)
        return back + step


def _bounded_step(g: Floats, h: Floats, radius: float) -> Floats:
    """-(H + lambda I)^-1 g with the least lambda that keeps each entry within the radius.

    (Levenberg-Marquardt.) Directions that the rows say much about go nearly the whole way, also
    beside others that hardly any row sees; a step that is only shortened would not.
    """
    values, vectors = np.linalg.eigh(h)
    top = float(values[-1])
    if not top > 0:
        return np.zeros_like(g)  # no rows
    values, along = np.maximum(values, 0.0), vectors.T @ g

    def step(damping: float) -> Floats:
        return np.asarray(-vectors @ (along / (values + damping)))

    least = _DAMPING * top
    if np.abs(step(least)).max() <= radius:
        return step(least)
    low, high = math.log(least), math.log(least + float(np.linalg.norm(g)) / radius)
    for _ in range(60):
        middle = (low + high) / 2
        short = np.abs(step(math.exp(middle))).max() <= radius
        low, high = (low, middle) if short else (middle, high)
    return step(math.exp(high))


def symmetric(packed: Floats, size: int) -> Floats:
    """(size, size) from its upper triangle, row by row."""
    out = np.zeros((size, size))
    rows, columns = np.triu_indices(size)
    out[rows, columns] = out[columns, rows] = packed
    return out


def _lifted(h: Floats, std: Floats, size: int) -> Floats:
    """A noisy curvature as a matrix with no eigenvalue below its noise's std.

    h : packed upper triangle, or the diagonal (size,)
    """
    if len(h) == size:
        return np.diag(np.maximum(h, std))
    values, vectors = np.linalg.eigh(symmetric(h, size))
    return np.asarray((vectors * np.maximum(values, std.max())) @ vectors.T)


def _clip(name: str, federation: Federation, rounds: int, rows_per_client: float | None) -> float:
    """Bound of one client's gradient in nats: a fifth of a nat per nominal row, at least 3.

    As FedNewton's, but at least 6, not 3, where many clients make the noise small enough.
    """
    if not federation.private:
        return 1.0  # not used
    if rows_per_client is None:
        raise InputError(
            f"{name} with privacy needs rows_per_client, a public nominal number of rows > 0"
        )
    rows = positive("rows_per_client", rows_per_client)
    noise = gaussian_multiplier(
        federation.epsilon, federation.delta, rounds, federation.sampling_rate
    )
    affordable = 0.008 * federation.sampling_rate * federation.clients * rows / noise
    return max(0.2 * rows, 3.0, min(6.0, affordable))
