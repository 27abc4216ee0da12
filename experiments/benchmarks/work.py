"""The rows of the table: what is timed, on which data, against whom, and the target."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from clients.answers import answer
from experiments.benchmarks import peers, population
from experiments.benchmarks.timing import Contestant, Inside
from experiments.engines.flower import run_in_process
from experiments.engines.inline import run_inline
from fedcal import datasets, partition
from fedcal.calibrators import BBQ, Calibrator, HistogramBinning, TemperatureScaling
from fedcal.calibrators.histogram import cells_of, count_cells
from fedcal.errors import InputError
from fedcal.metrics import classwise_ece, ece
from fedcal.numerics import label_entries, row_sum, shifted, softmax
from fedcal.privacy.plan import Federation
from fedcal.shards import Shards
from fedcal.types import Floats, Integers
from strategies import CalibrationStrategy, FedBin

_DATA = "resnet110-cifar10"
_BINS = 15  # of calibration errors
_FINE_BINS = 128  # of histograms
_ROWS = 50  # of a client
_ROUNDS = 12

Rows = tuple[Floats, Integers]


@dataclass(frozen=True)
class Work:
    """One piece of work; the first contestant is ours.

    Attributes
    ----------
    title : as shown
    target : seconds that our median should stay below; None = just shown
    """

    title: str
    target: float | None
    ours: Contestant
    peers: tuple[Contestant, ...] = ()


# -- data ---------------------------------------------------------------------------------------


def _real_rows(quick: bool) -> Rows:
    """Test logits of ResNet-110 on CIFAR-10, (10000, 10)."""
    data = datasets.load(_DATA)
    if data.test_logits is None or data.test_labels is None:
        raise InputError(f"{_DATA} has no test rows")
    rows = slice(0, 1000 if quick else None)
    return np.ascontiguousarray(data.test_logits[rows]), data.test_labels[rows]


def _many_classes(quick: bool) -> Rows:
    """Synthetic logits, (50000, 1000): the label's stands out by six."""
    n, c = (1000, 20) if quick else (50_000, 1000)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, c, n)
    logits = rng.normal(scale=2.0, size=(n, c))
    logits[np.arange(n), labels] += 6.0
    return logits, labels


def _size(rows: Floats) -> str:
    return f"{len(rows):,} x {rows.shape[1]:,}"


# -- pooled -------------------------------------------------------------------------------------


def temperature(rows: Rows, target: float) -> Work:
    """The pooled fit; T and the NLL that it reaches stand beside the time."""
    logits, labels = rows

    def worth(t: float) -> dict[str, float]:
        return {"T": t, "NLL": _nll(logits, labels, t)}

    def ours() -> Callable[[], float]:
        return lambda: TemperatureScaling().fit(logits, labels).temperature

    return Work(
        f"temperature fit, {_size(logits)}",
        target,
        Contestant("fedcal", ours, worth),
        (
            Contestant(peers.SKLEARN, lambda: peers.sklearn_temperature(logits, labels), worth),
            Contestant(
                peers.SKLEARN_CORE, lambda: peers.sklearn_temperature_core(logits, labels), worth
            ),
            Contestant(peers.SCIPY, lambda: peers.scipy_temperature(logits, labels), worth),
        ),
    )


def _nll(logits: Floats, labels: Integers, t: float) -> float:
    """Mean negative log-likelihood, without the floor that scores have."""
    total = 0.0
    for i in range(0, len(labels), 1000):
        z = shifted(logits[i : i + 1000] / t)
        total += float((np.log(row_sum(np.exp(z))) - label_entries(z, labels[i : i + 1000])).sum())
    return total / len(labels)


Score = Callable[[Floats, Integers, int], float]
Peer = Callable[[Floats, Integers, int], Callable[[], float]]


def _score(
    what: str, key: str, target: float | None, ours: Score, name: str, peer: Peer, rows: Rows
) -> Work:
    """A calibration error with the same bins on both sides; `key` is what its value is called."""
    logits, labels = rows
    probs = softmax(logits)

    def worth(value: float) -> dict[str, float]:
        return {key: value}

    return Work(
        f"{what}, {_size(probs)}",
        target,
        Contestant("fedcal", lambda: lambda: ours(probs, labels, _BINS), worth),
        (Contestant(name, lambda: peer(probs, labels, _BINS), worth),),
    )


def classwise(rows: Rows, target: float | None) -> Work:
    """Classwise ECE."""
    name = "torchmetrics binary_calibration_error, one-vs-rest"
    peer = peers.torchmetrics_classwise
    return _score("classwise ECE", "cwECE", target, classwise_ece, name, peer, rows)


def top_label(rows: Rows) -> Work:
    """Top-label ECE."""
    name = "torchmetrics multiclass_calibration_error"
    return _score("top-label ECE", "ECE", None, ece, name, peers.torchmetrics_top_label, rows)


