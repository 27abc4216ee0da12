"""Exact numbers of evaluated rows: a simulation shows them beside a release, nobody else has any."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcal.buckets import scored
from fedcal.evaluation.counting import view_logits
from fedcal.evaluation.findings import KEYS
from fedcal.queries import ScoreCounts
from fedcal.shards import Shards

MOST_CLIENTS = 1000
"""Clients of whom each is told."""


def by_client(
    shards: Shards, names: tuple[str, ...], question: ScoreCounts, threshold: float
) -> dict[str, Any]:
    """Accuracy and mean score less outcome of each client that has rows.

    Parameters
    ----------
    shards
        the rows
    names
        of the clients
    question
        says whose scores are meant, and which; of the score `classes` the confidence is taken
    threshold
        of the score `positive`

    Returns
    -------
    dict
        name -> {"rows": n, "metrics": {"accuracy": a, "gap": g}, ...}, as `groups` of a result
    """
    score: Any = "positive" if question.score == "positive" else "confidence"
    rows = shards.rows
    there = np.flatnonzero(rows)[:MOST_CLIENTS]
    found: dict[str, Any] = {names[k]: {"rows": int(rows[k])} for k in there}
    for view in question.view_names:
        value, outcome = scored(view_logits(shards, view, question), shards.labels, score)
        right = outcome if score == "confidence" else (value >= threshold) == (outcome == 1)
        sums = {"accuracy": right[:, 0].astype(np.float64), "gap": (value - outcome)[:, 0]}
        means = {name: shards.sum_rows(v)[there] / rows[there] for name, v in sums.items()}
        for k, client in enumerate(there):
            told = {name: float(mean[k]) for name, mean in means.items()}
            found[names[client]][KEYS[view]] = told
    return found
