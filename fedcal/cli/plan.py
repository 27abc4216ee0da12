"""Plan a run from public facts: the noise of each method beside its signal, and what would help."""

from typing import Any

from fedcal.cli.parameters import Json, Quiet, with_options
from fedcal.results import terminal
from fedcal.run import config, plan


@with_options(
    config.Config,
    *("clients", "rounds", "sampling_rate"),
    *("epsilon", "delta", "unit", "trust", "mechanism", "quorum"),
    unset={"clients": "required", "rounds": "the method's"},
)
def command(
    *,
    rows_per_client: float | None = None,
    classes: int | None = None,
    method: str | None = None,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Plan and show the table.

    Most used
    ---------
    rows_per_client
        Public nominal number of rows of a client (required).
    classes
        Number of classes (required).
    method
        Comma-separated methods (default: all).

    Examples
    --------
    fedcal plan --clients 100 --rows-per-client 50 --classes 10 --epsilon 1
    fedcal plan --clients 20 --rows-per-client 600 --classes 2 --method fednewton,fedbbq
    """
    facts: dict[str, Any] = {"rows_per_client": rows_per_client, "classes": classes}
    found = plan.plan(**facts, **options, method=method.split(",") if method else None)
    terminal.show([found.title, *found.parts], found.to_json, json=json, quiet=quiet)
