"""What to train, on what and how: one set of names for command line, TOML and Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import tomli_w

from fedcal import partition
from fedcal.accounting.gaussian import check_rate
from fedcal.checks import one_of, positive, whole
from fedcal.errors import InputError
from fedcal.privacy.federation import check_size
from fedcal.streams import check_seed

DEFAULTS: dict[str, dict[str, Any]] = {
    "cnn": {"rounds": 100, "batch_size": 64, "lr": 0.1, "server_lr": 1.0},
    "resnet18": {"rounds": 1000, "batch_size": 64, "lr": 0.01, "server_lr": 1.0},
    "lstm": {"rounds": 100, "batch_size": 32, "lr": 0.8, "server_lr": 1.0},
}
"""Per model, in the spirit of Maddock et al., A.3.1; docs/guide/train.md tells what differs."""

KINDS = {"cnn": "image", "resnet18": "image", "lstm": "text"}
"""Model -> what it reads."""


@dataclass(frozen=True)
class TrainConfig:
    """What to train. `None` stands for the model's (or the data's) own default.

    A *round* is one of FedAvg: sampled clients train, the server averages. A *global epoch* of
    the paper is 1 / `sampling_rate` rounds: as many as visit every client once on average.

    Attributes
    ----------
    clients : how many the rows are dealt to; with natural clients, how many of them (all)
    sampling_rate : share of the clients that have training rows, drawn anew in each round
    local_epochs : passes over a client's training rows in one round
    lr, server_lr : of local SGD, and of the step towards the clients' average (1: all of it)
    min_rows : clients with fewer rows are left out (0; text: 100)
    max_rows : of a client at most so many rows are used (all)
    evaluate_every, checkpoint_every : rounds between evaluations, and between checkpoints
    """

    data: str
    model: str = "cnn"
    clients: int | None = None
    partition: str | None = None
    rounds: int | None = None
    sampling_rate: float = 0.1
    local_epochs: int = 1
    batch_size: int | None = None
    lr: float | None = None
    server_lr: float | None = None
    seed: int = 0
    engine: str = "inline"
    min_rows: int | None = None
    max_rows: int | None = None
    evaluate_every: int = 10
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        one_of("model", self.model, DEFAULTS)
        if self.engine == "ray":
            raise InputError("fedcal train has no engine 'ray' yet; use --engine inline")
        one_of("engine", self.engine, ("inline",))
        check_size(self.clients, self.rounds)
        if self.partition is not None:
            partition.parse(self.partition)
        check_rate(self.sampling_rate)
        check_seed(self.seed)
        for name in ("batch_size", "max_rows"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        for name in ("local_epochs", "evaluate_every", "checkpoint_every"):
            whole(name, getattr(self, name), 1)
        if self.min_rows is not None:
            whole("min_rows", self.min_rows, 0)
        for name in ("lr", "server_lr"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))

    def resolved(self) -> TrainConfig:
        """With the model's defaults; `clients` and `partition` still may be the data's own."""
        text = KINDS[self.model] == "text"
        values = {**DEFAULTS[self.model], "min_rows": 100 if text else 0}
        return merged(values, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the unset ones."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    def to_toml(self) -> str:
        """The file that `--config` reads."""
        return tomli_w.dumps(self.to_dict())


_TEXT = ("data", "model", "partition", "engine")
_REAL = ("sampling_rate", "lr", "server_lr")


def merged(*layers: Mapping[str, Any]) -> TrainConfig:
    """A TrainConfig from several layers, later ones winning; None counts as not given."""
    known = [f.name for f in fields(TrainConfig)]
    values: dict[str, Any] = {}
    for layer in layers:
        for raw, value in layer.items():
            key = raw.replace("-", "_")
            if key not in known:
                raise InputError(f"unknown option {raw!r}; allowed: {', '.join(known)}")
            if value is None:
                continue
            if key in _TEXT and not isinstance(value, str):
                raise InputError(f"option {key!r} must be text, got {value!r}")
            if key in _REAL:
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise InputError(f"option {key!r} must be a number, got {value!r}")
                value = float(value)
            values[key] = value
    if not values.get("data"):
        raise InputError("say what to train on: --data PATH (see docs/guide/train.md)")
    return TrainConfig(**values)