def bbq(quick: bool) -> Work:
    """BBQ's table, from histograms that are there."""
    logits, labels = _real_rows(quick)
    classes = logits.shape[1]
    cells = cells_of(logits, labels, _FINE_BINS)
    counts = count_cells(cells, _FINE_BINS, np.zeros(len(labels), np.int64), 1)[0]
    positive, negative = counts.astype(np.float64)
    return Work(
        f"BBQ from histograms, {classes} classes",
        2e-3,
        Contestant(
            "fedcal", lambda: lambda: BBQ.from_histograms(positive, negative, classes), _table
        ),
    )


# -- federated ----------------------------------------------------------------------------------

Engine = Callable[[CalibrationStrategy, Shards], Calibrator]


def histogram_round(quick: bool) -> Work:
    """A whole run of one round: cells, clip, ring, sum, ledger, noise, table."""
    shards = _federation(20 if quick else 100)
    return Work(
        f"one histogram round, {shards.clients} clients x {_ROWS} rows x {shards.classes} classes",
        2e-3,
        _round("fedcal inline", run_inline, shards),
        (
            _round("answer() client by client", _one_by_one, shards),
            _round("Flower's loop, in-process grid", run_in_process, shards),
        ),
    )


def later_round(quick: bool) -> Work:
    """A round's share of a run of twelve: cells and ledger are made once."""
    shards = _federation(20 if quick else 100)
    return Work(
        f"a histogram round in a run of {_ROUNDS}, {shards.clients} clients x {_ROWS} rows x "
        f"{shards.classes} classes",
        2e-3,
        _round("fedcal inline", run_inline, shards, rounds=_ROUNDS),
        (_round("answer() client by client", _one_by_one, shards, rounds=_ROUNDS),),
    )


def masked_round(quick: bool) -> Work:
    """The same round with every contribution masked."""
    shards = _federation(20 if quick else 100)
    return Work(
        f"one histogram round with masks, {shards.clients} clients",
        None,
        _round("fedcal inline", run_inline, shards, masks=True),
        (_round("Flower's loop, in-process grid", run_in_process, shards, masks=True),),
    )


def many_clients(quick: bool) -> Work:
    """Rounds over a population, in a process of its own."""
    clients, rows, rounds = (200, 10, 2) if quick else (10_000, 10, _ROUNDS)
    return Work(
        f"{clients:,} clients x {rounds} histogram rounds with clipping, {clients * rows:,} rows",
        5.0,
        Contestant(
            "fedcal inline",
            lambda: lambda: population.run_apart(clients, rows, rounds),
            lambda told: dict(told),
        ),
    )


def _federation(clients: int) -> Shards:
    data = datasets.load(_DATA)
    n = clients * _ROWS
    owner = partition.iid(data.labels[:n], clients, np.random.default_rng(0))
    return Shards.from_owner(data.logits[:n], data.labels[:n], owner, clients)


def _round(
    name: str, engine: Engine, shards: Shards, *, rounds: int = 1, masks: bool = False
) -> Contestant:
    """FedBin at epsilon = 1; what is timed is one round's share of a run."""

    def prepare() -> Callable[[], Inside]:
        fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
        strategy = FedBin(
            Federation(shards.clients, shards.classes, rounds=rounds, epsilon=1.0),
            secure_aggregation="masks" if masks else "none",
        )

        def run() -> Inside:
            start = time.perf_counter()
            calibrator = engine(strategy, fresh)
            return Inside((time.perf_counter() - start) / rounds, calibrator)

        return run

    return Contestant(name, prepare, _table)


def _one_by_one(strategy: CalibrationStrategy, shards: Shards) -> Calibrator:
    """A plain loop over clients, the same `answer` for each: what vectorising saves."""
    for round_number in range(1, strategy.plan.rounds + 1):
        asked = strategy.open_round(round_number)
        if asked is None:
            break
        total = np.zeros(asked.query.bound.length, np.uint64)
        for k in asked.clients.tolist():
            total += answer(shards.block(k, k + 1), asked.query)[0]
        strategy.close_round(asked, total, len(asked.clients))
    return strategy.result()


def _table(calibrator: HistogramBinning | BBQ) -> dict[str, float]:
    """A checksum: the same number means the same bits."""
    return {"table crc32": zlib.crc32(calibrator.table.tobytes())}


WORKS: Mapping[str, Callable[[bool], Work]] = {
    "temperature": lambda quick: temperature(_real_rows(quick), 2e-3),
    "temperature-large": lambda quick: temperature(_many_classes(quick), 0.7),
    "classwise-ece": lambda quick: classwise(_real_rows(quick), 0.2e-3),
    "classwise-ece-large": lambda quick: classwise(_many_classes(quick), 0.1),
    "top-label-ece": lambda quick: top_label(_real_rows(quick)),
    "top-label-ece-large": lambda quick: top_label(_many_classes(quick)),
    "bbq": bbq,
    "round": histogram_round,
    "later-round": later_round,
    "population": many_clients,
    "masks": masked_round,
}
"""Name of `--only` -> what makes the row; its data live no longer than the row."""
