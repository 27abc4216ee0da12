"""What others would have us call, imported only here and only when it is timed.

Peers that cannot share our environment are in `peer_worker.py`.

Each function prepares outside the clock (imports, conversion to the peer's own arrays) and
returns what is timed.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from fedcal.experiments.benchmarks.apart import HUGE_PAGES
from fedcal.experiments.benchmarks.timing import PeerMissing
from fedcal.numerics import LOG_A_LIMIT
from fedcal.types import Floats, Integers


def _load(module: str, distribution: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise PeerMissing(f"{distribution} is not installed") from None


def _calibration() -> Any:
    module = _load("sklearn.calibration", "scikit-learn")
    release = version("scikit-learn")
    if tuple(int(part) for part in release.split(".")[:2]) < (1, 8):
        raise PeerMissing(f"scikit-learn {release} has no temperature scaling, 1.8 has")
    return module


SKLEARN = "scikit-learn CalibratedClassifierCV(FrozenEstimator, method='temperature')"
SKLEARN_CORE = "scikit-learn _TemperatureScaling (the fit alone)"
SCIPY = "scipy minimize_scalar on the NLL"


def sklearn_temperature(logits: Floats, labels: Integers) -> Callable[[], float]:
    """T by scikit-learn's public interface, around a frozen model that returns the logits."""
    calibration = _calibration()
    base, frozen = _load("sklearn.base", "scikit-learn"), _load("sklearn.frozen", "scikit-learn")

    class Logits(base.ClassifierMixin, base.BaseEstimator):  # type: ignore[misc, name-defined]
        """A model whose decision function is its input."""

        def fit(self, X: Any, y: Any) -> Logits:
            self.classes_ = np.unique(y)
            return self

        def decision_function(self, X: Any) -> Any:
            return X

        def predict(self, X: Any) -> Any:  # asked for, never called
            return X.argmax(axis=1)

    model = frozen.FrozenEstimator(Logits().fit(logits, np.arange(logits.shape[1])))

    def run() -> float:
        fitted = calibration.CalibratedClassifierCV(model, method="temperature")
        fitted.fit(logits, labels)
        return 1.0 / float(fitted.calibrated_classifiers_[0].calibrators[0].beta_)

    return run


def sklearn_temperature_core(logits: Floats, labels: Integers) -> Callable[[], float]:
    """T by the class behind it (private), without folds, copies and label encoding."""
    calibration = _calibration()
    return lambda: 1.0 / float(calibration._TemperatureScaling().fit(logits, labels).beta_)


def scipy_temperature(logits: Floats, labels: Integers) -> Callable[[], float]:
    """T by a general scalar minimiser: what one writes in five lines."""
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    rows = np.arange(len(labels))

    def run() -> float:
        def loss(log_a: float) -> float:
            z = logits * math.exp(log_a)
            return float((logsumexp(z, axis=1) - z[rows, labels]).mean())

        found = minimize_scalar(
            loss, bounds=(-LOG_A_LIMIT, LOG_A_LIMIT), method="bounded", options={"xatol": 1e-9}
        )
        return math.exp(-float(found.x))

    return run


def _torchmetrics() -> tuple[Any, Any]:
    """On one thread, as we are; class by class two are no faster, and under load much slower."""
    os.environ.update(HUGE_PAGES)
    torch = _load("torch", "torch")
    torch.set_num_threads(1)
    return torch, _load("torchmetrics.functional.classification", "torchmetrics")


def torchmetrics_classwise(probs: Floats, labels: Integers, bins: int) -> Callable[[], float]:
    """Classwise ECE: torchmetrics' binary calibration error, one class against the rest."""
    torch, functional = _torchmetrics()
    columns, y = torch.from_numpy(probs.T.copy()), torch.from_numpy(labels)

    def run() -> float:
        errors = [
            functional.binary_calibration_error(
                column, (y == j).long(), n_bins=bins, norm="l1", validate_args=False
            )
            for j, column in enumerate(columns)
        ]
        return float(torch.stack(errors).mean())

    return run


def torchmetrics_top_label(probs: Floats, labels: Integers, bins: int) -> Callable[[], float]:
    """Top-label ECE by torchmetrics."""
    torch, functional = _torchmetrics()
    p, y = torch.from_numpy(probs), torch.from_numpy(labels)
    classes = p.shape[1]
    return lambda: float(
        functional.multiclass_calibration_error(
            p, y, num_classes=classes, n_bins=bins, norm="l1", validate_args=False
        )
    )
