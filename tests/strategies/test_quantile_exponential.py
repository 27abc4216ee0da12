"""The rule of Angelopoulos et al. over a federation: the draw of the paper, and who may ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategy_checks import assert_refused

from fedcal.conformal import PredictionSets
from fedcal.conformal.angelopoulos import private_thresholds, quantile_costs, thresholds
from fedcal.experiments.engines.inline import run_inline
from fedcal.privacy.plan import Federation
from fedcal.queries import SetRanks
from fedcal.shards import Shards
from fedcal.strategies import FedConformal

CLIENTS, ROWS = 20, 50


def _shards(seed: int = 0, score: np.ndarray | None = None) -> Shards:
    """Rows of two classes whose score (one minus the label's probability) is uniform."""
    n = CLIENTS * ROWS
    s = np.random.default_rng(seed).random(n) if score is None else score
    s = np.clip(s, 1e-6, 1 - 1e-6)
    logits = np.stack([np.log(1 - s), np.log(s)], axis=1)
    return Shards(logits, np.zeros(n, np.int64), ROWS * np.arange(CLIENTS + 1))


def _rule(seed: int = 0, **settings: Any) -> FedConformal:
    facts = {k: settings.pop(k) for k in ("unit", "epsilon", "trust") if k in settings}
    facts = {"epsilon": 1.0, "unit": "example"} | facts
    known = {"rows_per_client": float(ROWS), "rows_known": True, "quantile": "exponential"}
    federation = Federation(CLIENTS, 2, seed=seed, **facts)
    return FedConformal(federation, **(known | settings))


def _threshold(rule: FedConformal, shards: Shards) -> float:
    found = run_inline(rule, shards)
    assert isinstance(found, PredictionSets)
    return float(found.thresholds[0])


def test_the_question_has_the_papers_costs() -> None:
    counts = np.array([3.0, 0.0, 5.0, 2.0])
    asked = SetRanks(2, thresholds(4), quantile=0.9)
    assert asked.costs(np.cumsum(counts)) == pytest.approx(quantile_costs(counts, 0.9))


def test_thresholds_are_those_of_the_pure_function() -> None:
    shards = _shards()
    found = np.array([_threshold(_rule(seed, bins=200), shards) for seed in range(150)])
    scores = np.exp(shards.logits[:, 1])[None].repeat(1500, axis=0)
    pure = private_thresholds(scores, 200, 1.0, 0.1, np.random.default_rng(0))
    for at in np.quantile(pure, (0.1, 0.5, 0.9)):
        assert np.mean(found <= at) == pytest.approx(np.mean(pure <= at), abs=0.1)


def test_all_labels_where_the_level_is_above_one() -> None:
    rule = _rule(epsilon=0.05)
    assert _threshold(rule, _shards()) == 1.0
    assert rule.result().guarantee[0].startswith("Sets hold all labels: with 1,000 rows")


def test_a_user_counts_with_one_row() -> None:
    score = np.repeat(np.linspace(0.01, 0.99, CLIENTS), ROWS)
    rule = _rule(unit="user", epsilon=1000.0, rows_known=False, bins=1000)
    assert "number of clients, all of which have a row, 20" in " ".join(rule.result().guarantee)
    assert _threshold(rule, _shards(score=score)) == pytest.approx(0.94, abs=0.002)


def test_a_simulation_says_how_many_rows_there_are() -> None:
    federation = Federation(CLIENTS, 2, epsilon=1.0, unit="example")
    settings = {"quantile": "exponential", "rows_known": True}
    assert FedConformal.needs_rows(federation, settings)
    assert not FedConformal.needs_rows(federation, {"quantile": "exponential"})


def test_who_may_not_ask() -> None:
    table: list[tuple[dict[str, Any], str]] = [
        ({"rows_known": False}, "must be public"),
        ({"unit": "subject", "rows_known": False}, "how many subjects there are is not"),
        ({"unit": "subject"}, "rows_known is of rows"),
        ({"by": "class", "quantile": "prefix"}, "all parts together"),
        ({"trust": "distributed"}, "does not have the exact sums"),
        ({"guarantee": "pac"}, "covers in the mean"),
        ({"by": "class"}, "one threshold"),
    ]
    assert_refused(table, lambda settings: _rule(**settings))
