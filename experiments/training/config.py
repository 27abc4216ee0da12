"""What to train, on what and how: one set of names for command line, TOML and Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from fedcal import partition
from fedcal.accounting.gaussian import check_rate
from fedcal.checks import one_of, positive, whole
from fedcal.errors import InputError
from fedcal.experiments.options import (
    DATA,
    RUNNING,
    Options,
    layered,
    option,
    options_of,
)
from fedcal.privacy.federation import check_size
from fedcal.streams import check_seed
from fedcal.training.networks import NETWORKS

DEFAULTS: dict[str, dict[str, Any]] = {
    "cnn": {"rounds": 100, "batch_size": 64, "lr": 0.1, "server_lr": 1.0, "min_rows": 0},
    "resnet18": {"rounds": 1000, "batch_size": 64, "lr": 0.01, "server_lr": 1.0, "min_rows": 0},
    "lstm": {"rounds": 100, "batch_size": 32, "lr": 0.8, "server_lr": 1.0, "min_rows": 100},
}
"""Per model, in the spirit of Maddock et al., A.3.1; docs/guide/train.md tells what differs."""

TRAINING = "Training"

KINDS = {model: NETWORKS[model].reads for model in DEFAULTS}
"""Model -> what it reads."""

_COUNTS = ("batch_size", "max_rows", "local_epochs", "evaluate_every", "checkpoint_every")
_LEAST = {**dict.fromkeys(_COUNTS, 1), "min_rows": 0}


@dataclass(frozen=True)
class TrainConfig(Options):
    """What to train. `None` stands for the model's (or the data's) own default.

    A *round* is one of FedAvg: sampled clients train, the server averages. A *global epoch* of
    the paper is 1 / `sampling_rate` rounds: as many as visit every client once on average.

    Attributes
    ----------
    clients
        how many the rows are dealt to; with natural clients, how many of them (all)
    sampling_rate
        share of the clients that have training rows, drawn anew in each round
    local_epochs
        passes over a client's training rows in one round
    lr, server_lr
        of local SGD, and of the step towards the clients' average (1: all of it)
    min_rows
        clients with fewer rows are left out (0; text: 100)
    max_rows
        of a client at most so many rows are used (all)
    evaluate_every, checkpoint_every
        rounds between evaluations, and between checkpoints
    """

    data: str = option(
        MISSING, DATA, ".npz, image folder, .txt, .tsv(.gz) or LEAF folder", unset="needed"
    )
    model: str = option("cnn", TRAINING, " | ".join(DEFAULTS))
    clients: int | None = option(None, DATA, "Simulated clients", unset="100")
    partition: str | None = option(
        None,
        DATA,
        "As simulate's",
        unset="natural if the data name clients, else dirichlet:0.1",
    )
    rounds: int | None = option(None, TRAINING, "Of FedAvg", unset="the model's")
    sampling_rate: float = option(
        0.1, DATA, "Share of the clients in a round, one at least: 0.1 of 10 is 1"
    )
    local_epochs: int = option(1, TRAINING, "Of a client in a round")
    batch_size: int | None = option(None, TRAINING, "Of local SGD", unset="the model's")
    lr: float | None = option(None, TRAINING, "Of local SGD", unset="the model's")
    server_lr: float | None = option(None, TRAINING, "Of the server's step", unset="1")
    seed: int = option(0, RUNNING, "Of all that is drawn")
    engine: str = option("inline", RUNNING, "inline")
    min_rows: int | None = option(
        None, DATA, "Clients with fewer rows are left out", unset="0; text: 100"
    )
    max_rows: int | None = option(None, DATA, "Rows of a client, at most", unset="all")
    evaluate_every: int = option(10, RUNNING, "Rounds between looks at the test rows")
    checkpoint_every: int = option(10, RUNNING, "Rounds between checkpoints in --out")

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
        for name, least in _LEAST.items():
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least)
        for name in ("lr", "server_lr"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))


def merged(*layers: Mapping[str, Any]) -> TrainConfig:
    """A TrainConfig from several layers, later ones winning; None counts as not given."""
    values = layered(options_of(TrainConfig), *layers)
    if not values.get("data"):
        raise InputError("say what to train on: --data PATH (see docs/guide/train.md)")
    return TrainConfig(**values)
