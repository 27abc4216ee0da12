"""What every calibrator is: scores in, probabilities out, and a file without pickle."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.atomic import whole_file
from fedcal.checks import one_of
from fedcal.errors import InputError
from fedcal.scores import KINDS, Kind, check_scores, finite, logits_of, moderate
from fedcal.types import Floats, Integers

FORMAT = "fedcal-calibrator"
VERSION = 1

_kinds: dict[str, type[Calibrator]] = {}


class Calibrator(ABC):
    """A map from a model's scores to calibrated probabilities.

    Subclasses set `kind` (their name in files), keep their parameters as plain attributes and
    tell them through `arrays` and `from_arrays`. What they compute is a function of logits.

    Attributes
    ----------
    classes : number of classes it was fitted for
    input : "logits" or "probs": what it was fitted on, and so what `predict_proba`, `fedcal
        apply` and exports take. Of probabilities the logits are log max(p, 1e-12)
    """

    kind: ClassVar[str]
    classes: int = 0
    input: Kind = "logits"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            _kinds[cls.kind] = cls

    def fit(self, scores: ArrayLike, labels: ArrayLike, *, input: Kind | None = None) -> Self:
        """Fit on pooled rows: the non-private, non-federated ideal.

        Parameters
        ----------
        scores : (n, c), n >= 1
        labels : (n,) whole numbers in [0, c)
        input : what the scores are; None = what the attribute `input` says, and that is logits
            unless somebody has said otherwise

        Raises
        ------
        InputError
            Anything that is not allowed, or scores that are not what they are declared to be
            (`fedcal.scores.check_scores`); the calibrator stays as it was.
        """
        kind: Kind = one_of("input", self.input if input is None else input, KINDS)
        z = logits_of(kind, check_scores(kind, kind, scores))
        self._fit(z, check_labels(labels, *z.shape))
        self.classes, self.input = z.shape[1], kind
        return self

    @abstractmethod
    def _fit(self, z: Floats, y: Integers) -> None:
        """Learn the parameters from checked logits, (n, c), and labels, (n,)."""

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

    def predict_proba(self, scores: ArrayLike) -> Floats:
        """Calibrated probabilities, (n, c) -> (n, c); each row sums to 1.

        Parameters
        ----------
        scores : what the calibrator was fitted on, as `input` says

        Raises
        ------
        InputError
            If the calibrator is not fitted, the class count differs, or the scores are not what
            `input` says (`fedcal.scores.check_scores`).
        """
        self._need_fitted()
        name = f"{self.input} (this calibrator takes {self.input})"
        return self._of_logits(
            logits_of(self.input, check_scores(name, self.input, scores, least=0))
        )

    def calibrated(self, logits: ArrayLike) -> Floats:
        """`predict_proba` of a model's logits, whatever the calibrator was fitted on.

        The logits are taken at their word: only their shape and size are checked. Of
        probabilities they are log(max(p, 1e-12)).

        Raises
        ------
        InputError
            If the calibrator is not fitted, the class count differs, or a logit is not finite.
        """
        self._need_fitted()
        return self._of_logits(moderate("logits", finite("logits", logits)))

    def _of_logits(self, z: Floats) -> Floats:
        if z.shape[1] != self.classes:
            raise InputError(
                f"the calibrator is for {self.classes} classes, the {self.input} have {z.shape[1]}"
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


def check_labels(labels: ArrayLike, rows: int, classes: int) -> Integers:
    """Labels to fit on, one for each row, or InputError."""
    y = np.asarray(labels)
    if y.shape != (rows,):
        raise InputError(f"labels must have one entry per row ({rows}), got shape {y.shape}")
    if not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= classes:
        raise InputError(f"labels must be whole numbers in [0, {classes})")
    return y.astype(np.int64)
