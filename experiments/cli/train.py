"""Train a model over clients or in one place, and write its logits for calibration.

Training is private (DP-SGD, DP-FedAvg) or not.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcal.core.options import layered, options_of
from fedcal.experiments.cli import parameters
from fedcal.experiments.report import terminal
from fedcal.experiments.runs.config import read_options
from fedcal.experiments.runs.files import to_json
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.run import train
from fedcal.metrics import buckets, names


def _show(training: Mapping[str, Any], out: Path | None) -> None:
    to = terminal.console()
    c, rows = training["config"], training["rows"]
    to.print(
        f"{c['model']} ({training['parameters']:,} parameters) on {c['data']} by {c['method']}, "
        f"clients {training['clients']:,}, {training['communication']['rounds']} rounds"
    )
    to.print(
        f"{rows['train']:,} training rows, {rows['calibration']:,} for calibration, "
        f"{rows['test']:,} for testing"
    )
    for part in ("train", "test"):
        score = buckets.check_score("", training["classes"])
        to.print(f"{part} rows: {names.line(training[part], score)}")
    if floored := names.floored(training["rows_below_floor"]):
        to.print(floored)
    for line in training["privacy"]["statement"]:
        to.print(f"  {line}")
    if out is not None:
        to.print(
            f"written to {out}; calibrate it: fedcal simulate --data {out / 'logits.npz'} "
            "--partition natural"
        )


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
    with terminal.progress("reading", quiet=quiet) as steps:

        def moved(done: int, total: int, epsilon: float) -> None:
            so_far = f"epsilon at most {epsilon:.2f} so far" if math.isfinite(epsilon) else ""
            steps(done, total, so_far)

        training = train(out=out, resume=resume, overwrite=overwrite, progress=moved, **given)
    if json:
        print(to_json(training.to_json()), end="")
    elif not quiet:
        _show(training.to_json(), out)
