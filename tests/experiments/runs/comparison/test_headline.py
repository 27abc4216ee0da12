"""The sentence above the table: who is best, and whether the seeds tell it from the next."""

import math
from typing import Any

from fedcal.experiments.runs.comparison.table import harmed, headline


def line(label: str, mean: float, std: float = 0.001, **more: Any) -> dict[str, Any]:
    return {
        "label": label,
        "method": label.lower(),
        "after": {"classwise_ece": {"mean": mean, "std": std}},
        **{"data": "d", "partition": "iid", "clients": 5, "unit": "user", "trust": "central"},
        **{"epsilon": 1.0, "mechanism": "gaussian", "sampling_rate": 1.0, "rounds": 1},
        **{"baseline": False, "seeds": [0, 1], "failures": []},
        **more,
    }


NONE = line("uncalibrated", 0.05, method="none", baseline=True, epsilon=math.inf)


def test_a_winner_within_the_noise_is_no_winner_for_sure():
    close = [NONE, line("A", 0.02, 0.001), line("B", 0.0215, 0.002), line("C", 0.03)]
    assert "A (2 %), within the noise (std over seeds) of B (2.15 %)" in headline(close)
    alone = [line("A", 0.02, 0.0, seeds=[0]), line("B", 0.021, 0.0, seeds=[0])]
    assert "A (2 %) (one seed: the noise is unknown)" in headline(alone)


def test_methods_that_harm_are_named_and_those_beyond_five_counted():
    before = {"before": {"classwise_ece": {"mean": 0.05, "std": 0.001}}}
    lines = [line(f"M{k}", 0.06 if k else 0.054, **before) for k in range(8)]
    said = "Worse than the model itself, in classwise ECE: "
    said += ", ".join(f"M{k} with epsilon 1" for k in range(1, 6))
    assert harmed(lines[:1]) == ""
    assert harmed(lines[:6]) == f"{said}."
    assert harmed(lines) == f"{said} and 2 more."
