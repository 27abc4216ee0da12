"""The owner of each row: label and quantity skew; held-out rows.

Each function returns the owner of every row, shape (n,) int64 in [0, clients). Clients may end
up empty; that is legal everywhere.

Partitioners of flwr-datasets: `flwr:NAME` or `flwr:NAME:KEY=VALUE:KEY=VALUE`.

A partitioner is handed a `datasets.Dataset` of row numbers and the column that it divides by;
owners are read back from the row numbers in its partitions. flwr-datasets, which loads pandas and
matplotlib, is imported where used.

From the value of `--partition` to one shard for each client.
"""

import hashlib
import inspect
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core import checks
from fedcal.core.checks import InputError, integer, one_of
from fedcal.core.imports import need
from fedcal.core.numerics import Integers, Purpose, stream
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset
from fedcal.storage.toml_files import toml_value

CLIENTS = 100
"""Default number of clients, if neither the user nor the data set it."""


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
    integer(what, shards, 0, max(n, clients))
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
    return checks.needed("a column client", data.client, why)


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
    checks.fraction("share", share)
    unique, place = np.unique(array, return_inverse=True)
    secret = hashlib.blake2b(f"fedcal holdout {key}".encode(), digest_size=32).digest()
    digests = b"".join(
        hashlib.blake2b(str(entry).encode(), key=secret, digest_size=8).digest()
        for entry in unique.tolist()
    )
    drawn = np.frombuffer(digests, "<u8") < np.uint64(share * 2.0**64)
    return np.asarray(drawn[place], np.bool_)


