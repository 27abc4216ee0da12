"""A whole federated evaluation beside one metric of pooled rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.benchmarks.timing import Case, Contestant, named, peer
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.privacy.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.units import Example


def evaluated(shards: Shards) -> ScoreRelease:
    """One release with epsilon 1 for each row; all metrics with their intervals."""
    federation = Federation(shards.clients, 2, epsilon=1.0, unit=Example.name)
    method = FedEvaluate(federation, secure_aggregation="none")
    fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
    run_inline(method, fresh)
    release = method.result()
    release.results()
    return release


def evaluation(quick: bool) -> Case:
    """All metrics of many clients' rows in process, and the peers' AUC of the pooled rows.

    Scores are calibrated, most of them near 0 and 1, and dealt at random.
    """
    clients, rows = (200, 50) if quick else (10_000, 100)
    rng, n = np.random.default_rng(0), clients * rows
    score = np.clip(rng.beta(0.5, 0.5, n), 1e-9, 1 - 1e-9)
    labels = (rng.random(n) < score).astype(np.int64)
    logits = np.stack([np.log1p(-score), np.log(score)], axis=1)
    shards = Shards.from_owner(logits, labels, rng.integers(0, clients, n), clients)
    arrays = {"score": score, "labels": labels}

    def auc(release: ScoreRelease) -> dict[str, float]:
        return {"AUC": release.found.metrics["model"]["roc_auc"].value}

    return Case(
        f"evaluation of {n:,} rows over {clients:,} clients",
        2.0,
        [
            Contestant("fedcal, all metrics, epsilon 1", lambda: lambda: evaluated(shards), auc),
            peer("scikit-learn roc_auc_score, pooled", named("AUC"), "sklearn_roc_auc", arrays),
            peer("torchmetrics binary_auroc, pooled", named("AUC"), "torchmetrics_roc_auc", arrays),
        ],
    )


CASES: dict[str, Callable[[bool], Case]] = {"evaluation": evaluation}
