"""Owners of rows: partitions of a data set over simulated clients."""

from fedcal.partition.dealing import DEALT, PARTITIONS, client_names, deal, forms, parse
from fedcal.partition.flower_partitioners import spelt
from fedcal.partition.owners import (
    DrawnPartition,
    Partition,
    dirichlet,
    held_out,
    iid,
    label_shards,
    natural,
    quantity,
)

__all__ = [
    "DEALT",
    "PARTITIONS",
    "DrawnPartition",
    "Partition",
    "client_names",
    "deal",
    "dirichlet",
    "forms",
    "held_out",
    "iid",
    "label_shards",
    "natural",
    "parse",
    "quantity",
    "spelt",
]
