"""Looks at the test rows while FedAvg trains: exact, for the researcher's eyes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcal.core.errors import RoundFailed
from fedcal.core.numerics import softmax
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.splits import ClientData
from fedcal.metrics import accuracy, nll
from fedcal.privacy.curator import Release
from fedcal.strategies import FedAvg
from fedcal.strategies.base import FederatedStrategy


class Looks:
    """Drives a method over clients' rows; of FedAvg it notes loss and accuracy on the test rows."""

    def __init__(self, config: TrainConfig, data: ClientData) -> None:
        self._every = config.evaluate_every
        self._inputs, self._labels = data.inputs("test"), data.labels("test")
        self._strategy: FederatedStrategy | None = None

    def round_record(self, round_number: int) -> dict[str, Any]:
        """Return what the method tells of a round."""
        return {} if self._strategy is None else self._strategy.round_record(round_number)

    def drive(self, strategy: FederatedStrategy, **rows: Any) -> None:
        """Run a strategy on the clients' rows, as `run_inline` takes them.

        Raises RoundFailed if the loss on the test rows is no number.
        """
        report, self._strategy = strategy.on_release, strategy

        def note(release: Release) -> None:
            number = release.round
            due = number % self._every == 0 or number == strategy.plan.rounds
            if isinstance(strategy, FedAvg) and due:
                self._judge(strategy, number)
            if report is not None:
                report(release)

        strategy.on_release = note
        run_inline(strategy, **rows)

    def _judge(self, strategy: FedAvg, round_number: int) -> None:
        logits = strategy.result().predict(self._inputs)
        if not np.isfinite(logits).all():
            raise RoundFailed(
                f"round {round_number}: the training diverged (the loss is {math.nan}); lower --lr "
                f"(it is {strategy.lr})"
            )
        probs = softmax(logits)
        strategy.judged[round_number] = nll(probs, self._labels), accuracy(probs, self._labels)
