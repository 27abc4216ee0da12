"""What a plan of prediction sets says, as sentences and as plain values."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedcal.experiments.planner.choice import MOST_ALL, MOST_LOST
from fedcal.experiments.planner.sentences import LOOKED_AT, command_of
from fedcal.trust import TRUSTS
from fedcal.units import UNITS

if TYPE_CHECKING:
    from fedcal.experiments.planner.sets.advice import RuleEstimate, SetAdvice


def line_of(estimate: RuleEstimate, advice: SetAdvice) -> dict[str, Any]:
    """What is expected of a rule, in plain values."""
    plan, each = estimate.plan, advice.facts.rows_per_client
    coverage, size = advice.exact
    slack = estimate.coverage - (1.0 - advice.goal.alpha)
    std, fewest = plan.noise_std, estimate.fewest_clients
    expected: dict[str, Any] = {
        "coverage": estimate.coverage,
        "slack": slack,
        "slack_rows": slack * advice.rows,
        "coverage_above_exact": estimate.coverage - coverage,
        "all_labels": estimate.all_labels,
        "set_size": estimate.set_size,
        "set_size_ratio": estimate.set_size and size and estimate.set_size / size,
    }
    return {
        "quantile": estimate.quantile,
        "mechanism": plan.mechanism,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "noise_std": std and std[0],
        "expected": expected,
        "fewest_clients": fewest,
        "fewest_rows": None if fewest is None else math.ceil(fewest * each),
        "useful": estimate.useful(advice.goal.alpha),
    }


def not_enough(advice: SetAdvice) -> str:
    """Why nothing is recommended, and what would do."""
    f, alpha = advice.facts.federation, advice.goal.alpha
    budget = "without privacy"
    if f.private:
        budget = f"at epsilon {f.epsilon:g} (unit {f.unit}, trust {f.trust})"
    line = (
        f"too little for prediction sets: with {f.clients:,} clients of "
        f"{advice.facts.rows_per_client:g} rows, {budget}, every rule is expected to give all "
        f"labels in more than {100 * MOST_ALL:.0f} % of the runs, or to miss fewer than half of "
        f"the {100 * alpha:g} % of labels that may be missing"
    )
    would, enough = [], advice.enough
    if enough is not None and enough.clients is not None:
        would.append(f"with {enough.clients[0]:,} clients ({enough.clients[1]})")
    if enough is not None and enough.epsilon is not None:
        would.append(f"at epsilon {enough.epsilon[0]:g} ({enough.epsilon[1]})")
    if not would:
        return f"{line}, also with many more clients or a larger epsilon"
    return f"{line}; it would be enough {' or '.join(would)}"


def recommended(advice: SetAdvice) -> str:
    """The recommendation in a line, or why there is none."""
    best = advice.chosen
    if best is None:
        return not_enough(advice)
    coverage, size = advice.exact
    told = (
        f"recommended: quantile {best.quantile}, {best.plan.mechanism}; expected coverage "
        f"{best.coverage:.4f} for {1 - advice.goal.alpha:g} ({coverage:.4f} without privacy)"
    )
    if best.set_size is not None and size is not None:
        told += f", {best.set_size:.3g} labels in a set ({size:.3g} without privacy)"
    return told


def command(advice: SetAdvice) -> str | None:
    """The command that runs what is recommended."""
    return None if advice.options is None else command_of(advice.options)


def explanation(advice: SetAdvice) -> list[str]:
    """Everything a reader of the table has to know."""
    law, goal = advice.law, advice.goal
    looked = law.about
    if advice.data is not None:
        looked = f"the rows of {law.name}, which must be public or stand in for the clients' own,"
    lines = [LOOKED_AT.format(looked)]
    promise = "on average" if goal.promise == "marginal" else "as a level that each release has"
    lines.append(
        f"A label may be missing in a share alpha = {goal.alpha:g} of the rows, {promise}. 'slack' "
        "is how far the expected coverage is above 1 - alpha, and how many rows that is. What is "
        "proven, whatever the scores, and what is assumed stands in the run's `guarantee`."
    )
    lines.append(
        f"'fewest' is the number of clients from which on at most {100 * MOST_ALL:.0f} % of the "
        "runs give sets of all labels, which say nothing. A rule is of use where that is so and "
        f"at least {100 * MOST_LOST:.0f} % of alpha is used."
    )
    return [*lines, *approximations(advice)]


def approximations(advice: SetAdvice) -> list[str]:
    """What was simpler than it will be."""
    f = advice.facts.federation
    lines = ["Clients were taken to be alike, and of equal size: clipping cuts nothing off."]
    if len(advice.law.shares) > 1 and advice.data is None:
        lines.append("All parts were taken to have equally many rows.")
    if UNITS[f.unit].column is not None:
        lines.append(
            "Each row was a subject of its own, as no public fact says how many rows one has."
        )
    if TRUSTS[str(f.trust)].noise_by == "client":
        lines.append("The noise of all clients was drawn at once, as one draw of their variance.")
    return lines


def to_json(advice: SetAdvice) -> dict[str, Any]:
    """The content of `plan.json`: strict JSON, no NaN and no infinity."""
    coverage, size = advice.exact
    missing: dict[str, Any] | None = None
    if advice.chosen is None:
        least = asdict(advice.enough) if advice.enough else dict.fromkeys(("clients", "epsilon"))
        missing = {"line": not_enough(advice)} | {
            fact: found and {"least": found[0], "quantile": found[1]}
            for fact, found in least.items()
        }
    return {
        "schema": 1,
        "method": "conformal",
        "facts": advice.facts.to_json(),
        "settings": advice.settings,
        "alpha": advice.goal.alpha,
        "guarantee": advice.goal.promise,
        "seed": advice.seed,
        "scores": {"name": advice.law.name, "about": advice.law.about},
        "rules": [line_of(e, advice) for e in advice.estimates],
        "refused": [{"quantile": name, "why": why} for name, why in advice.refused],
        "without_privacy": {"coverage": coverage, "set_size": size},
        "recommendation": line_of(advice.chosen, advice) if advice.chosen else None,
        "options": advice.options,
        "command": command(advice),
        "not_enough": missing,
        "statement": explanation(advice),
        "approximations": approximations(advice),
        "seconds": advice.seconds,
    }
