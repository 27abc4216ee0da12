"""Commands that plan, train, and run studies: their work is in rooms of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedcal.experiments.cli.parameters import (
    FILES,
    FIRST,
    ConfigFile,
    Json,
    Overwrite,
    Quiet,
    Settings,
    other,
    takes,
)
from fedcal.experiments.runs.config import Config, parse_setting
from fedcal.experiments.runs.folders import PLAN, claim, claim_file
from fedcal.experiments.runs.options import DATA, RUNNING
from fedcal.experiments.training.config import TrainConfig


@takes(
    Config,
    *("clients", "partition", "rounds", "sampling_rate"),
    *("epsilon", "delta", "unit", "trust", "mechanism", "quorum", "engine", "seed"),
    unset={"clients": "needed", "rounds": "the planner's"},
)
def plan_command(
    *,
    rows_per_client: Annotated[
        float | None, other(FIRST, "A public nominal number of rows, not a count (needed).")
    ] = None,
    classes: Annotated[
        int | None, other(FIRST, "Of the model (needed, unless --data is given).")
    ] = None,
    data: Annotated[
        str | None,
        other(FIRST, "Shipped names to plan on (made-up rows); for conformal rows of any kind."),
    ] = None,
    method: Annotated[
        str | None,
        other(FIRST, "Methods to try, with commas (all but the slowest); or conformal."),
    ] = None,
    set: Settings = None,
    out: Annotated[Path | None, other(FILES, "Folder for plan.json and config.toml.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Plan and show it."""
    from fedcal.experiments.cli.plan import run_plan

    facts = {**options, "rows_per_client": rows_per_client, "classes": classes}
    if out is not None:
        claim(out, PLAN, overwrite=overwrite)
    run_plan(facts, data, method, set or (), out, quiet=quiet, as_json=json)


@takes(TrainConfig)
def train_command(
    *,
    set: Settings = None,
    resume: Annotated[bool, other(RUNNING, "Go on with what --out holds.", "--resume")] = False,
    config: ConfigFile = None,
    out: Annotated[Path | None, other(FILES, "Folder for model, logits and checkpoint.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Train and show it."""
    from fedcal.experiments.cli.train import run_train

    if set:
        options["set"] = dict(map(parse_setting, set))
    run_train(options, config, out, resume=resume, overwrite=overwrite, quiet=quiet, as_json=json)


def features_command(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Images or a table of texts, with labels.")
    ],
    model: Annotated[str, other(DATA, "efficientnet-lite0 | random-filters | wordllama.")],
    out: Annotated[Path, other(FILES, "The .npz file to write.")],
    overwrite: Overwrite = False,
    size: Annotated[
        int | None, other(DATA, "Of a random projection, as int8 (none: float16).")
    ] = None,
    corruption: Annotated[
        str | None, other(DATA, "The test rows also after these, with commas, or all (none).")
    ] = None,
    severity: Annotated[int | None, other(DATA, "Of the corruptions, 1 to 5 (3).")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make them."""
    from fedcal.experiments.cli.features import run_features

    claim_file(out, overwrite=overwrite)
    run_features(source, model, out, size, corruption, severity, quiet=quiet, as_json=json)


def reproduce_command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Of the list; none = the list.")
    ] = None,
    data: Annotated[
        str | None, other(DATA, "Files that get lines of their own, with commas.")
    ] = None,
    seeds: Annotated[int | None, other(RUNNING, "How many, from 0 on (the paper's).")] = None,
    jobs: Annotated[int | None, other(RUNNING, "Processes (the usable cores).")] = None,
    resume: Annotated[bool, other(RUNNING, "Go on with what --out holds.", "--resume")] = False,
    ray_address: Annotated[
        str | None, other(RUNNING, "Of a Ray cluster, or local: runs are Ray tasks.")
    ] = None,
    out: Annotated[
        Path | None, other(FILES, "Folder for tables, figures, page and all runs.")
    ] = None,
    overwrite: Overwrite = False,
    check: Annotated[
        bool, other(FILES, "Exit code 1 where results are not as expected.", "--check")
    ] = False,
    listed: Annotated[bool, other(FILES, "List the names.", "--list")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run and show it."""
    from fedcal.experiments.research.studies.command import run_reproduce

    run_reproduce(
        name,
        data,
        seeds,
        jobs,
        out,
        resume=resume,
        overwrite=overwrite,
        ray_address=ray_address,
        check=check,
        listed=listed,
        quiet=quiet,
        as_json=json,
    )
