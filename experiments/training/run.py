"""Train a base model over simulated clients, and leave its logits for calibration."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedcal.core.errors import InputError, Interrupted, RoundFailed
from fedcal.core.numerics import softmax
from fedcal.core.optional import need
from fedcal.core.types import Floats
from fedcal.experiments.runs.config import read_toml
from fedcal.experiments.runs.engines.flower import InProcessGrid
from fedcal.experiments.runs.files import to_json, write_folder
from fedcal.experiments.runs.folders import TRAINING as KIND
from fedcal.experiments.runs.folders import claim
from fedcal.experiments.runs.paid import CONFIG, Paid
from fedcal.experiments.runs.result import versions
from fedcal.experiments.training.by_method import (
    TRAINING,
    ModelTraining,
    spent_so_far,
    train_by_method,
)
from fedcal.experiments.training.config import TrainConfig, merged
from fedcal.experiments.training.fedavg import SeededFedAvg, TrainingState, per_round, training_app
from fedcal.experiments.training.splits import PARTS, ClientData, load
from fedcal.metrics import summary
from fedcal.storage.atomic import path_of, whole_file
from fedcal.storage.locks import locked
from fedcal.strategies.server.checkpoint import CHECKPOINT as ROUNDS
from fedcal.strategies.server.checkpoint import Checkpoint
from fedcal.strategies.server.outcome import OUTCOME
from fedcal.strategies.server.run_folder import LOCK

if TYPE_CHECKING:
    from fedcal.experiments.training.models import LocalTrainer

AfterRound = Callable[[int, int, dict[str, Any]], None]
"""Called after each round: rounds done, rounds planned, the round's record."""

CHECKPOINT = "checkpoint.pt"
"""Where a training stands, kept in its folder so that it can go on; removed when it is finished."""


