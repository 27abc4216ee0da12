"""The privacy record of a run: numbers for scripts, and sentences for people."""

from __future__ import annotations

from typing import Any

from fedcal.privacy.plan import Plan

TEST_ROWS = "The metrics on test rows are exact and not private: for the researcher's eyes."


def without_privacy(unit: str, said: str, releases: int = 0) -> dict[str, Any]:
    """The record of a run without differential privacy; `said` is what was released."""
    return {
        "unit": unit,
        "adjacency": "zero-out",
        "trust": "secagg",
        "epsilon": None,
        "delta": None,
        "mechanism": "none",
        "noise_std": 0.0,
        "noise_source": "none",
        "releases": releases,
        "statement": [said, TEST_ROWS],
    }


def of_plan(plan: Plan, releases: int, notes: list[str]) -> dict[str, Any]:
    """The record of a federated run.

    Parameters
    ----------
    plan : what was planned, and so what the whole run spends
    releases : how many releases there were
    notes : further sentences, on what was taken as public
    """
    if not plan.private:
        said = "No differential privacy: the exact sums are released."
        return without_privacy(plan.unit, said, releases)
    std = plan.noise_std
    statement = [
        f"All {plan.rounds} releases together are ({plan.epsilon:g}, {plan.delta:g})-DP for each "
        "user: a client whose rows are all removed could hardly be told from one that took part.",
        "The server sees the exact sums and is trusted to forget them; everyone else sees "
        "releases only.",
        "Seeded noise protects nobody who knows the seed: this is a simulation.",
        "The number of clients, the method and its parameters are taken as public.",
        *notes,
        TEST_ROWS,
    ]
    return {
        "unit": plan.unit,
        "adjacency": plan.adjacency,
        "trust": plan.trust,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "mechanism": plan.mechanism,
        "noise_std": None if std is None else std[0] if len(set(std)) == 1 else list(std),
        "noise_source": plan.noise_source,
        "releases": releases,
        "noise_multiplier": plan.multiplier or None,
        "zcdp_noise_multiplier": plan.zcdp_multiplier,
        "event": plan.event,
        "statement": statement,
    }
