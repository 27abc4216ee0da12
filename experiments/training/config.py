"""What to train, on what and how: one set of names for command line, TOML and Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Annotated, Any

from fedcal.core import checks, fields, options
from fedcal.core.errors import InputError
from fedcal.core.options import DATA, TRAINING, option
from fedcal.experiments.runs.config import RunOptions, check_partition
from fedcal.privacy import federation, privacy
from fedcal.strategies import STRATEGIES, FedAvg
from fedcal.strategies.settings import Setting, check_settings
from fedcal.training.networks import NETWORKS, OWN, enlist, network_named
from fedcal.units import UNITS, Example

DEFAULTS = {"rounds": 100, "batch_size": 32, "lr": 0.1, "server_lr": 1.0}
"""Of FedAvg, as Maddock et al. (2025), A.3.1, train their base models."""

FEDAVG = FedAvg.name

TRAINERS = (FEDAVG, *(n for n, m in STRATEGIES.items() if m.family == "train" and n != FEDAVG))

SETTINGS = {"lr": "lr", "batch_size": "batch"}
"""Option -> the setting of a method that it stands for."""

SETTINGS_OF_FEDAVG = {**SETTINGS, "local_epochs": "epochs", "server_lr": "server_lr"}

SHARED = (
    *("epsilon", "delta", "unit", "trust", "mechanism", "quorum", "secure_aggregation"),
    *("committee", "colluding"),
    *("noise_source", "ledger", "cap", "cap_delta", "seed", "engine", "rounds", "method"),
)
"""Options that `fedcal train` shares with `fedcal simulate`."""

FOLLOWING = {"network": "--model says it", "shape": "the data say it"}
"""Setting of a method that follows from what is said elsewhere -> where."""

_OF_FEDAVG = ("local_epochs", "server_lr", "evaluate_every")

Count = Annotated[int, fields.within(1)]


def _network(_: str, value: Any) -> str:
    name = enlist(value)
    network_named(name, "model")
    return name


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunOptions):
    """Options of a training. `None` means the model's (or the data's) own default.

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
        clients with fewer rows are left out
    max_rows
        of a client at most so many rows are used (all)
    feature_norm
        a public bound on the norm of a row of features; longer rows are scaled to it (the file's)
    evaluate_every, checkpoint_every
        rounds between evaluations, and between checkpoints
    """

    data: str = option(
        MISSING,
        DATA,
        ".npz of features or images, or the name of shipped features",
        unset=options.REQUIRED,
    )
    model: Annotated[str, _network] | None = option(
        None,
        TRAINING,
        f"{' | '.join(NETWORKS)} | mlp:64x32: hidden widths | MODULE:CLASS: your own torch module",
        unset="softmax",
        read=enlist,
    )
    method: Annotated[str, fields.among(TRAINERS)] | None = option(
        None,
        TRAINING,
        f"{' | '.join(TRAINERS)}; --set has its settings",
        unset="fedsgd, or dp-fedavg with --unit user",
    )
    clients: Annotated[int, fields.within(1, federation.MOST_CLIENTS)] | None = option(
        None, DATA, "Number of simulated clients", unset="100; fedsgd: 1, all rows in one place"
    )
    partition: Annotated[str, check_partition] | None = option(
        None,
        DATA,
        "Partition of the rows over clients, as for simulate",
        unset="natural if the data name clients, else dirichlet:0.1",
    )
    rounds: privacy.Rounds = options.like(
        RunOptions,
        "rounds",
        None,
        "Number of training rounds",
        group=TRAINING,
        unset="the model's, or by epochs",
    )
    sampling_rate: privacy.Rate = options.like(
        RunOptions,
        "sampling_rate",
        0.1,
        "Fraction of the clients in a round, at least one client",
    )
    local_epochs: Count = option(1, TRAINING, "Passes over a client's rows in one round")
    batch_size: Count | None = option(
        None,
        TRAINING,
        "Batch size of local SGD; for fedsgd: expected rows in a round",
        unset="the model's",
    )
    lr: Annotated[float, checks.positive] | None = option(
        None, TRAINING, "Learning rate of local SGD, or of fedsgd", unset="the model's"
    )
    server_lr: Annotated[float, checks.positive] | None = option(
        None, TRAINING, "Learning rate of the server", unset="1"
    )
    unit: Annotated[str, fields.among(UNITS)] = options.like(RunOptions, "unit", Example.name)
    held_out: Annotated[float, checks.interval("[0, 1)")] = option(
        0.1,
        DATA,
        "Fraction of training rows held out for calibration; 0: it uses the training rows",
    )
    min_rows: Annotated[int, fields.within(0)] = option(
        0, DATA, "Least number of rows of a client; smaller clients are left out"
    )
    max_rows: Count | None = option(None, DATA, "Largest number of rows of a client", unset="all")
    feature_norm: Annotated[float, checks.positive] | None = option(
        None,
        DATA,
        "Public bound on the norm of a row's features; longer rows are scaled",
        unset="the file's",
    )
    evaluate_every: Count = option(
        10, options.RUNNING, "Rounds between evaluations on the test rows"
    )
    checkpoint_every: Count = option(10, options.RUNNING, "Rounds between checkpoints in --out")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model in OWN:
            checks.same("engine of a model of your own", self.engine, "inline")
        if self.method is not None:
            self._check_method(self.method)

    def _check_method(self, method: str) -> None:
        """Refuse what the method has no use for."""
        if method != FEDAVG:
            # one that samples rows has all clients in each round
            names = [*_OF_FEDAVG, *(("sampling_rate",) if STRATEGIES[method].one_place else ())]
            checks.unused(f"method '{method}'", **self.changed(*names))
            self._check_cuts()
            self._check_set()
            check_settings(method, self.set)
            return
        known = options.options_of(TrainConfig).values()
        names = [one.name for one in known if one.group == options.PRIVACY and one.name != "unit"]
        why = f"method '{FEDAVG}' has no privacy and runs inline"
        checks.unused(why, **self.changed(*names, "engine", "held_out"))
        checks.unused(f"method '{FEDAVG}' has no settings of its own", set=self.set or None)

    def _check_set(self) -> None:
        """Refuse settings of the method that an option, or the data, say too."""
        for name, setting_of in FOLLOWING.items():
            checks.unused(setting_of, **{name: self.set.get(name)})
        for name, setting in SETTINGS.items():
            value, own = getattr(self, name), self.set.get(setting)
            if None not in (value, own):
                checks.same(f"{name}, by --set {setting},", value, own)

    def _check_cuts(self) -> None:
        """Refuse cuts by a client's number of rows where that number is protected.

        One row more decides whether a client is there at all (`min_rows`), or which of its other
        rows are (`max_rows`): more than the one row that the noise hides.
        """
        if math.isinf(self.epsilon):
            return
        part = not UNITS[self.unit].whole_client
        for name, value in (("min_rows", self.min_rows), ("max_rows", part and self.max_rows)):
            if value:
                raise InputError(
                    f"{name} = {value} goes by how many rows a client has, which is private with "
                    f"unit '{self.unit}': leave it out"
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the unset ones, of which an epsilon of infinity is one: JSON."""
        return {k: v for k, v in super().to_dict().items() if v != math.inf}

    @property
    def by_method(self) -> bool:
        """True if another method than FedAvg trains, with its own settings (`set`)."""
        return self.method not in (None, FEDAVG)

    @property
    def stands_for(self) -> dict[str, str]:
        """Option -> the method's setting that it stands for."""
        return SETTINGS if self.by_method else SETTINGS_OF_FEDAVG

    def own_settings(self, settings: Mapping[str, Setting]) -> dict[str, Setting]:
        """Return those of a method's resolved settings that `set` may give."""
        if not self.by_method:
            return {}
        return {k: v for k, v in settings.items() if k not in FOLLOWING}


def merged(*layers: Mapping[str, Any]) -> TrainConfig:
    """Return a TrainConfig from several layers, later ones winning; None means not given."""
    values = options.layered(options.options_of(TrainConfig), *layers)
    if not values.get("data"):
        raise InputError("say what to train on: --data PATH (see docs/guide/train.md)")
    return TrainConfig(**values)
