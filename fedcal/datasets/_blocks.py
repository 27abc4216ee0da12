"""Rows that stay in their files and are read in blocks: data beyond one machine's memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, integer, located, needed, one_of, same
from fedcal.core.fitting import in_threads, usable_cores
from fedcal.core.numerics import Integers, Kind
from fedcal.core.scores import ids_of
from fedcal.core.shards import Shards, Task
from fedcal.datasets._arrays import from_arrays
from fedcal.datasets._dataset import IDS, KEYS, Dataset
from fedcal.storage.atomic import path_of
from fedcal.storage.npz import Mapped, mapped_npz

BLOCKS = "blocks:"
"""Before the path of files whose rows are read in blocks."""

PIECE_NUMBERS = 1 << 21
"""Scores that are read at once, of the rows of complete clients."""

_LEAST_PIECES = 16  # for many workers to share
_IDS = 1 << 22  # rows whose clients are looked at together
_TEST = "test_"


@dataclass(frozen=True, eq=False)
class BlockRows:
    """Labelled rows of many clients that are read where they are asked for; see `in_blocks`.

    Engines ask the same of them as of `Shards`: statistics of the same rows have the same bits. In
    memory are the number of rows and the name of each client, and the rows of a few pieces.

    Attributes
    ----------
    name
        in reports
    units
        where the rows lie, in their order
    starts
        (units + 1,) the first row of each unit, and the number of rows
    offsets
        (clients + 1,) the first row of each client, and the end of the last
    edges
        (pieces + 1,) the number of the first client in each piece, and the end of the last
    input, classes, class_names, group_names, has_subjects, has_other, labels_seen
        facts of all rows; class names are None if classes have numbers
    client_ids
        (clients,) what the file calls them
    order
        arguments `classes` and `positive` of `from_arrays`
    test
        test part of `.npz` files, in memory, or None
    """

    name: str
    units: Sequence[BlockUnit] = field(repr=False)
    starts: Integers = field(repr=False)
    offsets: Integers = field(repr=False)
    edges: Integers = field(repr=False)
    client_ids: NDArray[Any] = field(repr=False)
    order: Mapping[str, Any]
    input: Kind = "logits"
    classes: int = 0
    class_names: tuple[str, ...] | None = None
    group_names: tuple[str, ...] = ()
    has_subjects: bool = False
    has_other: bool = False
    labels_seen: Integers = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    test: Dataset | None = field(default=None, repr=False)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.offsets[-1] - self.offsets[0])

    def count_subjects(self) -> int:
        """Return the number of subjects, those of each client counted apart."""
        return sum(self.piece(k).count_subjects() for k in range(len(self.edges) - 1))

    def tasks(self, ids: Integers, size: int) -> Sequence[Task]:
        """Return a task for each piece that has some of the clients."""
        cuts = np.searchsorted(ids, self.edges - self.edges[0])
        return [
            partial(self._blocks, k, ids[a:b], size)
            for k, (a, b) in enumerate(pairwise(cuts.tolist()))
            if a < b
        ]

    def _blocks(self, k: int, ids: Integers, size: int) -> Iterator[tuple[Integers, Shards]]:
        first = self.edges[k] - self.edges[0]
        for piece, part in self.piece(k).blocks(ids - first, size):
            yield piece + first, part

    def parts(self, many: int) -> list[tuple[int, BlockRows]]:
        """Return at most `many` runs of pieces, and the place of the first client of each."""
        cuts = np.unique(np.linspace(0, len(self.edges) - 1, many + 1).round().astype(np.int64))
        return [self._part(int(a), int(b)) for a, b in pairwise(cuts)]

    def _part(self, start: int, stop: int) -> tuple[int, BlockRows]:
        edges = self.edges[start : stop + 1]
        own = slice(int(edges[0] - self.edges[0]), int(edges[-1] - self.edges[0]))
        offsets = self.offsets[own.start : own.stop + 1]
        units = np.searchsorted(self.starts, offsets[[0, -1]], "right")
        first, last = int(units[0]) - 1, min(int(units[1]), len(self.units))
        return own.start, replace(
            self,
            units=self.units[first:last],
            starts=self.starts[first : last + 1],
            offsets=offsets,
            edges=edges,
            client_ids=self.client_ids[own],
            test=None,
        )

    def piece(self, k: int) -> Shards:
        """Return the rows of a piece; InputError if the data readers do not accept them."""
        data = self.dataset(k)
        clients = slice(self.edges[k] - self.edges[0], self.edges[k + 1] - self.edges[0] + 1)
        offsets = self.offsets[clients]
        groups = None
        if data.group is not None and data.group_names is not None:
            place = {name: j for j, name in enumerate(self.group_names)}
            groups = np.array([place[name] for name in data.group_names], np.int64)[data.group]
        return Shards(
            data.logits,
            data.labels,
            offsets - offsets[0],
            data.input,
            data.subject,
            groups,
            self.group_names,
            data.other_logits,
        )

    def dataset(self, k: int) -> Dataset:
        """Return the checked rows of a piece, without their clients."""
        ends = self.offsets[self.edges[k : k + 2] - self.edges[0]]
        first, stop = int(ends[0]), int(ends[1])
        unit = int(np.searchsorted(self.starts, first, "right")) - 1
        parts = []
        while first < stop:
            start, end = int(self.starts[unit]), int(self.starts[unit + 1])
            parts.append(self.units[unit].read(first - start, min(stop, end) - start))
            first, unit = end, unit + 1
        of = f"in its rows {ends[0]:,} to {ends[1] - 1:,}, counted anew from 0"
        with located(f"{self.name}: {of}"):
            return from_arrays(**_joined(parts), name=self.name, **self.order)


Population: TypeAlias = Shards | BlockRows
"""The rows of simulated clients, in memory or read in blocks."""


def in_blocks(
    source: str | Path,
    *,
    classes: Sequence[str] | None = None,
    positive: str | None = None,
    tested: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> BlockRows:
    """Open files whose rows are read in blocks, and check all of them once.

    Parameters
    ----------
    source
        the path of a file, a pattern with `*` or `?`, or a folder: `.npz` files that are not
        compressed, with arrays as `load` describes them, `client` among them. Files are one after
        the other, in the order of their names; rows are sorted by client. `blocks:` before it is
        ignored
    classes, positive
        as `from_arrays` has them
    tested
        read the test part of `.npz` files instead, if they have one, and no second model or subject
    progress
        called with pieces checked, and all

    Raises
    ------
    InputError
        In one line: no such files, rows that are not sorted by client, or what `from_arrays`
        refuses. Names of classes are not guessed from labels.
    """
    text = str(source).removeprefix(BLOCKS)
    files = data_files(text)
    if not files or any(path.suffix.lower() != ".npz" for path in files):
        got = f"got {files[0].name}" if files else "no file here is one"
        raise InputError(f"{text!r}: rows in blocks are of .npz files (numpy.savez); {got}")
    order = {"classes": classes, "positive": positive}
    units, test = _units(files, tested, order)
    starts = np.concatenate([[0], np.cumsum([unit.rows for unit in units])]).astype(np.int64)
    integer("the number of rows", starts[-1], 1)
    firsts, ids = _clients(units, starts)
    offsets = np.append(firsts, starts[-1])
    row = units[0].read(0, 1)
    width = max(np.size(row[kind]) for kind in ("logits", "probs") if row.get(kind) is not None)
    step = min(PIECE_NUMBERS // width, -(-int(starts[-1]) // _LEAST_PIECES))
    cuts = np.arange(0, starts[-1], max(1, step))
    edges = np.unique(np.append(np.searchsorted(firsts, cuts), len(firsts)))
    rows = BlockRows(Path(text).name, units, starts, offsets, edges, ids, order, test=test)
    return _with_facts(rows, progress)


def data_files(text: str) -> list[Path]:
    """Return the files that a path, a folder or a pattern means, in the order of their names."""
    path = path_of(text)
    if path.is_dir():
        return sorted(path.rglob("*.npz"))
    return sorted(map(Path, glob(str(path)))) if any(c in text for c in "*?[") else [path]


def are_blocks(source: object) -> bool:
    """Return whether data are to be read in blocks: they say so, or are several files."""
    if not isinstance(source, (str, Path)):
        return isinstance(source, BlockRows)
    text, path = str(source), path_of(source)
    many = path.is_dir() or (any(c in text for c in "*?[") and not path.exists())
    return text.startswith(BLOCKS) or (many and bool(data_files(text)))


def _with_facts(rows: BlockRows, progress: Callable[[int, int], None] | None) -> BlockRows:
    """Read all pieces once: check them, and learn what no piece knows of the others."""
    pieces, step = len(rows.edges) - 1, progress or (lambda done, total: None)
    first = rows.dataset(0)
    seen, names = _facts(first, first)
    step(1, pieces)
    others = in_threads(lambda k: _facts(first, rows.dataset(k)), range(1, pieces), usable_cores())
    for done, (labels, groups) in enumerate(others, 2):
        seen, names = np.union1d(seen, labels), names | groups
        step(done, pieces)
    numbers = all(re.fullmatch("-?[0-9]+", name) for name in names)
    return replace(
        rows,
        input=first.input,
        classes=first.classes,
        class_names=first.class_names,
        group_names=tuple(sorted(names, key=int) if numbers else sorted(names)),
        has_subjects=first.subject is not None,
        has_other=first.other_scores is not None,
        labels_seen=seen,
    )


def _facts(first: Dataset, data: Dataset) -> tuple[Integers, set[str]]:
    """Return the labels and the names of groups in a piece; it must be like the first one."""
    own, others = (
        (p.input, p.other_input, p.classes, p.class_names, p.subject is None, p.group is None)
        for p in (data, first)
    )
    same(f"kind of columns and classes in all files of {data.name}", own, others)
    return np.flatnonzero(np.bincount(data.labels)), set(data.group_names or ())


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of all parts; InputError if they have other columns."""
    own = {k: v for k, v in parts[0].items() if v is not None and k != "client"}
    for key in own.keys() - {"class_names"} if len(parts) > 1 else ():
        why = "another of the files has it"
        own[key] = np.concatenate([needed(key, part.get(key), why) for part in parts])
    return own


