"""Sums of what rows differ from what is expected of them: for one metric alone."""

from __future__ import annotations

import numpy as np

from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.metrics.buckets import Score, scored
from fedcal.queries import MeanGaps


def mean_gaps(shards: Shards, query: MeanGaps) -> Floats:
    """sum_i (value_i - a) of each candidate a, times the gain.

    Returns (clients, numbers) in units of the value.
    """
    each = shards.weights(query.subject_rows)
    total = shards.sum_rows(query.value_of(*_scored(shards, query.score)) * each)
    answers = np.zeros((shards.clients, *query.lengths()))
    gaps = total[:, None] - shards.sum_rows(each)[:, None] * query.candidates
    answers[:, : query.points] = gaps * query.gain
    return answers


def _scored(shards: Shards, score: str) -> tuple[Floats, Integers]:
    """Score and outcome of each row, (n,) both, computed once a run."""
    named: Score = score  # type: ignore[assignment]
    both = shards.derived(
        ("scored", score), lambda s: np.concatenate(scored(s.probs, s.labels, named), axis=1)
    )
    return both[:, 0], both[:, 1].astype(np.int64)
