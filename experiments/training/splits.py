"""From a pool of rows to clients, and from a client's rows to train, calibration and test.

Each client keeps 80 % of its rows for training, 10 % for calibration and 10 % for testing, as in
Maddock et al., A.1, where the source has no test rows of its own (the paper merges those in: give
both as one pool). Where it has, they are for testing and nothing is trained on them; a tenth of the
others, drawn by a keyed hash, is for calibration: as in Zhang et al. (2022), Algorithm 1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import one_of, unused
from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Integers
from fedcal.datasets import Dataset
from fedcal.experiments.runs.config import Config
from fedcal.experiments.training.config import (
    ANY_OTHER,
    DEFAULTS,
    FEDAVG,
    KINDS,
    SHARED,
    USUAL,
    TrainConfig,
    merged,
)
from fedcal.experiments.training.images import read_pool
from fedcal.experiments.training.rows import CHARACTERS, CONTEXT, LabelledRows, is_text, read_text
from fedcal.partition import deal, held_out
from fedcal.partition.base import CLIENTS
from fedcal.strategies import STRATEGIES, FedSGD
from fedcal.training.network import text_of
from fedcal.training.networks import network_named
from fedcal.units import UNITS

PARTS = ("train", "calibration", "test")

Text: TypeAlias = list[tuple[str | None, NDArray[np.uint8]]]
"""As `read_text` gives it."""


@dataclass(frozen=True)
class ClientData:
    """The rows of all clients.

    Attributes
    ----------
    names
        of the clients, whole numbers or texts
    parts
        for each of `PARTS` the rows of each client; empty ones are legal
    classes
        number of classes
    shape
        of one input
    group_names, norm, shifted
        as those of `LabelledRows`; `shifted` of the test rows in the order of `labels("test")`
    """

    names: tuple[int | str, ...]
    parts: dict[str, tuple[LabelledRows, ...]] = field(repr=False)
    classes: int
    shape: tuple[int, ...]
    group_names: tuple[str, ...] = ()
    norm: float | None = None
    shifted: Mapping[tuple[str, int], NDArray[Any]] = field(default_factory=dict, repr=False)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.names)

    def sizes(self, part: str) -> Integers:
        """Rows of each client in one part, (clients,)."""
        return np.array([len(rows.y) for rows in self.parts[part]], np.int64)

    def labels(self, part: str) -> Integers:
        """Classes of one part, client by client."""
        return np.concatenate([rows.y for rows in self.parts[part]])

    def column(self, part: str, name: str) -> Integers | None:
        """Return a column of all clients' rows in a part, client by client, or None."""
        columns = [getattr(rows, name) for rows in self.parts[part]]
        return None if any(c is None for c in columns) else np.concatenate(columns)

    def inputs(self, part: str) -> NDArray[Any]:
        """Return inputs of all clients' rows in a part, client by client, (n, ...)."""
        return np.concatenate([rows.x for rows in self.parts[part]])

    def shards(self, *, trainers: bool = False) -> Shards:
        """Return the clients' training rows; their logits are zeros, as there are none yet.

        Parameters
        ----------
        trainers
            leave out clients without training rows
        """
        labels, sizes = self.labels("train"), self.sizes("train")
        sizes = sizes[sizes > 0] if trainers else sizes
        return Shards(
            np.broadcast_to(0.0, (len(labels), self.classes)),
            labels,
            np.concatenate([[0], np.cumsum(sizes)]),
            subjects=self.column("train", "subject"),
            inputs=self.inputs("train"),
        )

    def fingerprint(self) -> str:
        """Tells other rows, or the same ones dealt otherwise, from these.

        By inputs, labels and subjects: whatever a training reads.
        """
        digest = hashlib.sha256(repr((self.names, self.classes, self.shape)).encode())
        for part in PARTS:
            digest.update(self.sizes(part).astype("<i8").tobytes())
            digest.update(self.labels(part).astype("<i8").tobytes())
            for rows in self.parts[part]:
                digest.update(rows.x.dtype.str.encode())
                digest.update(np.ascontiguousarray(rows.x).reshape(-1).view(np.uint8).data)
                if rows.subject is not None:
                    digest.update(rows.subject.astype("<i8").tobytes())
        return digest.hexdigest()


_Dealt: TypeAlias = tuple[
    list[int | str], Integers, Callable[[int, int], tuple[LabelledRows, int | None]]
]
"""Names of the clients, rows of each, and a function: the first `kept` rows of client k, and how
many of them are for training (None: the source does not say it)."""


