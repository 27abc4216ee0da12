"""`fedcal plan`: what budget, rounds and clients buy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fedcal.experiments.commands.parameters import FILES, Json, Quiet, other, takes
from fedcal.experiments.config import Config
from fedcal.experiments.options import DATA
from fedcal.experiments.planner.command import run_plan

EXAMPLES = (
    "fedcal plan --clients 100 --rows-per-client 50 --classes 10 --epsilon 1",
    "fedcal plan --clients 20 --rows-per-client 500 --data imdb-binary --epsilon 4 --out plan",
)


@takes(
    Config,
    *("clients", "partition", "rounds", "sampling_rate"),
    *("epsilon", "delta", "unit", "trust", "mechanism", "quorum", "seed"),
    unset={"clients": "needed", "rounds": "the planner's"},
)
def command(
    *,
    rows_per_client: Annotated[
        float | None, other(DATA, "A public nominal number of rows, not a count (needed).")
    ] = None,
    classes: Annotated[
        int | None, other(DATA, "Of the model (needed, unless --data is given).")
    ] = None,
    data: Annotated[
        str | None, other(DATA, "Shipped names to plan on (made-up rows of known truth).")
    ] = None,
    method: Annotated[
        str | None, other(DATA, "Methods to try, with commas (all but the slowest).")
    ] = None,
    out: Annotated[Path | None, other(FILES, "Folder for plan.json and config.toml.")] = None,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Plan and show it."""
    facts = {**options, "rows_per_client": rows_per_client, "classes": classes}
    run_plan(facts, data, method, out, quiet=quiet, as_json=json)
