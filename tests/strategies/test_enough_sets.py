"""Prediction sets of which public numbers say that they hold all labels warn in a line."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fedcal import simulate
from fedcal.errors import FedcalError, TooLittle
from fedcal.experiments.config import load_config
from fedcal.privacy.federation import Federation
from fedcal.strategies.conformal import FedConformal
from fedcal.strategies.quantiles import QUANTILES

FEW: dict[str, dict[str, Any]] = {
    "crossing": {"clients": 20, "epsilon": 0.1},
    "gaps": {"clients": 10, "epsilon": 0.1, "trust": "distributed"},
    "unary": {"clients": 20, "epsilon": 1.0, "trust": "local"},
    "exponential": {"clients": 20, "epsilon": 0.5},
    "prefix": {"clients": 20, "epsilon": 0.001, "unit": "example"},
    "exact": {"clients": 20},
}
ROWS = {"crossing": 40.0, "gaps": 40.0, "prefix": 20.0}


def options(rule: str) -> dict[str, Any]:
    own: dict[str, Any] = {"quantile": rule} | ({"alpha": 0.00001} if rule == "exact" else {})
    if rule in ROWS:
        own["rows_per_client"] = ROWS[rule]
    return {"method": "conformal", "set": own, **FEW[rule]}


@pytest.mark.filterwarnings("ignore:rows_per_client")
@pytest.mark.parametrize("rule", QUANTILES)
def test_it_warns_and_says_what_would_do(rule: str) -> None:
    asked = options(rule)
    with pytest.warns(TooLittle, match="are too few for a threshold") as caught:
        result = simulate("imdb-binary", **asked)
    (line,) = {str(one.message) for one in caught if issubclass(one.category, TooLittle)}
    assert "\n" not in line
    assert result.after["all_labels"] == 1
    assert any(line[1:] in sentence for sentence in result.privacy["statement"])
    if found := re.search(r"with about ([\d,]+) clients", line):
        clients = int(found[1].replace(",", ""))
        facts = {k: v for k, v in asked.items() if k in ("epsilon", "trust", "unit")}
        for many, hopeless in ((clients, False), (clients // 2, True)):
            method = FedConformal(Federation(many, 2, **facts), **asked["set"])
            each = 625.0 if rule == "exact" else ROWS.get(rule)
            assert method.hopeless(None if each is None else many * each) == hopeless


@pytest.mark.filterwarnings("error::fedcal.errors.TooLittle")
def test_a_run_with_enough_is_silent_and_its_config_gives_the_same_sets(tmp_path: Any) -> None:
    asked = {"method": "conformal", "clients": 60, "epsilon": 1.0, "set": {"alpha": 0.05}}
    result = simulate("imdb-binary", out=tmp_path, **asked)
    again = simulate(config=load_config(tmp_path / "config.toml", {}))
    assert again.sets.thresholds == result.sets.thresholds
    assert again.judged == result.judged
    assert result.test is not None
    covered = result.sets.predict_set(result.test.probs)[np.arange(12500), result.test.labels]
    assert covered.mean() == result.after["coverage"]
    with pytest.raises(FedcalError, match="yields no calibrator"):
        _ = result.calibrator
    with pytest.raises(FedcalError, match="yields no prediction sets"):
        _ = simulate("imdb-binary", clients=60).sets


def test_the_statement_speaks_of_thresholds() -> None:
    labels = np.arange(400) % 3
    held_out = simulate(
        {
            "logits": 3.0 * np.eye(3)[labels] + np.arange(400)[:, None] % 7 * [0.3, -0.2, 0.1],
            "labels": labels,
        },
        method="conformal",
        clients=4,
    )
    said = " ".join([*held_out.privacy["statement"], *held_out.privacy["not_protected"]])
    assert "how good the thresholds are, is" in said
    assert "coverage_by" in said
    assert "reliability" not in said
    assert "calibrator" not in said
