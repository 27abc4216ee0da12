"""What every calibrator is: logits in, probabilities out, and a file without pickle."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.atomic import whole_file
from fedcal.errors import InputError
from fedcal.numerics import LARGEST_LOGIT
from fedcal.types import Floats, Integers

FORMAT = "fedcal-calibrator"
VERSION = 1

_kinds: dict[str, type[Calibrator]] = {}


class Calibrator(ABC):
    """A map from logits to calibrated probabilities.

    Subclasses set `kind` (their name in files), keep their parameters as plain attributes and
    tell them through `arrays` and `from_arrays`.

    Attributes
    ----------
    classes : number of classes it was fitted for
    input : "logits" or "probs": what its data were declared to be. `predict_proba` takes logits
        in both cases (of probabilities: log max(p, 1e-12)); `fedcal apply` refuses a file of
        the other kind
    """

    kind: ClassVar[str]
    classes: int = 0
    input: str = "logits"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            _kinds[cls.kind] = cls

    @abstractmethod
    def fit(self, logits: ArrayLike, labels: ArrayLike) -> Self:
        """Fit on pooled rows, (n, c) and (n,): the non-private, non-federated ideal."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All parameters as arrays."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The calibrator with these parameters; KeyError or InputError if they do not fit."""

    @abstractmethod
    def _predict(self, logits: Floats) -> Floats:
        """Probabilities of checked logits."""

    def predict_proba(self, logits: ArrayLike) -> Floats:
        """Calibrated probabilities, (n, c) -> (n, c); each row sums to 1.

        Raises
        ------
        InputError
            If the calibrator is not fitted, the class count differs, or a logit is not finite.
        """
        self._need_fitted()
        z = check_logits(logits)
        if z.shape[1] != self.classes:
            raise InputError(
                f"the calibrator is for {self.classes} classes, the logits have {z.shape[1]}"
            )
        return self._predict(z)

    def __repr__(self) -> str:
        return f"<{self.kind} calibrator for {self.classes or 'no'} classes>"

    def _need_fitted(self) -> None:
        if not self.classes:
            raise InputError(f"this {self.kind} calibrator is not fitted")

    def save(self, path: str | Path) -> None:
        """Write a versioned `.npz` (a JSON header and plain arrays), atomically."""
        self._need_fitted()
        header = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "classes": self.classes,
            "input": self.input,
        }
        arrays: dict[str, Any] = {"header": np.array(json.dumps(header)), **self.arrays()}
        with whole_file(Path(path)) as f:
            np.savez_compressed(f, **arrays)


def kinds() -> dict[str, type[Calibrator]]:
    """Kind in a file -> class."""
    return dict(_kinds)


def check_logits(logits: ArrayLike) -> Floats:
    """Finite (n, c) float64, C-contiguous, or InputError."""
    try:
        z = np.ascontiguousarray(logits, np.float64)
    except (TypeError, ValueError):
        raise InputError("logits must be a rectangular array of numbers") from None
    if z.ndim != 2 or z.shape[1] < 2:
        raise InputError(f"logits must have shape (rows, classes >= 2), got {z.shape}")
    fine = np.abs(z) <= LARGEST_LOGIT  # false for NaN, too
    if not fine.all():
        i, j = np.argwhere(~fine)[0]
        raise InputError(f"logits must be finite and moderate; row {i}, class {j} is {z[i, j]}")
    return z


def check_rows(logits: ArrayLike, labels: ArrayLike) -> tuple[Floats, Integers]:
    """Logits and labels to fit on, at least one row, or InputError."""
    z, y = check_logits(logits), np.asarray(labels)
    if y.shape != (len(z),) or not len(z):
        raise InputError(f"labels must have one entry per row ({len(z)}), got shape {y.shape}")
    if not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= z.shape[1]:
        raise InputError(f"labels must be whole numbers in [0, {z.shape[1]})")
    return z, y.astype(np.int64)
