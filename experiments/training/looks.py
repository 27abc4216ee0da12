"""Looks at the test rows while a model is trained: exact, for the researcher's eyes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcal.core import pages
from fedcal.core.errors import RoundFailed
from fedcal.core.numerics import softmax
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.splits import ClientData
from fedcal.metrics import accuracy, nll
from fedcal.privacy.curator import Release
from fedcal.queries import Gradients
from fedcal.strategies import FedAvg
from fedcal.strategies.base import FederatedStrategy
from fedcal.training.model_card import clipped_share, clipping_part

_JUDGED_ROUNDS, _JUDGED_ROWS, _FEWEST_ROWS, _JUDGED_NUMBERS = 24, 500, 50, 2**24
"""Rounds and test rows of which it is told how many gradients would be clipped; of networks with
many weights fewer rows, so that it takes a small part of the training's time."""


class Looks:
    """Drives a method over clients' rows, and looks at the test rows now and then.

    Of FedAvg at its loss and accuracy, every `evaluate_every` rounds; of a method that clips the
    gradients of rows at how many of some test rows' would be clipped.
    """

    def __init__(self, config: TrainConfig, data: ClientData) -> None:
        self._every = config.evaluate_every
        self._inputs, self._labels = data.inputs("test"), data.labels("test")
        self._shares: list[tuple[int, float]] = []
        self._last: Gradients | None = None
        self._strategy: FederatedStrategy | None = None

    def round_record(self, round_number: int) -> dict[str, Any]:
        """Return what the method tells of a round."""
        return {} if self._strategy is None else self._strategy.round_record(round_number)

    def drive(self, strategy: FederatedStrategy, **rows: Any) -> None:
        """Run a strategy on the clients' rows, as `run_inline` takes them.

        Raises RoundFailed if the loss on the test rows is no number.
        """
        report, self._strategy = strategy.on_release, strategy
        rounds = strategy.plan.rounds
        some = set(np.unique(np.linspace(1, rounds, _JUDGED_ROUNDS).astype(int)).tolist())

        def note(release: Release) -> None:
            number = release.round
            if isinstance(strategy, FedAvg) and (number % self._every == 0 or number == rounds):
                self._judge(strategy, number)
            elif number in some:
                self._count_clipped(strategy, number)
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

    def _count_clipped(self, strategy: FederatedStrategy, round_number: int) -> None:
        query = strategy.query(round_number)
        if isinstance(query, Gradients):
            most = max(_FEWEST_ROWS, min(_JUDGED_ROWS, _JUDGED_NUMBERS // len(query.w)))
            rows = np.unique(np.linspace(0, len(self._labels) - 1, most).astype(np.int64))
            share = clipped_share(query, self._inputs[rows], self._labels[rows])
            self._shares.append((round_number, share))
            self._last = query

    def parts(self) -> list[pages.Part]:
        """Return the figure of clipped gradients, if there is anything in it."""
        return [] if self._last is None else [clipping_part(self._shares, self._last)]
