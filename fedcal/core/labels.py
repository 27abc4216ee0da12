"""Which class a label means, and ids of clients, subjects and groups.

Every reader and entry point finds the class of a label by `places_of`, and reads ids by `ids_of`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import near
from fedcal.core.classes import class_names, quoted
from fedcal.core.errors import InputError
from fedcal.core.printable import look_of, plain_name, plain_names, value_of
from fedcal.core.scores import as_array, without_gradient
from fedcal.core.types import Integers

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None")
"""Ids that mean that there is none."""


def places_of(
    what: str, labels: Any, names: Sequence[str] | None, shape: tuple[int, ...], of: str = "scores"
) -> Integers:
    """Return the column of each label, (n,).

    If all names are numbers or truth values, as they are where nobody gave names, labels match them
    by value: 1, 1.0, "1" and True mean the same. If none is, whole numbers are the numbers of the
    columns, from 0, and text is matched with the names.

    Parameters
    ----------
    what, of
        what labels, and the rows, are called in messages
    labels
        (n,) or (n, 1)
    names
        (c,) of the classes, or None
    shape
        (n, c) of the scores

    Raises
    ------
    InputError
        For names of both kinds, and for a label that is not of a class.
    """
    array, classes = per_row(what, as_array(what, labels), of, shape[0]), shape[1]
    if array.dtype.kind not in "biufU":
        raise InputError(f"{what}: must hold numbers or names of classes, got type {array.dtype}")
    known = () if names is None else class_names(names, classes)
    values: list[Any] = [value_of(name) for name in known] or list(range(classes))
    by_value = None not in values
    if not by_value and set(values) != {None}:
        raise InputError(
            f"{what}: of the class names ({quoted(known)}) some are numbers and some are not; name "
            "all classes by numbers, or none"
        )
    if array.dtype.kind in "iu" and not (known and by_value):  # as mostly: no need to sort them
        fits: bool = not len(array) or (array.min() >= 0 and array.max() < classes)
        if fits:
            return array.astype(np.int64)
    entries, back = np.unique(array, return_inverse=True)
    keys: list[Any] = entries.tolist()
    if array.dtype.kind == "U":
        texts = [plain_name(what, key) for key in keys]
        keys = [value_of(text) for text in texts]
        if None in keys and not by_value:
            keys, values = texts, list(known)
    place = {key: j for j, key in enumerate(range(classes) if None in values else values)}
    codes = np.array([place.get(key, -1) for key in keys], np.int64)[back]
    if (codes < 0).any():
        row, allowed = int(np.argmax(codes < 0)), f"must be a class in [0, {classes - 1}]"
        if known and None not in values:
            allowed = near(str(array[row]), known, "class_names")
        label: Any = array[row].item()
        shown = repr(label) if array.dtype.kind in "bU" else f"{label:g}"
        raise InputError(f"{what}: {shown:.80} at row {row}; {allowed}")
    return codes


def per_row(what: str, array: NDArray[Any], of: str, rows: int) -> NDArray[Any]:
    """Return an array (n,) or (n, 1) as (n,); InputError unless it has so many rows."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (rows,):
        allowed = f"must have shape ({rows},), one entry for each row of {of}"
        raise InputError(f"{what}: {allowed}, got {array.shape}")
    return array


def words_among(parts: Sequence[Any]) -> list[str]:
    """Return the names among labels, sorted; [] if all labels are numbers, as text or not."""
    arrays = [as_array("labels", part) for part in parts if part is not None]
    words = {str(word) for part in arrays if part.dtype.kind == "U" for word in set(part.flat)}
    if all(type(value_of(word)) in (int, float) for word in words):
        return []
    return sorted({plain_name("labels", word) for word in words})


def ids_of(what: str, ids: Any, row_name: Callable[[int], str] = "row {}".format) -> NDArray[Any]:
    """Return ids of clients, subjects or groups, of any shape: integers or names in NFC.

    Parameters
    ----------
    what
        name in messages
    ids
        whole numbers, text or UTF-8, as anything that `as_array` takes
    row_name
        function from a row, from 0, to its name in messages

    Raises
    ------
    InputError
        If there are missing ids (nan, or one of `MISSING`), in one line with how many and the first
        row; for a control character; for entries that are not ids.
    """
    array = as_array(what, ids)
    if array.dtype.kind == "S":
        with suppress(UnicodeDecodeError):
            array = np.char.decode(array, "utf-8")
    if array.dtype.kind not in "fiuU":
        allowed = "must hold whole numbers or strings, in UTF-8"
        raise InputError(f"{what}: {allowed}, got type {array.dtype}")
    if array.dtype.kind == "U":
        entries = array.ravel().tolist()
        every = list(set(entries))
        plain = dict(zip(every, plain_names(what, every), strict=True))
        if list(plain) != list(plain.values()):
            array = np.array([plain[entry] for entry in entries], np.str_).reshape(array.shape)
        missing = np.isin(array, [*set(MISSING).intersection(plain.values())])
    else:
        missing = array != array  # nan
    if (rows := np.flatnonzero(missing)).size:
        raise InputError(
            f"{what}: missing in {rows.size:,} of {array.size:,} rows, the first is "
            f"{row_name(int(rows[0]))}; every row needs one (empty, NA, N/A, NaN, null and None "
            "stand for missing)"
        )
    if array.dtype.kind != "f":
        return array
    for row in np.flatnonzero((array != np.rint(array)) | (np.abs(array) > 2**53))[:1].tolist():
        allowed = "must be whole numbers, and those beyond 2**53 integers"
        raise InputError(f"{what}: {array.flat[row]:g} at row {row}; {allowed}")
    return array.astype(np.int64)


def loose_ids(what: str, ids: Any) -> NDArray[Any]:
    """Return ids, (n,), as a reader sees them, where no row may make others invalid.

    What is missing is one of `MISSING`.
    """
    entries = np.ravel(np.asarray(without_gradient(ids, what), object)).tolist()
    whole = (int(x) if isinstance(x, float) and x.is_integer() else x for x in entries)
    return np.array([look_of(str(entry)) for entry in whole], np.str_)
