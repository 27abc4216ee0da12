"""Counts of rows by score and outcome, the answers to `ScoreCounts`."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from fedcal.calibrators.base import of_text
from fedcal.core.errors import InputError
from fedcal.core.printable import look_of
from fedcal.core.scores import probs_of
from fedcal.core.shards import Shards, on_grid
from fedcal.core.streams import in_unit_interval, row_hashes
from fedcal.core.types import Floats, Integers
from fedcal.metrics.buckets import Score, bucket_of, far_share, scored
from fedcal.queries import ScoreCounts
from fedcal.queries.evaluation import By


def counts_of(shards: Shards, query: ScoreCounts) -> Integers | Floats:
    """Return the counts, (clients, counts); whole numbers where each row counts once.

    Without a seed a row counts in both nodes of its tail, by its share.
    """
    each, size = cells_of(shards, query), shards.clients * query.counts
    place, some = (shards.owner[:, None] * query.counts + each).ravel(), query.subject_rows
    weights = np.repeat(shards.weights(some), each.shape[1]) if some else None
    counted = np.bincount(place, weights, size)
    if query.tail_nodes and not query.seed:
        far = _far(shards, query, each).ravel()
        there = on_grid(np.abs(far) * (1.0 if weights is None else weights))
        moved = np.bincount(place + np.sign(far).astype(np.int64), there, size)
        counted = counted + (moved - np.bincount(place, there, size))
    return counted.reshape(shards.clients, query.counts)


def cells_of(shards: Shards, query: ScoreCounts, sites: Integers | None = None) -> Integers:
    """Return the indices of the counts that each row adds to, (n, query.ones).

    With a seed a row of a tail is in one of its nodes, drawn by its share; `sites` are the numbers
    of the clients' sites, without which equal rows of different clients have one draw.
    """
    return shards.derived(("score cells", query.counted), lambda s: _drawn(s, query, sites))


def _drawn(shards: Shards, query: ScoreCounts, sites: Integers | None) -> Integers:
    cells = _cells(shards, query)
    if query.seed:
        far = _far(shards, query, cells)
        rows = np.flatnonzero(far.any(axis=1))
        share, owner = far[rows], shards.owner[rows]
        key = owner * 0 if sites is None else sites[owner]
        each = np.column_stack([shards.uniforms(query.seed)[rows], key])
        drawn = in_unit_interval(row_hashes(each))
        cells[rows] += (np.sign(share) * (drawn[:, None] < np.abs(share))).astype(np.int64)
    return cells


def _far(shards: Shards, query: ScoreCounts, cells: Integers) -> Floats:
    """Return the `far_share` of each row in each of its counts, (n, query.ones)."""
    far, score = np.zeros(cells.shape), cast("Score", query.score)
    for v, view in enumerate(query.view_names if query.tail_nodes else ()):
        rows = np.flatnonzero(np.isin(cells[:, v] % query.buckets, (1, query.buckets - 2)))
        probs = view_probs(shards.keep(rows), view, query)
        far[rows, v] = far_share(probs, score, query.bucket_edges)
    return far


def _cells(shards: Shards, query: ScoreCounts) -> Integers:
    views, groups, parts, _, buckets = query.shape
    score: Score = query.score  # type: ignore[assignment]
    group = group_of(shards, query.group_names, query.by)[:, None]
    if query.within:
        inner = group_of(shards, query.within_names)[:, None]
        group = group * (len(query.within_names) + 1) + inner
    rows = [view_probs(shards, view, query) for view in query.view_names]
    columns, edges = [], query.bucket_edges
    for v, probs in enumerate(rows):
        value, outcome = scored(probs, shards.labels, score)
        place = ((v * groups + group) * parts + np.arange(parts)) * 2 + outcome
        if query.tail_nodes:
            value = np.clip(value, edges[1], edges[-3])
        columns.append(place * buckets + bucket_of(value, edges))
    if views == 2:
        first, second = (probs.argmax(axis=1) == shards.labels for probs in rows)
        columns.append((math.prod(query.shape) + 2 * ~first + ~second)[:, None])
    return np.concatenate(columns, axis=1)


def group_of(shards: Shards, names: tuple[str, ...], by: By = "group") -> Integers:
    """Return the index of each row's group among the names, (n,); the last group is "all others".

    Raises InputError for rows without such a column, or a client whose name is not in `names`.
    """
    if not any(names):
        return np.zeros(len(shards.labels), np.int64)
    place = {look_of(name): k for k, name in enumerate(names)}
    if by == "site":
        if not shards.names:
            raise InputError("rows are counted by site, but this site has no name: --federation")
        if unknown := [name for name in shards.names if look_of(name) not in place]:
            raise InputError(f"rows are counted by site, but {unknown[0]!r} is not among the sites")
        return np.array([place[look_of(name)] for name in shards.names], np.int64)[shards.owner]
    if shards.groups is None:
        raise InputError("the question counts groups of rows, but these rows have no column group")
    of = [place.get(look_of(name), len(names)) for name in shards.group_names]
    return np.array(of, np.int64)[shards.groups]


def view_probs(shards: Shards, view: str, query: ScoreCounts) -> Floats:
    """Return the probabilities of a view, (n, c)."""
    if view == "model":
        return shards.probs
    if view == "other":
        if shards.other is None:
            raise InputError("the question is about a second model, but these rows have only one")
        return probs_of(shards.input, shards.other)
    return of_text(query.calibrator).calibrated(shards.logits, shards.input)
