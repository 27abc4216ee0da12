"""Each client's influence on metrics, and where in an answer it stands."""

from __future__ import annotations

import secrets

import numpy as np

from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers, Words
from fedcal.evaluation.counting import cells_of
from fedcal.queries import ScoreSpread, ScoreSquares


def score_spread(shards: Shards, query: ScoreSpread) -> Floats:
    """Return sums over rows of the weight of each metric, in the first fold.

    Returns (clients, numbers) in units of the weights.
    """
    cells = cells_of(shards, query.as_counts)[:, 0]
    answers, each = np.zeros((shards.clients, *query.lengths())), shards.weights(query.subject_rows)
    for k, weights in enumerate(query.by_metric):
        answers[:, k] = shards.sum_rows(weights[cells] * each)
    return answers


def score_squares(shards: Shards, query: ScoreSquares) -> Floats:
    """Return the squares of these sums, (clients, numbers)."""
    return score_spread(shards, query) ** 2


def in_folds(words: Words, query: ScoreSpread, sites: Integers, *, simulated: bool = True) -> Words:
    """Move each client's sums to the fold of its site's number; a real site's is drawn.

    It comes after the clip: moving numbers changes no norm, and what the clip is about must not
    depend on who asks.
    """
    if query.folds == 1:
        return words
    metrics = len(query.by_metric)
    moved = np.zeros_like(words)
    own = sites % query.folds if simulated else [secrets.randbelow(query.folds) for _ in sites]
    place = np.asarray(own)[:, None] * metrics + np.arange(metrics)
    np.put_along_axis(moved, place, words[:, :metrics], axis=1)
    return moved
