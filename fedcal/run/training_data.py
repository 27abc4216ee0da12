"""Labelled rows to train on: read, dealt to clients, and cut in train, calibration and test.

Whatever is done to features here is public: it follows from the row itself and from constants that
the file or `--feature-norm` states. Nothing is centred, standardised or scaled by a statistic of
the rows, which would be a release of private data.

Where the source has test rows, they are for testing and nothing is trained on them; else a tenth
of the rows is. A tenth of the others, drawn by a keyed hash, is for calibration, as in Zhang et al.
(2022), Algorithm 1; so each client keeps about 80 % of its rows for training, 10 % for calibration
and 10 % for testing, as in Maddock et al., A.1.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core import checks, naming
from fedcal.core import scores as labels_of
from fedcal.core.checks import InputError, located
from fedcal.core.numerics import Integers, Purpose, stream
from fedcal.core.scores import as_array
from fedcal.core.shards import Shards
from fedcal.datasets import IDS, Dataset, by_name, feature_sets, read_feature_set
from fedcal.partition import CLIENTS, deal, held_out
from fedcal.run.training_config import TrainConfig
from fedcal.storage import atomic, npz
from fedcal.strategies import STRATEGIES
from fedcal.strategies.methods.training import DPFedAvg, FedSGD
from fedcal.training.networks import network_named
from fedcal.units import UNITS

Arrays = Mapping[str, NDArray[Any]]

_ROWS = ("features", "x", "labels", "y", "client", "subject", "group")
KEYS = (*_ROWS, *(f"test_{key}" for key in _ROWS), "scale", "norm", "class_names", "group_names")
"""Arrays of a file."""

SHIFTED = re.compile(r"test_[a-z_]+_[1-5]")
"""Test rows after a corruption, such as test_fog_3: they are for studies, and not read here."""

IN_MEMORY = "rows in memory"
"""Name of such data in a configuration."""

MOST_CLASSES = 10_000

_KINDS = {
    "features": ((2,), "floats, or with scale whole numbers, (rows, features)"),
    "x": ((3, 4), "uint8 (0..255) or floats, (rows, height, width[, channels])"),
}
"""Arrays of inputs -> their dimensions, and what they may be."""


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
        of the classes
    client
        (n,) who owns a row, whole numbers or texts; or None
    subject
        (n,) int64, whom a row is about; or None
    group
        (n,) the group of a row, whole numbers or texts; or None
    test
        the source's own test rows, which nothing is trained on; or None
    """

    x: NDArray[Any] = field(repr=False)
    y: Integers = field(repr=False)
    names: tuple[str, ...]
    client: NDArray[Any] | None = field(default=None, repr=False)
    subject: Integers | None = field(default=None, repr=False)
    group: NDArray[Any] | None = field(default=None, repr=False)
    test: LabelledRows | None = field(default=None, repr=False)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.names)

    def take(self, rows: Integers) -> LabelledRows:
        """Return some of the rows, without the source's test rows."""
        own = {name: getattr(self, name) for name in ("x", "y", "client", "subject", "group")}
        picked = {name: column[rows] for name, column in own.items() if column is not None}
        return replace(self, **picked, test=None)


