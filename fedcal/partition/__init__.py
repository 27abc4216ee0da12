"""Who owns which row: partitions of a data set over simulated clients."""

from __future__ import annotations

from fedcal.partition.dealing import DEALT, Partition, deal, parse
from fedcal.partition.holdout import held_out
from fedcal.partition.owners import dirichlet, iid, label_shards, natural, quantity

__all__ = [
    "DEALT",
    "Partition",
    "deal",
    "dirichlet",
    "held_out",
    "iid",
    "label_shards",
    "natural",
    "parse",
    "quantity",
]
