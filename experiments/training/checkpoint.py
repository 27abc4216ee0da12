"""Where a training stands, kept in its folder so that it can go on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcal.atomic import whole_file
from fedcal.errors import InputError
from fedcal.optional import need

FILE = "checkpoint.pt"
"""Removed when the training is finished."""


@dataclass(frozen=True)
class TrainingState:
    """A training after `round` rounds. Frozen: Ctrl-C between two changes would tear it.

    Attributes
    ----------
    weights : the model's state dict
    history : one record for each round: `round`, `clients`, `train_loss`, and, where the
        global model was judged, `test_loss` and `test_accuracy`
    seconds : of the rounds so far, in all runs
    """

    weights: dict[str, Any] = field(repr=False)
    history: tuple[dict[str, Any], ...] = field(repr=False)
    seconds: float

    @property
    def round(self) -> int:
        """Rounds that are done."""
        return len(self.history)


def save(folder: Path, state: TrainingState, config: dict[str, Any], fingerprint: str) -> None:
    """Write the checkpoint; the one before is there until this one is whole."""
    torch = need("torch", "train", "training a model")
    known = {
        "config": config,
        "fingerprint": fingerprint,
        "history": state.history,
        "seconds": state.seconds,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / FILE) as file:
        torch.save({"weights": state.weights, "json": json.dumps(known, allow_nan=False)}, file)


def read(folder: Path) -> tuple[TrainingState, dict[str, Any], str]:
    """The state, the configuration and the fingerprint of the rows that `save` wrote.

    Raises
    ------
    InputError
        If there is no checkpoint, or it is damaged.
    """
    torch = need("torch", "train", "training a model")
    path = folder / FILE
    if not path.is_file():
        done = (folder / "training.json").is_file()
        why = "the training there is finished" if done else f"there is no {FILE}"
        raise InputError(f"nothing to resume in {folder}: {why}")
    try:
        kept = torch.load(path, weights_only=True, map_location="cpu")
        known = json.loads(kept["json"])
        state = TrainingState(kept["weights"], tuple(known["history"]), float(known["seconds"]))
        return state, known["config"], known["fingerprint"]
    except Exception as error:  # noqa: BLE001  torch raises anything for a damaged file
        raise InputError(f"{path} is not an intact checkpoint ({type(error).__name__})") from None
