"""Counts of rows by score and outcome, the answers to `ScoreCounts`."""

from __future__ import annotations

import math

import numpy as np

from fedcal.calibrators.as_text import of_text
from fedcal.core.errors import InputError
from fedcal.core.printable import look_of
from fedcal.core.scores import probs_of
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.metrics.buckets import Score, bucket_of, scored
from fedcal.queries import ScoreCounts
from fedcal.queries.evaluation import By


def counts_of(shards: Shards, query: ScoreCounts) -> Integers | Floats:
    """Return the counts, (clients, counts); whole numbers where each row counts once."""
    each = cells_of(shards, query)
    place = shards.owner[:, None] * query.counts + each
    some = query.subject_rows
    weights = np.repeat(shards.weights(some), each.shape[1]) if some else None
    counted = np.bincount(place.ravel(), weights, shards.clients * query.counts)
    return counted.reshape(shards.clients, query.counts)


def cells_of(shards: Shards, query: ScoreCounts) -> Integers:
    """Return the indices of the counts that each row adds to, (n, query.ones)."""
    return shards.derived(("score cells", query.counted), lambda s: _cells(s, query))


def _cells(shards: Shards, query: ScoreCounts) -> Integers:
    views, groups, parts, _, buckets = query.shape
    score: Score = query.score  # type: ignore[assignment]
    group = group_of(shards, query.group_names, query.by)[:, None]
    if query.within:
        inner = group_of(shards, query.within_names)[:, None]
        group = group * (len(query.within_names) + 1) + inner
    rows = [view_probs(shards, view, query) for view in query.view_names]
    columns = []
    for v, probs in enumerate(rows):
        value, outcome = scored(probs, shards.labels, score)
        place = ((v * groups + group) * parts + np.arange(parts)) * 2 + outcome
        columns.append(place * buckets + bucket_of(value, query.bucket_edges))
    start, classes = math.prod(query.shape), query.classes
    predicted = [probs.argmax(axis=1) for probs in rows]
    if query.confusion:
        for v, of in enumerate(predicted):
            columns.append((start + (v * classes + of) * classes + shards.labels)[:, None])
        start += views * classes**2
    if views == 2:
        first, second = (of == shards.labels for of in predicted)
        columns.append((start + 2 * ~first + ~second)[:, None])
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