def read_labelled(source: str, feature_norm: float | None = None) -> LabelledRows:
    """Read the rows of a file, or the shipped features of a name; test rows are its `test`.

    Parameters
    ----------
    source
        path of an `.npz` with the arrays of `labelled_rows`, or the name of shipped features
    feature_norm
        a bound on the Euclidean norm of a row of features, to which longer ones are scaled: a
        number that is known without the rows. None = the file's own `norm`

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    shipped, path = [entry.name for entry in feature_sets()], atomic.path_of(source)
    if path.suffix.lower() != ".npz" or not path.is_file():
        checks.one_of("data (no such .npz file)", source, shipped)
    with located(repr(source)):
        arrays = read_feature_set(source) if source in shipped else npz.read_npz(path)
        return labelled_rows(arrays, feature_norm)


def labelled_rows(arrays: Arrays, norm: float | None = None) -> LabelledRows:
    """Labelled rows from the arrays of a file.

    Parameters
    ----------
    arrays
        `features` (n, d), floats, or whole numbers (int8, say) that are multiplied with the number
        `scale`; or `x` (n, h, w[, channels]), uint8 or floats. `labels` or `y` (n,); optional
        `client`, `subject`, `group` (n,), whole numbers or texts, and `class_names`, `group_names`,
        which the numbers stand for. The source's own test rows: `test_features` (m, d) or `test_x`,
        `test_labels` or `test_y`, `test_client`, `test_group` (m,). `norm`: a bound on the
        features' Euclidean norms, known without looking at them
    norm
        a bound in place of the file's, > 0

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
    kind = _either(arrays, "features", "x")
    if kind == "x":
        own = {key: arrays.get(key) for key in ("scale", "norm")}
        checks.unused("the rows are not features", **own, feature_norm=norm)
    names = _names(arrays, "class_names")
    prefixes = ("", "test_") if f"test_{kind}" in arrays else ("",)
    if len(prefixes) == 1:
        stray = {key: x for key, x in arrays.items() if key.startswith("test_")}
        checks.unused(f"there is no test_{kind}", **stray)
    parts = [_part(arrays, prefix, kind, names, norm) for prefix in prefixes]
    checks.same(f"kind of test_{kind}", _kind(parts[-1].x), _kind(parts[0].x))
    checks.same("use of test_group", *(part.group is not None for part in (parts[-1], parts[0])))
    if not names:
        names = tuple(map(str, range(max(int(part.y.max()) for part in parts) + 1)))
    checks.integer("the number of classes", len(names), 2)
    parts = [replace(part, names=names) for part in parts]
    return parts[0] if len(parts) == 1 else replace(parts[0], test=parts[1])


def _either(arrays: Arrays, key: str, other: str) -> str:
    """Return which of two keys is there; InputError unless it is one of them."""
    if (key in arrays) == (other in arrays):
        raise InputError(f"one of the arrays {key!r} and {other!r} is needed")
    return key if key in arrays else other


def _part(
    arrays: Arrays, prefix: str, kind: str, names: tuple[str, ...], norm: float | None
) -> LabelledRows:
    """Return the rows of one part."""
    x = _inputs(f"{prefix}{kind}", arrays[f"{prefix}{kind}"], kind, _number(arrays, "scale"))
    bound = _number(arrays, "norm") if norm is None else norm
    if bound is not None:
        length = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))
        long = length > bound
        x[long] *= (bound / length[long])[:, None].astype(np.float32)
    labels = _either(arrays, f"{prefix}labels", f"{prefix}y")
    shape = (len(x), len(names) or MOST_CLASSES)
    y = labels_of.places_of(labels, arrays[labels], names or None, shape, kind)
    client, subject, group = (_ids(arrays, f"{prefix}{key}", len(x)) for key in IDS)
    if subject is not None:
        subject = np.unique(subject, return_inverse=True)[1].astype(np.int64)
    if group is not None and (called := _names(arrays, "group_names")):
        codes = labels_of.places_of(f"{prefix}group", group, None, (len(x), len(called)))
        group = np.array(called)[codes]
    return LabelledRows(x, y, names, client=client, subject=subject, group=group)


def _inputs(key: str, x: NDArray[Any], kind: str, scale: float | None) -> NDArray[Any]:
    """Return the inputs of rows, checked, as float32; images of bytes stay bytes."""
    sides, allowed = _KINDS[kind]
    as_bytes = kind == "x" and x.dtype == np.uint8
    fits = x.dtype.kind == "f" if scale is None else x.dtype.kind in "iu"
    if x.ndim not in sides or 0 in x.shape or not (fits or as_bytes):
        having = "without" if scale is None else "with"
        raise InputError(f"{key}: must be {allowed}, got {x.dtype} {x.shape} {having} scale")
    if as_bytes:
        return x
    with np.errstate(over="ignore"):
        floats = x.astype(np.float32)
    if not np.isfinite(floats).all():
        raise InputError(f"{key}: all values must be finite")
    if scale is not None:
        floats *= np.float32(scale)
    return floats


