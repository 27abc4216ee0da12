"""What a server runs, in plain values, and what came of it: the same for every engine."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from fedcal.artifact import ARTIFACTS, Artifact
from fedcal.atomic import whole_file
from fedcal.calibrators import Calibrator, calibrator_of
from fedcal.checks import one_of
from fedcal.errors import BudgetExceeded, InputError
from fedcal.fields import real, text, whole
from fedcal.privacy.federation import Federation
from fedcal.privacy.ledger import CAP_DELTA, Ledger
from fedcal.privacy.plan import Plan
from fedcal.release import Release
from fedcal.scores import KINDS, Kind
from fedcal.shards import NO_SUBJECTS, Shards
from fedcal.strategies import STRATEGIES
from fedcal.strategies.base import CalibrationStrategy
from fedcal.strategies.method import Method
from fedcal.streams import Purpose, stream
from fedcal.types import Integers
from fedcal.units import UNITS

Setting: TypeAlias = bool | int | float | str
"""A method's own parameter, as files and messages can hold it."""

Progress: TypeAlias = Callable[[int, int], None]
"""(rounds done, rounds planned)."""


@dataclass(frozen=True)
class Outcome:
    """What a federated run leaves behind.

    Attributes
    ----------
    artifact : after the last round
    history : the artifact after each release
    records : one for each release: round, query, released values, noise_std, and what the artifact
        tells of itself (`temperature`)
    bytes_up, bytes_down : payload that one client is expected to send and get over the run
    seconds : of the rounds; None where who is sampled is secret, because it tells how many
    round_seconds : of each of them; empty there
    """

    artifact: Artifact
    history: list[Artifact]
    records: list[dict[str, Any]]
    bytes_up: int
    bytes_down: int
    seconds: float | None
    round_seconds: list[float]

    @property
    def calibrator(self) -> Calibrator:
        """The artifact of a method that calibrates; FedcalError of another one."""
        return calibrator_of(self.artifact)

    def save(self, folder: Path) -> None:
        """Write everything into an existing folder, without a loss of a bit.

        `outcome.json` comes last: where it is, all is.
        """
        self.artifact.write(folder, self.artifact.form)
        for number, learnt in enumerate(self.history, 1):
            learnt.write(folder, f"round-{number}")
        plain = {"form": self.artifact.form, **{key: getattr(self, key) for key in _PLAIN}}
        with whole_file(folder / OUTCOME) as file:
            file.write(json.dumps(plain).encode())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote; InputError if it is not there or not whole."""
        try:
            plain = json.loads((folder / OUTCOME).read_text("utf-8"))
            rest = {key: plain[key] for key in _PLAIN}
            form = ARTIFACTS[plain.get("form", "calibrator")]
        except (OSError, ValueError, KeyError):
            raise InputError(f"{folder} holds no outcome of a run") from None
        numbers = range(1, len(rest["records"]) + 1)
        history = [form.read(folder, f"round-{number}") for number in numbers]
        return cls(form.read(folder, form.form), history, **rest)


OUTCOME = "outcome.json"
"""The file that says that an outcome is whole."""

RELEASED = ("round", "query", "values", "noise_std")
"""Keys of a record; the others are what the artifact tells of itself."""

_PLAIN = ("records", "bytes_up", "bytes_down", "seconds", "round_seconds")


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
    ledger, cap, cap_delta : file that a private run is charged to, its total epsilon and delta
    input : "logits" or "probs": what the clients' rows are, and so what the calibrator takes
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

    def __post_init__(self) -> None:
        if not 0 <= self.dropout <= 1:
            raise InputError(f"dropout must be in [0, 1], got {self.dropout!r}")
        one_of("input", self.input, KINDS)

    def to_fields(self) -> dict[str, Setting]:
        """Flat values under Flower's dashed names; what is None becomes 0 or ""."""
        return {
            "method": self.method,
            **self.federation.to_fields(),
            "seed": int(self.federation.seed),
            "settings": json.dumps(dict(self.settings)),
            "secure-aggregation": self.secure_aggregation,
            "dropout": float(self.dropout),
            "ledger": os.path.abspath(self.ledger) if self.ledger else "",
            "cap": float(self.cap or 0),
            "cap-delta": float(self.cap_delta or 0),
            "input": self.input,
        }

    @classmethod
    def from_fields(
        cls,
        fields: Mapping[str, Any],
        nodes: int = 0,
        classes: int = 0,
        input: Kind = "logits",
    ) -> Self:
        """The job that `to_fields` wrote, or that somebody wrote by hand.

        Parameters
        ----------
        fields : values by dashed name
        nodes : what `clients` = 0 stands for
        classes : what `classes` = 0 stands for
        input : what `input` = "" stands for

        Raises
        ------
        InputError
            If a key is missing or its value is not allowed.
        """
        ledger = text(fields, "ledger")
        if ledger and not os.path.isabs(ledger):
            raise InputError(f"'ledger' of the run config must be an absolute path, got {ledger!r}")
        method = one_of("method", text(fields, "method"), STRATEGIES)
        settings = _settings(text(fields, "settings"))
        check_settings(method, settings)
        return cls(
            method=method,
            federation=replace(
                Federation.from_fields(fields, nodes, classes), seed=whole(fields, "seed")
            ),
            settings=settings,
            secure_aggregation=text(fields, "secure-aggregation"),
            dropout=real(fields, "dropout"),
            ledger=ledger or None,
            cap=real(fields, "cap") or None,
            cap_delta=real(fields, "cap-delta") or None,
            input=one_of("input", text(fields, "input") or input, KINDS),
        )

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
            strategy = self.strategy(ledger)
            watch = _Watch(strategy, progress)
            start = time.perf_counter()
            drive(strategy)
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
        )


