"""What a plan says, in whole sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedcal.experiments.planner.choice import MOST_WORSE, NEAR_GRPC, PAYS
from fedcal.experiments.planner.duration import (
    EXCHANGE_SECONDS,
    START_SECONDS,
    grpc_seconds,
    in_words,
)
from fedcal.experiments.planner.estimate import LEAST_SIMULATED
from fedcal.strategies import STRATEGIES
from fedcal.trust import TRUSTS
from fedcal.units import UNITS

if TYPE_CHECKING:
    from fedcal.experiments.planner.advice import Advice

OVER_GRPC = (
    "Wall time over gRPC: about {:g} s to start and {:g} s for each exchange of messages, whatever "
    "is asked: one to learn who is there, one for each round, one to deliver the result. Of "
    "methods that pay and are within {:.0f} % of the best, the one with fewest rounds is "
    "recommended."
)
_LINES = 10

MORE = "Mechanism, clip bound, noise, classwise ECE of each line: --json, and plan.json of --out."
LOOKED_AT = (
    "This plan was made from the facts above and from {} alone: no row of anybody was looked at."
)

HOME_ROWS = 100
"""From so many labelled rows on, one temperature fitted to them alone mostly pays in the worlds."""


def at_home(advice: Advice) -> list[str]:
    """What to try before any federation, where sites have rows enough; a line or none."""
    rows = advice.facts.rows_per_client
    if rows < HOME_ROWS or advice.facts.federation.clients == 1:
        return []
    return [
        f"First: a site with {rows:g} labelled rows of its own can calibrate at home, alone, and "
        "spends nothing (fedcal simulate --data OWN --method pooled-temperature). Where sites "
        "differ that is better than one calibrator for all; a federation is for sites with fewer "
        "labels."
    ]


def not_enough(advice: Advice) -> str:
    """Why nothing is recommended, and what would do."""
    f, enough = advice.facts.federation, advice.enough
    if f.private:
        line = (
            f"not enough clients for this epsilon: with {f.clients:,} clients at epsilon "
            f"{f.epsilon:g} no method is expected to beat leaving the model alone"
        )
    else:
        line = (
            f"not enough rows: with {f.clients:,} clients of {advice.facts.rows_per_client:g} rows "
            "no method is expected to beat leaving the model alone"
        )
    if enough is None:
        return line
    would = []
    if enough.clients is not None:
        would.append(f"from about {enough.clients[0]:,} clients on ({enough.clients[1]})")
    if enough.epsilon is not None:
        would.append(f"at epsilon {enough.epsilon[0]:g} ({enough.epsilon[1]})")
    if not would:
        return f"{line}, nor with many more clients or a larger epsilon"
    alone = ""
    if f.private and enough.epsilon is None:
        alone = "; a larger epsilon alone would not be enough"
    elif enough.clients is None:
        alone = "; more clients alone would not be enough"
    return f"{line}; it would pay {' or '.join(would)}{alone}"


def recommended(advice: Advice) -> str:
    """The recommendation in a line, or why there is none."""
    best = advice.chosen
    if best is None:
        return not_enough(advice)
    plan = best.plan
    rounds = plan.rounds - plan.counting_rounds
    rate = "" if plan.sampling_rate == 1 else f" at sampling rate {plan.sampling_rate:g}"
    by = "exact sums" if not plan.private else plan.mechanism
    over = ""
    if advice.engine == "grpc":
        over = f", in about {in_words(grpc_seconds(plan))} over gRPC"
    return (
        f"recommended: {best.candidate.text}, {rounds} round{'s' * (rounds != 1)}{rate}, {by}; "
        f"expected to leave {100 * best.left:.0f} % of the model's calibration error{over}"
    )


def in_short(recommended: str, run: str | None, explanation: Sequence[str]) -> str:
    """Ten lines at most: what is recommended, how it is run, and what stands behind it."""
    return "\n".join([recommended, *([] if run is None else [f"  {run}"]), *explanation][:_LINES])


def command(advice: Advice) -> str | None:
    """The command that runs what is recommended."""
    return None if advice.options is None else command_of(advice.options)


def command_of(options: Mapping[str, Any]) -> str:
    """The command with these options."""
    words = ["fedcal simulate"]
    for key, value in options.items():
        if key == "set":
            words += [f"--set {k}={_plain(v)}" for k, v in value.items()]
        else:
            words.append(f"--{key.replace('_', '-')} {_plain(value)}")
    return " ".join(words)


def explanation(advice: Advice) -> list[str]:
    """Everything a reader of the table has to know."""
    names = ", ".join(w["name"] for w in advice.worlds)
    made = "shipped public data" if advice.public else "made-up rows"
    lines = [LOOKED_AT.format(f"{made} ({names})")]
    lines.append(
        "'error left' is the share of the model's own error that is left, half of it ECE, half "
        f"classwise ECE, mean over these. A method pays where at most {100 * PAYS:.0f} % are left "
        f"and at most {100 * MOST_WORSE:.0f} % of the runs end worse than the model itself."
    )
    if advice.engine == "grpc":
        lines.append(OVER_GRPC.format(START_SECONDS, EXCHANGE_SECONDS, 100 * (NEAR_GRPC - 1)))
    lines += approximations(advice)
    best = advice.chosen
    if best is not None and best.plan.private:
        why = "trying methods on private rows is a release that nobody has paid for"
        lines.append(f"The choice costs no budget; {why}.")
    return lines


def approximations(advice: Advice) -> list[str]:
    """What was simpler in the simulation than it will be."""
    f, size, facts = advice.facts.federation, advice.size, advice.facts
    lines = []
    if size.clients < f.clients:
        lines.append(
            f"{size.clients:,} of {f.clients:,} clients were simulated; each sum counts "
            f"{f.clients / size.clients:.4g} times, the noise is that of the real plan."
        )
    if size.rows < facts.rows_per_client:
        lines.append(
            f"Clients were simulated with {size.rows:.4g} rows, not {facts.rows_per_client:g}."
        )
    if UNITS[f.unit].column is not None:
        lines.append(
            "Each made-up row was a subject of its own, as no public fact says how many rows one "
            "has: subjects of several rows are clipped to the same bound, and count for less."
        )
    if TRUSTS[str(f.trust)].noise_by == "client":
        lines.append("The noise of all clients was drawn at once, as one draw of their variance.")
    tried = [e.candidate.method for e in advice.estimates]
    local = [name for name in tried if STRATEGIES[name].fits_locally]
    if local and size.clients > LEAST_SIMULATED:
        lines.append(
            f"Of {', '.join(dict.fromkeys(local))}, {LEAST_SIMULATED} clients were simulated."
        )
    return lines


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)
