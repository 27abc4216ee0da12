"""Flower's FedAvg, with everything drawn by seed and summed in one order: the same bits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvgM

from fedcal.errors import FedcalError, RoundFailed
from fedcal.experiments.training.client import WEIGHT
from fedcal.experiments.training.config import TrainConfig
from fedcal.strategies.flower import reason
from fedcal.streams import Purpose, stream
from fedcal.types import Integers


class SeededFedAvg(FedAvgM):
    """FedAvg (McMahan et al. 2017) with a server learning rate.

    Flower's FedAvgM without momentum: w + server_lr * (average of the clients' w_k - w), the
    average weighted by training rows. What is changed: clients are drawn by seed instead of
    Python's global generator, replies are summed in the order of the sites, and a client's
    error stops the run instead of being logged.

    Parameters
    ----------
    config : resolved
    node_of : site -> Flower node
    train_rows, test_rows : rows of each site, (clients,)
    done : rounds of an earlier run that this one continues

    Attributes
    ----------
    record : the last round's numbers
    """

    def __init__(
        self,
        config: TrainConfig,
        node_of: Mapping[int, int],
        train_rows: Integers,
        test_rows: Integers,
        done: int = 0,
    ) -> None:
        super().__init__(
            server_learning_rate=config.server_lr or 1.0,
            server_momentum=0.0,
            min_available_nodes=1,
            weighted_by_key=WEIGHT,
        )
        self.config = config
        self.done = done
        self.record: dict[str, Any] = {}
        self._node_of = dict(node_of)
        self._site_of = {node: site for site, node in node_of.items()}
        self._trainers = [k for k, rows in enumerate(train_rows.tolist()) if rows]
        self._judges = [k for k, rows in enumerate(test_rows.tolist()) if rows]

    def sampled(self, round_number: int) -> list[int]:
        """Sites that train in a round: a fixed number without replacement, sorted."""
        count = per_round(self.config.sampling_rate, len(self._trainers))
        rng = stream(self.config.seed, Purpose.SAMPLING, round_number, "training")
        chosen = rng.permutation(len(self._trainers))[:count]
        return sorted(self._trainers[k] for k in chosen.tolist())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The global model and how to train it, to each sampled site."""
        round_number = self.done + server_round
        sites = self.sampled(round_number)
        self.current_arrays = arrays
        self.record = {"round": round_number, "clients": len(sites)}
        config["round"] = round_number
        return self._messages(MessageType.TRAIN, sites, arrays, config)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The global model to each site with test rows, in the rounds that are judged."""
        round_number = self.done + server_round
        if round_number % self.config.evaluate_every and round_number != self.config.rounds:
            return []
        return self._messages(MessageType.EVALUATE, self._judges, arrays, config)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Flower's weighted average and server step.

        Raises
        ------
        RoundFailed
            If a site raised an error or did not answer, or the training diverged.
        """
        found = self._sorted(replies, self.record["clients"])
        arrays, metrics = super().aggregate_train(server_round, found)
        loss = math.nan if metrics is None else float(metrics["loss"])  # type: ignore[arg-type]
        self.record["train_loss"] = self._finite(loss)
        return arrays, metrics

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Means over all test rows: clients' means, weighted by their rows.

        Raises
        ------
        RoundFailed
            If a site raised an error, or the training diverged.
        """
        found = self._sorted(replies, 0)
        metrics = super().aggregate_evaluate(server_round, found)
        if metrics is not None:
            self.record["test_loss"] = self._finite(float(metrics["loss"]))  # type: ignore[arg-type]
            self.record["test_accuracy"] = float(metrics["accuracy"])  # type: ignore[arg-type]
        return metrics

    def summary(self) -> None:
        """Nothing beyond Flower's own lines."""

    def _finite(self, loss: float) -> float:
        if not math.isfinite(loss):
            raise RoundFailed(
                f"round {self.record['round']}: the training diverged (the loss is {loss}); "
                f"lower --lr (it is {self.config.lr})"
            )
        return loss

    def _messages(
        self, kind: str, sites: list[int], arrays: ArrayRecord, config: ConfigRecord
    ) -> list[Message]:
        content = RecordDict({"arrays": arrays, "config": config})
        return [
            Message(content, dst_node_id=self._node_of[site], message_type=kind) for site in sites
        ]

    def _sorted(self, replies: Iterable[Message], least: int) -> list[Message]:
        """Replies by site: the order of a float sum is part of its bits."""
        found = {self._site_of[reply.metadata.src_node_id]: reply for reply in replies}
        for site, reply in sorted(found.items()):
            if reply.has_error():
                raise RoundFailed(f"site {site} answered with an error: {reason(reply)}")
        if len(found) < least:
            raise RoundFailed(f"{least - len(found)} of {least} sampled sites did not answer")
        return [found[site] for site in sorted(found)]


def per_round(sampling_rate: float, trainers: int) -> int:
    """Clients that train in a round, of those that have training rows: at least one."""
    return max(1, round(sampling_rate * trainers))


def check_nodes(node_of: Mapping[int, int], clients: int) -> None:
    """Refuse a grid on which not every client has a node."""
    if sorted(node_of) != list(range(clients)):
        raise FedcalError(f"there are nodes of {len(node_of)} sites for {clients} clients")
