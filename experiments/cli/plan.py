"""Plan a run from public facts: the noise of each method beside its signal, and what would help."""

from typing import Any

from fedcal.experiments.cli.parameters import FIRST, Json, Quiet, option, with_options
from fedcal.experiments.report import tables, terminal
from fedcal.experiments.runs import config, files, plan

EXAMPLES = (
    "fedcal plan --clients 100 --rows-per-client 50 --classes 10 --epsilon 1",
    "fedcal plan --clients 20 --data imdb-binary --epsilon 4 --method fednewton,fedbbq",
)
_ROWS = "Public nominal number of rows of a client (required without --data)."


@with_options(
    config.Config,
    *("clients", "rounds", "sampling_rate"),
    *("epsilon", "delta", "unit", "trust", "mechanism", "quorum"),
    unset={"clients": "required", "rounds": "the method's"},
)
def command(
    *,
    rows_per_client: float | None = option(None, FIRST, _ROWS),
    classes: int | None = option(None, FIRST, "Classes (required without --data)."),
    data: str | None = option(None, FIRST, "Shipped data set whose size to plan for."),
    method: str | None = option(None, FIRST, "Comma-separated methods (default: all)."),
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Plan and show the table."""
    options |= {"rows_per_client": rows_per_client, "classes": classes, "data": data}
    given = {k: v for k, v in options.items() if v is not None}
    found = plan.plan(**given, methods=method.split(",") if method else None)
    if json:
        print(files.to_json(found.to_json()), end="")
    if json or quiet:
        return
    to = terminal.console()
    to.print(found.heading)
    tables.print_parts(to, found.parts)
