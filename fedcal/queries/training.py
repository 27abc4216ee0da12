"""Questions about a network that is being trained."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedcal.bounding import Bound
from fedcal.checks import one_of, positive
from fedcal.errors import InputError
from fedcal.queries.base import (
    Order,
    Param,
    Part,
    Query,
    not_too_long,
    number_of_classes,
    vector,
)
from fedcal.training.network import RULES, Clipping, Network, Rule, shape_of
from fedcal.training.networks import NETWORKS
from fedcal.types import Floats

FINE = 2.0**-36
"""Steps in which a row's gradient is told, in units of the clip rounded to a power of two."""

_W = np.linspace(-0.5, 0.5, 9)


@dataclass(frozen=True, eq=False)
class Gradients(Query):
    """The sum of your rows' gradients of the cross-entropy at w, each bounded. (DP-SGD.)

    As many numbers as w. A row adds at most `clip`, as `clipping` says; where clients or subjects
    are protected, their sums are clipped as a whole instead.

    Parameters
    ----------
    network
        architecture, a key of `NETWORKS`
    shape
        of one input, as "512" or "28x28x1"
    w
        (size,) weights
    clip
        C, norm of what one row may add
    clipping
        "row", "global" or "none" (see `Clipping.factors`)
    reach
        Z of "global": gradients of a larger norm are left out
    classes
        of the model
    """

    kind = "gradients"
    facts = ("classes",)
    fine = True
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"network": "linear", "shape": "2", "w": _W, "clip": 0.5, "classes": 3},
        {
            "network": "linear",
            "shape": "2",
            "w": _W,
            "clip": 0.25,
            "clipping": "global",
            "reach": 1.0,
            "classes": 3,
        },
    )

    network: str
    shape: str
    w: Floats
    clip: float
    classes: int
    clipping: Rule = "row"
    reach: float = 1.0

    def __post_init__(self) -> None:
        one_of("network", self.network, NETWORKS)
        one_of("clipping", self.clipping, RULES)
        w, classes = vector("w", self.w), number_of_classes(self.classes)
        size = self.architecture.size(shape_of(self.shape), classes)
        if len(w) != size:
            raise InputError(
                f"the network {self.network} of {classes} classes on {self.shape} has {size} "
                f"weights, the query has {len(w)}"
            )
        clip, reach = positive("clip", self.clip), positive("reach", self.reach)
        self._set(w=w, classes=classes, clip=clip, reach=reach)
        not_too_long(self)

    @property
    def architecture(self) -> Network:
        """What is trained."""
        return NETWORKS[self.network]

    @property
    def rows(self) -> Clipping:
        """What bounds a row's gradient."""
        return Clipping(self.clip, self.clipping, self.reach)

    @property
    def grid(self) -> float:
        """The step in which sums are told where no plan says another one."""
        return float(FINE * 2.0 ** math.floor(math.log2(self.clip)))

    def lengths(self) -> tuple[int, ...]:
        """As w."""
        return (len(self.w),)

    def params(self) -> Mapping[str, Param]:
        """All; the rule only where it is not the usual one."""
        usual: dict[str, Param] = {"network": self.network, "shape": self.shape, "w": self.w}
        if self.clipping != "row":
            usual |= {"clipping": self.clipping, "reach": self.reach}
        return usual | {"clip": self.clip}

    @property
    def key(self) -> str:
        """By the bytes of w: it is long, and asked about thousands of times."""
        rest = [value for name, value in self.params().items() if name != "w"]
        digest = hashlib.sha256(repr((self.kind, *rest)).encode())
        digest.update(self.w.tobytes())
        return digest.hexdigest()

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """`clip` for a row or a subject; the clip that is given for a client."""
        whole = self.takes(part, clips, 1)
        return Bound(self.lengths(), (clips[0] if whole else self.clip,), order=order)
