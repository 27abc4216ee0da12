"""What a server runs, in plain values: the same for every engine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedcal.core.checks import one_of, positive, read
from fedcal.core.errors import BudgetExceeded, InputError
from fedcal.core.scores import KINDS, Kind
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Integers
from fedcal.privacy import Federation, Ledger, Plan
from fedcal.privacy.agreement import Terms
from fedcal.privacy.ledger import CAP_DELTA
from fedcal.strategies import STRATEGIES
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.server.checkpoint import Checkpoint
from fedcal.strategies.server.outcome import Outcome, Progress, Watch
from fedcal.strategies.settings import Plain, Setting, as_text, check_settings


@dataclass(frozen=True)
class Job:
    """A method with everything the server must know to run it.

    Attributes
    ----------
    method
        a key of `STRATEGIES`
    federation
        public facts and budget
    settings
        the method's own parameters
    secure_aggregation
        "protocol", "masks" or "none"
    dropout
        in a simulation, each client misses each round with this probability
    ledger, cap, cap_delta
        file that a private run is charged to, its total epsilon and delta
    input
        "logits" or "probs": what the clients' rows are, and so what the calibrator takes
    tolerant
        real sites: one that fails, or does not answer in time, is a dropout. In a simulation it
        stops the run, for nobody goes missing unasked
    timeout, grace
        seconds that a client may take to answer, and that all have to appear
    class_digest
        of the names of the classes (`fedcal.core.classes.digest_of`); "" = what the sites agree on
    roster
        under the protocol of secure aggregation: who the sites are (`Roster.to_text`)
    """

    method: str
    federation: Federation
    settings: Mapping[str, Setting] = field(default_factory=dict)
    secure_aggregation: str = "none"
    dropout: float = 0.0
    ledger: str | None = None
    cap: float | None = None
    cap_delta: float | None = None
    input: Kind = "logits"
    tolerant: bool = False
    timeout: float = 3600.0
    grace: float = 60.0
    class_digest: str = ""
    roster: str = ""

    def __post_init__(self) -> None:
        positive("timeout", self.timeout)
        positive("grace", self.grace)
        if not 0 <= self.dropout <= 1:
            raise InputError(f"dropout must be in [0, 1], got {self.dropout!r}")
        one_of("input", self.input, KINDS)

    def to_fields(self) -> dict[str, Plain]:
        """Flat values under Flower's dashed names; what is None becomes 0 or ""."""
        return {
            "method": self.method,
            **self.federation.to_fields(),
            "seed": int(self.federation.seed),
            "settings": as_text(self.settings),
            "secure-aggregation": self.secure_aggregation,
            "dropout": float(self.dropout),
            "ledger": os.path.abspath(self.ledger) if self.ledger else "",
            "cap": float(self.cap or 0),
            "cap-delta": float(self.cap_delta or 0),
            "input": self.input,
            "tolerant": self.tolerant,
            "timeout": float(self.timeout),
            "grace": float(self.grace),
            "class-digest": self.class_digest,
            "roster": self.roster,
        }

    @classmethod
    def from_fields(
        cls, fields: Mapping[str, Any], nodes: int = 0, classes: int = 0, input: Kind = "logits"
    ) -> Self:
        """Return the job that `to_fields` wrote, or that was written by hand.

        Parameters
        ----------
        fields
            values by dashed name
        nodes
            what `clients` = 0 stands for
        classes
            what `classes` = 0 stands for
        input
            what `input` = "" stands for

        Raises
        ------
        InputError
            If a key is missing or its value is not allowed.
        """
        ledger = read(fields, "ledger", str)
        if ledger and not os.path.isabs(ledger):
            raise InputError(f"'ledger' of the run config must be an absolute path, got {ledger!r}")
        method = one_of("method", read(fields, "method", str), STRATEGIES, "fedcal simulate --help")
        settings = _settings(read(fields, "settings", str))
        check_settings(method, settings)
        return cls(
            method=method,
            federation=replace(
                Federation.from_fields(fields, nodes, classes), seed=read(fields, "seed", int)
            ),
            settings=settings,
            secure_aggregation=read(fields, "secure-aggregation", str),
            dropout=read(fields, "dropout", float),
            ledger=ledger or None,
            cap=read(fields, "cap", float) or None,
            cap_delta=read(fields, "cap-delta", float) or None,
            input=one_of("input", read(fields, "input", str) or input, KINDS),
            tolerant=read(fields, "tolerant", bool),
            timeout=read(fields, "timeout", float),
            grace=read(fields, "grace", float),
            class_digest=read(fields, "class-digest", str),
            roster=read(fields, "roster", str),
        )

    @cached_property
    def plan(self) -> Plan:
        """The privacy plan; making it refuses settings that are not allowed."""
        return self._made[0].plan

    @cached_property
    def _made(self) -> list[FederatedStrategy]:
        """The strategy that made the plan, until a run takes it."""
        return [self.strategy()]

    def strategy(self) -> FederatedStrategy:
        """Return a new strategy; InputError for settings that are not allowed."""
        method: Callable[..., FederatedStrategy] = STRATEGIES[self.method].of(self.settings)
        return method(self.federation, secure_aggregation=self.secure_aggregation, **self.settings)

    def unavailable(self, round_number: int) -> Integers:
        """Clients that miss the round: each with probability `dropout`, independently."""
        if not self.dropout:
            return np.empty(0, np.int64)
        draws = stream(self.federation.seed, Purpose.DROPOUT, round_number)
        return np.flatnonzero(draws.random(self.federation.clients) < self.dropout)

    def run(
        self,
        drive: Callable[[FederatedStrategy], object],
        progress: Progress | None = None,
        *,
        folder: Path | None = None,
        resume: bool = False,
        every: int = 1,
        about: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Let `drive` run a fresh strategy through all its rounds.

        Parameters
        ----------
        folder
            where a checkpoint is kept after each release
        resume
            go on from the one that is there
        every
            releases between two checkpoints of a method that keeps none, in a simulation; noise of
            the operating system's is never drawn twice, so it allows none to be lost
        about
            what else must be the same to go on

        Raises
        ------
        InputError
            If settings are not allowed or the ledger refuses; nothing was released.
        RoundFailed
            If a client failed or nobody answered.
        """
        plan, most = self.plan, self.cap_delta or CAP_DELTA  # refuses bad settings
        if self.ledger and not os.path.exists(self.ledger) and plan.delta > most:
            raise BudgetExceeded(  # before a file is made
                f"delta = {plan.delta:g} is above the cap on delta of a new ledger, {most:g}; "
                "give cap_delta"
            )
        with (
            Ledger(self.ledger, self.cap, self.cap_delta)
            if self.ledger
            else nullcontext() as ledger
        ):
            strategy = self._made.pop() if self._made else self.strategy()
            strategy.charge_to(ledger)
            watch = Watch(strategy, progress)
            start = time.perf_counter()
            if folder is not None:
                once = strategy.keeps_releases or plan.noise_source == "system"
                fields = {**self.to_fields(), **(about or {})}
                checkpoint = Checkpoint.follow(
                    strategy, fields, folder, resume=resume, every=1 if once else every
                )
                start -= checkpoint.seconds
            try:
                drive(strategy)
            except KeyboardInterrupt:
                if folder is not None:
                    checkpoint.save(folder)
                raise
            seconds = time.perf_counter() - start
        artifact = strategy.result()
        for learnt in (artifact, *watch.history):
            learnt.learnt_on(self.input)
        return Outcome(
            artifact=artifact,
            history=watch.history,
            records=watch.records,
            bytes_up=round(strategy.bytes_up),
            bytes_down=round(strategy.bytes_down),
            seconds=None if plan.secret_sample else seconds,
            round_seconds=[] if plan.secret_sample else np.diff([start, *watch.times]).tolist(),
            run=strategy.run,
            job=self.to_fields(),
            at_limits=strategy.at_limits(),
        )


def terms_of_job(fields: Mapping[str, Any], classes: int, input: Kind) -> Terms:
    """Return the terms of a job from its fields alone, against which a site checks a request.

    Parameters
    ----------
    fields
        as `Job.to_fields` writes them
    classes, input
        what `classes` = 0 and `input` = "" stand for

    Raises
    ------
    InputError
        If there is no such job.
    """
    strategy = Job.from_fields(fields, classes=classes, input=input).strategy()
    result = strategy.result()
    size = sum(array.nbytes for array in result.arrays().values())
    return Terms(strategy.plan, strategy.questions(), result.form, size)


def _settings(text: str) -> dict[str, Setting]:
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict) or not all(
        isinstance(value, Plain) for value in settings.values()
    ):
        raise InputError(
            f"'settings' of the run config must be a JSON object of plain values, got {text!r}"
        )
    return settings
