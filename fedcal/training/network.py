"""What is trained: a network, as pure functions of one flat vector of weights.

Clients, server and tests share it. A network that needs torch imports it where it is used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import number_in, one_of, whole
from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers

Reads = Literal["features", "image", "text", "any"]

Dense = tuple[Floats, Floats]
"""Weights (out, in) and bias (out,) of a dense layer."""

Rule = Literal["row", "global", "none"]
"""How a row's gradient g is bounded by the clip norm C; see `factors`."""

RULES: tuple[Rule, ...] = get_args(Rule)

SHORTER = 1.0 - 2.0**-30
"""Of the clip norm is left to a row, so that no rounding on the way leads above it."""

MOST_INPUTS = 2**24


@dataclass(frozen=True)
class Clipping:
    """Bound of each row's gradient.

    Attributes
    ----------
    norm
        C, the most that one row may add to a sum, > 0; without a bound 0
    rule
        see `factors`
    reach
        Z of the rule "global"
    """

    norm: float
    rule: Rule = "row"
    reach: float = 1.0

    def __post_init__(self) -> None:
        one_of("clipping", self.rule, RULES)

    def factors(self, norms: Floats) -> Floats:
        """Return the factor of each row's gradient from its norm, (n,) -> (n,).

        ``row``: min(1, C / norm), per-example clipping (Abadi et al. 2016).
        ``global``: C / Z if norm <= Z, else 0 (Bu et al. 2021, global clipping): directions of rows
        that count are kept in their proportion, and those beyond Z are left out.
        ``none``: 1.
        """
        ones = np.ones_like(norms)
        if self.rule == "none":
            return ones
        if self.rule == "row":
            over = norms > self.norm * SHORTER
            return np.where(over, self.norm * SHORTER / np.where(over, norms, 1.0), ones)
        return np.where(norms <= self.reach, self.norm * SHORTER / self.reach, 0.0)


@dataclass(frozen=True)
class LocalSGD:
    """Plain SGD at a client: passes over its rows, rows of a step, and the step's length."""

    epochs: int
    batch: int
    lr: float


class Network(ABC):
    """One architecture.

    Attributes
    ----------
    name
        on the command line and in files
    reads
        the inputs it is for
    lr
        learning rate of gradient descent that suits a clip norm of 1
    is_dense
        whether it is nothing but dense layers (`dense`)
    in_torch
        whether it is one of PyTorch (extra `train`)
    longest
        norm of an input beyond which it is shortened
    """

    name: ClassVar[str]
    reads: ClassVar[Reads]
    lr: ClassVar[float] = 0.5
    is_dense: ClassVar[bool] = False
    in_torch: ClassVar[bool] = False
    longest: ClassVar[float] = math.inf

    def dense(self, w: Floats, shape: tuple[int, ...], classes: int) -> list[Dense] | None:
        """Return its dense layers, with ReLUs between them; None for any other network."""
        return None

    def of_widths(self, widths: tuple[int, ...]) -> Network:
        """Return the network with these hidden widths; InputError if it has none to choose."""
        raise InputError(f"the network {self.name} has fixed widths")

    def check(self, inputs: NDArray[Any], classes: int, *, by_row: bool) -> None:
        """Refuse what cannot be trained on such rows, (n, ...); `by_row`: by gradients of each."""
        self.size(inputs.shape[1:], classes)

    @abstractmethod
    def size(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the number of weights; InputError if inputs of this shape do not suit it."""

    @abstractmethod
    def initial(self, shape: tuple[int, ...], classes: int, seed: int) -> Floats:
        """Weights to begin with, (size,)."""

    @abstractmethod
    def logits(self, w: Floats, inputs: NDArray[Any], classes: int) -> Floats:
        """(n, ...) inputs -> (n, classes) float64."""

    @abstractmethod
    def prepared(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return inputs in the form that `steps` reads, (n, ...), computed once a run by row."""

    @abstractmethod
    def steps(
        self,
        w: Floats,
        prepared: NDArray[Any],
        labels: Integers,
        offsets: Integers,
        classes: int,
        clipping: Clipping,
        grid: float,
    ) -> Integers:
        """Return sums over each client's rows of bounded gradients, in whole steps of a grid.

        The gradient is that of the row's cross-entropy, in nats. Each row adds whole numbers to
        its client's sum, by itself, of norm C / grid at most: another row more or less changes the
        sum by no more than that, exactly, in whatever order rows are added.

        Parameters
        ----------
        w
            (size,)
        prepared, labels
            (n, ...), (n,) sorted by client
        offsets
            (clients + 1,) rows of client k are offsets[k]:offsets[k + 1]

        Returns
        -------
        Integers
            (clients, size)
        """

    @abstractmethod
    def local_update(
        self,
        w: Floats,
        prepared: NDArray[Any],
        labels: Integers,
        classes: int,
        sgd: LocalSGD,
        rng: np.random.Generator,
    ) -> tuple[Floats, float]:
        """Train by plain SGD on some rows, at least one.

        Returns
        -------
        tuple[Floats, float]
            Floats
                w_k - w, (size,), where w_k is what SGD makes of w.
            float
                Mean cross-entropy in nats of all rows seen on the way, before each step.
        """


def shape_of(text: str) -> tuple[int, ...]:
    """Shape of one input from text such as "512" or "28x28x1", or InputError."""
    try:
        shape = tuple(number_in(part, int) for part in text.split("x"))
    except (ValueError, AttributeError):
        raise InputError(f"shape must be like 512 or 28x28x1, got {text!r:.40}") from None
    for side in shape:
        whole("a side of the shape", side, 1, MOST_INPUTS)
    if math.prod(shape) > MOST_INPUTS:
        raise InputError(f"an input of shape {text} has more than {MOST_INPUTS:,} numbers")
    return shape


def text_of(shape: tuple[int, ...]) -> str:
    """Return the text that `shape_of` reads."""
    return "x".join(map(str, shape))