@dataclass(frozen=True)
class Training(TrainingState):
    """A trained model and its logits.

    Attributes
    ----------
    config
        resolved
    metrics
        of the final model on the test rows, as fractions (`fedcal.metrics.summary`)
    rows
        rows of each part
    calibration_logits, test_logits
        (n, classes) float32, client by client
    federation
        the rows of all clients
    """

    config: TrainConfig
    metrics: dict[str, float]
    rows: dict[str, int]
    calibration_logits: NDArray[np.float32] = field(repr=False)
    test_logits: NDArray[np.float32] = field(repr=False)
    federation: ClientData = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The content of `training.json`: strict JSON."""
        return {
            "schema": 1,
            "config": self.config.to_dict(),
            "test": self.metrics,
            "clients": self.federation.clients,
            "classes": self.federation.classes,
            "rows": self.rows,
            "parameters": sum(w.numel() for w in self.weights.values()),
            "rounds": list(self.history),
            "seconds": self.seconds,
            "versions": {**versions(), "torch": need("torch", "train", "training").__version__},
        }

    def save(self, out: str | Path) -> None:
        """Write `logits.npz`, `model.pt`, `config.toml` and `training.json` into a folder."""
        write_folder(path_of(out), self._write, stale=KIND.files)

    def _write(self, folder: Path) -> None:
        torch = need("torch", "train", "training a model")
        owner = np.repeat(np.array(self.federation.names), self.federation.sizes("calibration"))
        np.savez_compressed(
            folder / "logits.npz",
            logits=self.calibration_logits,
            labels=self.federation.labels("calibration"),
            client=owner,
            test_logits=self.test_logits,
            test_labels=self.federation.labels("test"),
        )
        torch.save(self.weights, folder / "model.pt")
        (folder / "config.toml").write_text(self.config.to_toml(), "utf-8")
        (folder / "training.json").write_text(to_json(self.to_json()), "utf-8")


def train(
    config: TrainConfig | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: AfterRound | None = None,
    **options: Any,
) -> Training | ModelTraining:
    """Train a model over simulated clients: by FedAvg, or privately by a method of ours.

    Parameters
    ----------
    config
        what to train; or give its fields as `options`
    out
        folder for the files and, on the way, the checkpoint; None = nothing is written
    resume
        go on with the checkpoint in `out`. The options are those of the checkpoint; of
        others only more `rounds` are allowed. What a finished training leaves unsaid is made
        of what was paid for
    overwrite
        replace a training that `out` holds; otherwise it is refused
    progress
        called after each round

    Returns
    -------
    Training
        The same bits for the same configuration, also if it was interrupted and resumed.

    Raises
    ------
    InputError
        If an option, the data or the folder cannot be used, or torch is missing.
    RoundFailed
        If a client failed or the training diverged.
    Interrupted
        On Ctrl-C; what was done is in `out`.
    """
    folder = None if out is None else path_of(out)
    begun: TrainingState | None = None
    known = ""
    given = {} if config is None else config.to_dict()
    given |= {k: v for k, v in options.items() if v is not None}
    if resume and folder is None:
        raise InputError("--resume needs --out DIR, the folder of the training")
    if folder is not None:
        claim(folder, KIND, overwrite=overwrite, resume=resume)
    if resume and folder is not None and (folder / ROUNDS).is_file():
        config = merged(Checkpoint.load(folder).job[TRAINING], given)
    elif resume and folder is not None and (folder / OUTCOME).is_file():
        config = merged(read_toml(folder / CONFIG), given)
    elif resume and folder is not None:
        begun, kept, known = _kept(folder)
        config = _continued(kept, given, begun.round)
    else:
        config = merged(given)
        if folder is not None and not overwrite:
            _refuse_unfinished(folder)
    federation, config = load(config)
    if config.by_method:
        return _by_method(config, federation, folder, resume, progress)
    need("torch", "train", "training a model")
    from fedcal.experiments.training.models import LocalTrainer

    trainers, rate = int((federation.sizes("train") > 0).sum()), config.sampling_rate
    if trainers > 1 and per_round(rate, trainers) == 1:
        warnings.warn(
            f"one client trains in each round: sampling rate {rate:g} of {trainers} clients; "
            f"--sampling-rate {min(1.0, 5 / trainers):.2g} takes {min(5, trainers)}",
            stacklevel=2,
        )
    if folder is not None and not resume:
        for name in (CHECKPOINT, ROUNDS):  # of one that is to be replaced
            (folder / name).unlink(missing_ok=True)
    fingerprint = federation.fingerprint()
    if known not in ("", fingerprint):
        raise InputError(f"{config.data} holds other rows than when the training began")
    trainer = LocalTrainer(str(config.model), federation, config.seed)
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    state, rounds = begun or TrainingState(weights, (), 0.0), int(config.rounds or 0)

    def after_round(now: TrainingState) -> None:
        if folder is not None and now.round < rounds and now.round % config.checkpoint_every == 0:
            _keep(folder, now, config.to_dict(), fingerprint)
        if progress is not None:
            progress(now.round, rounds, now.history[-1])

    strategy = SeededFedAvg(config, federation, state, after_round)
    grid = InProcessGrid(training_app(trainer), range(federation.clients))
    logger = logging.getLogger("flwr")
    before = logger.level
    try:
        logger.setLevel(logging.ERROR)  # the progress bar says in one line what Flower says in many
        strategy.start(grid, ArrayRecord(state.weights), num_rounds=rounds - state.round)
        if folder is not None:
            _keep(folder, strategy.state, config.to_dict(), fingerprint)
        training = _finished(config, federation, trainer, strategy.state)
        if folder is not None:
            training.save(folder)
    except KeyboardInterrupt:
        if folder is None or not strategy.state.round:
            raise
        _keep(folder, strategy.state, config.to_dict(), fingerprint)
        raise Interrupted(
            f"{strategy.state.round} rounds are kept; go on: fedcal train --out {folder} --resume"
        ) from None
    finally:
        logger.setLevel(before)
    return training


def _by_method(
    config: TrainConfig,
    data: ClientData,
    folder: Path | None,
    resume: bool,
    progress: AfterRound | None,
) -> ModelTraining:
    """Train by a strategy; its progress says what of the budget is spent."""
    spent: list[Callable[[int], float]] = []

    def told(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, {"epsilon": spent[0](done)})

    ended = resume and folder is not None and (folder / OUTCOME).is_file()
    paid = Paid(folder, KIND, config.to_toml(), resume=ended)
    with nullcontext() if folder is None else _alone(folder), paid.reporting():
        try:
            training = train_by_method(
                config,
                data,
                folder=folder,
                resume=resume,
                progress=told,
                hear=lambda job: spent.append(spent_so_far(job)),
                paid=paid,
            )
        except KeyboardInterrupt:
            if folder is None or paid.known or not (folder / ROUNDS).is_file():
                raise
            raise Interrupted(f"go on: fedcal train --out {folder} --resume") from None
        if folder is not None:
            training.save(folder)
    return training


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder: two that go on with one training would release its open round twice."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / LOCK
    with locked(lock, f"another training writes into {folder}"):
        yield
        lock.unlink(missing_ok=True)


def _keep(folder: Path, state: TrainingState, config: dict[str, Any], fingerprint: str) -> None:
    """Write the checkpoint; the one before is there until this one is whole."""
    torch = need("torch", "train", "training a model")
    known = {
        "config": config,
        "fingerprint": fingerprint,
        "history": state.history,
        "seconds": state.seconds,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / CHECKPOINT) as file:
        torch.save({"weights": state.weights, "json": json.dumps(known, allow_nan=False)}, file)


def _kept(folder: Path) -> tuple[TrainingState, dict[str, Any], str]:
    """The state, the configuration and the fingerprint of the rows that `_keep` wrote.

    Raises
    ------
    InputError
        If there is no checkpoint, or it is damaged.
    """
    torch = need("torch", "train", "training a model")
    path = folder / CHECKPOINT
    if not path.is_file():
        done = (folder / "training.json").is_file()
        why = "the training there is finished" if done else f"there is no {CHECKPOINT}"
        raise InputError(f"nothing to resume in {folder}: {why}")
    try:
        kept = torch.load(path, weights_only=True, map_location="cpu")
        known = json.loads(kept["json"])
        state = TrainingState(kept["weights"], tuple(known["history"]), float(known["seconds"]))
        return state, known["config"], known["fingerprint"]
    except Exception as error:  # noqa: BLE001  torch raises anything for a damaged file
        raise InputError(f"{path} is not an intact checkpoint ({type(error).__name__})") from None


def _refuse_unfinished(folder: Path) -> None:
    for name in (CHECKPOINT, ROUNDS):
        if (folder / name).exists():
            raise InputError(
                f"--out {folder} holds an unfinished training: go on with --resume, or replace it "
                "with --overwrite"
            )


def _continued(kept: dict[str, Any], given: dict[str, Any], done: int) -> TrainConfig:
    """The checkpoint's configuration; of what is given beside it only more rounds may differ."""
    before = merged(kept)
    after = merged(kept, given)
    for name, value in after.to_dict().items():
        if name not in ("rounds", "checkpoint_every") and value != getattr(before, name):
            raise InputError(
                f"--resume goes on with {name} = {getattr(before, name)!r}, but {value!r} is given"
            )
    if (after.rounds or 0) < done:
        raise InputError(f"{done} rounds are done already, but rounds = {after.rounds}")
    return after


def _finished(
    config: TrainConfig, federation: ClientData, trainer: LocalTrainer, state: TrainingState
) -> Training:
    trainer.model.load_state_dict(state.weights)
    calibration, test = trainer.predict("calibration"), trainer.predict("test")
    if not (np.isfinite(calibration).all() and np.isfinite(test).all()):
        raise RoundFailed(f"the training diverged in its last round; lower --lr ({config.lr})")
    probs: Floats = softmax(test.astype(np.float64))
    return Training(
        **vars(state),
        config=config,
        metrics=summary(probs, federation.labels("test")),
        rows={name: int(federation.sizes(name).sum()) for name in PARTS},
        calibration_logits=calibration,
        test_logits=test,
        federation=federation,
    )
