"""Labelled rows to train on, wherever they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.types import Integers

MOST_CLASSES = 10_000


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Labelled rows of one source, train and test merged.

    Attributes
    ----------
    x : (n, h, w) or (n, h, w, channels), uint8 or float32; windows of a text: (n, context) uint8
    y : (n,) int64 in [0, classes)
    client, names : (n,) number of the client that owns a row, and the clients' names; or None
    training : (n,) whether the source itself says that a row is for training; or None
    ordered : rows of a client are a sequence, which must not be shuffled before it is cut
    """

    x: NDArray[Any] = field(repr=False)
    y: Integers = field(repr=False)
    classes: int
    client: Integers | None = field(default=None, repr=False)
    names: tuple[str, ...] | None = field(default=None, repr=False)
    training: NDArray[np.bool_] | None = field(default=None, repr=False)
    ordered: bool = False
