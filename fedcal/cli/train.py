"""Train a model over clients or in one place.

Its logits are written for calibration. Training is private (DP-SGD, DP-FedAvg) or not.
"""

from pathlib import Path
from typing import Any

from fedcal.cli import parameters
from fedcal.core.options import options_of
from fedcal.metrics import names, score_table
from fedcal.results import page, terminal
from fedcal.run.config import layered, read_options
from fedcal.run.training import train
from fedcal.run.training_config import TrainConfig


@parameters.with_options(TrainConfig)
def command(
    *,
    resume: bool = False,
    config: parameters.ConfigFile = None,
    out: Path | None = None,
    overwrite: parameters.Overwrite = False,
    quiet: parameters.Quiet = False,
    json: parameters.Json = False,
    **options: Any,
) -> None:
    """Train and show it.

    Running
    -------
    resume
        Continue the training in --out.

    Files and output
    ----------------
    out
        Folder for model, logits and checkpoint.

    Examples
    --------
    fedcal train --data adult-features --epsilon 8 --delta 1e-5 --out model
    fedcal train --data rows.npz --model mlp:64x32 --method fedavg --clients 20 --out model
    fedcal train --data rows.npz --model nets:Net --epsilon 8 --out model
    """
    given = layered(options_of(TrainConfig), read_options(config) if config else {}, options)
    with terminal.progress("training", quiet=quiet) as steps:
        training = train(out=out, resume=resume, overwrite=overwrite, progress=steps, **given)
    record = training.to_json()
    facts: dict[str, Any] = {"record": record, "c": record["config"], "out": out}
    facts["line"] = names.line
    facts["score"] = score_table.check_score("", record["classes"])
    facts["floored"] = names.floored(record["rows_below_floor"])
    terminal.show(page.block_lines("commands", "training", **facts), record, json=json, quiet=quiet)
