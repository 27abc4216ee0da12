"""Rows of many clients in one array: what a client statistic is a function of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import needed
from fedcal.core.numerics import Floats, Integers, Kind, probs_of

_WEIGHT_GRID = 2.0**-30
"""Grid of weights of rows: sums are exact, whatever their order."""
_PER_ROW = ("logits", "labels", "subjects", "groups", "other", "inputs")

NO_SUBJECTS = "unit 'subject' needs a column subject, which names the subject of each row"

Task = Callable[[], Iterable[tuple[Integers, "Shards"]]]
"""Loads the rows of some clients, and returns them in blocks, each with its clients' numbers."""


@dataclass(frozen=True)
class Shards:
    """The labelled rows of `clients` clients, sorted by client.

    One client or ten thousand: a statistic is one vectorised function of a `Shards` and returns
    one row per client. Empty clients are legal and contribute zero.

    Attributes
    ----------
    logits
        (n, c) float64, C-contiguous
    labels
        (n,) int64 in [0, c)
    offsets
        (clients + 1,) int64; client k owns rows offsets[k]:offsets[k + 1]
    input
        what the logits were made of, and so what a calibrator that is fitted on them takes
    subjects
        (n,) subject of each row, or None. Rows of one client with one number are of one
        subject; the same number at another client is another subject
    groups
        (n,) int64, the group of each row as its place in `group_names`, or None
    group_names
        of all groups, the same at all clients of one `Shards`
    other
        (n, c) float64, logits of a second model of the same rows, made of `input` too, or None
    inputs
        (n, ...), what a model reads of each row: features, an image, a text; or None
    names
        (clients,) what the clients are called; () = nobody said
    """

    logits: Floats
    labels: Integers
    offsets: Integers
    input: Kind = "logits"
    subjects: Integers | None = None
    groups: Integers | None = None
    group_names: tuple[str, ...] = ()
    other: Floats | None = None
    inputs: NDArray[Any] | None = None
    names: tuple[str, ...] = ()
    _derived: dict[Any, NDArray[Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # not for `__init__`: what `dataclasses.replace` makes has other rows and begins anew

    @property
    def probs(self) -> Floats:
        """Probabilities of the model, (n, c), as they were given if `input` is "probs"."""
        return probs_of(self.input, self.logits)

    @property
    def clients(self) -> int:
        """Number of clients, empty ones included."""
        return len(self.offsets) - 1

    @property
    def classes(self) -> int:
        """Number of classes c."""
        return int(self.logits.shape[1])

    @property
    def size(self) -> int:
        """Number of rows n."""
        return len(self.labels)

    @property
    def has_subjects(self) -> bool:
        """Condition that each row names its subject."""
        return self.subjects is not None

    @property
    def has_other(self) -> bool:
        """Condition that each row has the scores of a second model."""
        return self.other is not None

    @property
    def labels_seen(self) -> Integers:
        """Labels that occur, ascending."""
        return np.unique(self.labels)

    def count_subjects(self) -> int:
        """Return the number of subjects, those of each client counted apart."""
        return len(self.each_subject()[1])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of what a trained network reads of a row: its input, or its logits."""
        return (self.logits if self.inputs is None else self.inputs).shape[1:]

    @property
    def rows(self) -> Integers:
        """Rows of each client, shape (clients,)."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> Integers:
        """Client of each row, shape (n,)."""
        return self.derived(
            "owner", lambda s: np.repeat(np.arange(s.clients), np.diff(s.offsets)), carry=False
        )

    def derived(
        self, key: Any, compute: Callable[[Shards], NDArray[Any]], *, carry: bool = True
    ) -> NDArray[Any]:
        """Return a per-row array, computed once and carried along by `take` and `block`.

        Rounds ask the same rows again and again; what does not depend on the round (softmax,
        histogram cells) is computed once a run. `compute` must treat each row by itself.
        """
        slot = (key, carry)
        if slot not in self._derived:
            self._derived[slot] = compute(self)
        return self._derived[slot]

    @cached_property
    def ordered(self) -> Shards:
        """Each client's rows in an order that depends on the multiset of them alone.

        It is by a hash of what a row says, then by what it says, then by subject. Whatever goes by
        places (batches of rows, sums of floats but `sum_rows`) is computed of these.
        """
        from fedcal.core.row_order import order_of  # few questions go by places

        rank = self._derived.get(("rank", True))  # rows of some that were ordered stay in order
        order = order_of(self) if rank is None else np.lexsort((rank, self.owner))
        part = self._picked(_unless_sorted(order), self.offsets, slice(None))
        part.derived("rank", lambda s: np.arange(s.size))
        return part

    @property
    def _named_subjects(self) -> Integers:
        return needed("a column subject", self.subjects, NO_SUBJECTS)

    def _picked(self, rows: slice | Integers, offsets: Integers, of: slice | Integers) -> Shards:
        """Return these rows with everything that belongs to them, for parts of the clients `of`."""
        names = self.names[of] if isinstance(of, slice) else ()
        if self.names and not isinstance(of, slice):
            names = tuple(self.names[k] for k in of.tolist())
        columns = {name: getattr(self, name) for name in _PER_ROW}
        picked = {name: column[rows] for name, column in columns.items() if column is not None}
        part = replace(self, offsets=offsets, names=names, **picked)
        part._derived.update({slot: v[rows] for slot, v in self._derived.items() if slot[1]})
        return part

    def block(self, start: int, stop: int) -> Shards:
        """Clients start..stop-1, without a copy."""
        a, b = self.offsets[start], self.offsets[stop]
        offsets = self.offsets[start : stop + 1] - a
        return self._picked(slice(int(a), int(b)), offsets, slice(start, stop))

    def each_row(self) -> Shards:
        """Every row a client of its own, without a copy."""
        return self._picked(slice(None), np.arange(len(self.labels) + 1), self.owner)

    def each_subject(self) -> tuple[Shards, Integers]:
        """Return shards in which every subject of every client is a client.

        Returns
        -------
        tuple[Shards, Integers]
            The subjects' rows, those of one client together and of each subject in the order that
            they have; and (subjects,) the client of each, sorted.

        Raises
        ------
        InputError
            If nobody has said whom the rows are about.
        """
        subjects = self._named_subjects
        order = self.derived("by subject", lambda s: np.lexsort((subjects, s.owner)), carry=False)
        about, owner = subjects[order], self.owner  # sorted by client, before and after
        new = np.ones(len(order), np.bool_)
        new[1:] = (np.diff(owner) != 0) | (np.diff(about) != 0)
        firsts = np.flatnonzero(new)
        offsets, of = np.append(firsts, len(order)), owner[firsts]
        return self._picked(_unless_sorted(order), offsets, of), of

    def weights(self, subject_rows: int) -> Floats:
        """Return the weight of each row if a subject's rows count as `subject_rows` at most, (n,).

        Each of m rows of one subject at one client counts min(1, subject_rows / m), so that with
        `subject_rows` = 1 each subject counts once. 0 = each row counts once.

        Raises InputError if nobody has said whom the rows are about.
        """
        if not subject_rows:
            return np.ones(len(self.labels))
        named, about = np.unique(self._named_subjects, return_inverse=True)
        key = self.owner * len(named) + about.reshape(-1)  # pairs would be sorted ten times as long
        _, place, rows = np.unique(key, return_inverse=True, return_counts=True)
        return on_grid(np.minimum(1.0, subject_rows / rows))[place]

    def take(self, ids: Integers) -> Shards:
        """Return the clients `ids`, in that order (a copy)."""
        n = self.rows[ids]
        offsets = np.concatenate([[0], np.cumsum(n)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[ids] - offsets[:-1], n)
        return self._picked(rows, offsets, ids)

    def keep(self, rows: Integers) -> Shards:
        """Return some rows, by ascending places; every client stays (a copy)."""
        return self._picked(rows, np.searchsorted(rows, self.offsets), slice(None))

    def blocks(self, ids: Integers, size: int) -> Iterator[tuple[Integers, Shards]]:
        """`ids` in pieces of at most `size` clients: bounds the memory of an answer."""
        everybody = len(ids) == self.clients and bool((ids == np.arange(self.clients)).all())
        for start in range(0, len(ids), size):
            piece = ids[start : start + size]
            yield piece, (self.block(start, start + len(piece)) if everybody else self.take(piece))

    def tasks(self, ids: Integers, size: int) -> Sequence[Task]:
        """Return `blocks` as tasks, one each; of some clients, rows are copied by their task."""
        if len(ids) == self.clients:
            return [partial(iter, [block]) for block in self.blocks(ids, size)]
        return [partial(self.blocks, ids[a : a + size], size) for a in range(0, len(ids), size)]

    def parts(self, many: int) -> list[tuple[int, Shards]]:
        """Return at most `many` parts of consecutive clients, with about as many rows each."""
        ends = np.linspace(0, self.size, many + 1)[1:-1]
        cuts = np.unique([0, *np.searchsorted(self.offsets, ends), self.clients])
        return [(a, self.block(a, b)) for a, b in pairwise(cuts.tolist())]

    def sum_rows(self, values: Floats, cells: Integers | None = None, many: int = 1) -> Floats:
        """Sum of a per-row value over each client, (n,) -> (clients,), the same in any order.

        Values are rounded to a grid on which sums are exact: 2**-53 of the client's largest value,
        times its number of rows rounded up to a power of two.

        Adding and subtracting a large number rounds like `rint`, and faster, where a client has
        more than two rows; `add.reduceat` is wrong for empty clients.

        Parameters
        ----------
        values
            (n,)
        cells, many
            (n,) cell of each row, in [0, many): sums over the rows of each cell,
            (clients, many); None = over all rows
        """
        rows, top = self.rows, np.zeros(self.clients)
        some, firsts = rows > 0, self.offsets[:-1][rows > 0]
        top[some] = np.maximum.reduceat(np.abs(values), firsts)
        exponents = np.frexp(top)[1] + np.frexp(np.maximum(rows - 1.0, 0.0))[1]
        if cells is None and not (rows == 2).any() and exponents.min(initial=0) > -960:
            large = np.repeat(np.ldexp(1.5 * (rows > 2), exponents - 1), rows)
            top[some] = np.add.reduceat(values + large - large, firsts)
            return top
        grid = np.ldexp(1.0, np.maximum(exponents, -960) - 53)[self.owner]
        place = self.owner if cells is None else self.owner * many + cells
        sums = np.bincount(place, np.rint(values / grid) * grid, self.clients * many)
        return np.asarray(sums if cells is None else sums.reshape(-1, many), np.float64)


def on_grid(weights: Floats) -> Floats:
    """Return weights of rows on their grid, rounded down, so never above a bound."""
    return np.asarray(np.floor(weights / _WEIGHT_GRID) * _WEIGHT_GRID)


def _unless_sorted(order: Integers) -> slice | Integers:
    """Return all rows if they have this order already, so that nothing is copied."""
    return slice(None) if (np.diff(order) == 1).all() else order


def text_of(shape: tuple[int, ...]) -> str:
    """Return the shape of one input as text, such as "512" or "28x28x1"."""
    return "x".join(map(str, shape))
