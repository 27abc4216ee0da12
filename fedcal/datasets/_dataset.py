"""The `Dataset` itself and every check that scores, labels and clients must pass."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.errors import InputError
from fedcal.numerics import softmax
from fedcal.scores import Kind, as_array, check_scores, logits_of, numbers
from fedcal.streams import Purpose, stream
from fedcal.types import Floats, Integers

IDS = ("client", "subject")
"""What says whose a row is, and whom it is about."""

KEYS = (
    *("logits", "probs", "labels"),
    *IDS,
    *("test_logits", "test_probs", "test_labels", "test_client"),
)
"""Arrays of a data file, and what `from_arrays` takes."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Scores of a classifier on labelled rows; made by `load` or `from_arrays`, which check.

    Attributes
    ----------
    name
        What the set is called in reports.
    input
        What `scores` hold, "logits" or "probs", as declared by whoever gave them.
    scores
        (n, c) float64, C-contiguous, as given (negative rounding of probabilities is cut at 0;
        rows are not renormalised).
    labels
        (n,) int64 in [0, c); of length 0 where the rows are unlabelled.
    client
        (n,) int64 in [0, K): the natural client that owns the row, or None. After a split a
        client may own no row of the fit part; the numbering stays.
    client_names
        The K names of the natural clients in the order of their numbers, or None.
    test_scores, test_labels
        The test part, (m, c) and (m,), or None for both.
    subject
        (n,) int64 >= 0: whom of its client the row is about, a patient say, or None. The numbers
        mean nothing but who is the same.
    test_client
        (m,) int64 in [0, K): the natural client of each test row, or None.
    class_names
        What the columns of the scores were said to be called, or None.
    """

    name: str
    input: Kind
    scores: Floats = field(repr=False)
    labels: Integers = field(repr=False)
    client: Integers | None = field(default=None, repr=False)
    client_names: tuple[str, ...] | None = field(default=None, repr=False)
    test_scores: Floats | None = field(default=None, repr=False)
    test_labels: Integers | None = field(default=None, repr=False)
    subject: Integers | None = field(default=None, repr=False)
    test_client: Integers | None = field(default=None, repr=False)
    class_names: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def classes(self) -> int:
        """Number of classes, c."""
        return int(self.scores.shape[1])

    @property
    def labelled(self) -> bool:
        """Whether the rows have labels."""
        return len(self.labels) == len(self.scores)

    @cached_property
    def logits(self) -> Floats:
        """(n, c): the scores themselves, or log(max(p, 1e-12))."""
        return logits_of(self.input, self.scores)

    @cached_property
    def test_logits(self) -> Floats | None:
        """(m, c): `logits` of the test part, or None."""
        return None if self.test_scores is None else logits_of(self.input, self.test_scores)

    @cached_property
    def probs(self) -> Floats:
        """(n, c): the probabilities before any calibration, as given or softmax(logits)."""
        return self.scores if self.input == "probs" else softmax(self.scores)

    @cached_property
    def test_probs(self) -> Floats | None:
        """(m, c): `probs` of the test part, or None."""
        if self.test_scores is None or self.input == "probs":
            return self.test_scores
        return softmax(self.test_scores)

    def split(self, seed: int) -> Dataset:
        """A data set that has a test part.

        Itself if there is one; otherwise floor(n/2) rows, drawn without replacement by `seed`,
        become the test part. Both parts keep the order of the rows. A subject's rows may be in
        both.

        Raises
        ------
        InputError
            Unlabelled rows, fewer than two rows, or a seed out of range.
        """
        if self.test_scores is not None:
            return self
        rows = len(self.scores)
        if not self.labelled:
            raise InputError(f"{self.name}: rows without labels cannot be split for a test part")
        if rows < 2:
            raise InputError(f"{self.name}: 1 row cannot be split; at least 2 are needed")
        held_out = np.zeros(rows, np.bool_)
        held_out[stream(seed, Purpose.SPLIT).permutation(rows)[: rows // 2]] = True
        return replace(
            self,
            scores=self.scores[~held_out],
            labels=self.labels[~held_out],
            client=None if self.client is None else self.client[~held_out],
            subject=None if self.subject is None else self.subject[~held_out],
            test_scores=self.scores[held_out],
            test_labels=self.labels[held_out],
            test_client=None if self.client is None else self.client[held_out],
        )


def from_arrays(
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    labels: ArrayLike | None,
    client: ArrayLike | None = None,
    subject: ArrayLike | None = None,
    test_logits: ArrayLike | None = None,
    test_probs: ArrayLike | None = None,
    test_labels: ArrayLike | None = None,
    test_client: ArrayLike | None = None,
    name: str = "arrays",
    labels_required: bool = True,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """Check arrays and make a `Dataset` of them.

    Anything that `as_array` takes is an array: lists, pandas frames, torch tensors.

    Parameters
    ----------
    logits, probs
        (n, c), exactly one of the two; n >= 1, c >= 2, finite, and what they are called: see
        `fedcal.scores.check_scores`.
    labels
        (n,) or (n, 1): whole numbers in [0, c), of any numeric type, or the names of the classes
        (see `classes`). None only where `labels_required` is False (rows that are to be
        calibrated, not learnt from).
    client
        (n,) or (n, 1): whole numbers or strings, numbered in sorted order.
    subject
        As `client`: whom the row is about, for the unit of privacy of that name.
    test_logits, test_probs, test_labels
        An optional test part of the same kind and number of classes.
    test_client
        As `client`, of the test part: each must own rows of the fit part, too.
    classes
        (c,) names of the columns of scores, for labels that are names. None: the columns of the
        scores if they are a pandas frame; otherwise all c names that are among the labels, in
        sorted order as scikit-learn has its columns (with a warning).

    Returns
    -------
    Dataset
        Float64 C-contiguous input is not copied.

    Raises
    ------
    InputError
        One line that names the array and the first offending row; rows and columns count from 0.
    """
    if (part := _declared("", logits, probs)) is None:
        raise InputError("scores are missing: give logits or probs")
    kind, given = part
    scores = check_scores(kind, kind, given)
    names = classes if classes is not None else getattr(given, "columns", None)
    place = _places(names, [labels, test_labels], scores.shape[1])
    if labels is None and labels_required:
        raise InputError("labels are missing")
    checked = np.empty(0, np.int64)
    if labels is not None:
        checked = _labels("labels", labels, kind, scores.shape, place)
    rows = len(scores)
    owner, owners = (None, None) if client is None else _numbered("client", client, kind, rows)
    about = None if subject is None else _numbered("subject", subject, kind, rows)[0]
    called = None if classes is None else tuple(map(str, classes))
    data = Dataset(name, kind, scores, checked, owner, owners, subject=about, class_names=called)

    test = _declared("test_", test_logits, test_probs)
    if test is None and test_labels is None:
        if test_client is not None:
            raise InputError("test_client without a test part")
        return data
    of, test_given = (f"test_{kind}", None) if test is None else (f"test_{test[0]}", test[1])
    if test is None or test_labels is None:
        pair = ("test_labels", of) if test is None else (of, "test_labels")
        raise InputError(f"{pair[0]} without {pair[1]}: a test part needs both")
    if test[0] != kind:
        raise InputError(f"{of} beside {kind}: give test_{kind}")
    test_scores = check_scores(of, kind, test_given)
    if test_scores.shape[1] != data.classes:
        raise InputError(f"{of}: {test_scores.shape[1]} classes, {kind} has {data.classes}")
    test_checked = _labels("test_labels", test_labels, of, test_scores.shape, place)
    data = replace(data, test_scores=test_scores, test_labels=test_checked)
    if test_client is None:
        return data
    if owners is None:
        raise InputError("test_client without client: the fit part needs both")
    theirs = _numbered("test_client", test_client, of, len(test_scores))
    return replace(data, test_client=_among(owners, *theirs))


def _among(owners: tuple[str, ...], numbers: Integers, names: tuple[str, ...]) -> Integers:
    """Test rows' clients in the numbering of the fit part, `owners`."""
    place = {name: k for k, name in enumerate(owners)}
    for k, name in enumerate(names):
        if name not in place:
            row = int(np.argmax(numbers == k))
            raise InputError(f"test_client: {name[:80]!r} at row {row} owns no row of the fit part")
    return np.array([place[name] for name in names], np.int64)[numbers]


