"""From rows to clients, and from a client's rows to train, calibration and test.

Each client keeps 80 % of its rows for training, 10 % for calibration and 10 % for testing, as in
Maddock et al., A.1, where the source has no test rows of its own. Where it has, they are for
testing and nothing is trained on them; a tenth of the others, drawn by a keyed hash, is for
calibration: as in Zhang et al. (2022), Algorithm 1.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core import checks, types
from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.datasets import Dataset
from fedcal.experiments.runs.config import Config
from fedcal.experiments.training.config import (
    DEFAULTS,
    SHARED,
    TrainConfig,
    merged,
)
from fedcal.experiments.training.features import LabelledRows, read_labelled
from fedcal.partition import deal, held_out
from fedcal.partition.owners import CLIENTS
from fedcal.strategies import STRATEGIES, FedSGD
from fedcal.training.networks import network_named, text_of
from fedcal.units import UNITS

PARTS = ("train", "calibration", "test")


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
    group_names, norm
        as those of `LabelledRows`
    """

    names: tuple[int | str, ...]
    parts: dict[str, tuple[LabelledRows, ...]] = field(repr=False)
    classes: int
    shape: tuple[int, ...]
    group_names: tuple[str, ...] = ()
    norm: float | None = None

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.names)

    def sizes(self, part: str) -> types.Integers:
        """Rows of each client in one part, (clients,)."""
        return np.array([len(rows.y) for rows in self.parts[part]], np.int64)

    def labels(self, part: str) -> types.Integers:
        """Classes of one part, client by client."""
        return np.concatenate([rows.y for rows in self.parts[part]])

    def column(self, part: str, name: str) -> types.Integers | None:
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


def split(rows: LabelledRows, config: TrainConfig) -> ClientData:
    """Deal rows to clients and cut each client's rows in three.

    Raises InputError if the data name no clients and natural ones are asked for, or if too few rows
    are left.

    Parameters
    ----------
    rows
        as `read_labelled` gives them
    config
        resolved; what it says of clients, partition, seed and rows is used
    """
    names, shards = _dealt(rows, config)
    chosen, cut = _chosen(shards.rows, config), []
    for k in chosen:
        numbers = shards.block(k, k + 1).logits[:, 0].astype(np.int64)
        numbers = stream(config.seed, Purpose.SPLIT, 0, f"client {k}").permutation(numbers)
        own = rows.take(numbers[: config.max_rows])
        if config.by_method or rows.test is not None:
            cut.append(_by_hash(own, config, tested=rows.test is not None))
            continue
        n = len(own.y)
        tenth = (n + 5) // 10  # rounded half up: clients with fewer than 5 rows only train
        ends = (0, n - 2 * tenth, n - tenth, n)
        cut.append([own.take(slice(a, b)) for a, b in pairwise(ends)])
    owners = tuple(names[k] for k in chosen)
    if rows.test is not None:
        tests = _test_rows(rows.test, owners, config)
        cut = [[*parts, test] for parts, test in zip(cut, tests, strict=True)]
    parts = dict(zip(PARTS, zip(*cut, strict=True), strict=True))
    more: dict[str, Any] = {"group_names": rows.group_names, "norm": rows.norm}
    made = ClientData(owners, parts, rows.classes, rows.x.shape[1:], **more)
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


def _chosen(sizes: types.Integers, config: TrainConfig) -> list[int]:
    """Clients with enough rows; of natural ones `config.clients`, drawn by seed."""
    enough = np.flatnonzero(sizes >= config.min_rows)
    least = config.clients or 1 if config.partition == "natural" else 1
    what = f"the number of clients in {config.data} with at least {config.min_rows} rows"
    checks.whole(what, len(enough), least)
    if config.partition == "natural" and config.clients is not None:
        drawn = stream(config.seed, Purpose.PARTITION, 0, "clients").permutation(len(enough))
        enough = enough[np.sort(drawn[: config.clients])]
    return [int(k) for k in enough]


def _dealt(rows: LabelledRows, config: TrainConfig) -> tuple[list[int | str], Shards]:
    """Return the clients' names, and each one's row numbers, which stand where logits do."""
    natural = config.partition == "natural"
    owners: tuple[str, ...] = ()
    client = None
    if rows.client is not None:
        unique, client = np.unique(rows.client, return_inverse=True)
        owners = tuple(str(name) for name in unique)
    numbers = np.arange(len(rows.y), dtype=np.float64)[:, None]
    owned = Dataset(config.data, "logits", numbers, rows.y, client, owners or None)
    shards = deal(owned, str(config.partition), None if natural else config.clients, config.seed)
    return list(owners if natural else range(shards.clients)), shards


def _test_rows(
    test: LabelledRows, names: tuple[int | str, ...], config: TrainConfig
) -> list[LabelledRows]:
    """Return the source's test rows by client, partitioned if it does not name owners."""
    every = np.arange(len(test.y))
    if test.client is not None and config.partition == "natural":
        owner = test.client.astype(str)
        return [test.take(every[owner == str(name)]) for name in names]
    return [test.take(rows) for rows in np.array_split(every, len(names))]


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

    Raises InputError if the data cannot be read or dealt, or the model does not read them.

    Parameters
    ----------
    rows
        the rows, where they are in memory (`rows_in_memory`)

    Returns
    -------
    tuple[ClientData, TrainConfig]
        ClientData
            The rows.
        TrainConfig
            Resolved: with the defaults of the model and of the data.
    """
    if rows is None:
        rows = read_labelled(config.data, config.feature_norm)
    by_user = UNITS[checks.one_of("unit", config.unit, UNITS)].whole_client
    method = config.method or ("dp-fedavg" if by_user else FedSGD.name)
    config = replace(config, model=config.model or "softmax", method=method)
    network_named(str(config.model)).size(rows.x.shape[1:], rows.classes)
    dealt = "dirichlet:0.1" if rows.client is None else "natural"
    defaults = {} if config.by_method else DEFAULTS
    config = merged(defaults, {"partition": dealt}, config.to_dict())
    if config.clients is None and config.partition != "natural":
        alone = STRATEGIES[str(config.method)].one_place if config.by_method else False
        config = replace(config, clients=1 if alone else CLIENTS)
    return split(rows, config), config
