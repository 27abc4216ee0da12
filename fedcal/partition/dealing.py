"""From the value of `--partition` to one shard for each client."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedcal.core.checks import InputError, number_in, one_of, positive, same, whole
from fedcal.core.imports import registry
from fedcal.core.numerics import Integers, override
from fedcal.core.shards import Shards, numbered
from fedcal.datasets import Dataset
from fedcal.partition import owners
from fedcal.partition.flower_partitioners import Options, owners_by, parse_partitioner
from fedcal.partition.owners import CLIENTS, DrawnPartition, Partition

DEALT = "dealt"
"""Value in place of a partition if a file contains rows that are already partitioned."""


class Iid(DrawnPartition):
    """Uniform partition into sizes that differ by at most one row."""

    name = "iid"

    @override
    def draw(self, labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
        return owners.iid(labels, clients, rng)


@dataclass(frozen=True)
class Dirichlet(DrawnPartition):
    """Label skew: each class divided by proportions drawn from a Dirichlet distribution."""

    name, form, example = "dirichlet", "BETA", "0.1"
    beta: float

    @classmethod
    def of(cls, value: str) -> Self:
        """Return the partition for a finite beta > 0."""
        return cls(positive(f"beta of partition '{cls.name}'", number_in(value)))

    @override
    def draw(self, labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
        return owners.dirichlet(labels, clients, self.beta, rng)


class Quantity(Dirichlet):
    """Skew of sizes: all rows divided by such proportions."""

    name, example = "quantity", "0.5"

    @override
    def draw(self, labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
        return owners.quantity(labels, clients, self.beta, rng)


@dataclass(frozen=True)
class LabelShards(DrawnPartition):
    """A few shards of sorted labels for each client."""

    name, form, example = "shards", "N", "2"
    shards_per_client: int

    @classmethod
    def of(cls, value: str) -> Self:
        """Return the partition for 1 or more shards per client."""
        return cls(whole("shards per client", number_in(value, int), 1))

    @override
    def draw(self, labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
        return owners.label_shards(labels, clients, self.shards_per_client, rng)


class Natural(Partition):
    """The clients that the data name."""

    name = "natural"

    def owners(self, data: Dataset, clients: int | None, seed: int) -> tuple[Integers, int]:
        """Return the data's column of clients, and their number."""
        owner, there = owners.natural_clients(data), len(data.client_names or ())
        same(f"clients, the natural ones of {data.name},", clients or there, there)
        return owner, there


@dataclass(frozen=True)
class FlowerPartitioner(Partition):
    """A partitioner of flwr-datasets, with its parameters."""

    name, form = "flwr", "NAME"
    example = "PathologicalPartitioner:num_classes_per_partition=2"
    partitioner: str
    options: Options

    @classmethod
    def of(cls, value: str) -> Self:
        """Return the partition for `NAME` or `NAME:KEY=VALUE:KEY=VALUE`."""
        return cls(*parse_partitioner(value))

    def owners(self, data: Dataset, clients: int | None, seed: int) -> tuple[Integers, int]:
        """Return the partitioner's clients; some partitioners fix their number themselves."""
        owner, there = owners_by(self.partitioner, self.options, data, clients or CLIENTS, seed)
        same(f"clients, the partitions of flwr:{self.partitioner},", clients or there, there)
        return owner, there


PARTITIONS: dict[str, type[Partition]] = registry(
    Iid, Dirichlet, Quantity, LabelShards, Natural, FlowerPartitioner
)
"""Every partition by its name on the command line."""


def forms() -> list[str]:
    """Return the command-line forms of all partitions: `iid`, `dirichlet:BETA`, ..."""
    return [f"{name}:{p.form}" if p.form else name for name, p in PARTITIONS.items()]


def parse(spec: str) -> Partition:
    """Check the value of `--partition`, without data.

    Raises InputError for anything else, and where flwr-datasets is needed and not installed.

    Parameters
    ----------
    spec
        one of `forms()`; `flwr:NAME` takes parameters as in `flwr:NAME:KEY=VALUE:KEY=VALUE`
    """
    name, _, value = spec.partition(":")
    kind = PARTITIONS[one_of("partition", name, PARTITIONS)]
    needed = f"needs {name}:{kind.form}, such as {name}:{kind.example}"
    try:
        if bool(value) == bool(kind.form):
            return kind.of(value)
    except InputError:
        raise
    except ValueError:
        pass
    needed = needed if kind.form else "takes no parameter"
    raise InputError(f"partition '{name}' {needed}, got {spec[:200]!r}")


def client_names(data: Dataset, spec: str, clients: int) -> tuple[str, ...]:
    """Return the names of the clients of a data set that was partitioned by `spec`."""
    if spec == Natural.name and data.client_names is not None:
        return data.client_names
    return numbered(clients)


def deal(data: Dataset, spec: str, clients: int | None, seed: int) -> Shards:
    """Deal the fit rows of a data set to clients.

    Every engine, and every site of a simulation, assigns the same rows to the same clients: the
    owner of a row follows from the data, `spec`, `clients` and `seed` alone.

    Raises InputError if `spec` is not allowed, or the data do not have what it needs.

    Parameters
    ----------
    data
        its test part is left alone; rows of one subject are assigned like any others
    spec
        as in `--partition`
    clients
        number of clients; None = the data's own for `natural`, the partitioner's own for `flwr`
        if the partition fixes it (natural ids, explicit sizes), else 100
    seed
        random seed of the partition
    """
    return data.shards(*parse(spec).owners(data, clients, seed))