def _row_name(first: int, k: int) -> str:
    return f"row {first + k}"


def _clients(units: Sequence[BlockUnit], starts: Integers) -> tuple[Integers, NDArray[Any]]:
    """Return the first row of each client, and what it is called.

    Raises InputError if rows are not sorted by client.
    """
    firsts: list[Integers] = []
    names: list[NDArray[Any]] = []
    last: NDArray[Any] | None = None
    for unit, start in zip(units, starts.tolist(), strict=False):
        for a in range(0, unit.rows, _IDS):
            ids = unit.clients(a, min(a + _IDS, unit.rows))
            ids = needed("a column client", ids, "rows in blocks have owners")
            ids = ids_of("client", ids, partial(_row_name, start + a)).reshape(-1)
            before = ids[:1] if last is None else last
            joined = np.concatenate([before, ids])
            back = np.flatnonzero(joined[1:] < joined[:-1])
            if len(back):
                k = int(back[0])
                raise InputError(
                    f"rows in blocks must be sorted by client: {str(joined[k + 1])[:80]!r} at row "
                    f"{start + a + k} comes after {str(joined[k])[:80]!r}"
                )
            new = joined[1:] != joined[:-1]
            new[0] |= last is None
            firsts.append(start + a + np.flatnonzero(new))
            names.append(ids[new])
            last = ids[-1:].copy()
    return np.concatenate(firsts), np.concatenate(names)


