"""Features with labels: the `.npz` files that linear heads and small networks learn from.

Whatever is done to the features here is public: it follows from the row itself and from constants
that the file or `--feature-norm` states. Nothing is centred, standardised or scaled by a statistic
of the rows, which would be a release of private data.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core import checks, types
from fedcal.core.classes import class_names, ids_of, per_row, places_of, words_among
from fedcal.core.errors import InputError
from fedcal.core.scores import as_array, numbers
from fedcal.datasets import IDS, feature_sets, read_feature_set
from fedcal.storage import atomic, npz

Arrays = Mapping[str, NDArray[Any]]

_ROWS = ("features", "labels", "y", "client", "subject", "group")
KEYS = (
    *_ROWS,
    *(f"test_{key}" for key in _ROWS if key != "subject"),
    *("scale", "norm", "class_names", "group_names"),
)
"""Arrays of a features file."""

SHIFTED = re.compile(r"test_[a-z_]+_[1-5]")
"""Test rows after a corruption, such as test_fog_3: they are for studies, and not read here."""


def read_labelled(source: str, feature_norm: float | None = None) -> LabelledRows:
    """Read the rows of a file, or the shipped features of a name; test rows are its `test`.

    Parameters
    ----------
    source
        path of an `.npz` with `features` (see `features_of`), or with `x`, `y`, optional `client`,
        `test_x`, `test_y`, `test_client` (see `rows_of_arrays`); or the name of shipped features
    feature_norm
        a bound on the Euclidean norm of a row of features, to which longer ones are scaled: a
        number that is known without the rows. None = the file's own `norm`

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    shipped, path = [entry.name for entry in feature_sets()], atomic.path_of(source)
    with named(source):
        if source in shipped:
            return features_of(read_feature_set(source), feature_norm)
        if path.suffix.lower() != ".npz" and path.exists():
            raise InputError("unknown kind of data; allowed: .npz with features, or x and y")
        if not path.is_file():
            raise InputError(f"no such file, nor shipped features; {checks.near(source, shipped)}")
        arrays = npz.read_npz(path)
        if "features" in arrays:
            return features_of(arrays, feature_norm)
        checks.unused("the file holds no features", feature_norm=feature_norm)
        return rows_of_arrays(arrays)


def features_of(arrays: Arrays, norm: float | None = None) -> LabelledRows:
    """Labelled rows of features, from the arrays of a file.

    Parameters
    ----------
    arrays
        `features` (n, d), floats, or whole numbers (int8, say) that are multiplied with the number
        `scale`; `labels` or `y` (n,); optional `client`, `subject`, `group` (n,), whole numbers or
        texts, and `class_names`, `group_names`, which the numbers stand for. The source's own test
        rows: `test_features` (m, d), `test_labels` or `test_y`, `test_client`, `test_group` (m,).
        `norm`: a bound on the rows' Euclidean norms, known without looking at them
    norm
        a bound in place of the file's

    Returns
    -------
    LabelledRows
        Features as float32. Where there is a bound, each row that is longer is scaled to it.

    Raises
    ------
    InputError
        One line that begins with the key.
    """
    for key in arrays:
        if not SHIFTED.fullmatch(key):
            checks.one_of("key", key, KEYS)
    bound = _number(arrays, "norm") if norm is None else checks.positive("feature_norm", norm)
    reader = _Reader(arrays, _number(arrays, "scale"), bound, _names(arrays, "class_names"))
    rows, test = reader.rows(""), None
    if "test_features" in arrays:
        test = reader.rows("test_", rows.x.shape[1:])
    elif stray := [key for key in arrays if key.startswith("test_")]:
        raise InputError(f"{stray[0]} without test_features")
    parts = [rows] if test is None else [rows, test]
    classes = len(reader.class_names) or max(part.classes for part in parts)
    checks.whole("the number of classes", classes, 2)
    names = reader.class_names or tuple(map(str, range(classes)))
    parts = [replace(part, names=names) for part in _with_groups(parts, arrays)]
    return parts[0] if test is None else replace(parts[0], test=parts[1])


