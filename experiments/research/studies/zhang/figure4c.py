"""Figure 4 (c): noise without clipping, and clipping without noise.

Neither protects anybody: the noise is that of a clip norm which nothing was clipped to. So the
library has no such option, and the study adds the noise itself (`models.Training.added`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.research.studies.zhang import mixture
from fedcal.experiments.research.studies.zhang.grid import measured
from fedcal.experiments.research.studies.zhang.models import PLAIN, Training, multiplier
from fedcal.experiments.research.studies.zhang.scores import above
from fedcal.experiments.research.studies.zhang.tasks import MIXTURE, Task, task, tasks
from fedcal.strategies.server.outcome import Progress

SEEDS = 3
EPSILON = mixture.EPSILON
BOTH, CLIPPED, NOISED, NEITHER = "both (DP-SGD)", "clipping", "noise", "neither"
CAUSE = 0.8
"""Share of what DP-SGD adds to the ECE from which one of the two is called its cause."""


def parts(of: Task) -> dict[str, Training]:
    """What is done to gradients -> training."""
    mixed = of.name == MIXTURE
    both = mixture.HOW if mixed else Training(EPSILON)
    plain = mixture.without_privacy() if mixed else PLAIN
    return {
        BOTH: both,
        CLIPPED: replace(both, epsilon=math.inf),
        NOISED: replace(plain, added=multiplier(of, both) * both.clip),
        NEITHER: plain,
    }


def rows(
    data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
) -> Rows:
    """Clipping, noise, both, neither on all data.

    Returns
    -------
    list of dict
        what = "part": `gradients` (what is done to them), see `grid.over_seeds`
    """
    todo = [
        (of, title, how) for of in (task(MIXTURE), *tasks(data)) for title, how in parts(of).items()
    ]
    return measured("part", "gradients", todo, seeds, progress)


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """What section 4.3 says of Figure 4 (c), of each of the data."""
    said: list[RowsClaim] = []
    for name in dict.fromkeys(r["data"] for r in found):
        of = {r["gradients"]: r for r in found if r["data"] == name}
        ece = {title: line["ece"] for title, line in of.items()}
        added = ece[BOTH] - ece[NEITHER]
        adds = above(of[BOTH], of[NEITHER], "ece")
        places = ", ".join(f"{title} {value:.4f}" for title, value in ece.items())
        said += [
            (
                f"{name}: noise without clipping has less than half of DP-SGD's ECE",
                ece[NOISED] < ece[BOTH] / 2,
                places,
            ),
            (
                f"{name}: noise without clipping has a higher accuracy than DP-SGD",
                above(of[NOISED], of[BOTH], "accuracy"),
                f"{100 * of[NOISED]['accuracy']:.2f} % against {100 * of[BOTH]['accuracy']:.2f} %",
            ),
            (
                f"{name}: clipping alone adds at least {100 * CAUSE:g} % of what DP-SGD adds to it",
                ece[CLIPPED] - ece[NEITHER] >= CAUSE * added if adds is True else None,
                places if adds is True else f"it adds nothing: {places}",
            ),
        ]
    return said
