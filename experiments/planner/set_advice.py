"""What a plan of prediction sets says, in whole sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedcal.core.types import override
from fedcal.datasets import Dataset
from fedcal.experiments.planner.advice import DRAWN_AT_ONCE, LOOKED_AT, Advice
from fedcal.experiments.planner.candidates import SETS, Estimate
from fedcal.experiments.planner.choice import MOST_ALL, MOST_LOST
from fedcal.experiments.planner.score_law import ScoreLaw
from fedcal.strategies.settings import Setting
from fedcal.trust import TRUSTS
from fedcal.units import UNITS


@dataclass
class RuleEstimate(Estimate):
    """Results of a rule's runs.

    Attributes
    ----------
    coverage
        mean over all runs
    all_labels
        share of the runs with sets of all labels, in some part
    set_size
        mean labels in a set; None where only scores are known
    useful
        whether sets say enough to be worth it
    fewest_clients
        least number with which at most `MOST_ALL` of the runs are; None = no number does
    """

    coverage: float
    all_labels: float
    set_size: float | None
    useful: bool
    fewest_clients: int | None

    @property
    def quantile(self) -> str:
        """Name of the rule."""
        return str(self.candidate.settings["quantile"])


@dataclass(frozen=True, kw_only=True, repr=False)
class SetAdvice(Advice):
    """Advice of `fedcal plan --method conformal`.

    Attributes
    ----------
    estimates
        of the rules that can serve, as `QUANTILES` lists them
    chosen
        the rule that covers least; None where none is of use
    settings
        of the method, as they were given
    data
        rows that stand in for the clients'; None = evenly spread scores
    exact
        coverage and set size without privacy, for as many rows
    """

    estimates: list[RuleEstimate]
    chosen: RuleEstimate | None
    settings: dict[str, Setting]
    goal: float
    data: Dataset | None
    law: ScoreLaw
    exact: tuple[float, float | None]

    named = "quantile"

    def __repr__(self) -> str:
        best = "no rule is useful" if self.chosen is None else f"quantile {self.chosen.quantile}"
        return f"<advice: {best}; {len(self.estimates)} rules in `estimates`>"

    @property
    def heading(self) -> str:
        """Facts, and the requested coverage."""
        return f"plan for prediction sets, alpha {self.goal:g}: {self.facts}"

    @property
    def rows(self) -> float:
        """Expected total number of rows."""
        f = self.facts.federation
        return f.clients * f.sampling_rate * self.facts.rows_per_client

    def tried(self) -> dict[str, Any]:
        """Facts, settings, scores, rules, and what is reached without privacy."""
        coverage, size = self.exact
        return {
            "method": SETS,
            "facts": self.facts.to_json(),
            "settings": self.settings,
            "alpha": self.goal,
            "seed": self.seed,
            "scores": {"name": self.law.name, "about": self.law.about},
            "rules": [self.line(e) for e in self.estimates],
            "without_privacy": {"coverage": coverage, "set_size": size},
        }

    @override
    def line(self, estimate: RuleEstimate) -> dict[str, Any]:
        plan, each = estimate.plan, self.facts.rows_per_client
        coverage, size = self.exact
        slack = estimate.coverage - (1.0 - self.goal)
        std, fewest = plan.noise_std, estimate.fewest_clients
        expected: dict[str, Any] = {
            "coverage": estimate.coverage,
            "slack": slack,
            "slack_rows": slack * self.rows,
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
            "useful": estimate.useful,
        }

    @override
    def recommended(self) -> str:
        best = self.chosen
        if best is None:
            return self.not_enough()
        coverage, size = self.exact
        line = (
            f"recommended: quantile {best.quantile}, {best.plan.mechanism}; expected coverage "
            f"{best.coverage:.4f} for {1 - self.goal:g} ({coverage:.4f} without privacy)"
        )
        if best.set_size is not None and size is not None:
            line += f", {best.set_size:.3g} labels in a set ({size:.3g} without privacy)"
        return line

    def not_enough(self) -> str:
        """Why nothing is recommended, and what would do."""
        f, alpha, enough = self.facts.federation, self.goal, self.enough
        budget = "without privacy"
        if f.private:
            budget = f"at epsilon {f.epsilon:g} (unit {f.unit}, trust {f.trust})"
        line = (
            f"too little for prediction sets: with {f.clients:,} clients of "
            f"{self.facts.rows_per_client:g} rows, {budget}, every rule is expected to give all "
            f"labels in more than {100 * MOST_ALL:.0f} % of the runs, or to miss fewer than half "
            f"of the {100 * alpha:g} % of labels that may be missing"
        )
        would = []
        if enough is not None and enough.clients is not None:
            would.append(f"with {enough.clients[0]:,} clients ({enough.clients[1]})")
        if enough is not None and enough.epsilon is not None:
            would.append(f"at epsilon {enough.epsilon[0]:g} ({enough.epsilon[1]})")
        if not would:
            return f"{line}, also with many more clients or a larger epsilon"
        return f"{line}; it would be enough {' or '.join(would)}"

    def explanation(self) -> list[str]:
        """Everything a reader of the table has to know."""
        law, goal = self.law, self.goal
        looked = law.about
        if self.data is not None:
            looked = (
                f"the rows of {law.name}, which must be public or stand in for the clients' own,"
            )
        return [
            LOOKED_AT.format(looked),
            f"A label may be missing in a share alpha = {goal:g} of the rows, on average. "
            "'slack' is how far the expected coverage is above 1 - alpha, and how many rows that "
            "is. The run's `guarantee` states what is proven for any scores, and what is assumed.",
            f"'fewest' is the number of clients from which on at most {100 * MOST_ALL:.0f} % of "
            "the runs give sets of all labels, which are useless. A rule is useful if that holds "
            f"and at least {100 * MOST_LOST:.0f} % of alpha is used.",
            *self.approximations(),
        ]

    @override
    def approximations(self) -> list[str]:
        f = self.facts.federation
        lines = ["Clients were taken to be alike, and of equal size: clipping cuts nothing off."]
        if len(self.law.shares) > 1 and self.data is None:
            lines.append("All parts were taken to have equally many rows.")
        if UNITS[f.unit].column is not None:
            lines.append(
                "Each row was a separate subject, because no public fact states the rows of a "
                "subject."
            )
        if TRUSTS[str(f.trust)].noise_by == "client":
            lines.append(DRAWN_AT_ONCE)
        return lines