def scaled_to(x: NDArray[np.float32], bound: float) -> NDArray[np.float32]:
    """Rows (n, d) with norms up to `bound`: longer ones are scaled to it, in place."""
    length = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))
    long = length > bound
    x[long] *= (bound / length[long])[:, None].astype(np.float32)
    return x


@dataclass(frozen=True)
class _Reader:
    """The arrays of a file, and what is said of all its rows."""

    arrays: Arrays
    scale: float | None
    norm: float | None
    class_names: tuple[str, ...]

    def inputs(self, key: str, shape: tuple[int, ...] = ()) -> NDArray[np.float32]:
        """Features as float32, checked; their shape must end with `shape`."""
        x = self.arrays[key]
        if x.ndim != 2 or 0 in x.shape or x.shape[2 - len(shape) :] != shape:
            rows, width = ("rows", "features", *shape)[-2:]
            raise InputError(f"{key}: must have shape ({rows}, {width}), got {x.shape}")
        if x.dtype.kind not in ("f" if self.scale is None else "iu"):
            having = "without" if self.scale is None else "with"
            raise InputError(
                f"{key}: whole numbers need scale, floats have none; got {x.dtype} {having} scale"
            )
        floats = _floats(key, x)
        if self.scale is not None:
            floats *= np.float32(self.scale)
        return floats if self.norm is None else scaled_to(floats, self.norm)

    def rows(self, prefix: str, shape: tuple[int, ...] = ()) -> LabelledRows:
        """Return the rows of one part, without the names of classes and groups."""
        arrays = self.arrays
        x = self.inputs(f"{prefix}features", shape)
        named = [key for key in (f"{prefix}labels", f"{prefix}y") if key in arrays]
        if len(named) != 1:
            raise InputError(f"one of the arrays '{prefix}labels' and '{prefix}y' is needed")
        shape = (len(x), len(self.class_names) or MOST_CLASSES)
        y = places_of(named[0], arrays[named[0]], self.class_names or None, shape, "features")
        client, subject = (
            check_ids(key, arrays[key], len(x)) if key in arrays else None
            for key in (f"{prefix}client", f"{prefix}subject")
        )
        if subject is not None:
            subject = np.unique(subject, return_inverse=True)[1].astype(np.int64)
        return LabelledRows(x, y, client=client, subject=subject, norm=self.norm)