def split(pool: LabelledRows | Text, config: TrainConfig) -> ClientData:
    """Deal a pool to clients and cut each client's rows in three.

    Raises InputError if the data name no clients and natural ones are asked for, if text would be
    dealt by label, or if too few rows are left.

    Parameters
    ----------
    pool
        as `read_pool` or `read_text` gives it
    config
        resolved; what it says of clients, partition, seed and rows is used
    """
    if isinstance(pool, LabelledRows):
        names, sizes, rows = _dealt_rows(pool, config)
        classes, shape = pool.classes, pool.x.shape[1:]
    else:
        names, sizes, rows = _dealt_text(pool, config)
        classes, shape = len(CHARACTERS), (CONTEXT,)
    chosen, cut = _chosen(sizes, config), []
    for k in chosen:
        limit = min(int(sizes[k]), config.max_rows or int(sizes[k]))
        client_rows, training = rows(k, limit)
        tenth = (limit + 5) // 10  # rounded half up: clients with fewer than 5 rows only train
        ends = (limit - 2 * tenth, limit - tenth)
        if training is not None:  # half of the test rows are for calibration
            ends = (training, (training + limit) // 2)
        tested = isinstance(pool, LabelledRows) and pool.test is not None
        if config.by_method and training is not None:  # the source's cut; all its tests are tests
            parts_of = _by_hash(client_rows.take(slice(training)), config, tested=True)
            cut.append([*parts_of, client_rows.take(slice(training, None))])
        elif config.by_method or tested:
            cut.append(_by_hash(client_rows, config, tested))
        else:
            cut.append([client_rows.take(slice(a, b)) for a, b in pairwise((0, *ends, limit))])
    owners = tuple(names[k] for k in chosen)
    more: dict[str, Any] = {}
    if isinstance(pool, LabelledRows):
        more = {"group_names": pool.group_names, "norm": pool.norm}
        if pool.test is not None:
            tests = _test_rows(pool.test, owners, config)
            cut = [[*parts, test] for parts, test in zip(cut, tests, strict=True)]
            ids = np.concatenate([test.numbers for test in tests])
            more["shifted"] = {name: x[ids] for name, x in pool.test.shifted.items()}
    parts = dict(zip(PARTS, zip(*cut, strict=True), strict=True))
    made = ClientData(owners, parts, classes, shape, **more)
    for part in PARTS:
        if not made.sizes(part).sum():
            raise InputError(
                f"{config.data}: too few rows, none is left for {part}: each of {made.clients} "
                "clients gives a tenth of its rows to calibration and to test (5 rows or more)"
            )
    return made


def _by_hash(rows: LabelledRows, config: TrainConfig, tested: bool) -> list[LabelledRows]:
    """Training, calibration and, where the source has no test rows, a tenth for testing.

    A row's part follows from its id alone (`held_out`), so that the parts compose in parallel. In a
    simulation a row's number in its file stands for an id of its own. Where units are clients or
    subjects, all are in both parts, and budgets add up.
    """
    last = []
    if not tested:
        test = held_out(rows.numbers, f"{config.seed} test", 0.1)
        rows, last = rows.take(~test), [rows.take(test)]
    if not config.held_out:
        return [rows, rows, *last]
    calibration = held_out(rows.numbers, config.seed, config.held_out)
    return [rows.take(~calibration), rows.take(calibration), *last]


def _chosen(sizes: Integers, config: TrainConfig) -> list[int]:
    """Clients with enough rows; of natural ones `config.clients`, drawn by seed."""
    enough = np.flatnonzero(sizes >= (config.min_rows or 0))
    if not len(enough):
        raise InputError(f"{config.data}: too few rows: no client has {config.min_rows}")
    if config.partition == "natural" and config.clients is not None:
        if config.clients > len(enough):
            raise InputError(
                f"{config.data} has {len(enough)} natural clients with at least "
                f"{config.min_rows} rows, but clients = {config.clients}"
            )
        drawn = stream(config.seed, Purpose.PARTITION, 0, "clients").permutation(len(enough))
        enough = enough[np.sort(drawn[: config.clients])]
    return [int(k) for k in enough]


def _dealt_rows(pool: LabelledRows, config: TrainConfig) -> _Dealt:
    natural = config.partition == "natural"
    owners: tuple[str, ...] = ()
    client = None
    if pool.client is not None:
        unique, client = np.unique(pool.client, return_inverse=True)
        owners = tuple(str(name) for name in unique)
    # `deal` moves logits; what is moved here are row numbers
    numbers = np.arange(len(pool.y), dtype=np.float64)[:, None]
    owned = Dataset(config.data, "logits", numbers, pool.y, client, owners or None)
    shards = deal(owned, str(config.partition), None if natural else config.clients, config.seed)

    def rows(k: int, limit: int) -> tuple[LabelledRows, int | None]:
        numbers = shards.block(k, k + 1).logits[:, 0].astype(np.int64)
        if not pool.ordered:
            numbers = stream(config.seed, Purpose.SPLIT, 0, f"client {k}").permutation(numbers)
        first = None
        if pool.training is not None:  # the source's own cut, in its proportion
            mine, others = numbers[pool.training[numbers]], numbers[~pool.training[numbers]]
            first = round(len(mine) * limit / max(1, len(numbers)))
            numbers = np.concatenate([mine[:first], others[: limit - first]])
        return pool.take(numbers[:limit]), first

    return list(owners if natural else range(shards.clients)), shards.rows, rows


def _dealt_text(text: Text, config: TrainConfig) -> _Dealt:
    """Characters that are predicted lie in one part only; contexts reach back into the last."""
    names: list[Any] = [name for name, _ in text]
    codes = [code for _, code in text]
    if config.partition == "iid":
        codes = np.array_split(np.concatenate(codes), config.clients or CLIENTS)
        names = list(range(len(codes)))
    elif config.partition != "natural":
        raise InputError(
            "text is dealt to its own clients (natural) or in equal pieces (iid), not by "
            f"{config.partition!r}"
        )
    elif names == [None]:
        raise InputError(f"{config.data} names no clients; use --partition iid")

    def windows(k: int, limit: int) -> tuple[LabelledRows, None]:
        """CONTEXT characters and the one that follows; x is a view."""
        ids = int(lengths[:k].sum()) + np.arange(limit)
        if not limit:
            x, y = np.empty((0, CONTEXT), np.uint8), np.empty(0, np.int64)
            return LabelledRows(x, y, ordered=True, ids=ids), None
        piece = codes[k][: limit + CONTEXT]
        x = np.lib.stride_tricks.sliding_window_view(piece, CONTEXT, writeable=True)[:limit]
        y = piece[CONTEXT:].astype(np.int64)
        return LabelledRows(x, y, ordered=True, ids=ids), None

    lengths = np.array([max(0, len(c) - CONTEXT) for c in codes])
    return names, lengths, windows


def _test_rows(
    test: LabelledRows, names: tuple[int | str, ...], config: TrainConfig
) -> list[LabelledRows]:
    """Return the source's test rows by client, partitioned if it does not name owners."""
    every = np.arange(len(test.y))
    if test.client is not None and config.partition == "natural":
        owner = test.client.astype(str)
        return [test.take(every[owner == str(name)]) for name in names]
    return [test.take(rows) for rows in np.array_split(every, len(names))]


def _with_method(config: TrainConfig, model: str, kind: str) -> TrainConfig:
    """Return the config with its model and its method."""
    method = config.method
    if method is None:
        own = math.isfinite(config.epsilon) or bool(config.set) or kind == "features"
        by_user = UNITS[one_of("unit", config.unit, UNITS)].whole_client
        method = ("dp-fedavg" if by_user else FedSGD.name) if own else FEDAVG
    return replace(config, model=model, method=method)


def run_config(config: TrainConfig, data: ClientData) -> Config:
    """Return the run in the terms of `fedcal simulate`."""
    known = config.to_dict()
    settings: dict[str, Any] = {"network": config.model, "shape": text_of(data.shape)}
    settings |= {s: known[name] for name, s in config.stands_for.items() if name in known}
    clients = data.clients if config.by_method else int((data.sizes("train") > 0).sum())
    shared = {name: known[name] for name in SHARED if name in known}
    if not STRATEGIES[str(config.method)].one_place:  # it samples clients, the others rows
        shared["sampling_rate"] = config.sampling_rate
    return Config(data=config.data, clients=clients, set=settings | dict(config.set), **shared)


def load(config: TrainConfig, rows: LabelledRows | None = None) -> tuple[ClientData, TrainConfig]:
    """Read the data and deal them.

    Raises InputError if the data cannot be read or dealt, or are not of the kind that the model
    reads.

    Parameters
    ----------
    given
        the rows, where they are in memory (`rows_in_memory`)

    Returns
    -------
    tuple[ClientData, TrainConfig]
        ClientData
            The rows.
        TrainConfig
            Resolved: with the defaults of the model and of the data.
    """
    pool: LabelledRows | Text
    if rows is None and is_text(config.data):
        unused(f"{config.data} holds texts", feature_norm=config.feature_norm)
        pool = read_text(config.data)
        kind, natural = "text", pool[0][0] is not None
    else:
        pool = read_pool(config.data, config.feature_norm) if rows is None else rows
        kind, natural = pool.kind, pool.client is not None
    config = _with_method(config, USUAL[kind] if config.model is None else config.model, kind)
    model = str(config.model)
    if network_named(model).reads not in ("any", kind):
        fit = ", ".join(name for name, reads in KINDS.items() if reads == kind)
        raise InputError(
            f"{config.data} holds {kind.removesuffix('s')}s, which the model {model} does "
            f"not read; allowed: {fit}"
        )
    dealt = "natural" if natural else "iid" if kind == "text" else "dirichlet:0.1"
    defaults = {} if config.by_method else DEFAULTS.get(model, ANY_OTHER)
    config = merged(defaults, {"partition": dealt}, config.to_dict())
    if config.clients is None and config.partition != "natural":
        alone = STRATEGIES[str(config.method)].one_place if config.by_method else False
        config = replace(config, clients=1 if alone else CLIENTS)
    return split(pool, config), config
