"""What a plan of methods that calibrate says, in whole sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedcal.core.pages import Intervals
from fedcal.core.types import override
from fedcal.experiments.planner.advice import DRAWN_AT_ONCE, LOOKED_AT, Advice
from fedcal.experiments.planner.candidates import fits_locally
from fedcal.experiments.planner.choice import MOST_WORSE, NEAR_GRPC, PAYS, CandidateEstimate
from fedcal.experiments.planner.estimate import LEAST_SIMULATED, Size
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.shown import figures_of
from fedcal.privacy.noise_plan import Plan
from fedcal.trust import TRUSTS
from fedcal.units import UNITS

EXCHANGE_SECONDS = 4.2
"""Wall time of one exchange: a message to every site and its answer. Measured with Flower 1.39 on
loopback (a SuperLink, 3 SuperNodes, TLS, node authentication): 3.4 to 4.3 s, whatever is asked.
Flower's own grid would look for answers every 3 s and take 6.2; ours looks all the time."""

START_SECONDS = 15.0
"""Until the server's program runs, and the files are written: `flwr run`, its bundle, a cold Python
process, the report."""

OTHER_EXCHANGES = 2
"""Beside the rounds: one to learn who is there, one to deliver the result."""

HOME_ROWS = 100
"""From so many labelled rows on, one temperature fitted to them alone mostly pays in the worlds."""


def grpc_seconds(plan: Plan) -> float:
    """Return the expected wall time of a run over gRPC, in seconds; a search may end earlier.

    Flower's fixed polls dominate it, not the computation.
    """
    return START_SECONDS + EXCHANGE_SECONDS * (plan.rounds + OTHER_EXCHANGES)


