"""Work on rows in one place: fits and calibration errors, beside our peers'."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax

from experiments.benchmarks.timing import Case, Contestant, checksum, named, peers_of
from fedcal import datasets
from fedcal.calibrators import BBQ, TemperatureScaling
from fedcal.core.numerics import Floats, Integers, softmax
from fedcal.metrics import classwise_ece, ece, nll
from fedcal.metrics.binning import cells_of

DATA = "resnet110-cifar10"
_BINS = 15  # of calibration errors
_FINE_BINS = 128  # of histograms

Rows = tuple[Floats, Integers]
Score = Callable[[Floats, Integers, int], float]


# -- data ---------------------------------------------------------------------------------------


def real_rows(quick: bool) -> Rows:
    """Test logits of ResNet-110 on CIFAR-10, (10000, 10)."""
    data: Any = datasets.load(DATA)
    rows = slice(0, 1000 if quick else None)
    return np.ascontiguousarray(data.test_logits[rows]), data.test_labels[rows]


def many_classes(quick: bool) -> Rows:
    """Synthetic logits, (50000, 1000)."""
    return synthetic(*((1000, 20) if quick else (50_000, 1000)))


def synthetic(n: int, c: int) -> Rows:
    """Logits, (n, c), in which the label's stands out by six."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, c, n)
    logits = rng.normal(scale=2.0, size=(n, c))
    logits[np.arange(n), labels] += 6.0
    return logits, labels


def _size(rows: Floats) -> str:
    return f"{len(rows):,} x {rows.shape[1]:,}"


# -- cases --------------------------------------------------------------------------------------


def temperature(rows: Callable[[bool], Rows], target: float, quick: bool) -> Case:
    """Time the pooled fit; T and the NLL that it reaches stand beside the time."""
    logits, labels = rows(quick)
    arrays = {"logits": logits, "labels": labels, "probs": softmax(logits)}
    each = np.arange(len(labels))

    def values(t: float) -> dict[str, float]:
        return {"T": t, "NLL": float(-log_softmax(logits / t, axis=1)[each, labels].mean())}

    def ours() -> float:
        return TemperatureScaling().fit(logits, labels).temperature

    return Case(
        f"temperature fit, {_size(logits)}",
        target,
        [Contestant("fedcal", lambda: ours, values), *peers_of("temperature", values, arrays)],
    )


def error(
    what: str,
    key: str,
    ours: Score,
    rows: Callable[[bool], Rows],
    target: float | None,
    quick: bool,
) -> Case:
    """Time a calibration error with the same bins on all sides.

    Parameters
    ----------
    key
        what its value is called
    """
    logits, labels = rows(quick)
    probs = softmax(logits)
    arrays = {"probs": probs, "labels": labels}

    return Case(
        f"{what}, {_size(probs)}",
        target,
        [
            Contestant("fedcal", lambda: lambda: ours(probs, labels, _BINS), named(key)),
            *peers_of(what, named(key), arrays, bins=_BINS),
        ],
    )


def bbq(quick: bool) -> Case:
    """BBQ's table, from histograms that are there and from rows; both are judged on other rows.

    netcal's BBQ is Naeini's with another score: 991 binary models per class of 10,000 rows, of
    10 to 1000 bins, where ours has seven, of 2 to 128.
    """
    logits, labels = real_rows(quick)
    data = datasets.load(DATA)
    classes = logits.shape[1]
    cells = cells_of(softmax(logits), labels, _FINE_BINS)
    counts = np.bincount(cells.ravel(), minlength=2 * classes * _FINE_BINS)
    positive, negative = counts.astype(np.float64).reshape(2, classes, _FINE_BINS)

    def worth(held_out: Floats) -> dict[str, float]:
        p = np.asarray(held_out)
        return {"held-out NLL": nll(p, data.labels), "held-out ECE": ece(p, data.labels)}

    def ours(fitted: BBQ) -> dict[str, float]:
        return worth(fitted.calibrated(data.logits)) | {"table crc32": checksum(fitted.table)}

    arrays = {"probs": softmax(logits), "labels": labels, "held_out": softmax(data.logits)}
    return Case(
        f"BBQ from the histograms of {_size(logits)}",
        2e-3,
        [
            Contestant(
                "fedcal", lambda: lambda: BBQ.from_histograms(positive, negative, classes), ours
            ),
            Contestant(
                "fedcal from rows, counting included",
                lambda: lambda: BBQ().fit(logits, labels),
                ours,
            ),
            *peers_of("bbq", worth, arrays),
        ],
    )


_classwise = partial(error, "classwise ECE", "cwECE", classwise_ece)
_top_label = partial(error, "top-label ECE", "ECE", ece)


CASES: dict[str, Callable[[bool], Case]] = {
    "temperature": partial(temperature, real_rows, 2e-3),
    "temperature-large": partial(temperature, many_classes, 0.7),
    "classwise-ece": partial(_classwise, real_rows, 0.2e-3),
    "classwise-ece-large": partial(_classwise, many_classes, 0.1),
    "top-label-ece": partial(_top_label, real_rows, None),
    "top-label-ece-large": partial(_top_label, many_classes, None),
    "bbq": bbq,
}
