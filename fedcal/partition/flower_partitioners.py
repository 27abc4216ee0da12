"""Partitioners of flwr-datasets: `flwr:NAME` or `flwr:NAME:KEY=VALUE:KEY=VALUE`.

A partitioner is handed a `datasets.Dataset` of row numbers and the column that it divides by;
owners are read back from the row numbers in its partitions. flwr-datasets, which loads pandas and
matplotlib, is imported where used.
"""

import inspect
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, blamed, one_of
from fedcal.core.imports import need
from fedcal.core.numerics import Integers, Purpose, stream
from fedcal.datasets import Dataset
from fedcal.partition.owners import natural_clients
from fedcal.storage.toml_files import toml_value

COLUMNS = ("label", "client", "confidence")
"""Values of `partition_by`; `confidence` is the model's largest probability of a row."""


_UNFIT = (  # the base class, one that takes a function, and those that divide columns
    *("Partitioner", "IdToSizeFncPartitioner"),
    *("VerticalEvenPartitioner", "VerticalSizePartitioner"),
)
_FILLED = ("num_partitions", "partition_by", "partition_sizes", "seed")
_BY = {  # where it is not the label that a partitioner divides by
    "NaturalIdPartitioner": "client",
    "GroupedNaturalIdPartitioner": "client",
    "ContinuousPartitioner": "confidence",
}
_ROW = "row"

Options = Mapping[str, Any]


def parse_partitioner(text: str) -> tuple[str, Options]:
    """Parse `NAME:KEY=VALUE:...` to name and parameters.

    A value is TOML (7, 0.3, true, [10, 20]) or plain text.

    Raises InputError if flwr-datasets is missing, or for an unknown partitioner or parameter.
    """
    name, *pairs = text.split(":")
    accepted = _parameters(name)
    options: dict[str, Any] = {}
    for pair in pairs:
        key, sign, raw = (part.strip() for part in pair.partition("="))
        if not sign or key in options:
            raise InputError(
                f"partition 'flwr' needs flwr:{name}:KEY=VALUE:KEY=VALUE, each once, got "
                f"{pair[:80]!r}"
            )
        options[one_of(f"parameter of {name}", key, accepted)] = toml_value(raw)
    return name, options


def owners_by(
    name: str, options: Options, data: Dataset, clients: int, seed: int
) -> tuple[Integers, int]:
    """Return the partitioner's owner of each fit row (n,), and the number of clients.

    Rows are passed in an order drawn by `seed`, as `FederatedDataset` shuffles them: several
    partitioners, IidPartitioner among them, cut the rows as they come. Missing parameters are
    filled: `num_partitions` (or equal `partition_sizes`) from `clients`, `seed`, and
    `partition_by` with "label", "client" for natural ids, or "confidence" for
    ContinuousPartitioner. Labels are passed as ranks, 0 for the smallest that occurs.

    Raises InputError for values that the partitioner itself refuses; or for rows that it assigns to
    no client, or to two.
    """
    spec = f"flwr:{name}"
    accepted, arguments = _parameters(name), dict(options)
    n = len(data.labels)
    order = stream(seed, Purpose.PARTITION).permutation(n)
    columns: dict[str, NDArray[Any]] = {_ROW: order}
    even = [n // clients + (k < n % clients) for k in range(clients)]
    filled = (clients, _BY.get(name, "label"), even, seed)
    for key, value in zip(_FILLED, filled, strict=True):
        if key in accepted:
            arguments.setdefault(key, value)
    if "distribution_array" in arguments:
        arguments["distribution_array"] = np.array(arguments["distribution_array"])
    if "partition_by" in arguments:
        columns[arguments["partition_by"]] = _column(data, arguments["partition_by"])[order]
    with (
        blamed(f"{spec} (its parameters: {', '.join(accepted)})"),
        _quiet(),
    ):  # partitioners raise what they like
        partitioner = _partitioners()[name](**arguments)
        partitioner.dataset = need("datasets", "datasets", spec).Dataset.from_dict(columns)
        count = int(partitioner.num_partitions)
        loaded = [partitioner.load_partition(k).with_format("arrow") for k in range(count)]
        parts = [np.asarray(part[:][_ROW], np.int64) for part in loaded]
    dealt = np.concatenate([np.empty(0, np.int64), *parts])
    times = np.bincount(dealt, minlength=n)
    if (times != 1).any():
        raise InputError(
            f"{spec} gives {(times == 0).sum()} of {n} rows to no client, and "
            f"{(times > 1).sum()} to more than one; every row must have one"
        )
    owner = np.empty(n, np.int64)
    owner[dealt] = np.repeat(np.arange(count), [len(part) for part in parts])
    return owner, count


def _partitioners() -> dict[str, Callable[..., Any]]:
    with _quiet():
        module = need("flwr_datasets.partitioner", "datasets", "partition 'flwr'")
    return {name: getattr(module, name) for name in module.__all__ if name not in _UNFIT}


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    known = _partitioners()
    one_of("partitioner of flwr-datasets", name, known)
    return inspect.signature(known[name]).parameters


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress progress bars and third-party warnings; relevant cases are refused below."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.filterwarnings("ignore", module=r"(flwr_datasets|datasets|pyarrow)(\.|$)")
        yield


def _column(data: Dataset, by: str) -> NDArray[Any]:
    if one_of("column for partition_by", by, COLUMNS) == "confidence":
        return np.asarray(data.probs.max(axis=1))
    if by == "label":
        # InnerDirichletPartitioner looks for 0 .. classes - 1 whether they occur or not
        return np.unique(data.labels, return_inverse=True)[1]
    return natural_clients(data)
