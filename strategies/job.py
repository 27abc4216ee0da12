"""What a server runs, in plain values, and what came of it: the same for every engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from fedcal.calibrators import Calibrator, TemperatureScaling
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.plan import Federation, Plan
from fedcal.release import Release
from fedcal.streams import Purpose, stream
from fedcal.types import Integers
from strategies import STRATEGIES
from strategies.base import CalibrationStrategy

Setting: TypeAlias = bool | int | float | str
"""A method's own parameter, as files and messages can hold it."""

Progress: TypeAlias = Callable[[int, int], None]
"""(rounds done, rounds planned)."""


@dataclass(frozen=True)
class Outcome:
    """What a federated run leaves behind.

    Attributes
    ----------
    calibrator : after the last round
    history : the calibrator after each release
    records : one for each release: round, query, released values, noise_std, temperature
    bytes_up, bytes_down : payload that one client is expected to send and get over the run
    seconds : of the rounds
    """

    calibrator: Calibrator
    history: list[Calibrator]
    records: list[dict[str, Any]]
    bytes_up: int
    bytes_down: int
    seconds: float


@dataclass(frozen=True)
class Job:
    """A method with everything the server must know to run it.

    Attributes
    ----------
    method : a key of `STRATEGIES`
    federation : public facts and budget
    settings : the method's own parameters
    secure_aggregation : "masks" or "none"
    dropout : in a simulation, each client misses each round with this probability
    ledger, cap : file that a private run is charged to, and its total epsilon
    """

    method: str
    federation: Federation
    settings: Mapping[str, Setting] = field(default_factory=dict)
    secure_aggregation: str = "none"
    dropout: float = 0.0
    ledger: str | None = None
    cap: float | None = None

    @cached_property
    def plan(self) -> Plan:
        """The privacy plan; making it refuses settings that are not allowed."""
        return self.strategy().plan

    def strategy(self, ledger: Ledger | None = None) -> CalibrationStrategy:
        """A fresh strategy; InputError for settings that are not allowed."""
        method: Callable[..., CalibrationStrategy] = STRATEGIES[self.method]
        return method(
            self.federation,
            ledger=ledger,
            secure_aggregation=self.secure_aggregation,
            **self.settings,
        )

    def unavailable(self, round_number: int) -> Integers:
        """Clients that miss the round: each with probability `dropout`, independently."""
        if not self.dropout:
            return np.zeros(0, np.int64)
        return dropouts(self.federation.seed, self.federation.clients, self.dropout, round_number)

    def run(
        self, drive: Callable[[CalibrationStrategy], object], progress: Progress | None = None
    ) -> Outcome:
        """Let `drive` run a fresh strategy through all its rounds.

        Raises
        ------
        InputError
            If settings are not allowed or the ledger refuses; nothing was released.
        RoundFailed
            If a client failed or nobody answered.
        """
        self.plan  # noqa: B018  refuses bad settings before a new ledger file is made
        with Ledger(self.ledger, self.cap) if self.ledger else nullcontext() as ledger:
            strategy = self.strategy(ledger)
            watch = _Watch(strategy, progress)
            start = time.perf_counter()
            drive(strategy)
            seconds = time.perf_counter() - start
        return Outcome(
            calibrator=strategy.result(),
            history=watch.history,
            records=watch.records,
            bytes_up=round(strategy.bytes_up),
            bytes_down=round(strategy.bytes_down),
            seconds=seconds,
        )


def dropouts(seed: int, clients: int, rate: float, round_number: int) -> Integers:
    """The clients that miss a round, each with probability `rate`, independently."""
    return np.flatnonzero(stream(seed, Purpose.DROPOUT, round_number).random(clients) < rate)


class _Watch:
    """Keeps what was released in each round."""

    def __init__(self, strategy: CalibrationStrategy, progress: Progress | None) -> None:
        self.records: list[dict[str, Any]] = []
        self.history: list[Calibrator] = []
        self._strategy, self._progress = strategy, progress
        strategy.on_release = self._note

    def _note(self, release: Release) -> None:
        record = {
            "round": release.round,
            "query": release.kind,
            "values": release.values.tolist(),
            "noise_std": self._strategy.plan.noise_std,
        }
        calibrator = self._strategy.result()
        if isinstance(calibrator, TemperatureScaling):
            record["temperature"] = calibrator.temperature
        self.records.append(record)
        self.history.append(calibrator)
        if self._progress is not None:
            self._progress(len(self.records), self._strategy.plan.rounds)