def _declared(prefix: str, logits: Any, probs: Any) -> tuple[Kind, Any] | None:
    """What scores are declared to be, and these scores; None if there are none."""
    if logits is not None and probs is not None:
        raise InputError(f"both {prefix}logits and {prefix}probs are given; give one of them")
    if logits is not None:
        return "logits", logits
    return None if probs is None else ("probs", probs)


def _per_row(name: str, array: NDArray[Any], of: str, rows: int) -> NDArray[Any]:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{name}: must have shape (rows,), got {array.shape}")
    if len(array) != rows:
        raise InputError(f"{name}: {len(array)} entries for {rows} rows of {of}")
    return array


def _whole(name: str, array: NDArray[Any]) -> None:
    """Refuse floats that are not whole numbers."""
    if array.dtype.kind != "f":
        return
    bad = ~np.isfinite(array)
    bad |= array != np.rint(np.where(bad, 0, array))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{name}: {array[row]:g} at row {row}; must be whole numbers")


def _places(names: Any, labels: list[Any], columns: int) -> dict[str, int]:
    """The column of each class that has a name; empty where no label is a name."""
    found = [as_array("labels", part) for part in labels if part is not None]
    words = {str(word) for part in found if part.dtype.kind == "U" for word in part.flat}
    if not words:
        return {}
    known = [] if names is None else [str(name) for name in names]
    if len(set(known)) == columns and words <= set(known):
        return {name: j for j, name in enumerate(known)}
    if all(word.isascii() and word.isdecimal() for word in words):
        return {word: int(word) for word in words}
    shown = ", ".join(map(repr, sorted(words)[:10])) + (", ..." if len(words) > 10 else "")
    if len(words) != columns:
        raise InputError(
            f"labels: {len(words)} names ({shown}) for {columns} columns of scores; give whole "
            f"numbers in [0, {columns - 1}], or the columns the names of the classes (a file: "
            "prob_NAME or logit_NAME; arrays: classes=[...])"
        )
    warnings.warn(f"labels are names, taken for the columns in sorted order: {shown}", stacklevel=3)
    return {word: j for j, word in enumerate(sorted(words))}


