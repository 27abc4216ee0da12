"""Scores of a classifier, logits or probabilities, and what either must satisfy.

Which of the two is declared by whoever gives them, and never guessed. But a declaration that the
numbers contradict is refused, at every door by which scores come in: files, arrays, shards,
`fit` and `predict_proba`. All of them ask here.

Which class a label means, and ids of clients, subjects and groups.

Every reader and entry point finds the class of a label by `places_of`, and reads ids by `ids_of`.
"""

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, near
from fedcal.core.naming import class_names, key_of, listed, one_form, plain_name, quoted, value_of
from fedcal.core.numerics import Floats, Integers, Kind, refuse_masked
from fedcal.core.shards import Shards

MOST_CLASSES = 10**5
"""Columns of scores, or of a table."""

SUM_TOLERANCE = 1e-2
"""Distance from 1 of the sum of a row of probabilities: three printed decimals in 10 classes give
5e-3, float16 with 1000 classes about 1e-3."""

LARGEST_LOGIT = 1e100
"""Beyond this, differences and squares of logits would overflow."""

RANGE_TOLERANCE = 1e-3
"""Distance outside [0, 1] at which a probability may lie: float16 overshoots a little."""

SURE = 5
"""From so many rows on, logits that could be probabilities are. Even logits spread evenly over
[0, 1]^2 sum to 1 within `ROUNDED` in 28 % of rows only: five rows do by chance in one case of
600, twenty in one of 2e7. Real ones are seldom all within [0, 1]."""

ROUNDED = 0.15  # of a sum: one printed decimal in ten classes, most of them 0, or float32's 1.1

_MOST = 0.9  # of the rows

DOUBT = (
    "{}: rows lie in [0, 1] and sum to 1, as probabilities do; declare them as probs (a "
    "mapping {{'probs': ..., 'labels': ...}}, columns prob_0.., or input='probs')"
)

_PERCENT = (
    "{}: rows lie in [0, 100] and sum to 100, as percentages do; divide them by 100 and declare "
    "them as probs"
)

_FEW_TOLERANCE = 1e-3  # of a sum, for a single row: half precision's


def check_scores(
    name: str, kind: Kind, value: Any, names: Sequence[str] | None = None, *, least: int = 1
) -> Floats:
    """Scores as (n, c) float64, C-contiguous, finite, and of the declared kind.

    Parameters
    ----------
    name
        what they are called in messages
    kind
        what they were declared to be. Probabilities lie in [0, 1] up to 1e-3 and each row sums
        to 1 up to 1e-2; they are kept as given, but for negative rounding, which becomes 0.
        Logits lie within +-1e100, and are neither percentages nor probabilities, rounded ones
        neither: of fewer than 5 rows, which may be so by chance, that is only warned of
    value
        (n, c), c >= 2, of any numeric type; or (n,) or (n, 1) probabilities of class 1 of two.
        Columns of a frame are put in order
    names
        (c,) of the classes, see `in_class_order`
    least
        rows that are needed

    Raises
    ------
    InputError
        One line that names the scores and the first offending row; rows and columns from 0.
    """
    if kind == "probs":
        value = of_both(name, in_class_order(name, value, names))
    x = finite(name, value, names, least=least)
    if not x.size:
        return x
    if kind == "logits":
        refuse_probs(name, x)
        if len(x) < SURE and could_be_probs(x, ROUNDED if len(x) > 1 else _FEW_TOLERANCE, 1.0):
            warnings.warn(DOUBT.format(name), stacklevel=3)
        return x if getattr(value, "dtype", None) == np.float32 else moderate(name, x)
    low, high = float(x.min()), float(x.max())
    hint = " (percentages must be divided by 100)" if low >= 0 and 2 <= high <= 100 else ""
    allowed = f"probabilities must lie in [0, 1]{hint}"
    _refuse(name, x, (x < -RANGE_TOLERANCE) | (x > 1 + RANGE_TOLERANCE), allowed)
    check_sums(name, x)
    return np.maximum(x, 0.0) if low < 0 else x


def check_sums(name: str, probs: Floats, first: int = 0) -> None:
    """Refuse probabilities in [0, 1], (n, c), of which a row does not sum to 1.

    InputError names the row; the first has the number `first`.
    """
    totals = np.einsum("ij->i", probs)  # faster than sum(axis=1) of few columns
    off = np.abs(totals - 1) > SUM_TOLERANCE + 1e-9  # 0.99 is within 0.01
    _refuse(name, totals, off, f"each row must sum to 1 within {SUM_TOLERANCE:g}", first)


def own_names(scores: Any) -> tuple[str, ...] | None:
    """Return the classes' names in a frame's columns of scores; None if they only number them.

    None, too, for what is not a frame.
    """
    names = _columns(scores)
    return None if {key_of(name) for name in names} == set(range(len(names))) else names


