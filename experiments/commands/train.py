"""`fedcal train`: a base model by Flower's FedAvg."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fedcal.experiments.commands.parameters import FILES, ConfigFile, Json, Quiet, other, takes
from fedcal.experiments.options import RUNNING
from fedcal.experiments.training.config import TrainConfig

EXAMPLES = (
    "fedcal train --data images.npz --clients 20 --rounds 50 --out model",
    "fedcal train --data leaf --model lstm --min-rows 100 --out model",
)


@takes(TrainConfig)
def command(
    *,
    resume: Annotated[bool, other(RUNNING, "Go on with what --out holds.", "--resume")] = False,
    config: ConfigFile = None,
    out: Annotated[Path | None, other(FILES, "Folder for model, logits and checkpoint.")] = None,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Train and show it."""
    from fedcal.experiments.training.run import run_train

    run_train(options, config, out, resume=resume, quiet=quiet, as_json=json)
