"""Times a peer that lives in another environment; that environment's interpreter runs this file.

It imports nothing of ours. Its one argument is JSON: the task, the folder with the task's arrays
(`NAME.npy`) and its options. Every line on stdin asks for one repetition. Every answer is a line
of JSON on stdout: first `{"ready": true}`, then `{"seconds": ..., "result": ...}` each time, or
`{"failed": reason}`. Imports, conversions and fresh objects stay outside the clock.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_WARM_ROWS = 100  # what peers import at the first call stays outside the clock, too

Array = NDArray[Any]


class Task(NamedTuple):
    """What is timed: `prepare()` makes it afresh, `tell` turns its result into plain numbers."""

    prepare: Callable[[], Callable[[], Any]]
    tell: Callable[[Any], Any]


def netcal_temperature(logits: Array, labels: Array) -> Task:
    """T by netcal's maximum likelihood, which takes probabilities.

    In double: in single precision its finite differences vanish and it stays at T = 1. Without
    its log for TensorBoard.
    """
    scaling = importlib.import_module("netcal.scaling")
    probs = _softmax(logits)

    def prepare() -> Callable[[], Any]:
        fresh = scaling.TemperatureScaling()
        return lambda: fresh.fit(probs, labels, tensorboard=False)

    return Task(prepare, lambda fitted: 1.0 / float(fitted.temperature[0]))


def probmetrics_temperature(logits: Array, labels: Array, opt: str, dtype: str) -> Task:
    """T by probmetrics, from logits that are tensors already.

    Parameters
    ----------
    opt : "bisection", its default, or "lbfgs_line_search"
    dtype : "float64" or "float32"

    Its other implementations (plain L-BFGS, and those after Guo, AutoGluon, TorchUncertainty and
    torchcal) are slower than the fastest of these or miss the optimum.
    """
    torch = importlib.import_module("torch")
    calibrators = importlib.import_module("probmetrics.calibrators")
    distributions = importlib.import_module("probmetrics.distributions")
    z = distributions.CategoricalLogits(torch.from_numpy(logits).to(getattr(torch, dtype)))
    y = torch.from_numpy(labels)

    def prepare() -> Callable[[], Any]:
        fresh = calibrators.TemperatureScalingCalibrator(opt=opt)
        return lambda: fresh.fit_torch(z, y)

    return Task(prepare, lambda fitted: 1.0 / float(fitted.invtemp_))


def netcal_top_label(probs: Array, labels: Array, bins: int) -> Task:
    """Top-label ECE by netcal."""
    metrics = importlib.import_module("netcal.metrics")
    return Task(lambda: lambda: metrics.ECE(bins).measure(probs, labels), float)


def netcal_classwise(probs: Array, labels: Array, bins: int) -> Task:
    """Classwise ECE: netcal's ECE of each class against the rest, contiguous columns."""
    metrics = importlib.import_module("netcal.metrics")
    columns = np.ascontiguousarray(probs.T)

    def run() -> float:
        error = metrics.ECE(bins)
        each = [error.measure(p, (labels == j).astype(int)) for j, p in enumerate(columns)]
        return float(np.mean(each))

    return Task(lambda: run, float)


def probmetrics_top_label(probs: Array, labels: Array, bins: int) -> Task:
    """Top-label ECE by probmetrics, which asks torchmetrics."""
    torch = importlib.import_module("torch")
    metrics = importlib.import_module("probmetrics.metrics")
    distributions = importlib.import_module("probmetrics.distributions")
    error = metrics.CalibrationError(n_bins=bins)
    p = distributions.CategoricalProbs(torch.from_numpy(probs))
    y = distributions.CategoricalDirac(torch.from_numpy(labels), n_classes=probs.shape[1])
    return Task(lambda: lambda: error.compute(y, p), float)


def netcal_bbq(probs: Array, labels: Array, held_out: Array) -> Task:
    """BBQ by netcal; tells its probabilities for the rows of `held_out`."""
    binning = importlib.import_module("netcal.binning")

    def prepare() -> Callable[[], Any]:
        fresh = binning.BBQ()
        return lambda: fresh.fit(probs, labels)

    return Task(prepare, lambda fitted: fitted.transform(held_out).tolist())


TASKS: dict[str, Callable[..., Task]] = {
    "netcal-temperature": netcal_temperature,
    "probmetrics-temperature": probmetrics_temperature,
    "netcal-top-label": netcal_top_label,
    "netcal-classwise": netcal_classwise,
    "probmetrics-top-label": probmetrics_top_label,
    "netcal-bbq": netcal_bbq,
}


def _softmax(logits: Array) -> Array:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def answers(asked: str, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The answers to the argument and then to each line."""
    try:
        told = json.loads(asked)
        with contextlib.suppress(ImportError):
            importlib.import_module("torch").set_num_threads(1)
        arrays = {f.stem: np.load(f) for f in Path(told["folder"]).glob("*.npy")}
        make = partial(TASKS[told["task"]], **told["options"])
        make(**{name: a[:_WARM_ROWS] for name, a in arrays.items()}).prepare()()
        task = make(**arrays)
        yield {"ready": True}
        for _ in lines:
            run = task.prepare()
            start = time.perf_counter()
            result = run()
            seconds = time.perf_counter() - start
            yield {"seconds": seconds, "result": task.tell(result)}
    except ImportError as e:
        yield {"failed": f"{e.name or 'a module'} is not installed in {sys.prefix}"}
    except Exception as e:  # noqa: BLE001  whatever a peer fails of goes into the table
        yield {"failed": f"{type(e).__name__}: {e}"}


def main() -> None:
    """Answer on the real stdout; what peers print goes nowhere."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out, open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        for answer in answers(sys.argv[1], sys.stdin):
            out.write(json.dumps(answer) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
