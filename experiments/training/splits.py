"""From a pool of rows to clients, and from a client's rows to train, calibration and test.

As in Maddock et al., A.1: whatever test set the source had is merged in, and each client keeps
80 % of its rows for training, 10 % for calibration, 10 % for testing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.checks import one_of
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.experiments.training.config import KINDS, TrainConfig
from fedcal.experiments.training.images import read_pool
from fedcal.experiments.training.pool import LabelledRows
from fedcal.experiments.training.text import CHARACTERS, CONTEXT, Text, is_text, read_text
from fedcal.partition import deal
from fedcal.partition.dealing import CLIENTS
from fedcal.streams import Purpose, stream
from fedcal.types import Integers

PARTS = ("train", "calibration", "test")


@dataclass(frozen=True)
class Examples:
    """Inputs x, (n, ...), and classes y, (n,) int64."""

    x: NDArray[Any]
    y: Integers


@dataclass(frozen=True)
class ClientData:
    """The rows of all clients.

    Attributes
    ----------
    names : of the clients, whole numbers or texts
    train, calibration, test : one `Rows` for each client; empty ones are legal
    classes : number of classes
    shape : of one input
    """

    names: tuple[int | str, ...]
    train: tuple[Examples, ...]
    calibration: tuple[Examples, ...]
    test: tuple[Examples, ...]
    classes: int
    shape: tuple[int, ...]

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.names)

    def part(self, name: str) -> tuple[Examples, ...]:
        """The rows of one of `PARTS`, by client."""
        one_of("part", name, PARTS)
        rows: tuple[Examples, ...] = getattr(self, name)
        return rows

    def sizes(self, name: str) -> Integers:
        """Rows of each client in one part, (clients,)."""
        return np.array([len(rows.y) for rows in self.part(name)], np.int64)

    def labels(self, name: str) -> Integers:
        """Classes of one part, client by client."""
        return np.concatenate([rows.y for rows in self.part(name)])

    def fingerprint(self) -> str:
        """Tells other rows, or the same ones dealt otherwise, from these (by their labels)."""
        digest = hashlib.sha256(repr((self.names, self.classes, self.shape)).encode())
        for name in PARTS:
            digest.update(self.sizes(name).astype("<i8").tobytes())
            digest.update(self.labels(name).astype("<i8").tobytes())
        return digest.hexdigest()


def split(pool: LabelledRows | Text, config: TrainConfig) -> ClientData:
    """Deal a pool to clients and cut each client's rows in three.

    Parameters
    ----------
    pool : as `read_pool` or `read_text` gives it
    config : resolved; what it says of clients, partition, seed and rows is used

    Raises
    ------
    InputError
        If the data name no clients and natural ones are asked for, if text would be dealt by
        label, or if too few rows are left.
    """
    if isinstance(pool, Text):
        names, cut = _dealt_text(pool, config)
        classes, shape = len(CHARACTERS), (CONTEXT,)
    else:
        names, cut = _dealt_rows(pool, config)
        classes, shape = pool.classes, pool.x.shape[1:]
    train, calibration, test = zip(*cut, strict=True)
    made = ClientData(tuple(names), train, calibration, test, classes, tuple(shape))
    for name in PARTS:
        if not made.sizes(name).sum():
            raise InputError(
                f"{config.data}: too few rows, none is left for {name}: each of {made.clients} "
                "clients gives a tenth of its rows to calibration and to test (5 rows or more)"
            )
    return made


def _tenth(rows: int) -> int:
    """A tenth, rounded half up: clients with fewer than 5 rows only train."""
    return (rows + 5) // 10


def _chosen(sizes: Integers, config: TrainConfig, *, natural: bool) -> Integers:
    """Clients with enough rows; of natural ones `config.clients`, drawn by seed."""
    found = np.flatnonzero(sizes >= (config.min_rows or 0))
    if not len(found):
        raise InputError(f"{config.data}: too few rows: no client has {config.min_rows}")
    if natural and config.clients is not None:
        if config.clients > len(found):
            raise InputError(
                f"{config.data} has {len(found)} natural clients with at least "
                f"{config.min_rows} rows, but clients = {config.clients}"
            )
        drawn = stream(config.seed, Purpose.PARTITION, 0, "clients").permutation(len(found))
        found = found[np.sort(drawn[: config.clients])]
    return found


def _dealt_rows(
    pool: LabelledRows, config: TrainConfig
) -> tuple[list[int | str], list[list[Examples]]]:
    spec = str(config.partition)
    natural = spec == "natural"
    # `deal` moves logits; what is moved here are row numbers
    numbers = np.arange(len(pool.y), dtype=np.float64)[:, None]
    owned = Dataset(config.data, "logits", numbers, pool.y, pool.client, pool.names)
    shards = deal(owned, spec, None if natural else config.clients, config.seed)
    names: list[int | str] = []
    cut = []
    for k in _chosen(shards.rows, config, natural=natural).tolist():
        rows = shards.block(k, k + 1).logits[:, 0].astype(np.int64)
        names.append(pool.names[k] if natural and pool.names is not None else k)
        rng = stream(config.seed, Purpose.SPLIT, 0, f"client {k}")
        if not pool.ordered:
            rows = rng.permutation(rows)
        kept = min(len(rows), config.max_rows or len(rows))
        if pool.training is None:
            rows = rows[:kept]
            ends = [kept - 2 * _tenth(kept), kept - _tenth(kept)]
        else:  # the source's own cut, in its proportion: half of the test rows are for calibration
            mine, others = rows[pool.training[rows]], rows[~pool.training[rows]]
            first = round(len(mine) * kept / max(1, len(rows)))
            rows = np.concatenate([mine[:first], others[: kept - first]])
            ends = [first, (first + kept) // 2]
        cut.append([Examples(pool.x[part], pool.y[part]) for part in np.split(rows, ends)])
    return names, cut


def _dealt_text(text: Text, config: TrainConfig) -> tuple[list[int | str], list[list[Examples]]]:
    """Characters that are predicted lie in one part only; contexts reach back into the last."""
    spec = config.partition
    if spec == "natural":
        if text.names is None:
            raise InputError(f"{config.data} names no clients of its own; use --partition iid")
        codes, labels = list(text.codes), list[int | str](text.names)
    elif spec == "iid":
        codes = np.array_split(np.concatenate(text.codes), config.clients or CLIENTS)
        labels = list(range(len(codes)))
    else:
        raise InputError(
            f"text is dealt to its own clients (natural) or in equal pieces (iid), not by {spec!r}"
        )
    sizes = np.array([max(0, len(c) - CONTEXT) for c in codes])
    names, cut = [], []
    for k in _chosen(sizes, config, natural=spec == "natural").tolist():
        n = min(int(sizes[k]), config.max_rows or int(sizes[k]))
        first, second = n - 2 * _tenth(n), n - _tenth(n)
        bounds = ((0, first), (first, second), (second, n))
        names.append(labels[k])
        cut.append([_windows(codes[k], a, b) for a, b in bounds])
    return names, cut


def _windows(codes: NDArray[np.uint8], start: int, stop: int) -> Examples:
    """Rows start..stop-1: CONTEXT characters and the one that follows. x is a view."""
    if stop <= start:
        return Examples(np.empty((0, CONTEXT), np.uint8), np.empty(0, np.int64))
    piece = codes[start : stop + CONTEXT]
    x = np.lib.stride_tricks.sliding_window_view(piece, CONTEXT, writeable=True)[: stop - start]
    return Examples(x, piece[CONTEXT:].astype(np.int64))


def load(config: TrainConfig) -> tuple[ClientData, TrainConfig]:
    """Read the data and deal them.

    Returns
    -------
    ClientData
        The rows.
    TrainConfig
        Resolved: with the defaults of the model and of the data.

    Raises
    ------
    InputError
        If the data cannot be read or dealt, or are not of the kind that the model reads.
    """
    pool: LabelledRows | Text = (
        read_text(config.data) if is_text(config.data) else read_pool(config.data)
    )
    kind = "text" if isinstance(pool, Text) or pool.ordered else "image"
    if kind != KINDS[config.model]:
        fit = ", ".join(name for name, takes in KINDS.items() if takes == kind)
        raise InputError(
            f"{config.data} holds {kind}s, which the model {config.model} does not read; "
            f"allowed: {fit}"
        )
    config = config.resolved()
    if config.partition is None:
        own = "dirichlet:0.1" if kind == "image" else "iid"
        config = replace(config, partition=own if pool.names is None else "natural")
    if config.clients is None and config.partition != "natural":
        config = replace(config, clients=CLIENTS)
    return split(pool, config), config
