"""Rows of a simulated site, from plain values of its run and node."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.core import checks, numerics
from fedcal.core.checks import damaged
from fedcal.core.shards import Shards
from fedcal.storage.npz import read_npz

_ASSIGNED = ("logits", "labels", "offsets", "input")
_OPTIONAL = ("subjects", "groups", "other", "inputs")  # where they are known
_NAMES = ("group_names", "names")


def site_rows(run: Mapping[str, Any], node: Mapping[str, Any]) -> Shards:
    """Return the rows of one site of a simulation.

    Parameters
    ----------
    run
        what all sites share: `data` (a shipped name, an absolute path, or the file that
        `write_assigned` wrote), `partition` (as `--partition` takes it, or "dealt"), `clients`
        (0: as many as there are nodes), `seed`; and, if the calibrator is to say what it takes,
        `input`, "logits" or "probs" ("": what the data are); and the `method`
    node
        what this one is: `partition-id`, from 0, and `num-partitions`, the number of nodes

    Returns
    -------
    Shards
        Of one client; the same rows as every other engine deals to it.

    Raises
    ------
    InputError
        If a key is missing, the data cannot be read or dealt, they are not what `input` says, or
        there is no such site.
    """
    with damaged("a site finds its rows by the run's keys and its own"):
        shared = (str(run["data"]), str(run["partition"]), assigned_to(run, node), int(run["seed"]))
        site = int(node["partition-id"])
    shards = _assigned(*shared, str(run.get("method", "")))
    checks.same("input of the run", run.get("input") or shards.input, shards.input)
    checks.integer("the number of a site in these data", site, 0, shards.clients - 1)
    return shards.block(site, site + 1)


def assigned_to(run: Mapping[str, Any], node: Mapping[str, Any]) -> int:
    """Return the number of clients of a partition: `clients` of the run, or of 0 all nodes.

    Flower tells each node of a simulation how many there are; the server checks that they agree.
    """
    return int(run["clients"]) or int(node["num-partitions"])


def write_assigned(path: Path, shards: Shards) -> None:
    """Write rows that are dealt already, for `site_rows` with the partition "dealt"."""
    fields = {name: getattr(shards, name) for name in (*_ASSIGNED, *_OPTIONAL)}
    arrays = {name: np.asarray(array) for name, array in fields.items() if array is not None}
    arrays |= {name: np.array(getattr(shards, name), np.str_) for name in _NAMES}
    np.savez(path, **arrays)  # type: ignore[arg-type]


@lru_cache(maxsize=1)  # a process of a simulation answers for many sites, in every round
def _assigned(data: str, partition: str, clients: int, seed: int, method: str) -> Shards:
    from fedcal import datasets  # a site with rows of its own needs neither
    from fedcal.partition import ASSIGNED, client_names, deal

    if partition != ASSIGNED:
        rows = datasets.load(data).read_by(method, seed)
        shards = deal(rows, partition, clients, seed)
        return replace(shards, names=client_names(rows, partition, shards.clients))
    with damaged(f"{data} contains no partitioned rows"):
        arrays = read_npz(Path(data))
        logits, labels, offsets, kind = (arrays[name] for name in _ASSIGNED)
        kind_read = checks.one_of("input", str(kind), numerics.KINDS)
        known: dict[str, Any] = {name: arrays[name] for name in _OPTIONAL if name in arrays}
        known |= {name: tuple(arrays[name].tolist()) for name in _NAMES}
        shards = Shards(logits, labels, offsets, kind_read, **known)
    checks.same(f"number of clients in {data}", clients, shards.clients)
    return shards
