"""The resolved configuration of a run: one set of names for command line, TOML and Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcal import partition
from fedcal.accounting.gaussian import check_epsilon, check_rate
from fedcal.core.checks import one_of, positive, unused
from fedcal.core.classes import names_in
from fedcal.core.errors import InputError
from fedcal.core.optional import named
from fedcal.core.streams import check_seed
from fedcal.datasets import CSV_FORMS
from fedcal.experiments.runs.options import (
    DATA,
    PRIVACY,
    RUNNING,
    SITES,
    Options,
    layered,
    option,
    options_of,
    read_options,
)
from fedcal.mechanisms import FORMER, PRIVATE
from fedcal.privacy.federation import QUORUM, check_quorum, check_size
from fedcal.privacy.ledger import CAP_DELTA
from fedcal.secure_aggregation import SECURE_AGGREGATION
from fedcal.secure_aggregation.committee import read_committee
from fedcal.storage.atomic import path_of
from fedcal.storage.toml_files import toml_value
from fedcal.strategies import STRATEGIES, register
from fedcal.strategies.settings import Setting, check_settings, settings_of
from fedcal.trust import TRUSTS
from fedcal.units import UNITS, User

POOLED = {
    "none": "uncalibrated",
    "one-source": "one source",
    "pooled-temperature": "pooled temperature",
    "pooled-bbq": "pooled BBQ",
}
"""What is fitted without a federation, on nothing, one client's rows, or all -> its label."""
METHODS = (*STRATEGIES, *POOLED)


def label_of(method: str) -> str:
    """Return a method's label in tables."""
    strategy = STRATEGIES.get(method)
    return strategy.__name__ if strategy else POOLED.get(method, method)


def method_named(text: Any) -> Any:
    """Return the name of a method given by name or label in any case; others are unchanged.

    `module:Class`, or in Python the class itself, is a method of another package (`register`).
    """
    if isinstance(text, type):
        return register(text)
    if not isinstance(text, str):
        return text
    if ":" in text and text not in STRATEGIES:
        return register(named("--method", text.strip()))
    spelt = {form.lower(): m for m in (*STRATEGIES, *POOLED) for form in (label_of(m), m)}
    return spelt.get(text.strip().lower(), text.strip())


_ROWS_ANEW = (
    "a ledger is for one population, and a comparison deals the same rows anew for each "
    "partition and seed; the table states the sum of its runs instead"
)
_OF_LEDGER = "it belongs to a ledger, and compare takes none"
_NOT_GRID = "its file holds what to compare, not where it is computed; give --{}"
_OF_SITES = "it is about real sites, and a comparison is a simulation"

ENGINES = ("inline", "ray", "flower", "grpc")
APP = "app"
"""The engine of a run in a Flower app of somebody else's, which only that app can start."""

TIMEOUT, GRACE = 120.0, 60.0
"""Seconds that a site may take to answer, and that the sites have to appear."""

_UNITS = " | ".join(unit.meaning.partition(";")[0] for unit in UNITS.values())


