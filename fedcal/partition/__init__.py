"""Who owns which row: partitions of a data set over simulated clients."""

from __future__ import annotations

from fedcal.partition.dealing import deal, parse
from fedcal.partition.owners import dirichlet, iid, natural

__all__ = ["deal", "dirichlet", "iid", "natural", "parse"]
