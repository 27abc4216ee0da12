"""Questions about one temperature: local optima, derivatives at a temperature, scores on a grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedcal.core.checks import one_of, positive, whole
from fedcal.core.errors import InputError
from fedcal.queries.base import (
    Order,
    Param,
    Part,
    Query,
    finite,
    flag,
    number_of_classes,
)
from fedcal.units.bounding import Bound

Average = Literal["inverse", "temperature"]

LIMIT = 20.0
"""Of 1/T and of T, exp(LOG_A_LIMIT), where a question names no other."""

MOST_LIMIT, MOST_STEPS, MOST_POINTS, MOST_LOG_A = 1e6, 10**6, 65536, 100.0

ROW_GRADIENT = 4.0
"""Bound of one row's gradient of the negative log-likelihood in log(1/T), in nats."""

COUNTED = 2.0
"""Bound of a count that is at most 1, and so stays as it is."""


def row_curvature(classes: int) -> float:
    """Bound of one row's curvature in log(1/T), in nats: 2 + log(c)^2 / 2.

    Twice what bounds the variance of log-probabilities of c classes (Reeb & Wolf 2015): the clip is
    left to gradients.
    """
    return 2.0 + math.log(classes) ** 2 / 2.0


def client_curvature(gradient: float) -> float:
    """Bound of one client's curvature in log(1/T): 3 times its gradient's."""
    return 3.0 * gradient


class Update(Query):
    """How far from w does training on your own rows lead? (Maddock et al., Algorithm 2.)

    As many numbers as w and, with `count`, 1 if the client has rows. `bound` takes the clip of the
    update.
    """

    row_sums = False

    w: Any
    count: bool

    def lengths(self) -> tuple[int, ...]:
        """The update, the count."""
        size = int(np.size(self.w))
        return (size, 1) if self.count else (size,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """The update to the clip; the count, by itself, stays as it is."""
        self.takes(part, clips, 1)
        if not self.count:
            return Bound(self.lengths(), (clips[0],), order=order)
        return Bound(self.lengths(), (clips[0], COUNTED), "per_block", order)


@dataclass(frozen=True)
class TemperatureUpdate(Update):
    """How far is your own optimum from w? (Maddock et al., Algorithm 2.)

    One number and, with `count`, 1 if the client has rows. `bound` takes the clip of the number.

    Parameters
    ----------
    w
        global parameter, > 0
    average
        w is 1/T ("inverse") or T ("temperature")
    count
        send also whether there are rows (without privacy, where the mean is over those)
    limit
        the largest 1/T and T, in (1, 1e6]
    steps
        most steps of a client's optimisation; None = to the optimum
    """

    kind = "temperature_update"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"w": 1.0, "average": "inverse", "count": True},
        {"w": 2.375, "average": "temperature", "count": False},
        {"w": 20.0, "average": "inverse", "count": False},
        {"w": 1.5, "average": "inverse", "count": True, "limit": 3.0, "steps": 4},
    )

    w: float
    average: Average
    count: bool
    limit: float = LIMIT
    steps: int | None = None

    def __post_init__(self) -> None:
        one_of("average", self.average, get_args(Average))
        limit = positive("limit", self.limit)
        if not 1 < limit <= MOST_LIMIT:
            raise InputError(f"limit must be above 1 and at most 1e6, got {limit:g}")
        steps = None if self.steps is None else whole("steps", self.steps, 1, MOST_STEPS)
        w, count = positive("w", self.w), flag("count", self.count)
        self._set(w=w, count=count, limit=limit, steps=steps)

    def params(self) -> Mapping[str, Param]:
        """All that is not the default."""
        params: dict[str, Param] = {"w": self.w, "average": self.average}
        if self.limit != LIMIT:
            params["limit"] = self.limit
        if self.steps is not None:
            params["steps"] = self.steps
        return {**params, "count": self.count}


