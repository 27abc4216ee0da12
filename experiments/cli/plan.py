"""Plan a run from public facts: the noise of each method beside its signal, and what would help."""

from typing import Any

from fedcal.experiments.cli.parameters import FIRST, Json, Quiet, option, with_options
from fedcal.experiments.report import tables, terminal
from fedcal.experiments.runs import config, files, plan
from fedcal.strategies.warnings import percent

EXAMPLES = (
    "fedcal plan --clients 100 --rows-per-client 50 --classes 10 --epsilon 1",
    "fedcal plan --clients 20 --data imdb-binary --epsilon 4 --method fednewton,fedbbq",
)
_ROWS = "Public nominal number of rows of a client (required without --data)."
_COLUMNS = ("method", "rounds", "noise", "bearable", "helps", "fewest clients", "smallest epsilon")


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
    rows = [
        [
            *(line["method"], str(line["rounds"]), percent(line["noise"])),
            *(percent(line["bearable"]), line["helps"]),
            *(_number(line[name]) for name in ("fewest_clients", "smallest_epsilon")),
        ]
        for line in found.methods
    ]
    tables.print_table(to, tables.TextTable(_COLUMNS, rows, left=(0, 4)), edge=True)
    why = [line["why"] for line in found.methods if line["why"]]
    why += [f"{name} is left out: {reason}" for name, reason in found.refused]
    for text in (*why, *found.words()):
        to.print(f"- {text}")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,}" if value >= 1000 else f"{value:g}"