def _kind(x: NDArray[Any]) -> str:
    """Return the size of a row, and the type of its numbers."""
    return f"{' x '.join(map(str, x.shape[1:]))} ({x.dtype})"


def _ids(arrays: Arrays, key: str, rows: int) -> NDArray[Any] | None:
    """Ids of clients, subjects or groups: whole numbers or texts, one per row."""
    if key not in arrays:
        return None
    return labels_of.per_row(key, labels_of.ids_of(key, arrays[key]), "rows", rows)


def _number(arrays: Arrays, key: str) -> float | None:
    if key not in arrays:
        return None
    checks.same(f"number of numbers in {key}", arrays[key].size, 1)
    return checks.positive(key, arrays[key].item())


def _names(arrays: Arrays, key: str) -> tuple[str, ...]:
    if key not in arrays:
        return ()
    return naming.class_names(arrays[key].ravel().tolist(), arrays[key].size, key)


def rows_in_memory(data: Any, feature_norm: float | None = None) -> LabelledRows:
    """Return what `read_labelled` would read from a file of these rows.

    `data` is `(rows, labels)`, or a mapping with the keys of a file, where `rows` and `test_rows`
    stand for `features`, if they are (n, d), and else for `x`. An array is whatever `as_array`
    takes, also a frame. Labels may be names. InputError, of one line, for anything else.
    """
    arrays = {str(key): as_array(str(key), value) for key, value in by_name(data, "rows").items()}
    for part in ("", "test_"):
        if (x := arrays.pop(f"{part}rows", None)) is not None:
            key = f"{part}features" if x.ndim == 2 else f"{part}x"
            checks.unused(f"{part}rows are given", **{key: arrays.get(key)})
            arrays[key] = x
        # a file has whole numbers only to be small
        x = arrays.get(key := f"{part}features")
        if x is not None and x.dtype.kind in "iub" and "scale" not in arrays:
            arrays[key] = x.astype(np.float32)
    labels = {key: y for key, y in arrays.items() if key.removeprefix("test_") in ("labels", "y")}
    if words := labels_of.words_among(list(labels.values())):
        arrays.setdefault("class_names", np.array(words))  # as sorted
    for key, y in labels.items():
        arrays[key] = y.astype(np.int64) if y.dtype == np.bool_ else y
    return labelled_rows(arrays, feature_norm)


PARTS = ("train", "calibration", "test")


@dataclass(frozen=True)
class ClientData:
    """The rows of all clients.

    Attributes
    ----------
    names
        of the clients, whole numbers or texts
    parts
        for each of `PARTS` its rows, client by client
    sizes
        for each of `PARTS` the number of rows of each client, (clients,); 0 is legal
    """

    names: tuple[int | str, ...]
    parts: dict[str, LabelledRows] = field(repr=False)
    sizes: dict[str, Integers] = field(repr=False)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.names)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.parts["train"].classes

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.parts["train"].x.shape[1:]

    def shards(self) -> Shards:
        """Return the clients' training rows; their logits are zeros, as there are none yet."""
        rows = self.parts["train"]
        return Shards(
            np.broadcast_to(0.0, (len(rows.y), rows.classes)),
            rows.y,
            np.concatenate([[0], np.cumsum(self.sizes["train"])]),
            subjects=rows.subject,
            inputs=rows.x,
        )

    def fingerprint(self) -> str:
        """Tells other rows, or the same ones dealt otherwise, from these.

        By inputs, labels and subjects: whatever a training reads.
        """
        digest = hashlib.sha256(repr((self.names, self.classes, self.shape)).encode())
        for part, rows in self.parts.items():
            digest.update(rows.x.dtype.str.encode())
            digest.update(np.ascontiguousarray(rows.x).reshape(-1).view(np.uint8).data)
            for column in (self.sizes[part], rows.y, rows.subject):
                if column is not None:
                    digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()