@dataclass(frozen=True)
class TemperatureNewton(Query):
    """Gradient and curvature of the negative log-likelihood at log(1/T), in nats.

    `bound` takes the clip of a client's gradient; both numbers are clipped together.

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

    log_a: float
    classes: int

    def __post_init__(self) -> None:
        log_a = finite("log_a", self.log_a, MOST_LOG_A)
        self._set(log_a=log_a, classes=number_of_classes(self.classes))

    def lengths(self) -> tuple[int, ...]:
        """G, H."""
        return (1, 1)

    def params(self) -> Mapping[str, Param]:
        """Where."""
        return {"log_a": self.log_a}

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Of a client G to its clip and H to 3 times that; of a row 4 nats and `row_curvature`."""
        if self.takes(part, clips, 1):
            return Bound((1, 1), (clips[0], client_curvature(clips[0])), order=order)
        return Bound((1, 1), (ROW_GRADIENT, row_curvature(self.classes)), order=order)


@dataclass(frozen=True)
class TemperatureScores(Query):
    """The score, T times the derivative of the negative log-likelihood, on a log grid of T.

    `bound` takes the clip of each of a client's scores, in nats.

    Parameters
    ----------
    low, high
        ends of the grid
    points
        how many, the ends included
    """

    kind = "temperature_scores"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"low": 0.25, "high": 8.0, "points": 7},)

    low: float
    high: float
    points: int

    def __post_init__(self) -> None:
        low, high = positive("low", self.low), positive("high", self.high)
        if not low < high:
            raise InputError(f"low must be below high, got {low!r} and {high!r}")
        self._set(low=low, high=high, points=whole("points", self.points, 1, MOST_POINTS))

    def lengths(self) -> tuple[int, ...]:
        """One score for each temperature."""
        return (self.points,)

    def params(self) -> Mapping[str, Param]:
        """The grid."""
        return {"low": self.low, "high": self.high, "points": self.points}

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Each score by itself: of a client to its clip, of a row to 4 nats."""
        norm = clips[0] if self.takes(part, clips, 1) else ROW_GRADIENT
        return Bound(self.lengths(), (norm,), "per_value", order)


@dataclass(frozen=True)
class TopLabelNewton(Query):
    """Derivatives for a temperature, and for a logistic map of the confidence at it, in nats.

    Gradient and curvature of the negative log-likelihood at log(1/T); then those of predictions
    being right with probability sigmoid(w_0 + w_1 s), s the predicted class's log-odds at T.
    `bound` takes the clip of a client's gradient; all numbers are clipped together.

    Parameters
    ----------
    log_a
        log(1/T)
    offset, slope
        w_0 and w_1
    classes
        of the model
    """

    kind = "top_label_newton"
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"log_a": 0.0, "offset": 0.0, "slope": 1.0, "classes": 3},
        {"log_a": -0.875, "offset": 0.5, "slope": 0.25, "classes": 3},
    )

    log_a: float
    offset: float
    slope: float
    classes: int

    def __post_init__(self) -> None:
        log_a, classes = finite("log_a", self.log_a, MOST_LOG_A), number_of_classes(self.classes)
        offset = finite("offset", self.offset, MOST_LOG_A)
        slope = finite("slope", self.slope, MOST_LOG_A)
        self._set(log_a=log_a, offset=offset, slope=slope, classes=classes)

    def lengths(self) -> tuple[int, ...]:
        """G and H of the temperature; of the map G and H, its upper triangle."""
        return (1, 1, 2, 3)

    def params(self) -> Mapping[str, Param]:
        """Where."""
        return {"log_a": self.log_a, "offset": self.offset, "slope": self.slope}

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Of a row 8 nats and `row_curvature`, and 4 and 1, each times sqrt(2)."""
        if self.takes(part, clips, 1):
            g = clips[0]
            norms: tuple[float, ...] = (g, client_curvature(g), g, g)
        else:
            norms = tuple(math.sqrt(2.0) * n for n in (8.0, row_curvature(self.classes), 4.0, 1.0))
        return Bound(self.lengths(), norms, order=order)
