"""Functions that other libraries offer, and the program that times it in another environment.

Each function prepares outside the clock (imports, the peer's own arrays, fresh objects) and returns
what is timed; ImportError if a package is not there. Its result is plain, or a function that makes
it so after the clock has stopped.

Peers that cannot share our environment are timed by an interpreter that runs this file, which
imports nothing of ours. Its one argument is JSON: the peer, its options and the folder with its
arrays (`NAME.npy`). Every line on stdin asks for one repetition, the first for one on few rows.
Every answer is a line of JSON on stdout: `{"seconds": ..., "result": ...}` or
`{"failed": reason}`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
"""numpy asks for huge pages by itself, torch only if it is told to before it is imported: without
them a peer's fit of 50,000 x 1,000 spends three quarters of its time in page faults."""

_WARM_ROWS = 100  # what peers import at the first call stays outside the clock, too

Array = NDArray[Any]
Run = Callable[[], Any]


# -- temperature --------------------------------------------------------------------------------


def sklearn_temperature(logits: Array, labels: Array) -> Run:
    """T by scikit-learn's public interface, around a frozen model that returns the logits."""
    release = version("scikit-learn")
    if tuple(int(part) for part in release.split(".")[:2]) < (1, 8):
        raise ImportError(f"scikit-learn {release} has no temperature scaling, 1.8 has")
    calibration = import_module("sklearn.calibration")
    base, frozen = import_module("sklearn.base"), import_module("sklearn.frozen")

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


def netcal_temperature(probs: Array, labels: Array) -> Run:
    """T by netcal's maximum likelihood, which takes probabilities.

    In double: in single precision its finite differences vanish and it stays at T = 1. Without
    its log for TensorBoard.
    """
    scaling = import_module("netcal.scaling").TemperatureScaling()
    return lambda: 1.0 / float(scaling.fit(probs, labels, tensorboard=False).temperature[0])


def probmetrics_temperature(logits: Array, labels: Array, opt: str, dtype: str) -> Run:
    """T by probmetrics, from logits that are tensors already.

    Parameters
    ----------
    opt
        "bisection", its default, or "lbfgs_line_search"
    dtype
        "float64" or "float32"

    Its other implementations (plain L-BFGS, and those after Guo, AutoGluon, TorchUncertainty and
    torchcal) are slower than the fastest of these or miss the optimum.
    """
    torch, distributions = _torch(), import_module("probmetrics.distributions")
    scaling = import_module("probmetrics.calibrators").TemperatureScalingCalibrator(opt=opt)
    z = distributions.CategoricalLogits(torch.from_numpy(logits).to(getattr(torch, dtype)))
    y = torch.from_numpy(labels)
    return lambda: 1.0 / float(scaling.fit_torch(z, y).invtemp_)


# -- calibration errors -------------------------------------------------------------------------


def _torch() -> Any:
    """Import PyTorch with one thread, as ours; two are no faster here, and slower under load."""
    os.environ.update(HUGE_PAGES)
    torch = import_module("torch")
    torch.set_num_threads(1)
    return torch


def torchmetrics_classwise(probs: Array, labels: Array, bins: int) -> Run:
    """Classwise ECE: torchmetrics' binary calibration error, one class against the rest."""
    torch, functional = _torch(), import_module("torchmetrics.functional.classification")
    error = partial(
        functional.binary_calibration_error, n_bins=bins, norm="l1", validate_args=False
    )
    columns, y = torch.from_numpy(probs.T.copy()), torch.from_numpy(labels)

    def run() -> float:
        errors = [error(column, (y == j).long()) for j, column in enumerate(columns)]
        return float(torch.stack(errors).mean())

    return run


def torchmetrics_top_label(probs: Array, labels: Array, bins: int) -> Run:
    """Top-label ECE by torchmetrics."""
    torch, functional = _torch(), import_module("torchmetrics.functional.classification")
    error = functional.multiclass_calibration_error
    options = {"num_classes": probs.shape[1], "n_bins": bins, "norm": "l1", "validate_args": False}
    p, y = torch.from_numpy(probs), torch.from_numpy(labels)
    return lambda: float(error(p, y, **options))


def netcal_classwise(probs: Array, labels: Array, bins: int) -> Run:
    """Classwise ECE: netcal's ECE of each class against the rest, contiguous columns."""
    error = import_module("netcal.metrics").ECE(bins)
    columns = np.ascontiguousarray(probs.T)

    def run() -> float:
        each = [error.measure(p, (labels == j).astype(int)) for j, p in enumerate(columns)]
        return float(np.mean(each))

    return run


def netcal_top_label(probs: Array, labels: Array, bins: int) -> Run:
    """Top-label ECE by netcal."""
    error = import_module("netcal.metrics").ECE(bins)
    return lambda: float(error.measure(probs, labels))


def probmetrics_top_label(probs: Array, labels: Array, bins: int) -> Run:
    """Top-label ECE by probmetrics, which asks torchmetrics."""
    torch, distributions = _torch(), import_module("probmetrics.distributions")
    error = import_module("probmetrics.metrics").CalibrationError(n_bins=bins)
    p = distributions.CategoricalProbs(torch.from_numpy(probs))
    y = distributions.CategoricalDirac(torch.from_numpy(labels), n_classes=probs.shape[1])
    return lambda: float(error.compute(y, p))


