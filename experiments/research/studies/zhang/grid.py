"""Models by the paper's names of them: trained, recalibrated, and scored over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from numpy.typing import NDArray

from fedcal.calibrators import Calibrator
from fedcal.core.numerics import softmax
from fedcal.core.types import Floats, Integers
from fedcal.experiments.research.studies.spec import Record, Rows, counted
from fedcal.experiments.research.studies.zhang import models
from fedcal.experiments.research.studies.zhang.models import BEYOND, PLAIN, REACH, Training
from fedcal.experiments.research.studies.zhang.scores import scores, spread
from fedcal.experiments.research.studies.zhang.tasks import Task
from fedcal.strategies.server.outcome import Progress
from fedcal.training.trained_model import TrainedModel

DP, SGLD = "DP", "DP-SGLD"
GLOBAL, ALL_ROWS = "Global clipping", "Global clipping, no row left out"
PS, TS, EXACT_TS = "DP-PS", "DP-TS", "DP + non-private TS"
NON_PRIVATE, SPLIT, OURS = "Non-private", "DP on 90 %", "Ours, no split"

Made = tuple[TrainedModel, Calibrator | None]


def _alone(of: Callable[[float], Training]) -> Callable[[Task, float, int], Made]:
    return lambda task, epsilon, seed: (models.trained(task, of(epsilon), seed), None)


def _global(epsilon: float, reach: float) -> Training:
    return Training(epsilon=epsilon, rule="global", reach=reach)


def _split(fit: models.Recalibration | None) -> Callable[[Task, float, int], Made]:
    def made(task: Task, epsilon: float, seed: int) -> Made:
        how = models.rest(Training(epsilon=epsilon))
        found = None if fit is None else fit(task, how, seed)
        return models.trained(task, how, seed), found

    return made


def _ours(task: Task, epsilon: float, seed: int) -> Made:
    how = models.unsplit(task, Training(epsilon=epsilon))
    return models.trained(task, how, seed), models.ours(task, how, seed)


METHODS: Mapping[str, Callable[[Task, float, int], Made]] = {
    DP: _alone(lambda epsilon: Training(epsilon=epsilon)),
    SGLD: _alone(lambda epsilon: Training(epsilon=epsilon, lr=None)),
    GLOBAL: _alone(lambda epsilon: _global(epsilon, REACH)),
    ALL_ROWS: _alone(lambda epsilon: _global(epsilon, BEYOND)),
    PS: _split(models.private("dp-platt")),
    TS: _split(models.private("dp-ts")),
    EXACT_TS: _split(models.exact_temperature),
    NON_PRIVATE: _alone(lambda epsilon: PLAIN),
    SPLIT: _split(None),
    OURS: _ours,
}
"""The lines of Tables 1 to 3 and 7; the model that DP-PS and DP-TS recalibrate; ours."""


@cache
def made(task: Task, title: str, epsilon: float, seed: int) -> Made:
    """A model and what recalibrates it."""
    return METHODS[title](task, epsilon, seed)


def probabilities(model: Made, x: NDArray[Any]) -> Floats:
    """Of some rows, (n, classes)."""
    head, calibrator = model
    z = head.predict(x)
    return softmax(z) if calibrator is None else calibrator.calibrated(z)


def judged(model: Made, x: NDArray[Any], y: Integers) -> dict[str, float]:
    """See `scores.scores`."""
    return scores(probabilities(model, x), y)


def over_seeds(task: Task, how: Training, seeds: int) -> dict[str, float]:
    """Scores on the test rows, and of the training rows `train ...`; see `scores.spread`."""
    runs = []
    for seed in range(seeds):
        model = (models.trained(task, how, seed), None)
        run = judged(model, task.test_x, task.test_y)
        on_rows = judged(model, task.x, task.y)
        runs.append(run | {f"train {key}": value for key, value in on_rows.items()})
    return spread(runs)


def measured(
    what: str,
    key: str,
    todo: Sequence[tuple[Task, str, Training]],
    seeds: int,
    progress: Progress | None,
) -> Rows:
    """A row for each training: its title under `key`, and `over_seeds`."""
    return [
        place(of, what=what, **{key: title}) | over_seeds(of, how, seeds)
        for of, title, how in counted(todo, progress)
    ]


def place(task: Task, **facts: Any) -> Record:
    """What tells a row of a table apart."""
    return {"data": task.name, **facts}