def _labels(
    name: str, value: Any, of: str, shape: tuple[int, ...], place: Mapping[str, int]
) -> Integers:
    """Classes of the rows of scores of that shape."""
    (rows, classes), array = shape, as_array(name, value)
    if place and array.dtype.kind == "U":
        array = np.array([place[str(word)] for word in array.flat]).reshape(array.shape)
    array = _per_row(name, numbers(name, array), of, rows)
    _whole(name, array)
    bad = (array < 0) | (array >= classes)  # before the cast, which could wrap around
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{name}: {array[row]:g} at row {row}; must be a class in [0, {classes - 1}]"
        )
    return array.astype(np.int64)


def _numbered(name: str, value: Any, of: str, rows: int) -> tuple[Integers, tuple[str, ...]]:
    """Ids as numbers from 0, and what they were."""
    array = as_array(name, value)
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{name}: byte strings must be UTF-8") from None
    if array.dtype.kind not in "fiuU":
        raise InputError(f"{name}: must hold whole numbers or strings, got type {array.dtype}")
    array = _per_row(name, array, of, rows)
    _whole(name, array)
    if array.dtype.kind == "f":
        if np.abs(array).max() > 2**53:
            raise InputError(f"{name}: numbers beyond 2**53 must be given as integers")
        array = array.astype(np.int64)
    names, owner = np.unique(array, return_inverse=True)
    return owner.astype(np.int64), tuple(str(entry) for entry in names)
