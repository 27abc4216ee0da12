"""Base class of calibrators: scores in, probabilities out, and a file without pickle."""

from __future__ import annotations

import base64
import binascii
import json
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal import metrics
from fedcal.core.checks import Absent, InputError, integer, one_of, same
from fedcal.core.naming import class_names
from fedcal.core.numerics import KINDS, Floats, Integers, Kind, logits_of
from fedcal.core.scores import check_scores, finite, moderate, own_names, places_of
from fedcal.metrics.bootstrap import FEWEST
from fedcal.metrics.score_table import check_score, scored
from fedcal.metrics.standard import brier_of_rates
from fedcal.storage.artifact import Arrays, Artifact, Header, Holdout, read_arrays, write_arrays
from fedcal.storage.atomic import path_of

FORMAT = "fedcal-calibrator"

_kinds: dict[str, type[Calibrator]] = {}


class Calibrator(Artifact):
    """A map from a model's scores to calibrated probabilities.

    Subclasses set `kind` (their name in files) and `parameters`: attributes that are arguments of
    the constructor, too, as `classes` is. Others write `arrays` and `from_arrays` themselves.

    Attributes
    ----------
    classes
        number of classes it was fitted for
    input
        "logits" or "probs": what it was fitted on, and so what `predict_proba` and exports take
        (`fedcal apply` logits, too). Of probabilities the logits are log max(p, 1e-12)
    """

    form = noun = "calibrator"
    rescores = True
    kind: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()
    classes: int = 0
    input: Kind = "logits"

    def __init__(self, classes: int = 0) -> None:
        self.classes = integer("classes", classes, 0)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            _kinds[cls.kind] = cls

    def fit(self, scores: ArrayLike, labels: ArrayLike, *, input: Kind | None = None) -> Self:
        """Fit on pooled rows: the non-private, non-federated ideal.

        Parameters
        ----------
        scores
            (n, c), n >= 1; the names of a frame's columns become `class_names`
        labels
            (n,) whole numbers in [0, c), or the names, see `fedcal.core.scores.places_of`
        input
            kind of the scores; None = the attribute `input`, logits by default

        Raises
        ------
        InputError
            Invalid values, or scores that are not of the declared kind
            (`fedcal.core.scores.check_scores`); the calibrator stays as it was.
        """
        kind: Kind = one_of("input", self.input if input is None else input, KINDS)
        z = logits_of(kind, check_scores(kind, kind, scores))
        names = own_names(scores)
        y = places_of("labels", labels, names, z.shape, kind)
        self.input = kind
        self._fit(z, y)
        self.classes = z.shape[1]
        if names is not None:
            self.of_classes(class_names(names, len(names)))
        return self

    @abstractmethod
    def _fit(self, z: Floats, y: Integers) -> None:
        """Learn the parameters from checked logits, (n, c), of `input`, and labels, (n,)."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of `parameters`, and `classes` (), as arrays."""
        return {name: np.array(getattr(self, name)) for name in (*self.parameters, "classes")}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the calibrator with these parameters; raise KeyError or InputError for misfits."""
        own = {name: arrays[name][()] for name in cls.parameters}
        return cls(**own, classes=int(arrays["classes"]))

    @abstractmethod
    def _predict(self, logits: Floats, input: Kind) -> Floats:
        """Return probabilities, (n, c), of checked logits; `input` is what they were made of."""

    def predict_proba(self, scores: ArrayLike) -> Floats:
        """Return calibrated probabilities, (n, c) -> (n, c); each row sums to 1.

        Raises InputError if the calibrator is not fitted, the class count differs, or the scores
        are not of the kind `input` (`fedcal.core.scores.check_scores`).

        Parameters
        ----------
        scores
            the kind of scores that the calibrator was fitted on, `input`; columns of a frame are
            put in the order of its classes
        """
        self.need_fitted()
        name = f"{self.input} (this calibrator takes {self.input})"
        checked = check_scores(name, self.input, scores, self.class_names or (), least=0)
        return self._of_logits(logits_of(self.input, checked), self.input)

    def calibrated(self, logits: ArrayLike, input: Kind = "logits") -> Floats:
        """Return `predict_proba` of a model's logits, whatever the calibrator was fitted on.

        The logits are taken at their word: only their shape and size are checked.

        Raises InputError if the calibrator is not fitted, the class count differs, or a logit is
        not finite.

        Parameters
        ----------
        logits
            (n, c)
        input
            what they were made of; of probabilities they are log(max(p, 1e-12))
        """
        self.need_fitted()
        checked = finite("logits", logits, self.class_names or ())
        return self._of_logits(moderate("logits", checked), input)

    def _of_logits(self, z: Floats, input: Kind) -> Floats:
        same("number of classes of scores for this calibrator", z.shape[1], self.classes)
        return self._predict(z, input)

    def __repr__(self) -> str:
        return f"<{self.kind} calibrator for {self.classes or 'no'} classes>"

    def need_fitted(self) -> None:
        """Raise InputError unless it is fitted."""
        if not self.classes:
            raise InputError(f"this {self.kind} calibrator is not fitted")

    def save(self, path: str | Path) -> None:
        """Write a versioned `.npz` (a JSON header and plain arrays), atomically."""
        self.need_fitted()
        header = {"kind": self.kind, "classes": self.classes, "input": self.input}
        write_arrays(path_of(path), {"format": FORMAT, **header, **self.naming}, self.arrays())

    # -- as an artifact -------------------------------------------------------------------

    @classmethod
    def files(cls) -> tuple[str, ...]:
        """Return the files of the calibrator, and of its results on test rows."""
        return ("calibrator.npz", "test_probs.npy", "reliability.json")

    def write(self, folder: Path, stem: str, test: Holdout | None = None) -> list[str]:
        """Write its file; with test rows also their probabilities and reliability."""
        self.save(folder / f"{stem}.npz")
        if test is None:
            return [f"{stem}.npz"]
        reliability = {part: r.to_json() for part, r in self.reliability(test).items()}
        text = json.dumps(reliability, indent=2, allow_nan=False) + "\n"
        (folder / "reliability.json").write_text(text, "utf-8")
        np.save(folder / "test_probs.npy", self.test_probs(test), allow_pickle=False)
        return [f"{stem}.npz", "test_probs.npy", "reliability.json"]

    @classmethod
    def read(cls, folder: Path, stem: str) -> Calibrator:
        """Return the calibrator of any kind that `save` wrote."""
        return load(folder / f"{stem}.npz")

    def learnt_on(self, input: Kind) -> None:
        """Set the kind of input that `predict_proba` takes from now on."""
        self.input = input

    def results(self) -> dict[str, Any]:
        """Return nothing: only test rows show the quality of a calibrator."""
        return {"before": None, "after": None}

    def judge(self, test: Holdout) -> dict[str, Any]:
        """Return metrics on test rows `before` any calibration and `after` this one, as fractions.

        Also the `score`: "positive" (class 1) of two classes, else "confidence".
        """
        both = {"before": test.probs, "after": self.test_probs(test)}
        evaluated: dict[str, Any] = {
            key: metrics.summary(p, test.labels) for key, p in both.items()
        }
        floored = {key: metrics.below_floor(p, test.labels) for key, p in both.items()}
        evaluated["rows_below_floor"] = floored
        counts = np.bincount(test.labels, minlength=test.probs.shape[1])
        evaluated["brier_of_rates"] = brier_of_rates(counts)
        evaluated["score"] = check_score("", test.probs.shape[1])
        return evaluated

    def intervals(self, test: Holdout) -> dict[str, Any]:
        """Return 95 % intervals over test rows: see `fedcal.metrics.metric_intervals`.

        None of fewer than `fedcal.metrics.bootstrap.FEWEST` test rows: resampling them would
        promise what they cannot show.
        """
        if len(test.labels) < FEWEST:
            return {"intervals": None}
        both = test.probs, self.test_probs(test)
        return {"intervals": metrics.metric_intervals(*both, test.labels, seed=test.seed)}

    def glance(self, test: Holdout) -> dict[str, float]:
        """Return four of the metrics `after`."""
        p = self.test_probs(test) if self in test.kept else self.calibrated(test.logits, self.input)
        shown = (metrics.ece, metrics.classwise_ece, metrics.nll, metrics.accuracy)
        return {metric.__name__: metric(p, test.labels) for metric in shown}

    def test_probs(self, test: Holdout) -> Floats:
        """Return the calibrated probabilities of the test rows, (n, c); computed once."""
        if self not in test.kept:
            test.kept[self] = np.ascontiguousarray(self._calibrate(test))
        after: Floats = test.kept[self]
        return after

    def reliability(self, test: Holdout) -> dict[str, metrics.Reliability]:
        """Return the reliability diagrams of the test rows, `before` and `after`."""
        both = {"before": test.probs, "after": self.test_probs(test)}
        return {part: metrics.Reliability.of(p, test.labels) for part, p in both.items()}

    def _calibrate(self, test: Holdout) -> Floats:
        return self.calibrated(test.logits, self.input)


def calibrator_of(artifact: Artifact) -> Calibrator:
    """Return an artifact that must be a calibrator; raise Absent if it is another one."""
    if not isinstance(artifact, Calibrator):
        raise Absent(f"this run yields no calibrator: its artifact has the form {artifact.form}")
    return artifact


def load(path: str | Path | IO[bytes]) -> Calibrator:
    """Return the calibrator that `save` wrote, from its file or the file's content.

    Raises InputError if the file cannot be read, is not a calibrator, is of a later version, or
    contains parameters that do not fit together.
    """

    def made(header: Header, arrays: Arrays) -> Calibrator:
        kind = one_of("kind of calibrator", header["kind"], _kinds)
        calibrator = _kinds[kind].from_arrays(arrays)
        calibrator.input = one_of("input", header["input"], KINDS)
        return calibrator

    file = path_of(path) if isinstance(path, (str, Path)) else path
    return read_arrays(file, FORMAT, ("kind", "input"), made, "calibrator")


def kinds() -> dict[str, type[Calibrator]]:
    """Return kind in a file -> class."""
    return dict(_kinds)


def text_of(path: str | Path, classes: int) -> str:
    """Return the checked file of a calibrator for so many classes, as base64 text."""
    same(f"classes of the calibrator {str(path)!r}", load(path).classes, classes)
    return base64.b64encode(path_of(path).read_bytes()).decode()


@lru_cache(4)
def of_text(text: str) -> Calibrator:
    """Return the calibrator whose file is this base64 text; InputError if it is invalid."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the calibrator of the question is not base64 text") from None
    return load(BytesIO(content))


def score_and_outcome(probs: Floats, labels: Integers) -> tuple[Floats, Floats]:
    """Return each row's score and outcome by the default score of so many classes, (n,) each."""
    score, outcome = scored(probs, labels, check_score("", probs.shape[1]))
    return score[:, 0], outcome[:, 0].astype(np.float64)
