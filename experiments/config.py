"""The resolved configuration of a run: one set of names for command line, TOML and Python."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedcal import partition
from fedcal.accounting.gaussian import check_epsilon, check_rate
from fedcal.checks import one_of, positive
from fedcal.errors import InputError, NotBuiltYet
from fedcal.privacy.federation import QUORUM, Federation, check_quorum, check_size
from fedcal.shards import Shards
from fedcal.strategies import STRATEGIES
from fedcal.strategies.job import (
    Job,
    Setting,
    check_settings,
    check_subjects,
    lacks_rows,
    settings_of,
)
from fedcal.streams import check_seed
from fedcal.trust import TRUSTS
from fedcal.units import User

POOLED = ("none", "one-source", "pooled-temperature", "pooled-bbq")
"""What is fitted without a federation: on nothing, on one client's rows, on all of them."""
METHODS = (*STRATEGIES, *POOLED)
AUTO = "auto"
"""The planner's choice of a method, see `fedcal.experiments.planner.auto`."""


@dataclass(frozen=True)
class Config:
    """What to run. `None` stands for "the method's (or the data's) own default"."""

    data: str = "resnet110-cifar10"
    method: str = "fednewton"
    clients: int | None = None
    partition: str = "dirichlet:0.1"
    rounds: int | None = None
    sampling_rate: float = 1.0
    epsilon: float = math.inf
    delta: float = 1e-5
    unit: str = User.name
    trust: str | None = None
    engine: str = "inline"
    secure_aggregation: str | None = None
    mechanism: str = "auto"
    quorum: float = QUORUM
    noise_source: str = "seeded"
    dropout: float = 0.0
    seed: int = 0
    ray_address: str | None = None
    ledger: str | None = None
    cap: float | None = None
    cap_delta: float | None = None
    set: Mapping[str, Setting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of("method", self.method, (*STRATEGIES, *POOLED, AUTO))
        _built("engine", self.engine, ("inline", "ray"), ("grpc",))
        if self.secure_aggregation is not None:
            _built("secure aggregation", self.secure_aggregation, ("none", "masks"), ("protocol",))
        check_size(self.clients, self.rounds)
        check_rate(self.sampling_rate)
        check_epsilon(self.epsilon, allow_infinite=True)
        check_seed(self.seed)
        if not _number(self.dropout) or not 0 <= self.dropout <= 1:
            raise InputError(f"dropout must be in [0, 1], got {self.dropout!r}")
        partition.parse(self.partition)
        check_quorum(self.quorum, self.trust)
        if self.cap is not None:
            positive("cap", self.cap)
            if self.ledger is None:
                raise InputError("cap needs a ledger: give --ledger FILE")
            if math.isfinite(self.epsilon) and self.epsilon > self.cap:
                raise InputError(f"epsilon = {self.epsilon:g} is above the cap of {self.cap:g}")
        if self.cap_delta is not None:
            positive("cap_delta", self.cap_delta)
            if self.ledger is None:
                raise InputError("cap_delta needs a ledger: give --ledger FILE")
        if self.ray_address is not None and self.engine != "ray":
            raise InputError("ray_address needs the engine ray: give --engine ray")
        if self.ledger is not None and math.isinf(self.epsilon):
            raise InputError("a run without privacy cannot be charged to a ledger; give --epsilon")
        if self.method in POOLED and math.isfinite(self.epsilon):
            raise InputError(
                f"method '{self.method}' reads the rows themselves and has no private form; "
                "leave epsilon at inf"
            )
        if self.method != AUTO:
            check_settings(self.method, self.set)
        elif unknown := set(self.set) - {"rows_per_client"}:
            raise InputError(
                f"unknown --set key {min(unknown)!r} for auto, which chooses the settings; "
                "allowed: rows_per_client"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the unset ones; infinity stays a float."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    def to_toml(self) -> str:
        """The file that `--config` reads."""
        return tomli_w.dumps(self.to_dict())


def _built(name: str, value: str, now: Sequence[str], later: Sequence[str]) -> None:
    """Refuse what is not known, and tell it from what is not built yet."""
    if value in later:
        raise NotBuiltYet(f"{name} '{value}'")
    one_of(name, value, now)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def load_config(path: str | Path, overrides: Mapping[str, Any]) -> Config:
    """A Config from a TOML file and overriding values.

    The file of a run holds what was given to it; what was not is resolved anew. What belongs to a
    value in the file that is overridden goes with it: a method's rounds and `set` (but for
    `rows_per_client`, which is about the clients), a trust's quorum, and, where privacy is
    switched on or off, the trust.

    Files of fedcal 0.1 hold resolved values, too. Where these may follow from what is overridden
    they go as well.
    """
    base = read_toml(Path(path))

    def changed(*keys: str) -> bool:
        return any(
            overrides.get(k) is not None and k in base and overrides[k] != base[k] for k in keys
        )

    stale: set[str] = set()
    dropped: set[str] = set()
    settings = base["set"] if isinstance(base.get("set"), dict) else {}  # others are refused later
    if changed("method"):
        stale |= {"rounds"}
        known = settings_of(str(overrides["method"]))
        dropped |= {k for k in settings if k != "rows_per_client" or k not in known}
    if changed("trust"):
        stale |= {"quorum"}
    if changed("epsilon"):
        before, after = (typed("epsilon", v["epsilon"]) for v in (base, overrides))
        if math.isinf(before) != math.isinf(after):
            stale |= {"trust", "quorum"}
    if set(_ONCE_RESOLVED) <= set(base):
        if stale - {"rounds"}:
            stale |= {"rounds", "secure_aggregation"}
        if changed("method", "data", "clients", "partition"):
            dropped |= {"rows_per_client"}
        if changed("data", "partition") and "natural" in (
            base.get("partition"),
            *overrides.values(),
        ):
            stale |= {"clients"}
    if dropped and settings:
        base["set"] = {k: v for k, v in settings.items() if k not in dropped}
    return merge({k: v for k, v in base.items() if k not in stale}, overrides)


_ONCE_RESOLVED = ("clients", "trust", "secure_aggregation", "rounds")
"""A file that holds all of these was written by fedcal 0.1, most likely."""


def merge(*layers: Mapping[str, Any]) -> Config:
    """A Config from several layers, later ones winning; `set` tables are joined."""
    values: dict[str, Any] = {"set": {}}
    known = {f.name: f for f in fields(Config)}
    for layer in layers:
        for raw, value in layer.items():
            key = raw.replace("-", "_")
            if key not in known:
                raise InputError(f"unknown option {raw!r}; allowed: {', '.join(known)}")
            if key == "set":
                if not isinstance(value, Mapping):
                    raise InputError("option 'set' must be a table of key = value")
                plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in value.items()}
                values["set"] = values["set"] | plain
            elif value is not None:
                values[key] = typed(key, value)
    return Config(**values)


_TEXT = (
    *("data", "method", "partition", "unit", "trust", "engine", "secure_aggregation"),
    *("mechanism", "noise_source", "ray_address", "ledger"),
)
_REAL = ("sampling_rate", "epsilon", "delta", "quorum", "dropout", "cap", "cap_delta")


def typed(key: str, value: Any) -> Any:
    """`value` of the option `key` in the type that `Config` holds; InputError for another."""
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, np.generic):
        value = value.item()
    if key in _TEXT and not isinstance(value, str):
        hint = "; lists are for fedcal compare" if isinstance(value, list) else ""
        raise InputError(f"option {key!r} must be text, got {value!r}{hint}")
    if key in _REAL:
        if not _number(value):
            raise InputError(f"option {key!r} must be a number, got {value!r}")
        return float(value)
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """The options of a TOML file, unchecked; InputError where it is none."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as e:
        raise InputError(f"cannot read the config {path}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise InputError(f"{path} is not TOML: {' '.join(str(e).split())}") from None


def parse_setting(text: str) -> tuple[str, Setting]:
    """`KEY=VALUE` of `--set`; the value is TOML (7, 0.5, true) or plain text."""
    key, sign, raw = text.partition("=")
    if not sign or not key.strip():
        raise InputError(f"--set takes KEY=VALUE, got {text!r}")
    try:
        value = tomllib.loads(f"v = {raw.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()
    if not isinstance(value, (bool, int, float, str)):
        raise InputError(f"--set {key}: a value must be a number, true, false or text")
    return key.strip(), value


def federation_of(config: Config, shards: Shards) -> Federation:
    """The public facts and the budget of a run; InputError for values that are not allowed."""
    federation = Federation(
        clients=shards.clients,
        classes=shards.logits.shape[1],
        rounds=config.rounds,
        sampling_rate=config.sampling_rate,
        epsilon=config.epsilon,
        delta=config.delta,
        unit=config.unit,
        trust=config.trust,
        seed=config.seed,
        mechanism=config.mechanism,
        quorum=config.quorum,
        noise_source=config.noise_source,
    )
    check_subjects(federation, shards)
    return federation


UNUSED_ROWS = (
    "rows_per_client = {:g} was given and sets nothing in this run: no bound of it depends on it."
)


def unused_rows(config: Config, job: Job) -> list[str]:
    """A sentence if `rows_per_client` was given to a run that does not need it, else nothing."""
    rows = config.set.get("rows_per_client")
    if rows is None or STRATEGIES[job.method].needs_rows(job.federation, job.settings):
        return []
    return [UNUSED_ROWS.format(rows)]


def job_of(config: Config, shards: Shards) -> Job:
    """What a server runs, from what was asked for and how the rows were dealt.

    In a simulation `rows_per_client`, a public number in a deployment, is by default the mean of
    the simulated shards, where the method needs it: it tells how many rows there are.

    Raises
    ------
    InputError
        If the method or its privacy plan refuses a value.
    """
    if config.method == AUTO:
        raise InputError("method 'auto' takes another's place: only a single run can resolve it")
    federation = federation_of(config, shards)
    # A share alone protects nobody: only their secure sum does.
    masks = config.secure_aggregation or (
        "masks" if TRUSTS[str(federation.trust)].shared else "none"
    )
    settings = dict(config.set)
    if lacks_rows(config.method, federation, settings):
        settings["rows_per_client"] = len(shards.labels) / shards.clients
    return Job(
        method=config.method,
        federation=federation,
        settings=settings,
        secure_aggregation=masks,
        dropout=config.dropout,
        ledger=config.ledger,
        cap=config.cap,
        cap_delta=config.cap_delta,
        input=shards.input,
    )
