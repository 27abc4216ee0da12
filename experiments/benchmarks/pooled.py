"""Work on rows in one place: fits and calibration errors, beside our peers'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal import datasets
from fedcal.calibrators import BBQ, TemperatureScaling
from fedcal.calibrators.histogram import cells_of, count_cells
from fedcal.errors import InputError
from fedcal.experiments.benchmarks import peers
from fedcal.experiments.benchmarks.apart import Apart
from fedcal.experiments.benchmarks.timing import Case, Contestant, checksum
from fedcal.metrics import classwise_ece, ece, nll
from fedcal.numerics import label_entries, row_sum, shifted, softmax
from fedcal.types import Floats, Integers

_DATA = "resnet110-cifar10"
_BINS = 15  # of calibration errors
_FINE_BINS = 128  # of histograms

Rows = tuple[Floats, Integers]


# -- data ---------------------------------------------------------------------------------------


def real_rows(quick: bool) -> Rows:
    """Test logits of ResNet-110 on CIFAR-10, (10000, 10)."""
    data = datasets.load(_DATA)
    if data.test_logits is None or data.test_labels is None:
        raise InputError(f"{_DATA} has no test rows")
    rows = slice(0, 1000 if quick else None)
    return np.ascontiguousarray(data.test_logits[rows]), data.test_labels[rows]


def many_classes(quick: bool) -> Rows:
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


def temperature(rows: Rows, target: float) -> Case:
    """The pooled fit; T and the NLL that it reaches stand beside the time."""
    logits, labels = rows

    def worth(t: float) -> dict[str, float]:
        return {"T": t, "NLL": _nll(logits, labels, t)}

    def ours() -> Callable[[], float]:
        return lambda: TemperatureScaling().fit(logits, labels).temperature

    return Case(
        f"temperature fit, {_size(logits)}",
        target,
        Contestant("fedcal", ours, worth),
        (
            Contestant(peers.SKLEARN, lambda: peers.sklearn_temperature(logits, labels), worth),
            Contestant(
                peers.SKLEARN_CORE, lambda: peers.sklearn_temperature_core(logits, labels), worth
            ),
            Contestant(peers.SCIPY, lambda: peers.scipy_temperature(logits, labels), worth),
            *_temperature_apart(logits, labels, worth),
        ),
    )


def _temperature_apart(
    logits: Floats, labels: Integers, worth: Callable[[float], dict[str, float]]
) -> list[Contestant]:
    """netcal, and the ways of probmetrics of which one or the other is fastest."""
    arrays = {"logits": logits, "labels": labels}
    found = [_apart("netcal TemperatureScaling", worth, "netcal-temperature", arrays)]
    for title, opt, dtype in (
        ("bisection (its default)", "bisection", "float64"),
        ("bisection, single precision", "bisection", "float32"),
        ("L-BFGS with line search", "lbfgs_line_search", "float64"),
    ):
        name, task = f"probmetrics {title}", "probmetrics-temperature"
        found.append(_apart(name, worth, task, arrays, opt=opt, dtype=dtype))
    return found


def _apart(
    name: str,
    worth: Callable[[Any], dict[str, float]],
    task: str,
    arrays: Mapping[str, NDArray[Any]],
    **options: Any,
) -> Contestant:
    """A peer in its own environment."""
    peer = Apart(task, arrays, **options)
    return Contestant(name, peer.prepare, worth, peer.close)


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
    what: str,
    key: str,
    target: float | None,
    ours: Score,
    name: str,
    peer: Peer,
    rows: Rows,
    apart: Mapping[str, str],
) -> Case:
    """A calibration error with the same bins on all sides.

    Parameters
    ----------
    key : what its value is called
    apart : peers in their own environment, name -> task
    """
    logits, labels = rows
    probs = softmax(logits)

    def worth(value: float) -> dict[str, float]:
        return {key: value}

    arrays = {"probs": probs, "labels": labels}
    return Case(
        f"{what}, {_size(probs)}",
        target,
        Contestant("fedcal", lambda: lambda: ours(probs, labels, _BINS), worth),
        (
            Contestant(name, lambda: peer(probs, labels, _BINS), worth),
            *(_apart(n, worth, task, arrays, bins=_BINS) for n, task in apart.items()),
        ),
    )


def classwise(rows: Rows, target: float | None) -> Case:
    """Classwise ECE."""
    name = "torchmetrics binary_calibration_error, one-vs-rest"
    peer = peers.torchmetrics_classwise
    apart = {"netcal ECE, one-vs-rest": "netcal-classwise"}
    return _score("classwise ECE", "cwECE", target, classwise_ece, name, peer, rows, apart)


def top_label(rows: Rows) -> Case:
    """Top-label ECE."""
    name = "torchmetrics multiclass_calibration_error"
    apart = {
        "netcal ECE": "netcal-top-label",
        "probmetrics CalibrationError": "probmetrics-top-label",
    }
    peer = peers.torchmetrics_top_label
    return _score("top-label ECE", "ECE", None, ece, name, peer, rows, apart)


def bbq(quick: bool) -> Case:
    """BBQ's table, from histograms that are there and from rows; both are judged on other rows.

    netcal's BBQ is Naeini's with another score: 991 binary models per class of 10,000 rows, of
    10 to 1000 bins, where ours has seven, of 2 to 128.
    """
    logits, labels = real_rows(quick)
    data = datasets.load(_DATA)
    probs, classes = softmax(logits), logits.shape[1]
    cells = cells_of(logits, labels, _FINE_BINS)
    counts = count_cells(cells, _FINE_BINS, np.zeros(len(labels), np.int64), 1)[0]
    positive, negative = counts.astype(np.float64)

    def worth(held_out: Floats) -> dict[str, float]:
        p = np.asarray(held_out)
        return {"held-out NLL": nll(p, data.labels), "held-out ECE": ece(p, data.labels)}

    def ours(fitted: BBQ) -> dict[str, float]:
        return worth(fitted.calibrated(data.logits)) | {"table crc32": checksum(fitted.table)}

    return Case(
        f"BBQ from the histograms of {_size(logits)}",
        2e-3,
        Contestant(
            "fedcal", lambda: lambda: BBQ.from_histograms(positive, negative, classes), ours
        ),
        (
            Contestant(
                "fedcal from rows, counting included",
                lambda: lambda: BBQ().fit(logits, labels),
                ours,
            ),
            _apart(
                "netcal BBQ from rows, counting included",
                worth,
                "netcal-bbq",
                {"probs": probs, "labels": labels, "held_out": softmax(data.logits)},
            ),
        ),
    )
