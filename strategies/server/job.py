"""The job of a server, in plain values: the same for every engine."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np

from fedcal.core.checks import InputError, interval, one_of, read
from fedcal.core.numerics import Integers, Kind, Purpose, stream
from fedcal.core.options import DATA, PRIVACY, SITES, Options, Positive, among, like, option
from fedcal.privacy import Federation, Ledger, Plan, agreement
from fedcal.privacy.ledger import CAP_DELTA
from fedcal.privacy.privacy import check_caps
from fedcal.privacy.wire import federation_of, read_fields
from fedcal.secure_aggregation import SECURE_AGGREGATION
from fedcal.strategies import STRATEGIES, base
from fedcal.strategies.server import outcome
from fedcal.strategies.server.checkpoint import Checkpoint, absolute
from fedcal.strategies.settings import Plain, Setting, as_text, check_settings

TIMEOUT, GRACE = 120.0, 60.0
"""Seconds that a site may take to answer, and that the sites have to appear."""


@dataclass(frozen=True, kw_only=True)
class Books(Options):
    """The ledger of a run, and how its sums are made.

    Attributes
    ----------
    secure_aggregation
        "protocol", "masks" or "none"
    ledger, cap, cap_delta
        file that a private run is charged to, its total epsilon and delta
    """

    secure_aggregation: Annotated[str, among(SECURE_AGGREGATION)] | None = option(
        None,
        PRIVACY,
        "none | masks: simulated, the server knows their seed | protocol: among the sites",
        unset="protocol with a federation file, masks with simulated trust distributed, else none",
    )
    ledger: str | None = option(None, PRIVACY, "SQLite file in which the budget is charged")
    cap: Positive | None = option(None, PRIVACY, "Total epsilon of the ledger")
    cap_delta: Positive | None = option(
        None, PRIVACY, "Total delta of the ledger", unset=f"{CAP_DELTA:g} in a new file"
    )


@dataclass(frozen=True, kw_only=True)
class Running(Books):
    """Options of a run for clients that are away.

    Attributes
    ----------
    dropout
        in a simulation, each client misses each round with this probability
    timeout, grace
        seconds that a client may take to answer, and that all have to appear
    """

    dropout: Annotated[float, interval("[0, 1]")] = option(
        0.0, DATA, "Probability that a sampled client fails to answer"
    )
    timeout: Positive | None = option(
        None,
        SITES,
        "Seconds that a site may take to answer, before it counts as a dropout",
        unset=f"{TIMEOUT:g}",
    )
    grace: Positive | None = option(
        None, SITES, "Seconds to wait for all sites to connect", unset=f"{GRACE:g}"
    )


@dataclass(frozen=True)
class Job(Running):
    """A method with everything the server must know to run it.

    Attributes
    ----------
    method
        a key of `STRATEGIES`
    federation
        public facts and budget
    settings
        the method's own parameters
    input
        "logits" or "probs": what the clients' rows are, and so what the calibrator takes
    tolerant
        real sites: one that fails, or does not answer in time, is a dropout. In a simulation it
        stops the run, for nobody goes missing unasked
    class_digest
        of the names of the classes (`fedcal.core.naming.digest_of`); "" = what the sites agree on
    roster
        under the protocol of secure aggregation: who the sites are (`Roster.to_text`)
    """

    method: str
    federation: Federation
    settings: Mapping[str, Setting] = field(default_factory=dict)
    input: Kind = "logits"
    tolerant: bool = False
    class_digest: str = ""
    roster: str = ""
    _: KW_ONLY
    secure_aggregation: Annotated[str, among(SECURE_AGGREGATION)] = like(
        Running, "secure_aggregation", "none"
    )
    timeout: Positive = like(Running, "timeout", 3600.0)
    grace: Positive = like(Running, "grace", GRACE)

    def to_fields(self) -> dict[str, Plain]:
        """Flat values under Flower's dashed names; what is None becomes 0 or ""."""
        facts = self.federation.to_fields()
        return {
            "method": self.method,
            **{key: facts[key] for key in ("clients", "classes")},
            **facts,
            **super().to_fields(),
            "settings": as_text(self.settings),
            "ledger": os.path.abspath(self.ledger) if self.ledger else "",
        }

    @classmethod
    def from_fields(
        cls, fields: Mapping[str, Any], nodes: int = 0, classes: int = 0, input: Kind = "logits"
    ) -> Self:
        """Return the job that `to_fields` wrote, or that was written by hand.

        Raises InputError if a key is missing or its value is not allowed.

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
        """
        known = read_fields(cls, fields, input=input)
        if known["ledger"]:
            absolute("ledger", known["ledger"])
        one_of("method", known["method"], STRATEGIES, "fedcal simulate --help")
        settings = _settings(read(fields, "settings", str))
        check_settings(known["method"], settings)
        return cls(federation=federation_of(fields, nodes, classes), settings=settings, **known)

    @cached_property
    def plan(self) -> Plan:
        """The privacy plan; making it refuses settings that are not allowed."""
        return self._made[0].plan

    @cached_property
    def _made(self) -> list[base.FederatedStrategy]:
        """The strategy that made the plan, until a run takes it."""
        return [self.strategy()]

    def strategy(self) -> base.FederatedStrategy:
        """Return a new strategy; InputError for settings that are not allowed."""
        method: Callable[..., base.FederatedStrategy] = STRATEGIES[self.method]
        return method(self.federation, secure_aggregation=self.secure_aggregation, **self.settings)

    def terms(self) -> agreement.Terms:
        """Return what a site is asked to agree to; InputError for settings that are not allowed."""
        strategy, fields = self.strategy(), self.to_fields()
        plan = replace(strategy.plan, federation=replace(self.federation, seed=0))
        result = strategy.result()
        size = sum(array.nbytes for array in result.arrays().values())
        facts = {name: fields[name] for name in agreement.AGREED}
        asked = strategy.questions(), result.form, strategy.norms
        return agreement.Terms(facts, plan, *asked, size)

    def unavailable(self, round_number: int) -> Integers:
        """Clients that miss the round: each with probability `dropout`, independently."""
        if not self.dropout:
            return np.empty(0, np.int64)
        draws = stream(self.federation.seed, Purpose.DROPOUT, round_number)
        return np.flatnonzero(draws.random(self.federation.clients) < self.dropout)

    def run(
        self,
        drive: Callable[[base.FederatedStrategy], object],
        progress: outcome.Progress | None = None,
        *,
        folder: Path | None = None,
        resume: bool = False,
        every: int = 1,
        about: Mapping[str, Any] | None = None,
    ) -> outcome.Outcome:
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
        plan = self.plan  # refuses bad settings
        if self.ledger and plan.private and not os.path.exists(self.ledger):  # it makes no file
            caps = self.cap or math.inf, self.cap_delta or CAP_DELTA
            named = f"new ledger {self.ledger} of --cap and --cap-delta"
            check_caps(named, self.method, (self.federation.epsilon, plan.delta), (), caps)
        books = Ledger(self.ledger, self.cap, self.cap_delta) if self.ledger else nullcontext()
        with books as ledger:
            strategy = self._made.pop() if self._made else self.strategy()
            strategy.charge_to(ledger)
            watch = outcome.Watch(strategy, progress)
            strategy.on_release = watch.note
            start = time.perf_counter()
            if folder is not None:
                once = strategy.keeps_releases or plan.federation.noise_source == "system"
                fields = {**self.to_fields(), **(about or {})}
                every = 1 if once else every
                checkpoint = Checkpoint.follow(strategy, fields, folder, resume=resume, every=every)
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
        return outcome.Outcome(
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


def _settings(text: str) -> dict[str, Setting]:
    with suppress(ValueError):
        settings = json.loads(text)
        if isinstance(settings, dict) and all(isinstance(v, Plain) for v in settings.values()):
            return settings
    allowed = "a JSON object of plain values"
    raise InputError(f"'settings' of the run config must be {allowed}, got {text!r}")
