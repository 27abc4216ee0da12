"""Steps from gradients and curvatures: a trust region, and a Kalman filter where they are noisy."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from fedcal.core.checks import positive
from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.privacy.federation import Federation
from fedcal.privacy.noise_plan import EXACT_GRID, Plan, make_plan
from fedcal.privacy.query import Query
from fedcal.strategies.base import FederatedStrategy
from fedcal.units.bounding import Bound

RADIUS = 0.7
"""Longest first step, in units of the parameters."""

_DAMPING = 1e-9  # of the largest curvature: directions that no row sees stay where they are


class TrustRegion:
    """Largest step that Newton's method may take, learned from gradients alone.

    Along a step the loss falls with slope `promised` at its start, and with `now`, below 0 where
    it rises again, at its end. Where it rises as steeply as it fell, the end is no lower than
    the start, and the next step begins at the start again. The radius shrinks where the loss
    rises at all steeply, and grows where `now` is what the curvature foretold.
    """

    def __init__(self) -> None:
        self.radius = RADIUS
        self._before: tuple[Floats, Floats, Floats] | None = None  # g, h, step

    def step(self, g: Floats, h: Floats) -> Floats:
        """Return the step from a point with gradient g (size,) and curvature h (size, size)."""
        back = np.zeros_like(g)
        if self._before is not None:
            old_g, old_h, last = self._before
            promised, now = float(-old_g @ last), float(-g @ last)
            expected = promised - float(last @ old_h @ last)
            longest = float(np.abs(last).max())
            if 0 < promised <= -now:
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


class KalmanFilter:
    """Estimate of an optimum from noisy releases, and the step towards it.

    The optimum has a normal prior around the identity, and each release G = H (w - optimum) +
    noise is a measurement of it with noise of known std: later rounds average with what earlier
    ones found instead of starting over. Only released values and the public std are used.

    H is lifted until no eigenvalue is below its noise's std. So steps stay short where noise
    drowns the curvature, but releases of noise alone still move a parameter (measured, four
    rounds: by 0.2 to 0.4), and the filter then takes it for better known than it is.

    Parameters
    ----------
    std
        (size,) of the prior
    """

    def __init__(self, std: Floats) -> None:
        self.covariance: Floats = np.diag(std**2)

    def step(self, g: Floats, h: Floats, g_std: Floats, h_std: Floats) -> Floats:
        """Return the step from where G and H were released, and update the estimate.

        By square roots of the covariances: these stay positive, and nothing is inverted that
        could be singular, however much or little the noise.

        Parameters
        ----------
        g, g_std
            (size,)
        h, h_std
            packed upper triangle
        """
        h = _lifted(h, h_std, len(g))
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        _, measured, axes = np.linalg.svd(h @ root / g_std[:, None])
        root = root @ axes.T / np.hypot(1.0, measured)
        left = root @ root.T
        wanted = -left @ (h @ (g / g_std**2))
        step = wanted * min(1.0, RADIUS / max(np.abs(wanted).max(), 1e-300))
        # what the linear model and the noise in h may have got wrong about so long a step
        curved, blurred = np.abs(step).max() ** 2 / 2, step * h_std[: len(g)] / np.diag(h)
        wrong = curved**2 + blurred**2
        self.covariance = left + np.diag(wrong) + np.outer(wanted - step, wanted - step)
        return np.asarray(step)


def symmetric(packed: Floats, size: int) -> Floats:
    """(size, size) from its upper triangle, row by row."""
    out = np.zeros((size, size))
    rows, columns = np.triu_indices(size)
    out[rows, columns] = out[columns, rows] = packed
    return out


def _lifted(h: Floats, std: Floats, size: int) -> Floats:
    """Return a noisy curvature, a packed upper triangle, with no eigenvalue below its std."""
    values, vectors = np.linalg.eigh(symmetric(h, size))
    return np.asarray((vectors * np.maximum(values, std.max())) @ vectors.T)


CLIP = 0.5
"""Bound of one client's update where means of updates are asked for; Maddock et al., A.3.2."""

_LEAST_CLIP = 1024 * EXACT_GRID


def exact_norms(plan: Plan, bound: Bound, clip: float | None) -> tuple[float, ...]:
    """Without privacy a `clip` bounds a client's influence all the same (Maddock et al., A.3.5).

    Returns
    -------
    tuple of float
        The bound's norms; () with privacy, where the plan has them, and without a clip.
    """
    if plan.private or clip is None:
        return ()
    if clip < _LEAST_CLIP:
        raise InputError(
            f"clip = {clip:g} is lost on the grid of exact sums: without privacy it must be at "
            f"least {_LEAST_CLIP:g}"
        )
    return bound.norms


class Averaging(FederatedStrategy):
    """Each client trains from w and sends how far it came; the server steps by the mean.

    Parameters
    ----------
    federation
        public facts and budget; default 12 rounds
    clip
        bound of one client's update, in units of w; None = 0.5 with privacy, none without
    server_lr
        step of the server
    """

    def __init__(
        self, federation: Federation, *, clip: float | None, server_lr: float, **base: Any
    ) -> None:
        self.classes = federation.classes
        self.clip = None if clip is None else positive("clip", clip)
        self.server_lr = positive("server_lr", server_lr)
        self._count = not federation.private
        bound = self.query(1).bound("client", (self.clip or CLIP,))
        super().__init__(make_plan(federation, rounds=federation.rounds or 12, bound=bound), **base)
        self.norms = exact_norms(self.plan, bound, self.clip)

    @abstractmethod
    def query(self, round_number: int) -> Query:
        """Return the question for the step from w that training on a client's own rows takes.

        Without privacy it also asks whether the client has rows.
        """