def _floats(key: str, x: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        floats = x.astype(np.float32)
    if not np.isfinite(floats).all():
        raise InputError(f"{key}: all values must be finite")
    return floats


def _number(arrays: Arrays, key: str) -> float | None:
    if key not in arrays:
        return None
    checks.same(f"number of numbers in {key}", arrays[key].size, 1)
    return checks.positive(key, arrays[key].item())


def _names(arrays: Arrays, key: str) -> tuple[str, ...]:
    return class_names(arrays[key].ravel().tolist(), arrays[key].size, key) if key in arrays else ()


def _with_groups(parts: list[LabelledRows], arrays: Arrays) -> list[LabelledRows]:
    """Training and test rows with their groups numbered alike."""
    keys = ("group", "test_group")[: len(parts)]
    for key in keys:
        checks.same(f"use of {key}", key in arrays, keys[0] in arrays)
    if keys[0] not in arrays:
        return parts
    columns = [
        check_ids(key, arrays[key], len(part.y)) for key, part in zip(keys, parts, strict=True)
    ]
    names = _names(arrays, "group_names")
    if names:
        codes: list[types.Integers] = [
            places_of(key, ids, None, (len(ids), len(names)))
            for key, ids in zip(keys, columns, strict=True)
        ]
    else:
        distinct, every = np.unique(np.concatenate(columns), return_inverse=True)
        names = tuple(map(str, distinct))
        codes = np.split(every.astype(np.int64), [len(columns[0])])[: len(parts)]
    return [
        replace(part, group=code, group_names=names)
        for part, code in zip(parts, codes, strict=True)
    ]


NAME = "rows in memory"
"""What a configuration calls such data."""

_LABELS = ("labels", "y", "test_labels", "test_y")


def rows_in_memory(data: Any, feature_norm: float | None = None) -> LabelledRows:
    """Return what `read_labelled` would read from a file of these rows.

    `data` is `(rows, labels)`; a data frame with a column `label`, optional `client`, `subject`,
    `group`, and features in all others; or a mapping with the keys of a file, where `rows` and
    `test_rows` stand for `features`, if they are (n, d), and else for `x`. An array is whatever
    `as_array` takes. Labels may be names. InputError, of one line, for anything else.
    """
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        data = _of_frame(data)
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        data = dict(zip(("rows", "labels"), data, strict=True))
    if not isinstance(data, Mapping):
        raise InputError(
            "data must be a name, a path, (rows, labels), a data frame, or arrays as "
            f'{{"rows": (n, ...), "labels": (n,)}}; got {type(data).__name__}'
        )
    arrays = {str(key): as_array(str(key), value) for key, value in data.items()}
    for part in ("", "test_"):
        if (x := arrays.pop(f"{part}rows", None)) is not None:
            key = f"{part}features" if x.ndim == 2 else f"{part}x"
            checks.unused(f"{part}rows are given", **{key: arrays.get(key)})
            arrays[key] = x
    _number_labels(arrays)
    if "features" not in arrays:
        checks.unused("the rows are not features", feature_norm=feature_norm)
        if (known := arrays.pop("class_names", None)) is not None:
            names = class_names(known.ravel().tolist(), known.size)
            own = {k: y for k, y in arrays.items() if k in _LABELS}
            arrays |= {k: places_of(k, y, names, (len(y), len(names))) for k, y in own.items()}
        rows = rows_of_arrays({key.replace("labels", "y"): x for key, x in arrays.items()})
        return replace(rows, names=None if known is None else names)
    for key in ("features", "test_features"):  # a file has whole numbers only to be small
        if key in arrays and arrays[key].dtype.kind in "iub" and "scale" not in arrays:
            arrays[key] = arrays[key].astype(np.float32)
    return features_of(arrays, feature_norm)


def _of_frame(frame: Any) -> dict[str, Any]:
    """Return the columns of a frame as arrays."""
    own = {str(name): name for name in frame.columns}
    checks.one_of("column", "label", own)
    features = [name for name in own if name not in ("label", *IDS)]
    checks.whole("the number of columns of features", len(features), 1)
    columns = [numbers(name, frame[own[name]].to_numpy()) for name in features]
    ids = {name: frame[name].to_numpy() for name in IDS if name in own}
    return {"rows": np.column_stack(columns), "labels": frame["label"].to_numpy(), **ids}


def _number_labels(arrays: dict[str, NDArray[Any]]) -> None:
    """Put numbers in place of labels that are names: places in `class_names`, else as sorted."""
    labels = {key: arrays[key] for key in _LABELS if key in arrays}
    if words := words_among(list(labels.values())):
        arrays.setdefault("class_names", np.array(words))
    for key, y in labels.items():
        arrays[key] = y.astype(np.int64) if y.dtype == np.bool_ else y


MOST_CLASSES = 10_000

_KEYS = ("x", "y", "client", "test_x", "test_y", "test_client")
_PER_ROW = ("x", "y", "client", "subject", "group")


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Labelled rows of one source.

    Attributes
    ----------
    x
        features, (n, d) float32; or images and the like, (n, h, w[, channels]) uint8 or float32
    y
        (n,) int64 in [0, classes)
    names
        of the classes; or None, where there are as many as the largest label says
    client
        (n,) who owns a row, whole numbers or texts; or None
    subject, group
        (n,) int64, whom a row is about and to which group it belongs; or None
    group_names
        of the groups, by their numbers
    norm
        a public bound on the Euclidean norm of each row of features; or None
    test
        the source's own test rows, which nothing is trained on; or None
    ids
        (n,) int64, the rows' numbers in their source (training and test rows are numbered apart);
        None = in the order of the rows
    """

    x: NDArray[Any] = field(repr=False)
    y: types.Integers = field(repr=False)
    names: tuple[str, ...] | None = None
    client: NDArray[Any] | None = field(default=None, repr=False)
    subject: types.Integers | None = field(default=None, repr=False)
    group: types.Integers | None = field(default=None, repr=False)
    group_names: tuple[str, ...] = ()
    norm: float | None = None
    test: LabelledRows | None = field(default=None, repr=False)
    ids: types.Integers | None = field(default=None, repr=False)

    @property
    def features(self) -> bool:
        """Whether each row is a list of numbers, as `softmax` and `mlp` read them."""
        return self.x.ndim == 2

    @property
    def classes(self) -> int:
        """Number of classes; where they have no names, that of the largest label, test rows too."""
        if self.names is not None:
            return len(self.names)
        return max(int(self.y.max()) + 1, 0 if self.test is None else self.test.classes)

    @property
    def numbers(self) -> types.Integers:
        """The rows' numbers in their source, (n,)."""
        return np.arange(len(self.y)) if self.ids is None else self.ids

    def take(self, rows: types.Integers | NDArray[np.bool_] | slice) -> LabelledRows:
        """Return some of the rows, without the source's test rows."""
        own = {name: getattr(self, name) for name in _PER_ROW}
        picked = {name: column[rows] for name, column in own.items() if column is not None}
        return replace(self, **picked, ids=self.numbers[rows], test=None)


def check_ids(name: str, ids: NDArray[Any], rows: int) -> NDArray[Any]:
    """Ids of clients, subjects or groups: whole numbers or texts, one per row."""
    return per_row(name, ids_of(name, ids), "features", rows)


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """Let what is wrong inside begin with the path."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path!r}: {error}") from None


def rows_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> LabelledRows:
    """Return rows of any shape from `x`, `y`, optional `client`, and the same of `test_` rows.

    Raises InputError, one line that begins with the key.
    """
    for key in arrays:
        checks.one_of("key", key, (*_KEYS, "features"))
    rows = _checked(arrays, "")
    if "test_x" in arrays or "test_y" in arrays:
        rows = replace(rows, test=_checked(arrays, "test_"))
        checks.same("kind of test_x", _kind(rows.test or rows), _kind(rows))
        checks.same("use of test_client", "test_client" in arrays, "client" in arrays)
    checks.whole("the number of classes", rows.classes, 2)
    return rows


def _kind(rows: LabelledRows) -> str:
    """Return the size of a row, and the type of its numbers."""
    return f"{' x '.join(map(str, rows.x.shape[1:]))} ({rows.x.dtype})"


def _checked(arrays: Mapping[str, NDArray[Any]], prefix: str) -> LabelledRows:
    for key in (f"{prefix}x", f"{prefix}y"):
        if key not in arrays:
            raise InputError(f"the array {key!r} is missing")
    x, y = arrays[f"{prefix}x"], arrays[f"{prefix}y"]
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise InputError(
            f"{prefix}x: must have shape (rows, height, width) or (rows, height, width, "
            f"channels), got {x.shape}"
        )
    if x.dtype != np.uint8:
        if x.dtype.kind != "f":
            raise InputError(f"{prefix}x: must be uint8 (0..255) or float, got {x.dtype}")
        x = _floats(f"{prefix}x", x)
    labels = places_of(f"{prefix}y", y, None, (len(x), MOST_CLASSES), "images")
    client = arrays.get(f"{prefix}client")
    if client is not None:
        client = check_ids(f"{prefix}client", client, len(x))
    return LabelledRows(x, labels, client=client)