def calibrating() -> list[str]:
    """Names of the methods that calibrate: what comparison and planner rank."""
    return [name for name, strategy in STRATEGIES.items() if strategy.family == "calibrate"]


def must_calibrate(who: str, method: str) -> None:
    """Refuse a federated method of another family, for `who` ranks calibrators."""
    strategy = STRATEGIES.get(method)
    if strategy is not None and strategy.family != "calibrate":
        raise InputError(
            f"{who} takes methods that calibrate, and {method} is of the family "
            f"'{strategy.family}': run it by fedcal simulate"
        )


def settings_of(method: str) -> dict[str, inspect.Parameter]:
    """The method's own parameters (`--set`), from its constructor; name -> parameter."""
    found: dict[str, inspect.Parameter] = {}
    strategy = STRATEGIES.get(method)
    for cls in strategy.__mro__ if strategy else ():
        for p in inspect.signature(cls).parameters.values():
            if p.kind is p.KEYWORD_ONLY and p.name not in ("ledger", "secure_aggregation"):
                found.setdefault(p.name, p)
    return found


def check_settings(method: str, settings: Mapping[str, Setting]) -> None:
    """Refuse keys that the method does not have; values are checked by the method."""
    known = settings_of(method)
    for key in settings:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise InputError(f"unknown --set key {key!r} for {method}; allowed: {allowed}")


def lacks_rows(method: str, federation: Federation, settings: Mapping[str, Setting]) -> bool:
    """Whether a run needs a nominal `rows_per_client` that nobody gave.

    A deployment must choose this public number without looking. A simulation may take rows /
    clients of its data, and has to say so: it tells how many rows there are.
    """
    if "rows_per_client" in settings or "rows_per_client" not in settings_of(method):
        return False
    return STRATEGIES[method].needs_rows(federation, settings)


def needs_subjects(federation: Federation) -> bool:
    """Whether the guarantee is one for subjects, so that rows must say whom they are about."""
    return federation.private and UNITS[federation.unit].column is not None


def check_subjects(federation: Federation, shards: Shards) -> None:
    """Refuse a promise to subjects that the rows do not name, before anything is asked."""
    if needs_subjects(federation) and shards.subjects is None:
        raise InputError(NO_SUBJECTS)


def dropouts(seed: int, clients: int, rate: float, round_number: int) -> Integers:
    """The clients that miss a round, each with probability `rate`, independently."""
    return np.flatnonzero(stream(seed, Purpose.DROPOUT, round_number).random(clients) < rate)


def _settings(given: str) -> dict[str, Setting]:
    try:
        settings = json.loads(given)
    except ValueError:
        settings = None
    if not isinstance(settings, dict) or not all(
        isinstance(value, Setting) for value in settings.values()
    ):
        raise InputError(
            f"'settings' of the run config must be a JSON object of plain values, got {given!r}"
        )
    return settings


class _Watch:
    """Keeps what was released in each round."""

    def __init__(self, method: Method, progress: Progress | None) -> None:
        self.records: list[dict[str, Any]] = []
        self.history: list[Artifact] = []
        self.times: list[float] = []
        self._method, self._progress = method, progress
        method.on_release = self._note

    def _note(self, release: Release) -> None:
        self.times.append(time.perf_counter())
        plan = self._method.plan
        std = plan.noise_std
        if std is not None and plan.bound is not None and len(release.std):
            # what this round's answers hold: with clients' own noise that depends on their number
            std = tuple(release.std[plan.bound.firsts].tolist())
        artifact = self._method.result()
        record = {
            "round": release.round,
            "query": release.kind,
            "values": release.values.tolist(),
            "noise_std": None if std is None else list(std),
            **artifact.record(),
        }
        self.records.append(record)
        self.history.append(artifact)
        if self._progress is not None:
            self._progress(len(self.records), plan.rounds)
