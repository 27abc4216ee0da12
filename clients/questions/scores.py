"""Question of an evaluation: rows by score and outcome, for all rows or for groups."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fedcal import units
from fedcal.core import fitting, numerics
from fedcal.core.checks import InputError, needed, same
from fedcal.core.naming import one_form
from fedcal.core.numerics import Floats, Integers, Words, override
from fedcal.core.options import Numbers, Positive, Seed, vector
from fedcal.core.shards import Shards, on_grid
from fedcal.metrics import score_table
from fedcal.metrics.score_table import Score, bucket_of, far_share, fine_tails, scored
from fedcal.privacy.query import Order, Part, Summed, with_room
from fedcal.secure_aggregation import ClientSums, Ring
from fedcal.units import Example, Subject


class CountedRows(Summed):
    """Question whose rows are added up by how many there are of each kind.

    What a row adds to a number has one of few values, all inside the bound.
    """

    @abstractmethod
    def row_norm(self, order: Order) -> float:
        """Return the largest norm that bounds what a row adds."""

    @abstractmethod
    def counts_rows(self, bound: units.Bound) -> bool:
        """Return whether rows can be counted, and a bound of our rule clips none of them."""

    @abstractmethod
    def add_rows(self, sums: ClientSums, shards: Shards, ring: Ring) -> None:
        """Add up the encoded contributions of rows."""

    def row_words(self, shards: Shards, bound: units.Bound, ring: Ring) -> Words | None:
        """Return each client's sum over its rows, every row encoded by itself; None = not so.

        The words are those that clipping, encoding and adding up row after row gives.

        Returns
        -------
        Words or None
            (clients, length) uint64, saturated as `ClientSums` is
        """
        many = shards.rows.max(initial=0) > MOST_IN_HALVES
        if len(bound.norms) > 1 or many or bound.rule != self.rule or not self.counts_rows(bound):
            return None
        sums = ClientSums(shards.clients, bound.length, ring)
        self.add_rows(sums, shards, ring)
        return sums.saturated()


@dataclass(frozen=True, eq=False)
class ScoreCounts(score_table.ScoreTable, CountedRows):
    """Question for the number of rows of each outcome in each bucket of the score.

    A client sends its encoded counts, laid out by `ScoreTable`, whose parameters come first.
    `bound` needs a client's clip of all these answers.

    Parameters
    ----------
    reference
        (counts,) expected counts of one row; a client with m rows sends its counts minus m times
        the reference (a residual query). None = counts as they are
    gain
        factor of answers before they are clipped
    pad
        zeros at the end of an answer, so that all questions of a run have one length
    seed
        of the draw of the node of a row in a tail of the score (see `has_nodes`), so that each row
        is a whole 1; 0 = it counts in both nodes, by its share
    """

    kind = "score_counts"
    version = 2
    optional = None
    cuts = ("edges",)
    examples = (
        {"classes": 3, "edges": np.array([4.0])},
        {"classes": 3, "edges": np.array([0.0, 0.25, 0.7, 1.0]), "encoding": "prefix"},
        {"classes": 3, "edges": np.array([6.0]), "encoding": "tree", "height": 2, "gain": 0.5},
        {"classes": 3, "edges": np.array([3.0]), "score": "classes"},
        {"classes": 3, "edges": np.array([2.0]), "reference": np.array([0.25, 0.25, 0.25, 0.25])},
        {"classes": 3, "edges": fine_tails(2, nodes=True), "seed": 7},
        {"classes": 3, "edges": fine_tails(2, nodes=True)},
    )

    reference: Any = None
    gain: Positive = 1.0
    pad: Numbers = 0
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reference is not None:
            same("subject_rows beside a reference", self.subject_rows, 0)
            reference = vector("reference", self.reference)
            same("length of the reference", len(reference), self.counts)
            self._set(reference=reference)
        self._set(signed=self.reference is not None)  # counts are not negative, residuals may be

    @property
    def counted(self) -> tuple[Any, ...]:
        """Values that identify its counts among those of other questions."""
        what = (self.score, self.views, self.groups, self.by, self.within)
        return (self.edges.tobytes(), *what, self.calibrator, self.seed)

    def encode(self, counts: Integers | Floats) -> Floats:
        """Return answers without gain, (clients, counts) -> (clients, numbers)."""
        size = math.prod(self.shape)
        halves = counts[:, :size].reshape(len(counts), -1, self.buckets)
        coded = halves if self.encoding == "flat" else _product(halves, self.matrix)
        rest = counts[:, size:] * self.weight
        zeros = np.zeros((len(counts), self.pad))
        return np.concatenate([coded.reshape(len(counts), -1), rest, zeros], axis=1)

    def lengths(self) -> tuple[int, ...]:
        """Return one block with all numbers."""
        return (math.prod(self.shape[:-1]) * len(self.matrix) + self.cells + self.pad,)

    def row_norm(self, order: Order) -> float:
        """Return the largest norm of what one row adds, without a reference and before any gain."""
        norm = float(np.linalg.norm(self.matrix, order, axis=0).max())
        cells = self.ones - self.shape[0] * self.shape[2]
        if order == 1:
            return norm * (self.ones - cells) + cells * self.weight
        return math.sqrt(norm**2 * (self.ones - cells) + cells * self.weight**2)

    def counts_integers(self, part: Part) -> bool:
        """Return whether a row counts as a 1 wherever it counts; rows of subjects have weights."""
        plain = self.reference is None and not self.subject_rows and float(self.gain).is_integer()
        drawn = bool(self.seed) or not self.tail_nodes
        cells = not self.cells or self.weight.is_integer()
        return part == Example.per and plain and drawn and cells

    def added(self, part: Part, order: Order) -> float:
        """Return the largest norm of what a row or a subject adds to all numbers together."""
        rows = max(self.subject_rows, 1) if part == Subject.per else 1
        norm = self.row_norm(order) * rows
        if self.reference is not None:
            norm += float(np.linalg.norm(self.encode(self.reference[None])[0], order))
        return norm * self.gain

    @override
    def unclipped(self, norm: float) -> float:
        return with_room(norm)

    def counts_of(self, shards: Shards) -> Integers | Floats:
        """Return the counts, (clients, counts); whole numbers where each row counts once.

        Without a seed a row counts in both nodes of its tail, by its share.
        """
        each, size = self.cells_of(shards), shards.clients * self.counts
        place, some = (shards.owner[:, None] * self.counts + each).ravel(), self.subject_rows
        weights = np.repeat(shards.weights(some), each.shape[1]) if some else None
        counted = np.bincount(place, weights, size)
        if self.tail_nodes and not self.seed:
            far, counted = _far(shards, self, each).ravel(), counted.astype(np.float64)
            rows = np.flatnonzero(far)
            place, far = place[rows], far[rows]
            there = on_grid(np.abs(far) * (1.0 if weights is None else weights[rows]))
            np.add.at(counted, place + np.sign(far).astype(np.int64), there)
            np.subtract.at(counted, place, there)
        return counted.reshape(shards.clients, self.counts)

    def cells_of(self, shards: Shards, sites: Integers | None = None) -> Integers:
        """Return the indices of the counts that each row adds to, (n, ones).

        With a seed a row of a tail is in one of its nodes, drawn by its share; `sites` are the
        numbers of the clients' sites, without which equal rows of different clients have one draw.
        """
        return shards.derived(("score cells", self.counted), lambda s: self._drawn(s, sites))

    def _drawn(self, shards: Shards, sites: Integers | None) -> Integers:
        cells = _cells(shards, self)
        if self.seed:
            from fedcal.core.row_order import in_unit_interval, row_hashes, uniforms

            far = _far(shards, self, cells)
            rows = np.flatnonzero(far.any(axis=1))
            share, owner = far[rows], shards.owner[rows]
            key = owner * 0 if sites is None else sites[owner]
            each = np.column_stack([uniforms(shards.keep(rows), self.seed), key])
            drawn = in_unit_interval(row_hashes(each))
            cells[rows] += (np.sign(share) * (drawn[:, None] < np.abs(share))).astype(np.int64)
        return cells

    def prepare(self, shards: Shards, sites: Integers | None) -> None:
        """Draw the nodes of rows: a draw knows how many of a client's rows are equal."""
        self.cells_of(shards, sites)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Return each client's counts, or their difference from the reference, encoded.

        Returns (clients, numbers) in rows times the encoding's weights and `gain`.
        """
        answers = self.encode(self.counts_of(shards))  # exact: short numbers
        if self.reference is not None:
            expected = self.encode(self.reference[None])[0]
            answers = answers - shards.rows[:, None] * expected
        return answers if self.gain == 1 else answers * self.gain

    @override
    def counts_rows(self, bound: units.Bound) -> bool:
        plain = not self.pad and not self.subject_rows and self.reference is None
        drawn = bool(self.seed) or not self.tail_nodes
        most = min(bound.norms, default=0.0) * bound.most
        return plain and drawn and self.row_norm(bound.order) * self.gain <= most

    @override
    def add_rows(self, sums: ClientSums, shards: Shards, ring: Ring) -> None:
        counts = self.counts_of(shards).astype(np.int64)
        size = math.prod(self.shape)
        halves = counts[:, :size].reshape(shards.clients, -1, self.buckets)
        parts = counted_words(halves, ring.encode(self.matrix.T * self.gain))
        for k, word in enumerate(halves_of(ring.encode(np.array([[self.weight * self.gain]])))):
            parts[k] = np.concatenate([parts[k], counts[:, size:] * word[0, 0]], axis=1)
        sums.add_halves(*parts)


def _product(halves: Integers | Floats, matrix: Floats) -> Floats:
    """Return halves @ matrix.T for a matrix of integers.

    What is left of counts without their integers is in few columns, and integers are multiplied in
    single precision where that is exact.
    """
    integers = np.trunc(halves)
    most = np.abs(integers).sum(axis=2).max(initial=0.0) * np.abs(matrix).max()
    kind = np.float32 if most < 2**24 else np.float64
    some = (halves != integers).any(axis=(0, 1))
    rest = (halves - integers)[..., some] @ matrix[:, some].T
    return np.asarray(integers.astype(kind) @ matrix.T.astype(kind) + rest)


MOST_IN_HALVES = 2**20
"""Rows of a client up to which sums of 32-bit halves are exact in doubles."""


def counted_words(counts: Integers, words: Words) -> list[Integers]:
    """Upper and lower 32 bits of words, times how often each row of them occurs, added up.

    By products of floats, which are exact for `MOST_IN_HALVES` rows of a client.

    Parameters
    ----------
    counts
        (clients, groups, kinds)
    words
        (kinds, numbers)

    Returns
    -------
    list[Integers]
        two of (clients, groups * numbers)
    """
    sums = (_product(counts, half.T.astype(np.float64)) for half in halves_of(words))
    return [total.astype(np.int64).reshape(len(counts), -1) for total in sums]


def halves_of(words: Words) -> tuple[Integers, Integers]:
    """Upper and lower 32 bits of signed words."""
    signed = words.view(np.int64)
    return signed >> 32, signed & np.int64(2**32 - 1)


def _far(shards: Shards, query: ScoreCounts, cells: Integers) -> Floats:
    """Return the `far_share` of each row in each of its counts, (n, ones)."""
    far, score = np.zeros(cells.shape), cast("Score", query.score)
    for v, view in enumerate(query.view_names if query.tail_nodes else ()):
        rows = np.flatnonzero(np.isin(cells[:, v] % query.buckets, (1, query.buckets - 2)))
        probs = np.ascontiguousarray(view_probs(shards.keep(rows), view, query, slice(None)))
        far[rows, v] = far_share(probs, score, query.bucket_edges)
    return far


def _cells(shards: Shards, query: ScoreCounts) -> Integers:
    views, groups, parts, _, buckets = query.shape
    score: Score = query.score  # type: ignore[assignment]
    group = group_of(shards, query.group_names, query.by)[:, None]
    if query.within:
        inner = group_of(shards, query.within_names)[:, None]
        group = group * (len(query.within_names) + 1) + inner
    edges, labels, n = query.bucket_edges, shards.labels, shards.size
    cells, right = np.empty((n, query.ones), np.int64), np.empty((n, views), np.bool_)

    def count(rows: slice) -> None:  # few, which stay in the cache
        for v, view in enumerate(query.view_names):
            probs = view_probs(shards, view, query, rows)
            value, outcome = scored(probs, labels[rows], score)
            place = ((v * groups + group[rows]) * parts + np.arange(parts)) * 2 + outcome
            if query.tail_nodes:
                value = np.clip(value, edges[1], edges[-3])
            own = slice(v * parts, (v + 1) * parts)
            cells[rows, own] = place * buckets + bucket_of(value, edges)
            if views == 2:
                right[rows, v] = probs.argmax(axis=1) == labels[rows]

    fitting.by_rows(count, n, shards.classes)
    if views == 2:
        cells[:, -1] = math.prod(query.shape) + 2 * ~right[:, 0] + ~right[:, 1]
    return cells


def group_of(shards: Shards, names: tuple[str, ...], by: score_table.By = "group") -> Integers:
    """Return the index of each row's group among the names, (n,); the last group is "all others".

    Raises InputError for rows without such a column, or a client whose name is not in `names`.
    """
    if not any(names):
        return np.zeros(len(shards.labels), np.int64)
    place = {one_form(name): k for k, name in enumerate(names)}
    if by == "site":
        needed("a site's name", shards.names or None, "rows are counted by site")
        if unknown := [name for name in shards.names if one_form(name) not in place]:
            raise InputError(f"rows are counted by site, but {unknown[0]!r} is not among the sites")
        return np.array([place[one_form(name)] for name in shards.names], np.int64)[shards.owner]
    groups = needed("a column group", shards.groups, "the question counts groups of rows")
    of = [place.get(one_form(name), len(names)) for name in shards.group_names]
    return np.array(of, np.int64)[groups]


def view_probs(shards: Shards, view: str, query: ScoreCounts, rows: slice) -> Floats:
    """Return the probabilities of a view of some rows, (n, c), in any order in memory."""
    if view == "calibrated":
        from fedcal.calibrators.base import of_text  # few questions are about a calibrator

        return of_text(query.calibrator).calibrated(shards.logits[rows], shards.input)
    logits = shards.logits
    if view == "other":
        why = "the question is about two, but these rows have only one"
        logits = needed("a second model", shards.other, why)
    return numerics.probs_of(shards.input, fitting.by_class(logits[rows]))
