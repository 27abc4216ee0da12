"""Questions about scaling calibrators with a vector of parameters w."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from fedcal.calibrators.base import kinds
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.calibrators.scaling import TemperatureScaling
from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.queries.base import (
    Classes,
    Finite,
    Order,
    Part,
    Positive,
    Query,
    Seed,
    Summed,
    Vector,
    not_too_long,
    within,
)
from fedcal.queries.temperature import (
    MOST_STEPS,
    ROW_GRADIENT,
    Update,
    client_curvature,
    row_curvature,
)
from fedcal.units.bounding import Bound

ROW_CLIP = 10.0
"""Bound of one row's gradient for descent, in nats: one row in a hundred reaches it for a model
that was trained with small gradients (a CIFAR-10 probe by DP-SGD), and 1 would clip most errors."""

_VECTOR = np.array([1.25, 0.75, 1.0, -0.5, 0.0, 0.25])
_MATRIX = np.concatenate([np.eye(3).ravel() + np.linspace(-0.125, 0.125, 9), [0.25, 0.0, -0.25]])
_MLP = np.linspace(-0.25, 0.25, 129 * 3 + 4224)
"""Parameters of three classes, for the examples."""


def form_of(kind: Any) -> type[ParametricScaling]:
    """Return the class of the scaling calibrator of this kind, or raise InputError."""
    forms = {k: form for k, form in kinds().items() if issubclass(form, ParametricScaling)}
    return forms[one_of("form", kind, forms)]


Form = Annotated[str, lambda _, value: form_of(value).kind]


class _OfForm(Query):
    """Question at the parameters w of a scaling calibrator."""

    w: Vector
    form: str
    classes: int

    @classmethod
    def resized(cls, example: Mapping[str, Any], classes: int) -> Mapping[str, Any]:
        """Return parameters near the identity."""
        name = example.get("form", "order-preserving-mlp")
        if name == TemperatureScaling.kind:
            return {}
        near = form_of(name).identity(classes)
        return {"w": near + np.linspace(-0.25, 0.25, len(near))}

    def _check_size(self, size: int) -> None:
        """Refuse a number of parameters that differs from that of the form."""
        if len(self.w) != size:
            raise InputError(
                f"{self.form} scaling of {self.classes} classes has {size} parameters here, the "
                f"query has {len(self.w)}"
            )


@dataclass(frozen=True, eq=False)
class ScalingUpdate(_OfForm, Update):
    """Question for the difference of a client's own optimum from w (Maddock et al., Algorithm 2).

    The answer has as many numbers as w and, with `count`, a 1 if the client has rows. `bound` needs
    the clip of the update.

    Parameters
    ----------
    w
        (size,) global parameters
    form
        kind of calibrator
    proximal
        weight of the distance from w, >= 0
    steps
        maximum evaluations of a local fit
    count
        send also whether there are rows (without privacy, where the mean is over clients with rows)
    """

    kind = "scaling_update"
    learned = ("w",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"form": "vector", "w": _VECTOR, "proximal": 0.0, "steps": 50, "count": True},
        {"form": "vector", "w": _VECTOR, "proximal": 1.0, "steps": 20, "count": False},
        {"form": "matrix", "w": _MATRIX, "proximal": 0.5, "steps": 8, "count": False},
        {
            "form": "order-preserving-vector",
            "w": _VECTOR,
            "proximal": 0.0,
            "steps": 8,
            "count": False,
        },
    )

    w: Vector
    form: Form
    proximal: Finite
    steps: Annotated[int, within(1, MOST_STEPS)]
    count: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.proximal < 0:
            raise InputError(f"proximal must be >= 0, got {self.proximal:g}")


@dataclass(frozen=True, eq=False)
class MLPUpdate(_OfForm, Update):
    """Question for the change of w by SGD on a client's rows (Maddock et al.; Peng et al.).

    Numbers and bound are those of `ScalingUpdate`.

    Parameters
    ----------
    w
        (size,) global parameters
    epochs, batch, lr
        of SGD
    seed
        of the order of rows, which differs in each round
    count
        send also whether there are rows (without privacy, where the mean is over clients with rows)
    """

    kind = "mlp_update"
    learned = ("w",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"w": _MLP, "epochs": 2, "batch": 64, "lr": 0.05, "seed": 7, "count": True},
        {"w": 0.5 * _MLP, "epochs": 1, "batch": 8, "lr": 0.05, "seed": 7, "count": False},
    )

    w: Vector
    epochs: Annotated[int, within(1, 10**4)]
    batch: Annotated[int, within(1, 2**31)]
    lr: Positive
    seed: Seed
    count: bool


@dataclass(frozen=True, eq=False)
class ScalingNewton(_OfForm):
    """Gradient and Gauss-Newton curvature of the negative log-likelihood at w, in nats.

    The curvature is its upper triangle, row by row. `bound` needs the clip of a client's gradient;
    all numbers are clipped together.

    Parameters
    ----------
    form
        kind of calibrator
    w
        (size,) parameters
    classes
        of the model
    """

    kind = "scaling_newton"
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"form": "entropy-temperature", "w": np.array([0.25, -0.5]), "classes": 3},
        {"form": "entropy-temperature", "w": np.array([2.0, -9.0]), "classes": 3},
        {"form": "vector", "w": _VECTOR, "classes": 3},
    )

    form: Form
    w: Vector
    classes: Classes

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_size(form_of(self.form).size(self.classes))
        not_too_long(self)

    def lengths(self) -> tuple[int, ...]:
        """Return blocks G, H."""
        size = len(self.w)
        return (size, size * (size + 1) // 2)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bounds of G and H: the clip and 3 times the clip; a row has constants."""
        if self.takes_clips(part, clips, 1):
            return Bound(self.lengths(), (clips[0], client_curvature(clips[0])), order=order)
        return Bound(self.lengths(), (ROW_GRADIENT, row_curvature(self.classes)), order=order)


@dataclass(frozen=True, eq=False)
class ScalingGradients(_OfForm, Summed):
    """Gradient of the negative log-likelihood at w, in nats, summed over rows (DP-SGD).

    The answer has as many numbers as w. `bound` needs the clip of a client's sum.

    Parameters
    ----------
    form
        kind of calibrator. A "temperature" has one number u, 1/T = log(1 + exp(u)), so that
        T > 0 wherever steps lead (as in the code that Zhang et al. published)
    w
        (size,) parameters
    classes
        of the model
    clip
        C, norm that each row's gradient is clipped to; None = as in `bound`
    """

    kind = "scaling_gradients"
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"form": "temperature", "w": np.array([0.5]), "classes": 3, "clip": 2.0},
        {"form": "temperature", "w": np.array([-0.25]), "classes": 3},
        {"form": "vector", "w": _VECTOR, "classes": 3, "clip": 0.5},
    )

    form: str
    w: Vector
    classes: Classes
    clip: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one = self.form == TemperatureScaling.kind
        self._check_size(1 if one else form_of(self.form).size(self.classes))
        not_too_long(self)

    def lengths(self) -> tuple[int, ...]:
        """Return one block with as many numbers as w."""
        return (len(self.w),)

    def added(self, part: Part, order: Order) -> float:
        """Return `clip`, or 10 nats, for a row or a subject."""
        return self.clip or ROW_CLIP
