"""Questions about one temperature: local optima, derivatives at a temperature, scores on a grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedcal.core.checks import positive
from fedcal.core.errors import InputError
from fedcal.core.types import override
from fedcal.queries.base import (
    Classes,
    Order,
    Part,
    Positive,
    Query,
    Summed,
    finite,
    within,
)
from fedcal.units.bounding import Bound, Rule

Average = Literal["inverse", "temperature"]

LIMIT = 20.0
"""Default limit of 1/T and of T, exp(LOG_A_LIMIT)."""

MOST_STEPS, MOST_POINTS = 10**6, 65536
Logarithm = Annotated[float, partial(finite, most=100.0)]
"""Logarithm of a temperature, or a number of that size, within +-100."""

ROW_GRADIENT = 4.0
"""Bound of one row's gradient of the negative log-likelihood in log(1/T), in nats."""

COUNTED = 2.0
"""Bound of a count that is at most 1, and so is never clipped."""


def check_limit(name: str, value: Any) -> float:
    """Return the largest 1/T and T, or raise InputError."""
    if not 1 < positive(name, value) <= 1e6:
        raise InputError(f"{name} must be above 1 and at most 1e6, got {value:g}")
    return float(value)


def row_curvature(classes: int) -> float:
    """Return the bound of one row's curvature in log(1/T), in nats: 2 + log(c)^2 / 2.

    It is twice the bound of the variance of log-probabilities of c classes (Reeb & Wolf 2015), so
    that gradients use up most of the joint clip.
    """
    return 2.0 + math.log(classes) ** 2 / 2.0


def client_curvature(gradient: float) -> float:
    """Return the bound of one client's curvature in log(1/T): 3 times its gradient's."""
    return 3.0 * gradient


class Update(Query):
    """Question for the change of w by training on a client's rows (Maddock et al., Algorithm 2).

    The answer has as many numbers as w and, with `count`, a 1 if the client has rows. `bound` needs
    the clip of the update.
    """

    row_sums = False

    w: Any
    count: bool

    def lengths(self) -> tuple[int, ...]:
        """Return a block with the update, and a block with the count."""
        size = int(np.size(self.w))
        return (size, 1) if self.count else (size,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound: the clip for the update; the count has its own and is never clipped."""
        self.takes_clips(part, clips, 1)
        if not self.count:
            return Bound(self.lengths(), (clips[0],), order=order)
        return Bound(self.lengths(), (clips[0], COUNTED), "per_block", order)


@dataclass(frozen=True)
class TemperatureUpdate(Update):
    """Question for the difference of a client's own optimum from w (Maddock et al., Algorithm 2).

    The answer is one number and, with `count`, a 1 if the client has rows. `bound` needs the clip
    of the number.

    Parameters
    ----------
    w
        global parameter, > 0
    average
        w is 1/T ("inverse") or T ("temperature")
    count
        send also whether there are rows (without privacy, where the mean is over clients with rows)
    limit
        largest 1/T and T, in (1, 1e6]
    steps
        maximum steps of a client's optimisation; None = to the optimum
    """

    kind = "temperature_update"
    optional = None
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"w": 1.0, "average": "inverse", "count": True},
        {"w": 2.375, "average": "temperature", "count": False},
        {"w": 20.0, "average": "inverse", "count": False},
        {"w": 1.5, "average": "inverse", "count": True, "limit": 3.0, "steps": 4},
    )

    w: Positive
    average: Average
    count: bool
    limit: Annotated[float, check_limit] = LIMIT
    steps: Annotated[int, within(1, MOST_STEPS)] | None = None


@dataclass(frozen=True)
class TemperatureNewton(Query):
    """Gradient and curvature of the negative log-likelihood at log(1/T), in nats.

    `bound` needs the clip of a client's gradient; both numbers are clipped together.

    Parameters
    ----------
    log_a
        log(1/T)
    classes
        of the model
    """

    kind = "temperature_newton"
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"log_a": 0.0, "classes": 3},
        {"log_a": -0.875, "classes": 3},
        {"log_a": 2.5, "classes": 3},
    )

    log_a: Logarithm
    classes: Classes

    def lengths(self) -> tuple[int, ...]:
        """Return blocks G and H of one number each."""
        return (1, 1)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bounds of G and H: the clip and 3 times the clip; a row has constants."""
        if self.takes_clips(part, clips, 1):
            return Bound((1, 1), (clips[0], client_curvature(clips[0])), order=order)
        return Bound((1, 1), (ROW_GRADIENT, row_curvature(self.classes)), order=order)


@dataclass(frozen=True)
class TemperatureScores(Summed):
    """Score, T times the derivative of the negative log-likelihood, on a log grid of T.

    `bound` needs the clip of each of a client's scores, in nats.

    Parameters
    ----------
    low, high
        ends of the grid
    points
        number of points, the ends included
    """

    kind = "temperature_scores"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"low": 0.25, "high": 8.0, "points": 7},)

    low: Positive
    high: Positive
    points: Annotated[int, within(1, MOST_POINTS)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise InputError(f"low must be below high, got {self.low!r} and {self.high!r}")

    def lengths(self) -> tuple[int, ...]:
        """Return one block with a score for each temperature."""
        return (self.points,)

    @property
    def rule(self) -> Rule:
        """Rule that clips each score by itself."""
        return "per_value"

    @override
    def added(self, part: Part, order: Order) -> float:
        return ROW_GRADIENT


@dataclass(frozen=True)
class SiteEffects(Query):
    """Question for the recalibration by a client's own rows, and its uncertainty.

    For each parameter (`fedcal.personal`), with its best value m and variance v under the identity
    prior of std s, m / s; then (v + m^2) / s^2 - 1 of each; 0 without rows. `bound` needs the clip
    of all of them together.
    """

    kind = "site_effects"
    row_sums = False
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"classes": 3},)

    classes: Classes

    def lengths(self) -> tuple[int, ...]:
        """Return one block with two moments of each parameter: two for two classes, else one."""
        return (4 if self.classes == 2 else 2,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound of a client; a row has no part of the answer."""
        self.takes_clips(part, clips, 1)
        return Bound(self.lengths(), (clips[0],), order=order)
