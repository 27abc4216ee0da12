"""Train a base model over simulated clients, and leave its logits for calibration."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedcal.errors import InputError, Interrupted, RoundFailed
from fedcal.experiments.engines.flower import InProcessGrid
from fedcal.experiments.files import check_out, to_json, write_folder
from fedcal.experiments.result import versions
from fedcal.experiments.training import checkpoint
from fedcal.experiments.training.checkpoint import TrainingState
from fedcal.experiments.training.client import training_app
from fedcal.experiments.training.config import TrainConfig, merged
from fedcal.experiments.training.splits import PARTS, ClientData, load
from fedcal.experiments.training.strategy import SeededFedAvg, check_nodes, per_round
from fedcal.metrics import summary
from fedcal.numerics import softmax
from fedcal.optional import need
from fedcal.strategies.flower import ask_who
from fedcal.types import Floats

if TYPE_CHECKING:
    from fedcal.experiments.training.local import LocalTrainer

AfterRound = Callable[[int, int, dict[str, Any]], None]
"""Called after each round: rounds done, rounds planned, the round's record."""

TIMEOUT = 1e6
"""Seconds that a client may take; in a simulation nobody goes missing."""


@dataclass(frozen=True)
class Training:
    """A trained model and its logits.

    Attributes
    ----------
    config : resolved
    history : one record for each round: `round`, `clients`, `train_loss`, and, where the
        global model was judged, `test_loss` and `test_accuracy`
    metrics : of the final model on the test rows, as fractions (`fedcal.metrics.summary`)
    rows : rows of each part
    parameters : numbers in the model
    seconds : of the rounds
    weights : the model's state dict
    calibration_logits, test_logits : (n, classes) float32, client by client
    """

    config: TrainConfig
    history: tuple[dict[str, Any], ...] = field(repr=False)
    metrics: dict[str, float]
    rows: dict[str, int]
    parameters: int
    seconds: float
    weights: dict[str, Any] = field(repr=False)
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
            "parameters": self.parameters,
            "rounds": list(self.history),
            "seconds": self.seconds,
            "versions": {**versions(), "torch": need("torch", "train", "training").__version__},
        }

    def save(self, out: str | Path) -> None:
        """Write `logits.npz`, `model.pt`, `config.toml` and `training.json` into a folder."""
        write_folder(Path(out), self._write, stale=[checkpoint.FILE])

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
    progress: AfterRound | None = None,
    **options: Any,
) -> Training:
    """Train a model by FedAvg over simulated clients.

    Parameters
    ----------
    config : what to train; or give its fields as `options`
    out : folder for the files and, on the way, the checkpoint; None = nothing is written
    resume : go on with the checkpoint in `out`. The options are those of the checkpoint; of
        others only more `rounds` are allowed
    progress : called after each round

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
    need("torch", "train", "training a model")
    from fedcal.experiments.training.local import LocalTrainer

    folder = None if out is None else Path(out)
    begun: TrainingState | None = None
    known = ""
    given = {} if config is None else config.to_dict()
    given |= {k: v for k, v in options.items() if v is not None}
    if resume:
        if folder is None:
            raise InputError("--resume needs --out DIR, the folder of the training")
        begun, kept, known = checkpoint.read(folder)
        config = _continued(kept, given, begun.round)
    else:
        config = merged(given)
        if folder is not None:
            _check_folder(folder)
    federation, config = load(config)
    trainers, rate = int((federation.sizes("train") > 0).sum()), config.sampling_rate
    if trainers > 1 and per_round(rate, trainers) == 1:
        warnings.warn(
            f"one client trains in each round: sampling rate {rate:g} of {trainers} clients; "
            f"--sampling-rate {min(1.0, 5 / trainers):.2g} takes {min(5, trainers)}",
            stacklevel=2,
        )
    fingerprint = federation.fingerprint()
    if known not in ("", fingerprint):
        raise InputError(f"{config.data} holds other rows than when the training began")
    trainer = LocalTrainer(config.model, federation, config.seed)
    state = begun or TrainingState({k: v.clone() for k, v in trainer.model.state_dict().items()})

    def after_round(now: TrainingState) -> None:
        nonlocal state
        state = now  # one step: an interrupt sees this round whole, or not at all
        last = state.round == config.rounds
        if folder is not None and not last and state.round % config.checkpoint_every == 0:
            checkpoint.save(folder, state, config.to_dict(), fingerprint)
        if progress is not None:
            progress(state.round, int(config.rounds or 0), state.history[-1])

    try:
        app = training_app(lambda context: trainer)
        nodes = [uuid.uuid4().int >> 66 for _ in range(federation.clients)]
        federate(InProcessGrid(app, nodes), config, federation, state, after_round)
        training = _finished(config, federation, trainer, state)
        if folder is not None:
            training.save(folder)
    except KeyboardInterrupt:
        if folder is None or not state.round:
            raise
        checkpoint.save(folder, state, config.to_dict(), fingerprint)
        raise Interrupted(
            f"{state.round} rounds are kept; go on: fedcal train --out {folder} --resume"
        ) from None
    return training


def _check_folder(folder: Path) -> None:
    check_out(folder, foreign="rows.jsonl")
    check_out(folder, foreign="result.json")
    if (folder / checkpoint.FILE).exists():
        raise InputError(
            f"--out {folder} holds an unfinished training: go on with --resume, or remove its "
            f"{checkpoint.FILE}"
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


def federate(
    grid: Grid,
    config: TrainConfig,
    federation: ClientData,
    state: TrainingState,
    after_round: Callable[[TrainingState], None],
) -> None:
    """Flower's own loop, `Strategy.start`, over the rounds that are left.

    Parameters
    ----------
    grid : with one node for each client
    config : resolved
    federation : of it only the numbers of rows are used
    state : after the rounds that are done
    after_round : called with the new state after each round
    """
    with _quiet_flower():
        asked = ask_who(grid, list(grid.get_node_ids()), TIMEOUT)
        node_of = {who.site: who.node for who in asked}
        check_nodes(node_of, federation.clients)
        sizes = federation.sizes("train"), federation.sizes("test")
        strategy = SeededFedAvg(config, node_of, *sizes, done=state.round)
        now, since = state, time.perf_counter()

        def evaluated(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            """Flower's hook at the end of a round (and once before the first)."""
            nonlocal now, since
            if server_round:
                seconds = now.seconds + time.perf_counter() - since
                weights = dict(arrays.to_torch_state_dict())
                now = TrainingState(weights, (*now.history, strategy.record), seconds)
                after_round(now)
            since = time.perf_counter()
            return None

        how = ConfigRecord(
            {
                "local-epochs": config.local_epochs,
                "batch-size": int(config.batch_size or 0),
                "lr": float(config.lr or 0),
                "seed": config.seed,
            }
        )
        strategy.start(
            grid,
            ArrayRecord(state.weights),
            num_rounds=int(config.rounds or 0) - state.round,
            timeout=TIMEOUT,
            train_config=how,
            evaluate_fn=evaluated,
        )


def _finished(
    config: TrainConfig, federation: ClientData, trainer: LocalTrainer, state: TrainingState
) -> Training:
    trainer.model.load_state_dict(state.weights)
    calibration, test = trainer.predict("calibration"), trainer.predict("test")
    if not (np.isfinite(calibration).all() and np.isfinite(test).all()):
        raise RoundFailed(f"the training diverged in its last round; lower --lr ({config.lr})")
    probs: Floats = softmax(test.astype(np.float64))
    return Training(
        config=config,
        history=state.history,
        metrics=summary(probs, federation.labels("test")),
        rows={name: int(federation.sizes(name).sum()) for name in PARTS},
        parameters=sum(p.numel() for p in trainer.model.parameters()),
        seconds=state.seconds,
        weights=state.weights,
        calibration_logits=calibration,
        test_logits=test,
        federation=federation,
    )


@contextlib.contextmanager
def _quiet_flower() -> Iterator[None]:
    """Flower tells each round in several lines; the progress bar tells it in one."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
