"""Questions about a network that is being trained."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from fedcal.core.checks import one_of, positive, whole
from fedcal.core.errors import InputError
from fedcal.core.streams import check_seed
from fedcal.core.types import Floats
from fedcal.queries.base import (
    Order,
    Param,
    Part,
    Query,
    flag,
    not_too_long,
    number_of_classes,
    vector,
)
from fedcal.training.network import RULES, Clipping, LocalSGD, Network, Rule, shape_of
from fedcal.training.networks import network_named
from fedcal.units.bounding import Bound

COUNT_NORM = 5.0
"""Norm of the last number of a `LocalUpdate`, whose value is 1/2 at most: its noise is so much
larger than an update's, which costs the update half a percent."""

FINE = 2.0**-36
"""Steps in which a row's gradient is told, in units of the clip rounded to a power of two."""

MOST_EPOCHS, MOST_BATCH, MOST_ROUNDS = 10**4, 2**31, 10**5

_W = np.linspace(-0.5, 0.5, 12)


class _OfNetwork(Query):
    """A question about a network on inputs of one shape, at its weights w."""

    network: str
    shape: str
    w: Floats
    classes: int
    facts = ("classes",)

    @classmethod
    def resized(cls, example: Mapping[str, Any], classes: int) -> Mapping[str, Any]:
        """Weights for inputs that are logits."""
        size = network_named(example["network"]).size((classes,), classes)
        return {"shape": str(classes), "w": np.linspace(-0.5, 0.5, size)}

    @property
    def architecture(self) -> Network:
        """What is trained."""
        return network_named(self.network)

    @property
    def reads(self) -> tuple[int, ...]:
        """As `shape` says."""
        return shape_of(self.shape)

    @property
    def key(self) -> str:
        """By the bytes of w, which is long and asked about thousands of times."""
        params = self.params()
        rest = [value for name, value in params.items() if name != "w"]
        digest = hashlib.sha256(repr((self.kind, *rest)).encode())
        digest.update(self.w.tobytes())
        return digest.hexdigest()

    def _check_weights(self) -> None:
        """Keep weights that are those of the network, and the classes; or InputError."""
        w, classes = vector("w", self.w), number_of_classes(self.classes)
        size = self.architecture.size(shape_of(self.shape), classes)
        if len(w) != size:
            raise InputError(
                f"the network {self.network} of {classes} classes on {self.shape} has {size} "
                f"weights, the query has {len(w)}"
            )
        self._set(w=w, classes=classes)


