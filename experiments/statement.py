"""The privacy record of a run: numbers for scripts, and sentences for people."""

from __future__ import annotations

import math
from typing import Any

from fedcal.privacy.plan import Plan

TEST_ROWS = (
    "The metrics, reliability data and probabilities of the test rows are exact and not private: "
    "for the researcher's eyes."
)
HELD_OUT = (
    "The test rows were held out of the same clients' rows: reliability.json and test_probs.npy "
    "are exact functions of them."
)
NOT_NATURAL = (
    "{} names {} clients of its own; this run dealt its rows out by {} instead (partition "
    "'natural' uses them)."
)


def without_privacy(trust: str, unit: str, said: str, releases: int = 0) -> dict[str, Any]:
    """The record of a run without differential privacy; `said` is what was released."""
    return {
        "unit": unit,
        "adjacency": "zero-out",
        "trust": trust,
        "epsilon": None,
        "delta": None,
        "mechanism": "none",
        "noise_std": 0.0,
        "noise_source": "none",
        "releases": releases,
        "statement": [said, TEST_ROWS],
    }


def of_plan(
    plan: Plan, releases: int, secure_aggregation: str, rows_per_client: float | None
) -> dict[str, Any]:
    """The record of a federated run.

    Parameters
    ----------
    plan : what was planned, and so what the whole run spends
    releases : how many releases there were
    secure_aggregation : "masks" or "none"
    rows_per_client : the nominal number that set the clip bound, if one did
    """
    if not plan.private:
        said = "No differential privacy: the exact sums are released."
        return without_privacy(plan.trust, plan.unit, said, releases)
    std = plan.noise_std
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
        "statement": [*_guarantee(plan, secure_aggregation, rows_per_client), TEST_ROWS],
    }


def _guarantee(plan: Plan, secure_aggregation: str, rows_per_client: float | None) -> list[str]:
    """What is promised to whom, in whole sentences."""
    what = "The one release is" if plan.rounds == 1 else f"All {plan.rounds} releases together are"
    odds = math.exp(plan.epsilon) if plan.epsilon < 700 else math.inf
    said = [
        f"{what} ({plan.epsilon:g}, {plan.delta:g})-DP for each user: removing all rows of one "
        f"client changes the odds of any outcome by a factor of at most {odds:.4g}, except with "
        f"probability {plan.delta:g}.",
        "The server sees the exact sums and is trusted to forget them; everyone else sees "
        "releases only.",
        "Seeded noise protects nobody who knows the seed, and the seed stands in config.toml and "
        "result.json: this is a simulation.",
        "The number of clients, the method and its parameters are taken as public.",
    ]
    if rows_per_client is not None:
        said.append(
            f"rows_per_client = {rows_per_client:g} sets the clip bound. Unless it is given, "
            "simulate takes rows / clients of the simulated data; a deployment must choose it "
            "without looking."
        )
    if plan.sampling_rate < 1:
        seen = "the server and, with masks, against sampled clients, who learn each other's names"
        said.append(
            "The epsilon counts on who was sampled staying secret: it does not hold against "
            f"{seen if secure_aggregation == 'masks' else 'the server'}."
        )
    if plan.delta >= 1 / plan.clients:
        said.append(large_delta(plan))
    return said


def large_delta(plan: Plan) -> str:
    """Why this delta is too large."""
    return (
        f"delta = {plan.delta:g} is not below 1/clients = {1 / plan.clients:g}: publishing one "
        "random user's rows would satisfy it"
    )
