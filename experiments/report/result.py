"""A result in a few sentences: what ran, what it is worth, what protects whom, what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedcal.experiments.report.labels import of_clients
from fedcal.experiments.report.terminal import SHOWN, headings, shown
from fedcal.strategies.server import participation
from fedcal.units import UNITS

if TYPE_CHECKING:
    from fedcal.experiments.runs.config import Config
    from fedcal.experiments.runs.result import SimulationResult


def title(config: Config, sites: Mapping[str, Any] | None = None) -> str:
    """Return the method, the data and the clients of a run."""
    rounds = config.rounds
    asked = f", rounds {rounds}, sampling rate {config.sampling_rate:g}" if rounds else ""
    where = f"on {config.data}, clients {config.clients:,}, {config.partition}"
    if config.real:  # over gRPC on one machine the data are known
        noun = of_clients(config.engine)
        text = (
            f"{config.clients:,} {noun}" if sites is None else participation.in_short(sites, noun)
        )
        where = f"on {text}"
    return f"{config.method} {where}{asked}"


def protection(privacy: Mapping[str, Any]) -> str:
    """Return the guarantee in a sentence; without one, a sentence that says so."""
    if privacy["epsilon"] is None:
        return str(privacy["statement"][0])
    unit = privacy["unit"]
    neighbours = UNITS[unit].neighbours[privacy["adjacency"]]
    guarantee = f"({privacy['epsilon']:g}, {privacy['delta']:g})-DP"
    return f"{guarantee} for each {unit} (neighbouring: {neighbours})."


def sent(result: SimulationResult) -> str:
    """Bytes of a client, and seconds of the rounds."""
    up, down = (result.communication[f"bytes_{way}_per_client"] for way in ("up", "down"))
    took = "" if result.seconds is None else f", {result.seconds:.3f} s"
    return f"{up} bytes up and {down} down per client{took}"


def before_and_after(result: SimulationResult) -> list[tuple[str, ...]]:
    """Return the metrics of test rows under the headings of `SHOWN`, those of the model first."""
    both = (("before", result.before), ("after", result.after))
    return [(name, *(shown(k, metrics[k]) for k in SHOWN)) for name, metrics in both]


def in_short(result: SimulationResult) -> str:
    """Summarise a result in at most ten lines."""
    if result.artifact.rescores and result.test is not None:
        lines = []
        for name, *values in before_and_after(result):
            named = headings(result.judged["score"], result.class_names)
            pairs = zip(named.values(), values, strict=True)
            lines.append(f"{name}: {', '.join(f'{heading} {value}' for heading, value in pairs)}")
    else:
        lines = result.artifact.lines(result.test)
    return "\n".join(
        [
            title(result.config, result.sites),
            *lines,
            *result.judged.get("at_limits", ()),
            protection(result.privacy),
            sent(result),
        ]
    )
