"""Options of a training: one set of names for command line, TOML and Python."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Annotated, Any

from fedcal.core import checks, options
from fedcal.core.options import DATA, REQUIRED, TRAINING, like, option, options_of
from fedcal.privacy import privacy
from fedcal.run.config import Config, RunOptions, check_partition, layered
from fedcal.strategies import STRATEGIES
from fedcal.strategies.settings import check_settings
from fedcal.training.networks import NETWORKS, OWN, network_named, register_network, text_of
from fedcal.units import UNITS, Example

TRAINERS = tuple(name for name, method in STRATEGIES.items() if method.family == "train")

SETTINGS = {"lr": "lr", "batch_size": "batch"}
"""Option -> the setting of a method that it stands for."""

FOLLOWING = {"network": "--model", "shape": "the shape of the rows"}
"""Setting of a method that follows from what is said elsewhere -> where."""


def _network(_: str, value: Any) -> str:
    name = register_network(value)
    network_named(name, "model")
    return name


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunOptions):
    """Options of a training. `None` means the model's (or the data's) own default.

    Attributes
    ----------
    clients
        how many the rows are dealt to; with natural clients, how many of them (all)
    sampling_rate
        share of the clients, drawn anew in each round
    lr, batch_size
        the method's settings `lr` and `batch`
    feature_norm
        a public bound on the norm of a row of features; longer rows are scaled to it (the file's)
    """

    data: str = option(
        MISSING, DATA, ".npz of features or images, or the name of shipped features", unset=REQUIRED
    )
    model: Annotated[str, _network] | None = option(
        None,
        TRAINING,
        f"{' | '.join(NETWORKS)} | mlp:64x32: hidden widths | MODULE:CLASS: your own torch module",
        unset="softmax",
    )
    method: Annotated[str, options.among(TRAINERS)] | None = option(
        None,
        TRAINING,
        f"{' | '.join(TRAINERS)}; --set has its settings",
        unset="fedsgd, or dp-fedavg with --unit user",
    )
    clients: Annotated[int, options.within(1, privacy.MOST_CLIENTS)] | None = option(
        None, DATA, "Number of simulated clients", unset="100; fedsgd: 1, all rows in one place"
    )
    partition: Annotated[str, check_partition] | None = option(
        None,
        DATA,
        "Partition of the rows over clients, as for simulate",
        unset="natural if the data name clients, else dirichlet:0.1",
    )
    rounds: privacy.Rounds = like(
        RunOptions,
        "rounds",
        None,
        "Number of training rounds",
        group=TRAINING,
        unset="the method's, or by epochs",
    )
    sampling_rate: privacy.Rate = like(
        RunOptions, "sampling_rate", 0.1, "Fraction of the clients in a round, at least one client"
    )
    batch_size: options.Count | None = option(
        None,
        TRAINING,
        "Batch size of local SGD; for fedsgd: expected rows in a round",
        unset="the method's",
    )
    lr: options.Positive | None = option(
        None, TRAINING, "Learning rate of local SGD, or of fedsgd", unset="the method's"
    )
    unit: Annotated[str, options.among(UNITS)] = like(RunOptions, "unit", Example.name)
    held_out: Annotated[float, checks.interval("[0, 1)")] = option(
        0.1,
        DATA,
        "Fraction of training rows held out for calibration; 0: it uses the training rows",
    )
    feature_norm: options.Positive | None = option(
        None,
        DATA,
        "Public bound on the norm of a row's features; longer rows are scaled",
        unset="the file's",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model in OWN:
            checks.same("engine of a model of your own", self.engine, "inline")
        own = {one: f"--{name.replace('_', '-')}" for name, one in self._given().items()}
        for setting, where in (FOLLOWING | own).items():
            checks.unused(f"{where} says it", **{setting: self.set.get(setting)})
        if self.method is not None:
            if STRATEGIES[self.method].one_place:  # it samples rows: all clients are in each round
                given = self.sampling_rate != TrainConfig.sampling_rate or None
                checks.unused(f"method '{self.method}'", sampling_rate=given)
            check_settings(self.method, self.set)

    def _given(self) -> dict[str, str]:
        """Return the options that stand for a setting of the method, and which; of those given."""
        return {name: one for name, one in SETTINGS.items() if getattr(self, name) is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the unset ones, of which an epsilon of infinity is one: JSON."""
        return {k: v for k, v in super().to_dict().items() if v != math.inf}

    def run(self, clients: int, shape: tuple[int, ...]) -> Config:
        """Return the run of a resolved training in the terms of `fedcal simulate`."""
        shared = self.part(RunOptions)
        method = str(self.method)
        if STRATEGIES[method].one_place:  # it samples rows, the others clients
            del shared["sampling_rate"]
        values = {setting: getattr(self, name) for name, setting in self._given().items()}
        known = {"network": self.model, "shape": text_of(shape), **values, **self.set}
        shared |= {"data": self.data, "method": method, "clients": clients, "set": known}
        return Config(**shared)


def merged(*layers: Mapping[str, Any]) -> TrainConfig:
    """Return a TrainConfig from several layers, later ones winning; None means not given."""
    values = layered(options_of(TrainConfig), *layers)
    checks.needed("data", values.get("data") or None, "--data PATH (see docs/guide/train.md)")
    return TrainConfig(**values)