@dataclass(frozen=True)
class Config(Options):
    """Options of a run. `None` means the method's (or the data's) own default."""

    data: str = option("resnet110-cifar10", DATA, "A shipped name or a file", axis=True)
    class_names: str | None = option(
        None,
        DATA,
        "Comma-separated names of the classes, in the order of the columns; real sites must have "
        "the same",
        unset="the columns' names, if any",
    )
    csv: str | None = option(
        None,
        DATA,
        "Form of CSV files: en: commas, decimal points | de: semicolons, decimal commas",
        unset="en",
    )
    positive: str | None = option(
        None,
        DATA,
        "Positive class of two, for recall, AUC and thresholds",
        unset="the second",
    )
    method: str = option(
        "fednewton",
        DATA,
        f"{' | '.join(METHODS)} | MODULE:CLASS: your own",
        axis=True,
        read=method_named,
    )
    clients: int | None = option(None, DATA, "Number of enrolled clients", unset="100", axis=True)
    partition: str = option(
        "dirichlet:0.1", DATA, " | ".join(partition.forms()), axis=True, read=partition.spelt
    )
    rounds: int | None = option(None, DATA, "Number of rounds", unset="the method's", axis=True)
    sampling_rate: float = option(
        1.0, DATA, "Probability that a client takes part in a round", axis=True
    )
    epsilon: float = option(
        math.inf, PRIVACY, "Privacy budget of the complete run for each unit", axis=True
    )
    delta: float = option(1e-5, PRIVACY, "Probability that the privacy bound fails", axis=True)
    unit: str = option(User.name, PRIVACY, _UNITS, axis=True)
    trust: str | None = option(
        None,
        PRIVACY,
        "Who adds noise: secagg: no party | central: the server | distributed: each client a "
        "share | local: each client all of it",
        unset="secagg at epsilon inf, else central",
        axis=True,
    )
    engine: str = option(
        "inline",
        RUNNING,
        "inline: this process | ray: workers of a Ray cluster, many clients each | "
        "flower: Flower's simulation on Ray | grpc: a process for each client",
        elsewhere=_NOT_GRID.format("engine"),
    )
    secure_aggregation: str | None = option(
        None,
        PRIVACY,
        "none | masks: simulated, the server knows their seed | protocol: among the sites",
        unset="protocol with a federation file, masks with simulated trust distributed, else none",
    )
    committee: str | None = option(
        None,
        PRIVACY,
        "Protocol: C,T: number of members, and how many of them open a sum",
        unset="3,2 4,3 5,4 6,5 for 3 to 6 clients, else 7,5",
    )
    colluding: int | None = option(
        None,
        PRIVACY,
        "Protocol: number of sites that may collude with the server; noise does not rely on them",
        unset="as many as the committee allows",
    )
    mechanism: str = option(
        "auto",
        PRIVACY,
        f"auto | {' | '.join(PRIVATE)}",
        unset="auto: what suits method and trust model",
        axis=True,
    )
    quorum: float = option(
        QUORUM,
        PRIVACY,
        "Trust distributed, protocol: fraction of the clients that must answer a round",
    )
    noise_source: str = option(
        "seeded", PRIVACY, "seeded: repeatable | system: the operating system's"
    )
    dropout: float = option(0.0, DATA, "Probability that a sampled client fails to answer")
    seed: int = option(0, RUNNING, "Random seed for partition, sampling and noise")
    ray_address: str | None = option(
        None,
        RUNNING,
        "HOST:PORT of a Ray cluster for the engines ray and flower",
        unset="a new one",
        elsewhere=_NOT_GRID.format("ray-address"),
    )
    control: str | None = option(
        None,
        SITES,
        "HOST:PORT of the control API of a SuperLink with real sites",
        unset="a SuperLink and sites on this machine",
        elsewhere=_OF_SITES,
    )
    root_certificates: str | None = option(
        None, SITES, "PEM file that verifies the SuperLink's certificate", elsewhere=_OF_SITES
    )
    federation: str | None = option(
        None,
        SITES,
        "federation.toml: the sites' keys and the committee of their secure sums",
        unset="none: the server sees what each site sends",
        elsewhere=_OF_SITES,
    )
    timeout: float | None = option(
        None,
        SITES,
        "Seconds that a site may take to answer, before it counts as a dropout",
        unset=f"{TIMEOUT:g}",
        elsewhere=_OF_SITES,
    )
    grace: float | None = option(
        None,
        SITES,
        "Seconds to wait for all sites to connect",
        unset=f"{GRACE:g}",
        elsewhere=_OF_SITES,
    )
    ledger: str | None = option(
        None, PRIVACY, "SQLite file in which the budget is charged", elsewhere=_ROWS_ANEW
    )
    cap: float | None = option(None, PRIVACY, "Total epsilon of the ledger", elsewhere=_OF_LEDGER)
    cap_delta: float | None = option(
        None,
        PRIVACY,
        "Total delta of the ledger",
        unset=f"{CAP_DELTA:g} in a new file",
        elsewhere=_OF_LEDGER,
    )
    set: Mapping[str, Setting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", FORMER.get(self.mechanism, self.mechanism))
        one_of("method", self.method, (*STRATEGIES, *POOLED), "fedcal simulate --help")
        one_of("engine", self.engine, ENGINES if self.engine != APP else (APP,))
        if self.secure_aggregation is not None:
            one_of("secure aggregation", self.secure_aggregation, SECURE_AGGREGATION)
        self._check_protocol()
        check_size(self.clients, self.rounds)
        check_rate(self.sampling_rate)
        check_epsilon(self.epsilon, allow_infinite=True)
        check_seed(self.seed)
        number = isinstance(self.dropout, (int, float)) and not isinstance(self.dropout, bool)
        if not number or not 0 <= self.dropout <= 1:
            raise InputError(f"dropout must be in [0, 1], got {self.dropout!r}")
        partition.parse(self.partition)
        if self.csv is not None:
            one_of("csv", self.csv, CSV_FORMS)
        check_quorum(self.quorum, self.trust, int(self.protocol))
        for name in ("cap", "cap_delta"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
                if self.ledger is None:
                    raise InputError(f"{name} needs a ledger: give --ledger FILE")
        if self.cap is not None and self.cap < self.epsilon < math.inf:
            raise InputError(f"epsilon = {self.epsilon:g} is above the cap of {self.cap:g}")
        if self.ray_address is not None and self.engine not in ("ray", "flower"):
            raise InputError("ray_address needs a cluster: give --engine ray or flower")
        self._check_sites()
        if self.ledger is not None and math.isinf(self.epsilon):
            raise InputError("a run without privacy cannot be charged to a ledger; give --epsilon")
        if self.method in POOLED and math.isfinite(self.epsilon):
            raise InputError(
                f"method '{self.method}' reads the rows themselves and has no private form; "
                "leave epsilon at inf"
            )
        check_settings(self.method, self.set)

    @property
    def protocol(self) -> bool:
        """True if sites add up among themselves: requested, or named by a federation file."""
        return self.secure_aggregation == "protocol" or self.federation is not None

    @property
    def real(self) -> bool:
        """True if the clients are real ones, each with its own rows."""
        return self.control is not None or self.engine == APP

    def _check_protocol(self) -> None:
        if not self.protocol:
            unused(
                "it is for secure aggregation 'protocol'",
                committee=self.committee,
                colluding=self.colluding,
            )
            return
        if self.secure_aggregation not in (None, "protocol"):
            raise InputError("a federation file is for secure aggregation 'protocol'")
        if self.federation is not None:
            unused("the federation file names it", committee=self.committee)
        if self.engine == "flower":
            raise InputError(
                "secure aggregation 'protocol' needs sites that remember their answers: give "
                "--engine inline, ray or grpc"
            )
        if self.committee is not None:
            read_committee(self.committee)

    def _check_sites(self) -> None:
        """Check options of sites and messages, and those that real sites exclude."""
        present = [name for name in _SITES if getattr(self, name) is not None]
        if present and self.engine not in ("grpc", APP):
            raise InputError(f"{present[0]} needs the engine grpc: give --engine grpc")
        for name in ("timeout", "grace"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        if self.class_names is not None:
            names_in(self.class_names)
        if self.control is None:
            for name in ("root_certificates", "federation"):
                if getattr(self, name) is not None:
                    raise InputError(f"{name} needs real sites: give --control HOST:PORT")
            if not self.real:
                return
        elif self.root_certificates is None:
            raise InputError("control needs root_certificates: the control API is reached by TLS")
        elif self.clients is None and self.federation is None:
            raise InputError("with real sites --clients or --federation must say who is enrolled")
        if self.method in POOLED:
            raise InputError(
                f"method '{self.method}' reads rows, and real sites keep theirs: give a federated "
                "method (`fedcal plan` compares them)"
            )
        unused(
            "at real sites the second of class_names is positive, and theirs must be the same",
            positive=self.positive,
        )
        if self.dropout or self.partition not in (Config.partition, "natural"):
            raise InputError("dropout and partition are for simulations, not for real sites")
        shared = self.trust is not None and TRUSTS[one_of("trust", self.trust, TRUSTS)].shared
        if self.secure_aggregation == "masks" or (shared and self.federation is None):
            raise InputError(
                "masks that the server knows protect nothing from it, and a share of noise "
                "protects nothing without a secure sum: with real sites give --federation FILE, "
                "or --trust central or local"
            )
        if self.secure_aggregation == "protocol" and self.federation is None:
            raise InputError(
                "the protocol among real sites needs their keys: give --federation FILE"
            )


SIMULATED = (
    *("engine", "ray_address", "partition", "dropout", "noise_source"),
    *("secure_aggregation", "committee", "positive"),
)
"""Options that `fedcal deploy` has no use for."""

_SITES = ("control", "root_certificates", "federation", "timeout", "grace")
_OPTIONS = options_of(Config)


def load_config(path: str | Path, overrides: Mapping[str, Any]) -> Config:
    """Return a Config from a TOML file and overriding values.

    The file of a run holds the given options; the others are resolved again. What belongs to an
    overridden value in the file goes with it: a method's rounds and `set` (but for
    `rows_per_client`, which is about the clients), a trust model's quorum, and, where privacy is
    switched on or off, the trust model.
    """
    base, overriding = _read(read_options(path_of(path))), _read(overrides)
    changed = {key for key in base.keys() & overriding if base[key] != overriding[key]}
    stale = {"rounds"} if "method" in changed else set[str]()
    if "trust" in changed:
        stale |= {"quorum"}
    if "epsilon" in changed and math.isinf(base["epsilon"]) != math.isinf(overriding["epsilon"]):
        stale |= {"trust", "quorum"}
    if "method" in changed and "set" in base:
        known = settings_of(overriding["method"]).keys() & {"rows_per_client"}
        base["set"] = {k: v for k, v in base["set"].items() if k in known}
    return merge({k: v for k, v in base.items() if k not in stale}, overriding)


def merge(*layers: Mapping[str, Any]) -> Config:
    """Return a Config from several layers, later ones winning; `set` tables are joined."""
    return Config(**_read(*layers))


def _read(*layers: Mapping[str, Any]) -> dict[str, Any]:
    return layered(_OPTIONS, *layers, tables=("set",))


def parse_setting(text: str) -> tuple[str, Setting]:
    """`KEY=VALUE` of `--set`; the value is TOML (7, 0.5, true), a JSON list or plain text."""
    key, sign, raw = text.partition("=")
    if not sign or not key.strip():
        raise InputError(f"--set takes KEY=VALUE, got {text!r}")
    value = toml_value(raw)
    if isinstance(value, list):  # a method's own list is text, as files and messages hold it
        value = raw.strip()
    if not isinstance(value, (bool, int, float, str)):
        raise InputError(f"--set {key}: a value must be a number, true, false, a list or text")
    return key.strip(), value