_UNFIT = {
    "Partitioner": "is the base class of all partitioners",
    "IdToSizeFncPartitioner": "takes a function, which cannot be written here",
    "ContinuousPartitioner": "divides by a continuous property of rows",
    "VerticalEvenPartitioner": "divides columns; clients here have rows",
    "VerticalSizePartitioner": "divides columns; clients here have rows",
}
_FILLED = ("num_partitions", "partition_by", "partition_sizes", "seed")
_BY = {  # where it is not the label that a partitioner divides by
    "NaturalIdPartitioner": "client",
    "GroupedNaturalIdPartitioner": "client",
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
    if name == "SizePartitioner" and "partition_sizes" not in options:
        raise InputError(f"flwr:{name} needs sizes: flwr:{name}:partition_sizes=[30,70]")
    return name, options


def owners_by(
    name: str, options: Options, data: Dataset, clients: int, seed: int
) -> tuple[Integers, int]:
    """Return the partitioner's owner of each fit row (n,), and the number of clients.

    Rows are shuffled by `seed` as `FederatedDataset` does it, so that for the same seed client k
    has the rows of its partition k. Missing parameters are filled: `num_partitions` (or equal
    `partition_sizes`) from `clients`, `seed`, and `partition_by` with "label", or "client" for
    natural ids. Labels are passed as ranks, 0 for the smallest that occurs.

    Raises InputError for values that the partitioner itself refuses; or for rows that it assigns to
    no client, or to two.
    """
    spec = f"flwr:{name}"
    accepted, arguments = _parameters(name), dict(options)
    n = len(data.labels)
    columns: dict[str, NDArray[Any]] = {_ROW: np.arange(n)}
    even = [n // clients + (k < n % clients) for k in range(clients)]
    filled = (clients, _BY.get(name, "label"), even, seed)
    for key, value in zip(_FILLED, filled, strict=True):
        if key in accepted:
            arguments.setdefault(key, value)
    if "distribution_array" in arguments:
        arguments["distribution_array"] = np.array(arguments["distribution_array"])
    if "partition_by" in arguments:
        columns[arguments["partition_by"]] = _column(data, arguments["partition_by"])
    with (
        checks.blamed(f"{spec} (its parameters: {', '.join(accepted)})"),
        _quiet(),
    ):  # partitioners raise what they like
        partitioner = _partitioners()[name](**arguments)
        rows = need("datasets", "datasets", spec).Dataset.from_dict(columns)
        partitioner.dataset = rows.shuffle(seed=seed)
        count = int(partitioner.num_partitions)
        loaded = [partitioner.load_partition(k).with_format("arrow") for k in range(count)]
        parts = [np.asarray(part[:][_ROW], np.int64) for part in loaded]
    assigned = np.concatenate([np.empty(0, np.int64), *parts])
    times = np.bincount(assigned, minlength=n)
    if (times != 1).any():
        raise InputError(
            f"{spec} gives {(times == 0).sum()} of {n} rows to no client, and "
            f"{(times > 1).sum()} to more than one; every row must have one"
        )
    owner = np.empty(n, np.int64)
    owner[assigned] = np.repeat(np.arange(count), [len(part) for part in parts])
    return owner, count


def _partitioners() -> dict[str, Callable[..., Any]]:
    with _quiet():
        module = need("flwr_datasets.partitioner", "datasets", "partition 'flwr'")
    return {name: getattr(module, name) for name in module.__all__ if name not in _UNFIT}


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    known = _partitioners()
    checks.check_kept(f"flwr:{name}")
    if name in _UNFIT:
        raise InputError(f"flwr:{name} {_UNFIT[name]}")
    one_of("partitioner of flwr-datasets", name, known)
    return inspect.signature(known[name]).parameters


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress progress bars and third-party warnings; relevant cases are refused below."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.filterwarnings("ignore", module=r"(flwr_datasets|datasets|pyarrow)(\.|$)")
        yield


def _column(data: Dataset, by: str) -> NDArray[Any]:
    if one_of("column for partition_by", by, ("label", "client")) == "label":
        # InnerDirichletPartitioner looks for 0 .. classes - 1 whether they occur or not
        return np.unique(data.labels, return_inverse=True)[1]
    return natural_clients(data)


ASSIGNED = "assigned"
"""Value in place of a partition if a file contains rows that are already partitioned."""


def _beta(name: str) -> Callable[[str], float]:
    return lambda text: checks.positive(f"beta of partition '{name}'", checks.number_in(text))


FORMS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "iid": ("", "", str),
    "dirichlet": ("BETA", "0.1", _beta("dirichlet")),
    "quantity": ("BETA", "0.5", _beta("quantity")),
    "shards": ("N", "2", lambda text: integer("shards per client", checks.number_in(text, int), 1)),
    "natural": ("", "", str),
    "flwr": ("NAME", "PathologicalPartitioner:num_classes_per_partition=2", parse_partitioner),
}
"""Partition on the command line -> form of the value after its name, an example, and its reader."""

DRAWS: dict[str, Callable[..., Integers]] = {
    "iid": lambda labels, clients, _, rng: iid(labels, clients, rng),
    "dirichlet": dirichlet,
    "quantity": quantity,
    "shards": label_shards,
}
"""Partition drawn from labels and their number -> owners of rows, (labels, clients, value, rng)."""


@dataclass(frozen=True)
class Partition:
    """Assignment of rows to clients: the value of `--partition`, a name and what follows it."""

    name: str
    value: Any

    def owners(self, data: Dataset, clients: int | None, seed: int) -> tuple[Integers, int]:
        """Return the client of each fit row, (n,), and the number of clients.

        Raises InputError if the data lack what the partition needs, or make another number of
        clients.
        """
        there = clients or CLIENTS
        if self.name in DRAWS:
            rng = stream(seed, Purpose.PARTITION)
            return DRAWS[self.name](data.labels, there, self.value, rng), there
        if self.name == "natural":
            what = f"clients, the natural ones of {data.name},"
            owner, there = natural_clients(data), len(data.client_names or ())
        else:
            partitioner, options = self.value
            what = f"clients, the partitions of flwr:{partitioner},"
            owner, there = owners_by(partitioner, options, data, there, seed)
        checks.same(what, clients or there, there)
        return owner, there


def forms() -> list[str]:
    """Return the command-line forms of all partitions: `iid`, `dirichlet:BETA`, ..."""
    return [f"{name}:{form}" if form else name for name, (form, _, _) in FORMS.items()]


def parse(spec: str) -> Partition:
    """Check the value of `--partition`, without data.

    Raises InputError for anything else, and where flwr-datasets is needed and not installed.

    Parameters
    ----------
    spec
        one of `forms()`; `flwr:NAME` takes parameters as in `flwr:NAME:KEY=VALUE:KEY=VALUE`
    """
    name, _, value = spec.partition(":")
    form, example, read = FORMS[one_of("partition", name, FORMS)]
    try:
        if bool(value) == bool(form):
            return Partition(name, read(value))
    except InputError:
        raise
    except ValueError:
        pass
    needs = f"needs {name}:{form}, such as {name}:{example}" if form else "takes no parameter"
    raise InputError(f"partition '{name}' {needs}, got {spec[:200]!r}")


def client_names(data: Dataset, spec: str, clients: int) -> tuple[str, ...]:
    """Return the names of the clients of a data set that was partitioned by `spec`."""
    if spec == "natural" and data.client_names is not None:
        return data.client_names
    return numbered(clients)


def deal(data: Dataset, spec: str, clients: int | None, seed: int) -> Shards:
    """Deal the fit rows of a data set to clients.

    Every engine, and every site of a simulation, assigns the same rows to the same clients: the
    owner of a row follows from the data, `spec`, `clients` and `seed` alone.

    Raises InputError if `spec` is not allowed, or the data do not have what it needs.

    Parameters
    ----------
    data
        its test part is left alone; rows of one subject are assigned like any others
    spec
        as in `--partition`
    clients
        number of clients; None = the data's own for `natural`, the partitioner's own for `flwr`
        if the partition fixes it (natural ids, explicit sizes), else 100
    seed
        random seed of the partition
    """
    return data.shards(*parse(spec).owners(data, clients, seed))


def numbered(clients: int) -> tuple[str, ...]:
    """Return default names of clients: `client 00` to `client 99`."""
    width = len(str(clients - 1))
    return tuple(f"client {k:0{width}d}" for k in range(clients))
