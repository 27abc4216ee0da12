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
from fedcal.queries.base import (
    Classes,
    Order,
    Part,
    Positive,
    Query,
    Summed,
    Vector,
    finite,
    not_too_long,
    within,
)
from fedcal.units.bounding import Bound, Rule

Average = Literal["inverse", "temperature"]

LIMIT = 20.0
"""Of 1/T and of T, exp(LOG_A_LIMIT), where a question names no other."""

MOST_STEPS, MOST_POINTS = 10**6, 65536
Logarithm = Annotated[float, partial(finite, most=100.0)]
"""Of a temperature, or a number of that size."""

ROW_GRADIENT = 4.0
"""Bound of one row's gradient of the negative log-likelihood in log(1/T), in nats."""

ROW_OFFSETS = 1.2
"""Bound of one row's gradient in the offsets of all classes, in nats; none exceeds sqrt(2)."""

ROW_GAIN = 1.0
"""Bound of what offsets change one row's loss by, in nats."""

COUNTED = 2.0
"""Bound of a count that is at most 1, and so stays as it is."""


def check_limit(name: str, value: Any) -> float:
    """The largest 1/T and T, or InputError."""
    if not 1 < positive(name, value) <= 1e6:
        raise InputError(f"{name} must be above 1 and at most 1e6, got {value:g}")
    return float(value)


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

    log_a: Logarithm
    classes: Classes

    def lengths(self) -> tuple[int, ...]:
        """G, H."""
        return (1, 1)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Of a client G to its clip and H to 3 times that; of a row 4 nats and `row_curvature`."""
        if self.takes(part, clips, 1):
            return Bound((1, 1), (clips[0], client_curvature(clips[0])), order=order)
        return Bound((1, 1), (ROW_GRADIENT, row_curvature(self.classes)), order=order)


@dataclass(frozen=True, eq=False)
class OffsetNewton(Query):
    """Derivatives of the loss of softmax(a z + b) in log a, or in the offsets b, in nats.

    One answer holds one of the two and zeros elsewhere: each has the whole bound for itself.
    `bound` takes the clips of a client's gradient in log a, of the gain, and of its gradient in
    b.

    Parameters
    ----------
    log_a
        log(1/T)
    offsets
        (c,) b
    asks
        "temperature": gradient and curvature in log a, and how much less the loss is with b than
        without; "classes": curvature and gradients in b
    classes
        of the model, c
    """

    kind = "offset_newton"
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"log_a": 0.0, "offsets": np.zeros(3), "asks": "classes", "classes": 3},
        {
            "log_a": -0.875,
            "offsets": np.array([0.5, -0.75, 0.25]),
            "asks": "temperature",
            "classes": 3,
        },
        {"log_a": 1.5, "offsets": np.array([1.5, 0.0, -1.5]), "asks": "classes", "classes": 3},
    )

    log_a: Logarithm
    offsets: Vector
    asks: Literal["temperature", "classes"]
    classes: Classes

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.offsets) != self.classes:
            raise InputError(
                f"offsets must be {self.classes} numbers, one for each class, got "
                f"{len(self.offsets)}"
            )
        not_too_long(self)

    @classmethod
    def resized(cls, example: Mapping[str, Any], classes: int) -> Mapping[str, Any]:
        """Offsets of about the same size."""
        most = float(np.abs(example["offsets"]).max())
        return {"offsets": np.linspace(-most, most, classes)}

    def lengths(self) -> tuple[int, ...]:
        """G and H in log a, the gain; curvature and gradients in b."""
        return (1, 1, 1, 1, self.classes)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Of a client as the clips say, H as `client_curvature`; of a row as the constants say."""
        if self.takes(part, clips, 3):
            g, gain, of_classes = clips
            norms = (g, client_curvature(g), gain, of_classes, of_classes)
        else:
            norms = (
                *(ROW_GRADIENT, row_curvature(self.classes), ROW_GAIN),
                *(ROW_OFFSETS, ROW_OFFSETS),
            )
        return Bound(self.lengths(), norms, order=order)


@dataclass(frozen=True)
class TemperatureScores(Summed):
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

    low: Positive
    high: Positive
    points: Annotated[int, within(1, MOST_POINTS)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise InputError(f"low must be below high, got {self.low!r} and {self.high!r}")

    def lengths(self) -> tuple[int, ...]:
        """One score for each temperature."""
        return (self.points,)

    @property
    def rule(self) -> Rule:
        """Each score by itself."""
        return "per_value"

    def added(self, part: Part, order: Order) -> float:
        """4 nats."""
        return ROW_GRADIENT


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

    log_a: Logarithm
    offset: Logarithm
    slope: Logarithm
    classes: Classes

    def lengths(self) -> tuple[int, ...]:
        """G and H of the temperature; of the map G and H, its upper triangle."""
        return (1, 1, 2, 3)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Of a row 8 nats and `row_curvature`, and 4 and 1, each times sqrt(2)."""
        if self.takes(part, clips, 1):
            g = clips[0]
            norms: tuple[float, ...] = (g, client_curvature(g), g, g)
        else:
            norms = tuple(math.sqrt(2.0) * n for n in (8.0, row_curvature(self.classes), 4.0, 1.0))
        return Bound(self.lengths(), norms, order=order)


@dataclass(frozen=True)
class SiteEffects(Query):
    """How would your own rows recalibrate the model, and how sure are they?

    For each parameter (`fedcal.personal`), with its best value m and variance v under the identity
    prior of std s, m / s; then (v + m^2) / s^2 - 1 of each; 0 without rows. `bound` takes the clip
    of all of them together.
    """

    kind = "site_effects"
    row_sums = False
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"classes": 3},)

    classes: Classes

    def lengths(self) -> tuple[int, ...]:
        """Two moments of each of two parameters for two classes, of one for more."""
        return (4 if self.classes == 2 else 2,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Of a client alone: no row has a part of it."""
        self.takes(part, clips, 1)
        return Bound(self.lengths(), (clips[0],), order=order)