def in_class_order(what: str, scores: Any, names: Sequence[str] | None = None) -> Any:
    """Return scores with the columns of a frame in the order of the classes.

    Raises InputError if the columns have other names.

    Parameters
    ----------
    what
        name in messages
    scores
        (n, c); what is not a frame is returned as it is
    names
        (c,) of the classes; columns may have their numbers instead, () = must have. None = in the
        order of the columns, those that are numbers from 0 sorted
    """
    own = _columns(scores)
    if not own:
        return scores
    keys = [key_of(name) for name in own]
    asked = keys if names is None else [key_of(name) for name in names]
    if set(keys) == set(range(len(keys))) and (names is None or set(asked) != set(keys)):
        asked = sorted(keys)
    if set(asked) != set(keys) or len(set(keys)) < len(keys):
        other = f", not {listed(names)}" if names else ""
        raise InputError(
            f"{what}: its columns are for the classes {listed(own)}{other} (to_numpy() of a frame "
            "has no names)"
        )
    order = [keys.index(key) for key in asked]
    return scores if order == sorted(order) else as_array(what, scores)[:, order]


def of_both(name: str, value: Any) -> NDArray[Any]:
    """Probabilities as they are, (n, c); those of class 1 of two, (n,) or (n, 1), as (n, 2)."""
    array = numbers(name, value)
    if array.ndim != 1 and array.shape[1:] != (1,):
        return array
    if array.shape == (2,) and abs(float(array.sum()) - 1) <= SUM_TOLERANCE:
        raise InputError(
            f"{name}: two numbers that sum to 1 may be one row or two; give one row of two classes "
            "the shape (1, 2), two rows of one column the shape (2, 1)"
        )
    positive = array.ravel().astype(np.float64)
    bad = ~((positive >= -RANGE_TOLERANCE) & (positive <= 1 + RANGE_TOLERANCE))  # nan, too
    _refuse(name, positive, bad, "the probability of class 1 must lie in [0, 1]")
    return np.stack([1 - positive, positive], axis=1)


def finite(name: str, value: Any, names: Sequence[str] | None = None, *, least: int = 0) -> Floats:
    """Rows of at least two finite numbers, (n, c) float64, C-contiguous, or InputError.

    Columns of a frame are put in the order of `names`, see `in_class_order`.
    """
    array = numbers(name, in_class_order(name, value, names))
    if array.ndim != 2 or array.shape[0] < least or not 2 <= array.shape[1] <= MOST_CLASSES:
        allowed = f"(rows >= {least}, classes) with 2 to {MOST_CLASSES:,} classes"
        raise InputError(f"{name}: must have shape {allowed}, got {array.shape}")
    with np.errstate(over="ignore"):  # from wider floats: inf, refused below
        x = np.ascontiguousarray(array, np.float64)
    stored = array if array.dtype == np.float32 else x  # half as much to read
    if x.size and not (np.isfinite(stored.min()) and np.isfinite(stored.max())):  # they pass nan on
        hint = " (-inf is the logarithm of a probability of 0: give the probabilities, as `probs`)"
        _refuse(name, x, ~np.isfinite(x), f"all must be finite{hint * bool(x.min() == -np.inf)}")
    return x


def moderate(name: str, logits: Floats) -> Floats:
    """`logits`, finite ones, if none is beyond +-1e100, or InputError."""
    if logits.size and max(-logits.min(), logits.max()) > LARGEST_LOGIT:
        beyond = np.abs(logits) > LARGEST_LOGIT
        _refuse(name, logits, beyond, f"allowed up to +-{LARGEST_LOGIT:g}")
    return logits


def numbers(name: str, value: Any) -> NDArray[Any]:
    """`as_array` of a numeric type, or InputError."""
    array = as_array(name, value)
    if array.dtype.kind not in "fiub":
        odd = [x for x in array.flat if not isinstance(x, Real)][:1]
        example = f", such as {str(odd[0])[:40]!r}" if odd else ""
        raise InputError(f"{name}: must hold numbers, got type {array.dtype}{example}")
    return array


def as_array(name: str, value: Any) -> NDArray[Any]:
    """Anything array-like as a NumPy array; neither torch nor pandas is imported.

    Parameters
    ----------
    name
        what it is called in messages
    value
        an array, a pandas frame or series, a torch tensor on any device (detached from its
        graph; bfloat16 becomes float32), or lists and tuples of numbers, strings or tensors

    Returns
    -------
    NDArray[Any]
        `value` itself if it is an array of numbers or strings. An array of objects becomes one of
        float64 or of strings where all entries are numbers or all are strings.

    Raises
    ------
    InputError
        One line: ragged lists, missing values (None, NA), masked arrays, sparse matrices.
    """
    refuse_masked(name, value)
    try:
        array = np.asarray(without_gradient(value, name))
    except (ValueError, TypeError, RuntimeError, OverflowError):  # ragged lists, lazy tensors
        raise InputError(f"{name}: cannot be read as an array (ragged?)") from None
    if array.dtype.kind != "O" or not array.size:
        return array
    rows = array.reshape(len(array), -1) if array.ndim else ()
    if missing := [row for row, entry in enumerate(rows) if any(map(_missing, entry))]:
        many = f"a missing value at row {missing[0]}, and in {len(missing)} rows in all"
        raise InputError(f"{name}: {many}; fill it or drop the row")
    if all(isinstance(entry, (Real, Decimal)) for entry in array.flat):
        return array.astype(np.float64)
    return array.astype(np.str_) if all(isinstance(x, str) for x in array.flat) else array


