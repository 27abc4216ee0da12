"""How long a run over gRPC takes. Flower's fixed polls decide it, not what is computed."""

from __future__ import annotations

from fedcal.privacy.noise_plan import Plan

EXCHANGE_SECONDS = 4.2
"""Wall time of one exchange: a message to every site and its answer. Measured with Flower 1.39 on
loopback (a SuperLink, 3 SuperNodes, TLS, node authentication): 3.4 to 4.3 s, whatever is asked.
Flower's own grid would look for answers every 3 s and take 6.2; ours looks all the time."""

START_SECONDS = 15.0
"""Until the server's program runs, and the files are written: `flwr run`, its bundle, a cold Python
process, the report."""

OTHER_EXCHANGES = 2
"""Beside the rounds: one to learn who is there, one to deliver the result."""


def grpc_seconds(plan: Plan) -> float:
    """Expected wall time of a run over gRPC, in seconds; a search that ends early takes less."""
    return START_SECONDS + EXCHANGE_SECONDS * (plan.rounds + OTHER_EXCHANGES)


def in_words(seconds: float) -> str:
    """A time for people: seconds, from two minutes on minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
