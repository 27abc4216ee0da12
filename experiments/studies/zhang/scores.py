"""What is measured of models by the names that the paper has for them, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.studies import claims
from experiments.studies.rows import counted, standard_error
from experiments.studies.spec import Record, Rows, Told
from experiments.studies.zhang import models
from experiments.studies.zhang.models import BEYOND, PLAIN, REACH, Training
from experiments.studies.zhang.tasks import Task, tasks
from fedcal.calibrators import Calibrator
from fedcal.core.numerics import Floats, Integers, softmax
from fedcal.evaluation import Histogram
from fedcal.evaluation.estimators.calibration import Ece, simulate
from fedcal.metrics import summary
from fedcal.metrics.standard import BINS
from fedcal.strategies.server.outcome import Progress
from fedcal.training.networks import TrainedModel

MATTERS = 0.001
"""The least difference of accuracies or ECEs that is called one."""

_EDGES = np.linspace(0.0, 1.0, 32 * BINS + 1)
KEYS = ("accuracy", "ece", "ece_debiased", "nll", "gap")

DP, SGLD = "DP", "DP-SGLD"
GLOBAL, ALL_ROWS = "Global clipping", "Global clipping, no row left out"
PS, TS, EXACT_TS = "DP-PS", "DP-TS", "DP + non-private TS"
NON_PRIVATE, SPLIT = "Non-private", "DP on 90 %"

Made = tuple[TrainedModel, Calibrator | None]


def _alone(task: Task, how: Training, seed: int) -> Made:
    return models.trained(task, how, seed), None


def _global(reach: float) -> Callable[[Task, float, int], Made]:
    return lambda task, epsilon, seed: _alone(
        task, Training(epsilon=epsilon, rule="global", reach=reach), seed
    )


def _split(fit: models.Recalibration | None) -> Callable[[Task, float, int], Made]:
    def made(task: Task, epsilon: float, seed: int) -> Made:
        how = models.rest(Training(epsilon=epsilon))
        found = None if fit is None else fit(task, how, seed)
        return models.trained(task, how, seed), found

    return made


METHODS: Mapping[str, Callable[[Task, float, int], Made]] = {
    DP: lambda task, epsilon, seed: _alone(task, Training(epsilon=epsilon), seed),
    SGLD: lambda task, epsilon, seed: _alone(task, Training(epsilon=epsilon, lr=None), seed),
    GLOBAL: _global(REACH),
    ALL_ROWS: _global(BEYOND),
    PS: _split(models.private("dp-platt")),
    TS: _split(models.private("dp-ts")),
    EXACT_TS: _split(models.exact_temperature),
    NON_PRIVATE: lambda task, epsilon, seed: _alone(task, PLAIN, seed),
    SPLIT: _split(None),
}
"""The lines of Tables 1 to 3 and 7; the model that DP-PS and DP-TS recalibrate."""


@cache
def made(task: Task, title: str, epsilon: float, seed: int) -> Made:
    """Train a model and fit its recalibration."""
    return METHODS[title](task, epsilon, seed)


def probabilities(model: Made, x: NDArray[Any]) -> Floats:
    """Return the probabilities of some rows, (n, classes)."""
    head, calibrator = model
    z = head.predict(x)
    return softmax(z) if calibrator is None else calibrator.calibrated(z)


def scores(probs: Floats, y: Integers) -> dict[str, float]:
    """`KEYS`: ECE has 15 bins; `gap` is mean confidence minus accuracy, also of two classes."""
    found = summary(probs, y)
    found["gap"] = float(probs.max(axis=1).mean()) - found["accuracy"]
    found["ece_debiased"] = debiased(probs, y)
    return {key: found[key] for key in KEYS}


def debiased(probs: Floats, y: Integers) -> float:
    """Return the median-unbiased top-label ECE: of few rows, the one to compare models by."""
    top, right = probs.max(axis=1), probs.argmax(axis=1) == y
    counts = np.array([np.histogram(top[rows], _EDGES)[0] for rows in (~right, right)], np.float64)
    h, ece = Histogram.exact(_EDGES, counts), Ece()
    deviations = simulate(h, 0, "")[1] @ ece.gaps(h).T.astype(np.float32)
    return ece.inverted(h, deviations, 0.95).corrected


def judged(model: Made, x: NDArray[Any], y: Integers) -> dict[str, float]:
    """Return the `scores` of a model on some rows."""
    return scores(probabilities(model, x), y)


def spread(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each score over seeds, and `... std`."""
    found = {}
    for key in runs[0]:
        values = [run[key] for run in runs]
        found[key] = fmean(values)
        found[f"{key} std"] = stdev(values) if len(values) > 1 else 0.0
    return found


def over_seeds(task: Task, how: Training, seeds: int) -> dict[str, float]:
    """Scores on the test rows, and of the training rows `train ...`; see `spread`."""
    runs = []
    for seed in range(seeds):
        model = _alone(task, how, seed)
        on_rows = judged(model, task.x, task.y)
        run = judged(model, task.test_x, task.test_y)
        runs.append(run | {f"train {key}": value for key, value in on_rows.items()})
    return spread(runs)


Trainings = Callable[[Task], Iterable[tuple[Record, Training]]]
"""Data -> the facts of a row, and the training that it is of."""

Seen = Callable[[Task, Record, Sequence[Floats]], Record]
"""Data, facts and the test rows' probabilities by seed -> more facts."""


def study(
    trainings: Trainings,
    seeds: int,
    seen: Seen = lambda of, facts, told: {},
) -> Callable[..., Rows]:
    """Return the function `rows` of an experiment: a row for each training, with `over_seeds`.

    Parameters
    ----------
    trainings
        what is trained on data
    seeds
        unless others are chosen
    seen
        what is told of the probabilities besides
    """

    def rows(
        data: Sequence[str] | None = None, seeds: int = seeds, progress: Progress | None = None
    ) -> Rows:
        """All trainings on all data: the facts of each, see `over_seeds`."""
        found: Rows = []
        todo = [(of, facts, how) for of in tasks(data) for facts, how in trainings(of)]
        for of, facts, how in counted(todo, progress):
            told = [probabilities(_alone(of, how, seed), of.test_x) for seed in range(seeds)]
            more = seen(of, facts, told)
            found.append({"data": of.name, **facts, **more} | over_seeds(of, how, seeds))
        return found

    return rows


# -- claims --------------------------------------------------------------------------------------


def above(a: Record, b: Record, key: str) -> Told:
    """Test whether the mean of a score over seeds is larger in a than in b, and matters."""
    return claims.above(a, b, key, MATTERS)


def paired(a: Sequence[float], b: Sequence[float]) -> dict[str, float | None]:
    """Return a - b over seeds: `difference` and its standard `error`."""
    each = [x - y for x, y in zip(a, b, strict=True)]
    error = standard_error(each) if len(each) > 1 else None
    return {"difference": fmean(each), "error": error}
