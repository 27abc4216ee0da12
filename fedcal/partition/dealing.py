"""From what `--partition` says to one shard for each client."""

from __future__ import annotations

import math

from fedcal.checks import one_of
from fedcal.datasets import Dataset
from fedcal.errors import InputError, NotBuiltYet
from fedcal.partition import owners
from fedcal.shards import Shards
from fedcal.streams import Purpose, stream

CLIENTS = 100
"""Clients where neither the user nor the data say how many."""

KINDS = ("iid", "dirichlet", "natural")
_LATER = ("quantity", "shards", "flwr")


def parse(spec: str) -> tuple[str, float]:
    """`iid`, `dirichlet:BETA` or `natural` -> kind and parameter; InputError for anything else."""
    kind, _, raw = spec.partition(":")
    if kind in _LATER:
        raise NotBuiltYet(f"partition '{kind}'")
    one_of("partition", kind, KINDS)
    if kind != "dirichlet":
        if raw:
            raise InputError(f"partition '{kind}' takes no parameter, got {spec!r}")
        return kind, 0.0
    try:
        beta = float(raw)
    except ValueError:
        raise InputError(
            f"partition 'dirichlet' needs dirichlet:BETA, such as dirichlet:0.1, got {spec!r}"
        ) from None
    if not math.isfinite(beta) or beta <= 0:
        raise InputError(f"beta of partition 'dirichlet' must be finite and > 0, got {raw}")
    return kind, beta


def deal(data: Dataset, spec: str, clients: int | None, seed: int) -> Shards:
    """Deal the fit rows of a data set to clients.

    Every engine, and every site of a simulation, deals the same rows to the same clients: the
    owner of a row follows from the data, `spec`, `clients` and `seed` alone.

    Parameters
    ----------
    data : its test part is left alone
    spec : as `--partition` takes it
    clients : how many; None = the data's own for `natural`, else 100
    seed : of what is drawn

    Raises
    ------
    InputError
        If `spec` is not allowed, or the data do not have what it needs.
    """
    kind, beta = parse(spec)
    if kind == "natural":
        if data.client is None or data.client_names is None:
            raise InputError(f"{data.name} names no clients of its own; use another --partition")
        there = len(data.client_names)
        if clients not in (None, there):
            raise InputError(f"{data.name} has {there} natural clients, but clients = {clients}")
        return Shards.from_owner(data.logits, data.labels, owners.natural(data.client), there)
    clients = clients or CLIENTS
    rng = stream(seed, Purpose.PARTITION)
    if kind == "iid":
        owner = owners.iid(data.labels, clients, rng)
    else:
        owner = owners.dirichlet(data.labels, clients, beta, rng)
    return Shards.from_owner(data.logits, data.labels, owner, clients)
