"""A whole federated evaluation beside one metric of pooled rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from fedcal.core.numerics import Floats, Integers
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.experiments.research.benchmarks.timing import (
    Case,
    Contestant,
    alone,
    named,
    peer,
    print_seconds,
)
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.privacy.federation import Federation
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.units import Example

OURS = "fedcal, all metrics, epsilon 1"


def scores(clients: int, rows: int) -> tuple[Floats, Integers, Shards]:
    """Calibrated scores, most of them near 0 and 1, dealt at random."""
    rng = np.random.default_rng(0)
    n = clients * rows
    score = np.clip(rng.beta(0.5, 0.5, n), 1e-9, 1 - 1e-9)
    labels = (rng.random(n) < score).astype(np.int64)
    logits = np.stack([np.log1p(-score), np.log(score)], axis=1)
    return score, labels, Shards.from_owner(logits, labels, rng.integers(0, clients, n), clients)


def evaluated(shards: Shards) -> ScoreRelease:
    """One release with epsilon 1 for each row; all metrics with their intervals."""
    federation = Federation(shards.clients, 2, epsilon=1.0, unit=Example.name)
    method = FedEvaluate(federation, secure_aggregation="none")
    fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
    run_inline(method, fresh)
    release = method.result()
    release.results()
    return release


def _auc(release: ScoreRelease) -> dict[str, float]:
    return {"AUC": release.found.metrics["model"]["roc_auc"].value}


def evaluation(quick: bool) -> Case:
    """All metrics of many clients' rows in process, and the peers' AUC of the pooled rows."""
    clients, rows = (200, 50) if quick else (10_000, 100)
    score, labels, shards = scores(clients, rows)
    arrays = {"score": score, "labels": labels}
    return Case(
        f"evaluation of {clients * rows:,} rows over {clients:,} clients",
        2.0,
        [
            Contestant(OURS, lambda: lambda: evaluated(shards), _auc),
            peer("scikit-learn roc_auc_score, pooled", named("AUC"), "sklearn_roc_auc", arrays),
            peer("torchmetrics binary_auroc, pooled", named("AUC"), "torchmetrics_roc_auc", arrays),
        ],
    )


def memory(quick: bool) -> Case:
    """Peak memory of a process of its own, which makes rows and evaluates them."""
    clients, rows = (200, 20) if quick else (10_000, 100)
    title = f"memory of an evaluation of {clients * rows:,} rows over {clients:,} clients"
    return Case(title, None, [alone(OURS, __name__, clients, rows)])


CASES: dict[str, Callable[[bool], Case]] = {"evaluation": evaluation, "evaluation-memory": memory}

if __name__ == "__main__":
    print_seconds(lambda clients, rows: partial(evaluated, scores(clients, rows)[2]))