@dataclass(frozen=True)
class BlockUnit:
    """Rows of a file: `rows`, those of a range as arguments of `from_arrays`, their `clients`."""

    arrays: Mapping[str, Mapped]
    names: tuple[str, ...] | None

    @property
    def rows(self) -> int:
        return self.arrays["labels"].rows

    def read(self, first: int, stop: int) -> dict[str, Any]:
        rows: dict[str, Any] = {k: a(first, stop) for k, a in self.arrays.items() if k != "client"}
        return rows if self.names is None else rows | {"class_names": self.names}

    def clients(self, first: int, stop: int) -> NDArray[Any] | None:
        own = self.arrays.get("client")
        return None if own is None else own(first, stop)


def _units(
    files: Sequence[Path], tested: bool, order: Mapping[str, Any]
) -> tuple[list[BlockUnit], Dataset | None]:
    units: list[BlockUnit] = []
    tests: list[dict[str, Any]] = []
    for path in files:
        with located(repr(str(path)[-200:])):
            arrays = mapped_npz(path)
            for key in arrays:
                one_of("key", key[:80], KEYS)
            own = arrays.pop("class_names", None)
            names = None if own is None else tuple(map(str, own(0, own.rows)))
            test = {k.removeprefix(_TEST): arrays.pop(k) for k in [*arrays] if k.startswith(_TEST)}
            more = arrays.keys() & {"other_logits", "other_probs", IDS[1]}
            if test and tested and not more:
                arrays = test
            elif test and not tested:
                tests.append({k: a(0, a.rows) for k, a in test.items() if k != "client"})
                tests[-1] |= {} if names is None else {"class_names": names}
            many = {key: array.rows for key, array in arrays.items()}
            scored = "labels" in many and not many.keys().isdisjoint({"logits", "probs"})
            if not scored or len(set(many.values())) > 1:
                raise InputError(f"needs labels, and logits or probs, of as many rows; has {many}")
        if arrays["labels"].rows:
            units.append(BlockUnit(arrays, names))
    test_part = from_arrays(**_joined(tests), name="test part", **order) if tests else None
    return units, test_part