@dataclass(frozen=True, eq=False)
class Gradients(_OfNetwork):
    """The sum of your rows' gradients of the cross-entropy at w, each bounded. (DP-SGD.)

    As many numbers as w. A row adds at most `clip`, as `clipping` says; where clients or subjects
    are protected, their sums are clipped as a whole instead.

    Parameters
    ----------
    network
        architecture, see `network_named`
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
    fine = True
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"network": "linear", "shape": "3", "w": _W, "clip": 0.5, "classes": 3},
        {
            "network": "linear",
            "shape": "3",
            "w": _W,
            "clip": 0.25,
            "clipping": "global",
            "reach": 100.0,
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
        one_of("clipping", self.clipping, RULES)
        self._check_weights()
        self._set(clip=positive("clip", self.clip), reach=positive("reach", self.reach))
        not_too_long(self)

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

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """`clip` for a row or a subject, the clip that is given for a client.

        They bound the L2 norm; in L1 it is what a vector of that norm may have.
        """
        norm = clips[0] if self.takes(part, clips, 1) else self.clip
        if order == 1:
            norm *= math.sqrt(len(self.w))
        return Bound(self.lengths(), (norm,), order=order)


_SGD = {"network": "linear", "shape": "3", "w": _W, "classes": 3}


@dataclass(frozen=True, eq=False)
class _OfLocalSGD(_OfNetwork):
    """A question about what SGD on a client's own rows makes of w."""

    row_sums = False

    network: str
    shape: str
    w: Floats
    epochs: int
    batch: int
    lr: float

    @property
    def sgd(self) -> LocalSGD:
        """How a client trains."""
        return LocalSGD(self.epochs, self.batch, self.lr)

    def params(self) -> Mapping[str, Param]:
        """All but the public facts."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in self.facts}

    def _check_sgd(self) -> None:
        self._check_weights()
        self._set(
            epochs=whole("epochs", self.epochs, 1, MOST_EPOCHS),
            batch=whole("batch", self.batch, 1, MOST_BATCH),
            lr=positive("lr", self.lr),
        )


@dataclass(frozen=True, eq=False)
class LocalUpdate(_OfLocalSGD):
    """How far from w does SGD on your own rows lead? (DP-FedAvg, McMahan et al. 2018.)

    (w_k - w) / clip, of norm 1 at most, and with `count` one number more: +1/2 if it was within the
    clip, else -1/2 (Andrew et al. 2021). All zeros without rows.

    Parameters
    ----------
    network, shape, w, classes
        as `Gradients`
    epochs, batch, lr
        of the client's SGD
    clip
        C, norm of the largest update
    count
        whether the share of updates within the clip is asked for
    seed
        of the order of rows, another one each round
    """

    kind = "local_update"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {**_SGD, "epochs": 2, "batch": 8, "lr": 0.5, "clip": 0.25, "count": True, "seed": 3},
        {**_SGD, "epochs": 1, "batch": 64, "lr": 0.1, "clip": 2.0, "count": False, "seed": 3},
    )

    clip: float
    count: bool
    seed: int
    classes: int

    def __post_init__(self) -> None:
        self._check_sgd()
        self._set(
            clip=positive("clip", self.clip),
            count=flag("count", self.count),
            seed=check_seed(self.seed),
        )
        not_too_long(self)

    def lengths(self) -> tuple[int, ...]:
        """As w, and the number for the count."""
        return (len(self.w), 1) if self.count else (len(self.w),)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """1 for the update; with the count it and the update together take little more.

        A client adds u of norm at most 1 and b within +-1/2, which lies in the ellipsoid
        ``(norm(u) / U)^2 + (b / V)^2 <= 1`` with V = `COUNT_NORM` and 1 / U^2 + 1 / (2 V)^2 = 1.
        """
        self.takes(part, clips, 0)
        if not self.count:
            return Bound(self.lengths(), (1.0,), order=order)
        update = 1.0 / math.sqrt(1.0 - 1.0 / (2.0 * COUNT_NORM) ** 2)
        return Bound(self.lengths(), (update, COUNT_NORM), order=order)


FARTHEST = 2.0**10
"""Change of a weight by one client's SGD beyond which its training has diverged."""


@dataclass(frozen=True, eq=False)
class WeightedUpdate(_OfLocalSGD):
    """Where does SGD on your own rows lead, weighted by rows? (FedAvg, McMahan et al. 2017.)

    n (w_k - w) for n rows, and three numbers more: n times the mean loss on the way in nats, n, and
    how many of these n rows are of a client whose training diverged, which adds no update and no
    loss. All zeros without rows.

    Parameters
    ----------
    network, shape, w, classes
        as `Gradients`
    epochs, batch, lr
        of the client's SGD
    seed, round
        with the client's number the order of its rows follows from them
    """

    kind = "weighted_update"
    by_site = True
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {**_SGD, "epochs": 2, "batch": 8, "lr": 0.5, "seed": 3, "round": 1},
    )

    seed: int
    round: int
    classes: int

    def __post_init__(self) -> None:
        self._check_sgd()
        self._set(seed=check_seed(self.seed), round=whole("round", self.round, 1, MOST_ROUNDS))
        not_too_long(self)

    def lengths(self) -> tuple[int, ...]:
        """As w, and the sums of losses, of rows, and of rows whose training diverged."""
        return (len(self.w), 3)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """The clips of the update and of the three sums."""
        self.takes(part, clips, 2)
        return Bound(self.lengths(), tuple(clips), order=order)
