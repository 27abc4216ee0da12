"""Newton's method on summed derivatives for scaling with more than one parameter (ours)."""

from __future__ import annotations

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
_DAMPING = 1e-6  # of the curvature's diagonal: directions that no row sees stay where they are


class _Newton(CalibrationStrategy):
    """Damped Newton steps on the federation's gradient G and curvature H at w.

    Sums over clients are sums over rows: without privacy every partition of the same rows takes
    the same way to the pooled optimum. No line search, which would cost a round for each look: a
    step is at most as long as a radius; the radius is halved where G says that the last step
    went far past the lowest point on its way, and doubled where the last step was cut to it.

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
        self._radius, self._last = _RADIUS, np.zeros_like(self.w)
        self._slope, self._cut = 0.0, False
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
            step = self._exact(g, symmetric(h, size))
        identity = self.form.identity(self.classes)
        self.w = np.clip(self.w + step, identity - LIMIT, identity + LIMIT)

    def _exact(self, g: Floats, h: Floats) -> Floats:
        """Newton's step, no longer than the radius; g and h have no noise."""
        slope = float(g @ self._last)
        if 2 * slope > -self._slope > 0:  # far beyond the lowest point of the last step's way
            self._radius = max(np.abs(self._last).max() / 2, 1e-3)
        elif self._cut:
            self._radius *= 2
        scale = np.diag(h)
        if not scale.max() > 0:
            return np.zeros_like(g)  # no rows
        damping = _DAMPING * scale + 1e-9 * scale.max()
        step: Floats = -np.asarray(np.linalg.solve(h + np.diag(damping), g), np.float64)
        longest = np.abs(step).max()
        self._cut = bool(longest > self._radius)
        if self._cut:
            step *= self._radius / longest
        self._last, self._slope = step, float(g @ step)
        return step

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

    rounds, private_curvature = (16, 4), "diagonal"
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
    federation : public facts and budget; default 16 rounds, 4 with privacy
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
    federation : public facts and budget; default 16 rounds, 4 with privacy
    rows_per_client : m, the public nominal number of rows per client; needed with privacy
    """

    name, form = "fednewton-opvector", OrderPreservingVector
    stds, norms = (0.2, 1.0), (3.0, 1.0, 9.0, 3.0)


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
