"""From what `--partition` says to one shard for each client."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedcal.core.checks import one_of, whole
from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Integers
from fedcal.datasets import Dataset
from fedcal.partition import owners
from fedcal.partition.flower_partitioners import Options, owners_by, parse_partitioner

CLIENTS = 100
"""Clients where neither the user nor the data say how many."""

DEALT = "dealt"
"""What is said in place of a partition where a file holds rows that are dealt already."""

_TAKES = {
    "iid": "",
    "dirichlet": "dirichlet:BETA, such as dirichlet:0.1",
    "quantity": "quantity:BETA, such as quantity:0.5",
    "shards": "shards:N, such as shards:2",
    "natural": "",
    "flwr": "flwr:NAME, such as flwr:PathologicalPartitioner:num_classes_per_partition=2",
}
KINDS = tuple(_TAKES)


@dataclass(frozen=True)
class Partition:
    """What `--partition` says.

    Attributes
    ----------
    kind
        one of `KINDS`
    beta
        of `dirichlet` and `quantity`, else 0
    shards
        shards per client of `shards`, else 0
    partitioner, options
        of `flwr`: the class in flwr-datasets and its parameters
    """

    kind: str
    beta: float = 0.0
    shards: int = 0
    partitioner: str = ""
    options: Options = ()

    def draw(self, labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """The client of each row, (n,); of kinds that need no more than the labels."""
        law: dict[str, Callable[..., Integers]] = {
            "iid": owners.iid,
            "dirichlet": partial(owners.dirichlet, beta=self.beta),
            "quantity": partial(owners.quantity, beta=self.beta),
            "shards": partial(owners.label_shards, shards_per_client=self.shards),
        }
        return law[self.kind](labels, clients, rng=rng)


def parse(spec: str) -> Partition:
    """Check what `--partition` says, without data.

    Parameters
    ----------
    spec
        `iid`, `dirichlet:BETA`, `quantity:BETA`, `shards:N`, `natural`, or `flwr:NAME` with
        parameters as in `flwr:NAME:KEY=VALUE:KEY=VALUE`

    Raises
    ------
    InputError
        For anything else, and where flwr-datasets is needed and not installed.
    """
    kind, _, raw = spec.partition(":")
    one_of("partition", kind, KINDS)
    needed = f"partition '{kind}' needs {_TAKES[kind]}, got {spec[:200]!r}"
    if not _TAKES[kind]:
        if raw:
            raise InputError(f"partition '{kind}' takes no parameter, got {spec[:200]!r}")
        return Partition(kind)
    if not raw:
        raise InputError(needed)
    if kind == "flwr":
        name, options = parse_partitioner(raw)
        return Partition(kind, partitioner=name, options=options)
    try:
        if kind == "shards":
            return Partition(kind, shards=whole("shards per client", int(raw), 1))
        beta = float(raw)
    except InputError:
        raise
    except ValueError:
        raise InputError(needed) from None
    if not math.isfinite(beta) or beta <= 0:
        raise InputError(f"beta of partition '{kind}' must be finite and > 0, got {raw}")
    return Partition(kind, beta=beta)


def deal(data: Dataset, spec: str, clients: int | None, seed: int) -> Shards:
    """Deal the fit rows of a data set to clients.

    Every engine, and every site of a simulation, deals the same rows to the same clients: the
    owner of a row follows from the data, `spec`, `clients` and `seed` alone.

    Parameters
    ----------
    data
        its test part is left alone; rows of one subject are dealt like any others
    spec
        as `--partition` takes it
    clients
        how many; None = the data's own for `natural`, the partitioner's own for `flwr`
        where it has a number of its own (natural ids, given sizes), else 100
    seed
        of what is drawn

    Raises
    ------
    InputError
        If `spec` is not allowed, or the data do not have what it needs.
    """
    partition = parse(spec)

    if partition.kind == "natural":
        if data.client is None or data.client_names is None:
            raise InputError(f"{data.name} names no clients of its own; use another --partition")
        owner, there = owners.natural(data.client), len(data.client_names)
        if clients not in (None, there):
            raise InputError(f"{data.name} has {there} natural clients, but clients = {clients}")
    elif partition.kind == "flwr":
        name = partition.partitioner
        owner, there = owners_by(name, partition.options, data, clients or CLIENTS, seed)
        if clients not in (None, there):
            raise InputError(f"flwr:{name} makes {there} partitions, but clients = {clients}")
    else:
        there = clients or CLIENTS
        owner = partition.draw(data.labels, there, stream(seed, Purpose.PARTITION))
    return data.shards(owner, there)
