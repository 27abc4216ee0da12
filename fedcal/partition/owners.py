"""The owner of each row: base classes of partitions, label and quantity skew; held-out rows.

Each function returns the owner of every row, shape (n,) int64 in [0, clients). Clients may end
up empty; that is legal everywhere.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.checks import InputError, fraction, needed, whole
from fedcal.core.numerics import Integers, Purpose, stream
from fedcal.datasets import Dataset

CLIENTS = 100
"""Default number of clients, if neither the user nor the data set it."""


@dataclass(frozen=True)
class Partition(ABC):
    """A way to assign rows to clients, the value of `--partition`: `NAME` or `NAME:VALUE`.

    Subclasses set `name`, and `form` where they take a value, and are registered in
    `fedcal.partition.PARTITIONS`: options, help and files know them from there.
    """

    name: ClassVar[str]
    form: ClassVar[str] = ""
    """Form of the value after the name: "" = none."""
    example: ClassVar[str] = ""
    """A value that may follow the name."""

    @classmethod
    def of(cls, value: str) -> Self:
        """Return the partition for `name:value`; InputError or ValueError if invalid."""
        return cls()

    @abstractmethod
    def owners(self, data: Dataset, clients: int | None, seed: int) -> tuple[Integers, int]:
        """Return the client of each fit row, (n,), and the number of clients.

        Raises InputError if the data lack what the partition needs, or make another number of
        clients.
        """


@dataclass(frozen=True)
class DrawnPartition(Partition):
    """Partition drawn from labels and their number alone: a plan can simulate it without data."""

    @abstractmethod
    def draw(self, labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """Return the client of each row, (n,) in [0, clients)."""

    def owners(self, data: Dataset, clients: int | None, seed: int) -> tuple[Integers, int]:
        """Draw the clients from the labels of the fit rows."""
        there = clients or CLIENTS
        return self.draw(data.labels, there, stream(seed, Purpose.PARTITION)), there


def iid(labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
    """Draw a uniform partition into shards whose sizes differ by at most one row."""
    owner = np.empty(len(labels), np.int64)
    owner[rng.permutation(len(labels))] = np.arange(len(labels)) % clients
    return owner


def dirichlet(labels: Integers, clients: int, beta: float, rng: np.random.Generator) -> Integers:
    """Draw Dirichlet label skew (Yurochkin et al. 2019; Maddock et al., A.2).

    For each class draw p ~ Dirichlet(beta, ..., beta) over clients and split that class's rows
    by p. Small beta: each class sits with few clients. beta = 1 is *not* uniform; use `iid`.
    """
    owner = np.empty(len(labels), np.int64)
    for j in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == j))
        share = rng.dirichlet(np.full(clients, float(beta)))
        if not abs(share.sum() - 1) < 1e-6:  # all of it underflowed (nan), or its sum overflowed
            raise InputError(
                f"beta = {beta!r} is too small or too large to draw from for {clients} clients"
            )
        cut = (np.cumsum(share)[:-1] * len(rows)).astype(np.int64)
        owner[rows] = np.searchsorted(cut, np.arange(len(rows)), side="right")
    return owner


def quantity(labels: Integers, clients: int, beta: float, rng: np.random.Generator) -> Integers:
    """Draw quantity skew: shards of very different size, iid labels (NIID-Bench, Li et al. 2022).

    Draw p ~ Dirichlet(beta, ..., beta) over clients and split the shuffled rows by p; of the
    labels only their number matters. Small beta: few clients have nearly all rows. Unlike in the
    source, a shard does not have a least size: a client that draws next to nothing is empty.
    """
    return dirichlet(np.zeros_like(labels), clients, beta, rng)


def label_shards(
    labels: Integers, clients: int, shards_per_client: int, rng: np.random.Generator
) -> Integers:
    """Sort and partition: a few shards of sorted labels for each client (McMahan et al. 2017, 3).

    Rows are sorted by label (in random order within a label) and cut into
    S = clients * shards_per_client shards; each client gets `shards_per_client` of them at
    random. Shard j holds the rows floor(j n / S) .. floor((j + 1) n / S) - 1: where n is no
    multiple of S, sizes differ by at most one row and none is left over. Where the classes
    divide, a shard has one label, so a client has at most `shards_per_client` labels.

    Raises InputError where there would be more shards than rows, and more than one for each client.
    """
    n, shards = len(labels), clients * shards_per_client
    what = f"the number of shards, {shards_per_client} for each client, of {n} rows"
    whole(what, shards, 0, max(n, clients))
    shuffled = rng.permutation(n)
    order = shuffled[np.argsort(np.asarray(labels)[shuffled], kind="stable")]
    holder = rng.permutation(shards) // shards_per_client
    owner = np.empty(n, np.int64)
    # the last j with floor(j n / S) <= i, in whole numbers
    owner[order] = holder[(np.arange(1, n + 1) * shards - 1) // max(n, 1)]
    return owner


def natural_clients(data: Dataset) -> Integers:
    """Return the clients that a data set names, (n,); InputError if it names none."""
    why = f"{data.name} names no clients; use another --partition"
    return needed("a column client", data.client, why)


def held_out(ids: ArrayLike, key: int | str, share: float) -> NDArray[np.bool_]:
    """Return whether each row is held out, by a keyed hash of its id.

    A row's part follows from its id and the key alone. So adding or removing a row changes one of
    the two parts, and a release from each costs the larger of their budgets, not the sum: this is
    what Zhang et al. (2022), Proposition A.1, require of the split of their Algorithm 1. A
    permutation of fixed size does not ensure it, since it moves other rows, too. The number of rows
    in each part is then as private as the rows are: rates and denominators need public nominal
    sizes.

    Parameters
    ----------
    ids
        (n,) whole numbers or texts: ids of rows for the unit of privacy `example`; ids of users or
        subjects for theirs, so that all rows of one are in the same part. An id must not depend on
        other rows: a position in a list from which rows may be removed is not an id
    key
        fixed before the rows are looked at. Another key draws another split
    share
        probability that an id is held out, in (0, 1)

    Returns
    -------
    NDArray[np.bool_]
        (n,)

    Raises
    ------
    InputError
        Other ids, or a share outside (0, 1).
    """
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuU"):
        raise InputError(
            f"ids must be (n,) whole numbers or texts, got {array.shape} of {array.dtype}"
        )
    fraction("share", share)
    unique, place = np.unique(array, return_inverse=True)
    secret = hashlib.blake2b(f"fedcal holdout {key}".encode(), digest_size=32).digest()
    digests = b"".join(
        hashlib.blake2b(str(entry).encode(), key=secret, digest_size=8).digest()
        for entry in unique.tolist()
    )
    drawn = np.frombuffer(digests, "<u8") < np.uint64(share * 2.0**64)
    return np.asarray(drawn[place], np.bool_)
