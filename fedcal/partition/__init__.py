"""Owners of rows: partitions of a data set over simulated clients."""

from fedcal.partition.owners import (
    DEALT,
    PARTITIONS,
    DrawnPartition,
    Partition,
    client_names,
    deal,
    dirichlet,
    forms,
    held_out,
    iid,
    label_shards,
    parse,
    quantity,
)
