"""Sums of what rows differ from what is expected of them: for one metric alone."""

from __future__ import annotations

import numpy as np

from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.metrics.buckets import Score, bucket_of, equal_width, scored
from fedcal.queries import MeanGaps, ScoreGaps


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


def score_gaps(shards: Shards, query: ScoreGaps) -> Floats:
    """Return sum (outcome - score) over the rows of each bucket, encoded, times the gain.

    Returns (clients, numbers) in rows times the encoding's weights.
    """
    score, outcome = _scored(shards, query.score)
    cells = bucket_of(score, equal_width(query.buckets))
    each = shards.weights(query.subject_rows)
    gaps = shards.sum_rows((outcome - score) * each, cells, query.buckets)
    # no matrix product: what a client sends must not depend on who is computed with it
    coded = gaps if query.encoding == "flat" else (gaps[:, None] * query.matrix).sum(axis=2)
    answers = coded * query.gain
    counted = shards.sum_rows(each)
    return np.column_stack([answers, counted]) if query.count else np.asarray(answers)


def _scored(shards: Shards, score: str) -> tuple[Floats, Integers]:
    """Score and outcome of each row, (n,) both, computed once a run."""
    named: Score = score  # type: ignore[assignment]
    both = shards.derived(
        ("scored", score), lambda s: np.concatenate(scored(s.probs, s.labels, named), axis=1)
    )
    return both[:, 0], both[:, 1].astype(np.int64)