def _missing(entry: Any) -> bool:
    """None, nan, or what pandas writes for a missing value."""
    nan = isinstance(entry, float) and entry != entry
    return nan or entry is None or type(entry).__name__ in ("NAType", "NaTType")


def without_gradient(value: Any, name: str = "values") -> Any:
    """Return a torch tensor in a form that NumPy can read, also inside a list or tuple.

    Raises InputError for a masked array.
    """
    refuse_masked(name, value)
    if isinstance(value, (list, tuple)) and len(value) and hasattr(value[0], "detach"):
        return [np.asarray(without_gradient(entry)) for entry in value]
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu()
    return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor


def _columns(scores: Any) -> tuple[str, ...]:
    """Return the names of a frame's columns, less what stands before all of them; () = none."""
    columns = getattr(scores, "column_names", getattr(scores, "columns", ()))  # Arrow; frames
    names = tuple(map(str, columns))
    for prefix in ("prob_", "logit_", "column_", "col"):
        if all(name.startswith(prefix) for name in names):
            names = tuple(name.removeprefix(prefix) for name in names)
    return () if len(names) == 1 and names[0].isdecimal() else names


def _refuse(name: str, x: Floats, bad: NDArray[np.bool_], allowed: str, first: int = 0) -> None:
    """Raise InputError that names the first entry, (n, c) or (n,), that is bad, if there is one."""
    if bad.any():
        at = np.unravel_index(int(np.argmax(bad)), bad.shape)
        where = f"row {first + at[0]}" + "".join(f", column {k}" for k in at[1:])
        raise InputError(f"{name}: {x[at]:g} at {where}; {allowed}")


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
        plain = {entry: plain_name(what, entry) for entry in every}
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

    What is missing is one of `MISSING`; characters that cannot be seen are left out.
    """
    entries = np.ravel(np.asarray(without_gradient(ids, what), object)).tolist()
    texts = (str(int(x) if isinstance(x, float) and x.is_integer() else x) for x in entries)
    seen = ("".join(c for c in text if c.isprintable() or c.isspace()) for text in texts)
    return np.array([one_form(text) for text in seen], np.str_)


def refuse_probs(name: str, logits: Floats) -> None:
    """Refuse "logits", (n, c), that could be (rounded) probabilities or percentages.

    Fewer than five rows are accepted.
    """
    enough = len(logits) >= SURE and logits.min() >= -RANGE_TOLERANCE
    for unit, doubt in ((1, DOUBT), (100, _PERCENT)) if enough else ():
        if could_be_probs(logits, ROUNDED, _MOST, unit):
            raise InputError(doubt.format(name))


def could_be_probs(x: Floats, tolerance: float, share: float, unit: int = 1) -> bool:
    """Return whether that share of rows sums to 1, and all values are in [0, 1], in units."""
    low = -RANGE_TOLERANCE * (unit == 1)
    if not x.size or x.min() < low or x.max() / unit > 1 + RANGE_TOLERANCE:
        return False
    return bool((np.abs((x / unit).sum(axis=1) - 1) <= tolerance + 1e-9).mean() >= share)


def rows_by_owner(
    logits: Floats,
    labels: Integers,
    owner: Integers,
    clients: int,
    input: Kind = "logits",
    subjects: Integers | None = None,
    *,
    groups: Integers | None = None,
    group_names: tuple[str, ...] = (),
    other: Floats | None = None,
    inputs: NDArray[Any] | None = None,
    names: tuple[str, ...] = (),
) -> Shards:
    """Sort rows by `owner` (n,), keeping the order of each client's own rows.

    Raises InputError if lengths differ, an owner or a group is out of range, or the "logits" of
    either model are probabilities.
    """
    columns = (logits, labels, subjects, groups, other, inputs)
    fits = all(len(column) == len(owner) for column in columns if column is not None)
    for places, many in ((owner, clients), (groups, len(group_names))):
        if places is not None and len(places):
            fits = fits and places.min() >= 0 and places.max() < many
    if not fits:
        raise InputError(
            f"each column must have {len(owner)} rows, one for each owner, with owners in "
            f"[0, {clients}) and groups in [0, {len(group_names)})"
        )
    order = np.argsort(owner, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=clients))])
    if other is not None:
        other = np.ascontiguousarray(other[order], np.float64)
        refuse_probs("other_logits", other)
    rows = np.ascontiguousarray(logits[order], np.float64)
    refuse_probs("logits", rows)
    return Shards(
        rows,
        labels[order].astype(np.int64),
        offsets.astype(np.int64),
        input,
        None if subjects is None else subjects[order].astype(np.int64),
        None if groups is None else groups[order].astype(np.int64),
        group_names,
        other,
        None if inputs is None else inputs[order],
        names,
    )