def split(rows: LabelledRows, config: TrainConfig) -> ClientData:
    """Deal rows to clients and cut each client's rows in three.

    A row's part follows from its id alone (`held_out`), so that the parts compose in parallel. In a
    simulation a row's number in its file stands for an id of its own. Where units are clients or
    subjects, all are in both parts, and budgets add up.

    Raises InputError if the data name no clients and natural ones are asked for, or if too few rows
    are left.

    Parameters
    ----------
    rows
        as `read_labelled` gives them
    config
        resolved; what it says of clients, partition, seed and rows is used
    """
    natural, names, client = config.partition == "natural", tuple[str, ...](), None
    if rows.client is not None:
        unique, client = np.unique(rows.client, return_inverse=True)
        names = tuple(str(name) for name in unique)
    places = np.arange(len(rows.y), dtype=np.float64)[:, None]  # row numbers in place of logits
    owned = Dataset(config.data, "logits", places, rows.y, client, names or None)
    shards = deal(owned, str(config.partition), None if natural else config.clients, config.seed)
    chosen, drawn = np.arange(shards.clients), []
    what = f"the number of clients in {config.data}"
    checks.integer(what, shards.clients, (natural and config.clients) or 1)
    if natural and config.clients is not None:
        some = stream(config.seed, Purpose.PARTITION, 0, "clients").permutation(chosen)
        chosen = np.sort(some[: config.clients])
    for k in chosen.tolist():
        numbers = shards.block(k, k + 1).logits[:, 0].astype(np.int64)
        drawn.append(stream(config.seed, Purpose.SPLIT, 0, f"client {k}").permutation(numbers))
    order, owner = np.concatenate(drawn), np.repeat(np.arange(len(drawn)), [*map(len, drawn)])
    tested = np.zeros(len(order), bool)
    if rows.test is None:
        tested = held_out(order, f"{config.seed} test", 0.1)
    fitted = calibration = ~tested
    if config.held_out:
        calibration = fitted & held_out(order, config.seed, config.held_out)
        fitted = fitted & ~calibration
    owners = tuple(names[k] if natural else k for k in chosen.tolist())
    parts, sizes = dict[str, LabelledRows](), dict[str, Integers]()
    for part, mask in zip(PARTS, (fitted, calibration, tested), strict=True):
        parts[part] = rows.take(order[mask])
        sizes[part] = np.bincount(owner[mask], minlength=len(owners))
    if rows.test is not None:
        parts["test"], sizes["test"] = _test_rows(rows.test, owners, config)
    for part in PARTS:
        left = f"the number of rows of {config.data} that are left for {part}"
        checks.integer(left, sizes[part].sum(), 1)
    return ClientData(owners, parts, sizes)


def _test_rows(
    test: LabelledRows, names: tuple[int | str, ...], config: TrainConfig
) -> tuple[LabelledRows, Integers]:
    """Return the source's test rows by client, partitioned if it does not name owners."""
    if test.client is not None and config.partition == "natural":
        owner = test.client.astype(str)
        each = [np.flatnonzero(owner == str(name)) for name in names]
    else:
        each = np.array_split(np.arange(len(test.y)), len(names))
    return test.take(np.concatenate(each)), np.array([*map(len, each)])


def load(config: TrainConfig, in_memory: Any = None) -> tuple[ClientData, TrainConfig]:
    """Read the data and deal them.

    Raises InputError if the data cannot be read or dealt, or the model does not read them.

    Parameters
    ----------
    in_memory
        the rows, if they are not in a file: see `rows_in_memory`

    Returns
    -------
    tuple[ClientData, TrainConfig]
        ClientData
            The rows.
        TrainConfig
            Resolved: with model, method, partition and number of clients.
    """
    if in_memory is None:
        rows = read_labelled(config.data, config.feature_norm)
    else:
        rows = rows_in_memory(in_memory, config.feature_norm)
    model = config.model or "softmax"
    network_named(model).size(rows.x.shape[1:], rows.classes)
    usual = DPFedAvg.name if UNITS[config.unit].by_client else FedSGD.name
    method, clients = config.method or usual, config.clients
    partition = config.partition or ("dirichlet:0.1" if rows.client is None else "natural")
    if clients is None and partition != "natural":
        clients = 1 if STRATEGIES[method].one_place else CLIENTS
    config = replace(config, model=model, method=method, partition=partition, clients=clients)
    return split(rows, config), config
