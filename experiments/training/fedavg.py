"""Flower's FedAvg, with everything drawn by seed and summed in one order: the same bits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvgM

from fedcal.clients.client_app import site_of
from fedcal.core.errors import RoundFailed
from fedcal.core.streams import Purpose, stream
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.splits import ClientData
from fedcal.strategies.server.who import reason

if TYPE_CHECKING:
    from fedcal.experiments.training.models import LocalTrainer

WEIGHT = "num-examples"
"""The key that Flower's FedAvg weights replies by."""


@dataclass(frozen=True)
class TrainingState:
    """A training after `round` rounds. Frozen: Ctrl-C between two changes would tear it.

    Attributes
    ----------
    weights
        the model's state dict
    history
        one record for each round: `round`, `clients`, `train_loss`, and, where the
        global model was judged, `test_loss` and `test_accuracy`
    seconds
        of the rounds so far, in all runs
    """

    weights: dict[str, Any] = field(repr=False)
    history: tuple[dict[str, Any], ...] = field(repr=False)
    seconds: float

    @property
    def round(self) -> int:
        """Rounds that are done."""
        return len(self.history)


def training_app(trainer: LocalTrainer) -> ClientApp:
    """A ClientApp whose sites share a trainer, one after the other.

    It answers `train` (weights after local SGD and the mean loss on the way) and `evaluate` (loss
    and accuracy of the global model on its test rows).
    """
    from fedcal.experiments.training import models
    from fedcal.training import local_sgd

    app = ClientApp()

    def rows(part: str, message: Message, context: Context) -> Any:
        arrays = message.content.array_records["arrays"]
        trainer.model.load_state_dict(arrays.to_torch_state_dict())
        return trainer.rows(part, site_of(context))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        asked: Any = message.content.config_records["config"]
        x, y = rows("train", message, context)
        loss = local_sgd.descend(
            trainer.model,
            x,
            y,
            epochs=asked["local-epochs"],
            batch_size=asked["batch-size"],
            lr=asked["lr"],
            rng=stream(
                asked["seed"], Purpose.SAMPLING, asked["round"], f"batches of {site_of(context)}"
            ),
        )
        metrics = MetricRecord({"loss": loss, WEIGHT: len(y)})
        arrays = ArrayRecord(trainer.model.state_dict())
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        x, y = rows("test", message, context)
        loss, accuracy = models.judge(trainer.model, x, y)
        metrics = MetricRecord({"loss": loss, "accuracy": accuracy, WEIGHT: len(y)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


class SeededFedAvg(FedAvgM):
    """FedAvg (McMahan et al. 2017) with a server learning rate.

    Flower's FedAvgM without momentum: w + server_lr * (average of the clients' w_k - w), the
    average weighted by training rows. What is changed: clients are drawn by seed instead of
    Python's global generator, replies are summed in the order of the sites, and a client's
    error stops the run instead of being logged. Flower's number of a node is that of its site.

    Parameters
    ----------
    config
        resolved
    federation
        of it only the numbers of rows are used
    state
        after the rounds that are done
    after_round
        called after each round, with the new state

    Attributes
    ----------
    state
        after the last whole round
    """

    def __init__(
        self,
        config: TrainConfig,
        federation: ClientData,
        state: TrainingState,
        after_round: Callable[[TrainingState], None],
    ) -> None:
        super().__init__(server_learning_rate=config.server_lr or 1.0, weighted_by_key=WEIGHT)
        self.config, self.state, self._after_round = config, state, after_round
        self._record: dict[str, Any] = {}
        self._trainers, self._judges = (
            np.flatnonzero(federation.sizes(part)).tolist() for part in ("train", "test")
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The global model and how to train it, to each sampled site."""
        self._since = time.perf_counter()
        self.current_arrays = arrays
        number = self.state.round + 1
        count = per_round(self.config.sampling_rate, len(self._trainers))
        rng = stream(self.config.seed, Purpose.SAMPLING, number, "training")
        drawn = sorted(rng.permutation(len(self._trainers))[:count].tolist())
        self._record = {"round": number, "clients": count}
        how = ConfigRecord(
            {
                "local-epochs": self.config.local_epochs,
                "batch-size": int(self.config.batch_size or 0),
                "lr": float(self.config.lr or 0),
                "seed": self.config.seed,
                "round": number,
            }
        )
        content = RecordDict({"arrays": arrays, "config": how})
        sites = [self._trainers[k] for k in drawn]
        return self._construct_messages(content, sites, MessageType.TRAIN)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The global model to each site with test rows, in the rounds that are judged."""
        number = self._record["round"]
        if number % self.config.evaluate_every and number != self.config.rounds:
            return []
        content = RecordDict({"arrays": arrays})
        return self._construct_messages(content, self._judges, MessageType.EVALUATE)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Flower's weighted average and server step.

        Raises
        ------
        RoundFailed
            If a site raised an error, or the training diverged.
        """
        arrays, metrics = super().aggregate_train(server_round, _by_site(replies))
        self._record["train_loss"] = self._finite(metrics)
        self.current_arrays = arrays
        return arrays, metrics

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Means over all test rows: clients' means, weighted by their rows. It ends the round.

        Raises
        ------
        RoundFailed
            If a site raised an error, or the training diverged.
        """
        metrics = super().aggregate_evaluate(server_round, _by_site(replies))
        if metrics is not None:
            self._record["test_loss"] = self._finite(metrics)
            self._record["test_accuracy"] = float(metrics["accuracy"])  # type: ignore[arg-type]
        seconds = self.state.seconds + time.perf_counter() - self._since
        weights = dict((self.current_arrays or ArrayRecord()).to_torch_state_dict())
        self.state = TrainingState(weights, (*self.state.history, self._record), seconds)
        self._after_round(self.state)
        return metrics

    def _finite(self, metrics: MetricRecord | None) -> float:
        loss = math.nan if metrics is None else float(metrics["loss"])  # type: ignore[arg-type]
        if not math.isfinite(loss):
            raise RoundFailed(
                f"round {self._record['round']}: the training diverged (the loss is {loss}); "
                f"lower --lr (it is {self.config.lr})"
            )
        return loss


def _by_site(replies: Iterable[Message]) -> list[Message]:
    """Replies by site: the order of a float sum is part of its bits."""
    found = sorted(replies, key=lambda reply: reply.metadata.src_node_id)
    for reply in found:
        if reply.has_error():
            site = reply.metadata.src_node_id
            raise RoundFailed(f"site {site} answered with an error: {reason(reply)}")
    return found


def per_round(sampling_rate: float, trainers: int) -> int:
    """Clients that train in a round, of those that have training rows: at least one."""
    return max(1, round(sampling_rate * trainers))
