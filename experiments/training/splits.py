"""From rows to clients, and from a client's rows to train, calibration and test.

Where the source has test rows, they are for testing and nothing is trained on them; else a tenth
of the rows is. A tenth of the others, drawn by a keyed hash, is for calibration, as in Zhang et al.
(2022), Algorithm 1; so each client keeps about 80 % of its rows for training, 10 % for calibration
and 10 % for testing, as in Maddock et al., A.1.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np

from fedcal.core.checks import whole
from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Integers
from fedcal.datasets import Dataset
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.features import LabelledRows, read_labelled
from fedcal.partition import deal, held_out
from fedcal.partition.owners import CLIENTS
from fedcal.strategies import STRATEGIES, DPFedAvg, FedSGD
from fedcal.training.networks import network_named
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
        for each of `PARTS` its rows, client by client
    sizes
        for each of `PARTS` the number of rows of each client, (clients,); 0 is legal
    """

    names: tuple[int | str, ...]
    parts: dict[str, LabelledRows] = field(repr=False)
    sizes: dict[str, Integers] = field(repr=False)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.names)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.parts["train"].classes

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.parts["train"].x.shape[1:]

    def shards(self) -> Shards:
        """Return the clients' training rows; their logits are zeros, as there are none yet."""
        rows = self.parts["train"]
        return Shards(
            np.broadcast_to(0.0, (len(rows.y), rows.classes)),
            rows.y,
            np.concatenate([[0], np.cumsum(self.sizes["train"])]),
            subjects=rows.subject,
            inputs=rows.x,
        )

    def fingerprint(self) -> str:
        """Tells other rows, or the same ones dealt otherwise, from these.

        By inputs, labels and subjects: whatever a training reads.
        """
        digest = hashlib.sha256(repr((self.names, self.classes, self.shape)).encode())
        for part, rows in self.parts.items():
            digest.update(rows.x.dtype.str.encode())
            digest.update(np.ascontiguousarray(rows.x).reshape(-1).view(np.uint8).data)
            for column in (self.sizes[part], rows.y, rows.subject):
                if column is not None:
                    digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()


def split(rows: LabelledRows, config: TrainConfig) -> ClientData:
    """Deal rows to clients and cut each client's rows in three.

    A row's part follows from its id alone (`held_out`), so that the parts compose in parallel. In a
    simulation a row's number in its file stands for an id of its own. Where units are clients or
    subjects, all are in both parts, and budgets add up.

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
    chosen, drawn = _chosen(shards.rows, config), []
    for k in chosen:
        numbers = shards.block(k, k + 1).logits[:, 0].astype(np.int64)
        numbers = stream(config.seed, Purpose.SPLIT, 0, f"client {k}").permutation(numbers)
        drawn.append(numbers[: config.max_rows])
    order, owner = np.concatenate(drawn), np.repeat(np.arange(len(drawn)), [*map(len, drawn)])
    tested = np.zeros(len(order), bool)
    if rows.test is None:
        tested = held_out(order, f"{config.seed} test", 0.1)
    fitted = calibration = ~tested
    if config.held_out:
        calibration = fitted & held_out(order, config.seed, config.held_out)
        fitted = fitted & ~calibration
    owners = tuple(names[k] for k in chosen)
    parts, sizes = dict[str, LabelledRows](), dict[str, Integers]()
    for part, mask in zip(PARTS, (fitted, calibration, tested), strict=True):
        parts[part] = rows.take(order[mask])
        sizes[part] = np.bincount(owner[mask], minlength=len(owners))
    if rows.test is not None:
        parts["test"], sizes["test"] = _test_rows(rows.test, owners, config)
    for part in PARTS:
        if not sizes[part].sum():
            raise InputError(
                f"{config.data}: too few rows, none is left for {part}: a tenth of the rows is for "
                "calibration, and a tenth for testing"
            )
    return ClientData(owners, parts, sizes)


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


def _chosen(sizes: Integers, config: TrainConfig) -> list[int]:
    """Clients with enough rows; of natural ones `config.clients`, drawn by seed."""
    enough = np.flatnonzero(sizes >= config.min_rows)
    natural = config.partition == "natural"
    what = f"the number of clients in {config.data} with at least {config.min_rows} rows"
    whole(what, len(enough), (natural and config.clients) or 1)
    if natural and config.clients is not None:
        drawn = stream(config.seed, Purpose.PARTITION, 0, "clients").permutation(len(enough))
        enough = enough[np.sort(drawn[: config.clients])]
    return [int(k) for k in enough]


def _test_rows(
    test: LabelledRows, names: tuple[int | str, ...], config: TrainConfig
) -> tuple[LabelledRows, Integers]:
    """Return the source's test rows by client, partitioned if it does not name owners."""
    if test.client is not None and config.partition == "natural":
        owner = test.client.astype(str)
        each = [np.flatnonzero(owner == str(name)) for name in names]
    else:
        each = np.array_split(np.arange(len(test.y)), len(names))
    return test.take(np.concatenate(each)), np.array([*map(len, each)])


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
            Resolved: with model, method, partition and number of clients.
    """
    if rows is None:
        rows = read_labelled(config.data, config.feature_norm)
    model = config.model or "softmax"
    network_named(model).size(rows.x.shape[1:], rows.classes)
    usual = DPFedAvg.name if UNITS[config.unit].whole_client else FedSGD.name
    method, clients = config.method or usual, config.clients
    partition = config.partition or ("dirichlet:0.1" if rows.client is None else "natural")
    if clients is None and partition != "natural":
        clients = 1 if STRATEGIES[method].one_place else CLIENTS
    config = replace(config, model=model, method=method, partition=partition, clients=clients)
    return split(rows, config), config