# -- ranking ------------------------------------------------------------------------------------


def sklearn_roc_auc(score: Array, labels: Array) -> Run:
    """ROC AUC by scikit-learn, of pooled rows."""
    auc = import_module("sklearn.metrics").roc_auc_score
    return lambda: float(auc(labels, score))


def torchmetrics_roc_auc(score: Array, labels: Array) -> Run:
    """ROC AUC by torchmetrics, of pooled rows, from all thresholds."""
    torch, functional = _torch(), import_module("torchmetrics.functional.classification")
    p, y = torch.from_numpy(score), torch.from_numpy(labels)
    return lambda: float(functional.binary_auroc(p, y, validate_args=False))


# -- BBQ ----------------------------------------------------------------------------------------


def netcal_bbq(probs: Array, labels: Array, held_out: Array) -> Run:
    """BBQ by netcal; its result is the probabilities for the rows of `held_out`."""
    binning = import_module("netcal.binning").BBQ()

    def run() -> Run:
        fitted = binning.fit(probs, labels)
        return lambda: fitted.transform(held_out).tolist()

    return run


# -- rounds of many clients ---------------------------------------------------------------------


def pfl_round(logits: Array, labels: Array, owner: Array, bins: int, bound: float) -> Run:
    """Class histograms of each user in pfl-research's simulator, clipped, summed, with noise."""
    simulate, base = import_module("pfl.aggregate.simulate"), import_module("pfl.algorithm.base")
    data, made = import_module("pfl.data"), import_module("pfl.data.dataset")
    stats = import_module("pfl.stats")
    privacy, model = import_module("pfl.privacy"), import_module("pfl.model.base")
    metrics, context = import_module("pfl.metrics"), import_module("pfl.context")
    users, classes = int(owner.max()) + 1, logits.shape[1]
    rows = [np.flatnonzero(owner == k) for k in range(users)]

    def histograms(user: Any) -> Array:
        z, y = user.raw_data
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        index = np.minimum((p * bins).astype(np.int64), bins - 1)
        cells = index + np.arange(classes) * bins
        cells += (y[:, None] != np.arange(classes)) * (classes * bins)
        return np.bincount(cells.ravel(), minlength=2 * classes * bins).astype(np.float64)

    class Histograms(base.FederatedAlgorithm):  # type: ignore[misc, name-defined]
        """Its statistics are a user's histograms; a model is not used."""

        def simulate_one_user(self, model: Any, user_dataset: Any, central_context: Any) -> Any:
            user = stats.MappedVectorStatistics({"counts": histograms(user_dataset)})
            return user, metrics.Metrics()

        def get_next_central_contexts(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        def process_aggregated_statistics(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    class NoModel(model.Model):  # type: ignore[misc, name-defined]
        """Model that a round needs and does not use."""

        def apply_model_update(self, statistics: Any) -> Any:
            return self, metrics.Metrics()

    order = iter(int(k) for k in np.tile(np.arange(users), 10_000 // users + 100))
    users_data = data.FederatedDataset(
        lambda k: made.Dataset(raw_data=(logits[rows[k]], labels[rows[k]])), lambda: next(order)
    )
    noise = privacy.CentrallyAppliedPrivacyMechanism(privacy.GaussianMechanism(bound, 1.0))
    backend = simulate.SimulatedBackend(users_data, users_data, postprocessors=[noise])
    algorithm = Histograms()
    asked = context.CentralContext(
        current_central_iteration=0,
        do_evaluation=False,
        cohort_size=users,
        population=import_module("pfl.common_types").Population.TRAIN,
        algorithm_params=base.AlgorithmHyperParams(),
        model_train_params=import_module("pfl.hyperparam").ModelHyperParams(),
        seed=0,
    )

    def run() -> Any:
        found, _ = backend.gather_results(
            model=NoModel(), training_algorithm=algorithm, central_context=asked
        )
        return float(np.asarray(found["counts"]).sum())

    return run


def versions(packages: list[str]) -> Run:
    """Versions of packages in this environment; None = not installed."""
    found = {d.name.lower(): d.version for d in distributions()}
    return lambda: {package: found.get(package.lower()) for package in packages}


# -- in another environment ---------------------------------------------------------------------


def main() -> None:
    """Answer on the real stdout; what peers print goes nowhere."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        asked, arrays = json.loads(sys.argv[1]), dict[str, Array]()
        for file in Path(asked["folder"]).glob("*.npy"):
            arrays[file.stem] = np.load(file)
        given = {name: array[:_WARM_ROWS] for name, array in arrays.items()}
        for _ in sys.stdin:
            run = globals()[asked["peer"]](**given, **asked["options"])
            start = time.perf_counter()
            result = run()
            seconds = time.perf_counter() - start
            answer = {"seconds": seconds, "result": result() if callable(result) else result}
            print(json.dumps(answer), file=out, flush=True)
            given = arrays
    except ImportError as e:
        missing = f"{e.name or 'a module'} is not installed in {sys.prefix}"
        print(json.dumps({"failed": missing}), file=out, flush=True)
    except Exception as e:  # noqa: BLE001  whatever a peer fails of goes into the table
        print(json.dumps({"failed": f"{type(e).__name__}: {e}"}), file=out, flush=True)


if __name__ == "__main__":
    main()