def in_words(seconds: float) -> str:
    """Return a time for people: in seconds, or in minutes from two minutes on."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@dataclass(frozen=True, kw_only=True, repr=False)
class MethodAdvice(Advice):
    """Advice of `fedcal plan` on methods that calibrate.

    Attributes
    ----------
    estimates
        best first; `chosen` is not always the first, see `NEAR`
    worlds
        what was simulated, each with the model's errors before and after one temperature
    size
        how many clients and rows were simulated
    public
        whether the worlds are public data, not made up
    """

    estimates: list[CandidateEstimate]
    chosen: CandidateEstimate | None
    worlds: list[dict[str, Any]]
    size: Size
    public: bool

    named = "method"

    def __repr__(self) -> str:
        pays = "nothing pays" if self.chosen is None else f"{self.chosen.candidate.text} pays"
        return f"<advice: {pays}; {len(self.estimates)} candidates in `estimates`>"

    @property
    @override
    def heading(self) -> str:
        return f"plan for {self.facts}, {self.facts.partition}"

    @property
    def first(self) -> list[str]:
        """Advice to try at home first, if sites have enough rows; a line or none."""
        rows = self.facts.rows_per_client
        if rows < HOME_ROWS or self.facts.federation.clients == 1:
            return []
        return [
            f"First: a site with {rows:g} labelled rows can calibrate alone, and spends nothing "
            "(fedcal simulate --data OWN --method pooled-temperature). If sites differ, that is "
            "better than one calibrator for all; a federation is for sites with fewer labels."
        ]

    def _rounds(self, plan: Plan) -> dict[str, int]:
        return {"rounds": plan.rounds - plan.counting_rounds}

    def tried(self) -> dict[str, Any]:
        """Facts, seed, worlds and methods."""
        return {
            "facts": self.facts.to_json(),
            "seed": self.seed,
            "worlds": self.worlds,
            "methods": [self.line(e) for e in self.estimates],
        }

    def line(self, estimate: CandidateEstimate) -> dict[str, Any]:
        """Return the expected performance of a method; over gRPC with its wall time."""
        if self.engine != "grpc":
            return estimate.to_json()
        return estimate.to_json() | {"wall_seconds": grpc_seconds(estimate.plan)}

    def _figures(self) -> dict[str, Sheet]:
        lines = []
        for e in self.estimates:
            left = [100 * run.left for run in e.runs]
            lines.append((e.candidate.text, 100 * e.left, min(left), max(left)))
        series, model = {"mean, all runs": tuple(lines)}, {"the model": 100.0}
        return figures_of([Intervals("Error left", "error left, %", series, model)], str)

    @override
    def recommended(self) -> str:
        best = self.chosen
        if best is None:
            return self.not_enough()
        plan = best.plan
        rounds = plan.rounds - plan.counting_rounds
        line = f"recommended: {best.candidate.text}, "
        line += "1 round" if rounds == 1 else f"{rounds} rounds"
        if plan.sampling_rate < 1:
            line += f" at sampling rate {plan.sampling_rate:g}"
        line += f", {plan.mechanism if plan.private else 'exact sums'}; expected to leave "
        line += f"{100 * best.left:.0f} % of the model's calibration error"
        if self.engine == "grpc":
            line += f", in about {in_words(grpc_seconds(plan))} over gRPC"
        return line

    def not_enough(self) -> str:
        """Why nothing is recommended, and what would do."""
        f, enough = self.facts.federation, self.enough
        if f.private:
            line = (
                f"not enough clients for this epsilon: with {f.clients:,} clients at epsilon "
                f"{f.epsilon:g} no method is expected to beat leaving the model alone"
            )
        else:
            line = (
                f"not enough rows: with {f.clients:,} clients of {self.facts.rows_per_client:g} "
                "rows no method is expected to beat leaving the model alone"
            )
        if enough is None:
            return line
        needed = []
        if enough.clients is not None:
            needed.append(f"at least about {enough.clients[0]:,} clients ({enough.clients[1]})")
        if enough.epsilon is not None:
            needed.append(f"epsilon {enough.epsilon[0]:g} ({enough.epsilon[1]})")
        if not needed:
            return f"{line}, nor with many more clients or a larger epsilon"
        line = f"{line}; it needs {' or '.join(needed)}"
        if f.private and enough.epsilon is None:
            return f"{line}; a larger epsilon alone would not be enough"
        if enough.clients is None:
            return f"{line}; more clients alone would not be enough"
        return line

    def explanation(self) -> list[str]:
        """Everything a reader of the table has to know."""
        names = ", ".join(w["name"] for w in self.worlds)
        made = "shipped public data" if self.public else "made-up rows"
        lines = [
            LOOKED_AT.format(f"{made} ({names})"),
            "'error left' is the share of the model's own error that is left, half of it ECE, half "
            f"classwise ECE, mean over these. A method pays where at most {100 * PAYS:.0f} % are "
            f"left and at most {100 * MOST_WORSE:.0f} % of the runs end worse than the model "
            "itself.",
        ]
        if self.engine == "grpc":
            lines.append(
                f"Wall time over gRPC: about {START_SECONDS:g} s to start and "
                f"{EXCHANGE_SECONDS:g} s for each exchange of messages, whatever its content: one "
                "to find the sites, one for each round, one to deliver the result. Of methods "
                f"that pay and are within {100 * (NEAR_GRPC - 1):.0f} % of the best, the one with "
                "fewest rounds is recommended."
            )
        lines += self.approximations()
        if self.chosen is not None and self.chosen.plan.private:
            lines.append(
                "The choice costs no budget; trying methods on private rows is a release that no "
                "budget covers."
            )
        return lines

    @override
    def approximations(self) -> list[str]:
        f, size, rows = self.facts.federation, self.size, self.facts.rows_per_client
        lines = []
        if size.clients < f.clients:
            lines.append(
                f"{size.clients:,} of {f.clients:,} clients were simulated; each sum counts "
                f"{f.clients / size.clients:.4g} times, the noise is that of the real plan."
            )
        if size.rows < rows:
            lines.append(f"Clients were simulated with {size.rows:.4g} rows, not {rows:g}.")
        if UNITS[f.unit].column is not None:
            lines.append(
                "Each synthetic row was a separate subject, because no public fact states the "
                "rows of a subject: subjects of several rows are clipped to the same bound, and "
                "count for less."
            )
        if TRUSTS[str(f.trust)].noise_by == "client":
            lines.append(DRAWN_AT_ONCE)
        tried = dict.fromkeys(e.candidate.method for e in self.estimates)
        local = ", ".join(filter(fits_locally, tried))
        if local and size.clients > LEAST_SIMULATED:
            lines.append(f"Of {local}, {LEAST_SIMULATED} clients were simulated.")
        return lines
