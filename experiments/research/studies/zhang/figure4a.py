"""Figure 4 (a): the clip norm at a fixed epsilon, on two Gaussians and on features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.research.studies.claims import all_of
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.research.studies.zhang import mixture
from fedcal.experiments.research.studies.zhang.grid import measured
from fedcal.experiments.research.studies.zhang.models import CLIP, LR, PLAIN, Training
from fedcal.experiments.research.studies.zhang.panels import against
from fedcal.experiments.research.studies.zhang.scores import above
from fedcal.experiments.research.studies.zhang.tasks import MIXTURE, Task, task, tasks
from fedcal.strategies.server.outcome import Progress

SEEDS = 5
EPSILON = mixture.EPSILON
CLIPS = (0.1, 0.3, 1.0)
"""On features; lr times the clip norm stays the same."""

LITTLE = 0.02
"""A change of accuracy that is called marginal."""


def sweep(of: Task) -> dict[str, Training]:
    """Clip norm -> training; and without privacy."""
    if of.name == MIXTURE:
        found = {f"{clip:g}": mixture.at(clip) for clip in mixture.STEPS}
        return found | {"none": mixture.without_privacy()}
    found = {f"{clip:g}": Training(EPSILON, clip=clip, lr=CLIP * LR / clip) for clip in CLIPS}
    return found | {"none": PLAIN}


def rows(
    data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
) -> Rows:
    """All clip norms on all data.

    Returns
    -------
    list of dict
        what = "clip": `clip` ("none": without clipping and noise), see `grid.over_seeds`
    """
    todo = [
        (of, clip, how) for of in (task(MIXTURE), *tasks(data)) for clip, how in sweep(of).items()
    ]
    return measured("clip", "clip", todo, seeds, progress)


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """What section 4.3 says of Figure 4 (a), of each of the data."""
    said: list[RowsClaim] = []
    for name in dict.fromkeys(r["data"] for r in found):
        *lines, plain = (r for r in found if r["data"] == name)
        places = ", ".join(f"{r['clip']}: {r['ece']:.4f}" for r in (*lines, plain))
        accuracies = [r["accuracy"] for r in lines]
        lost = max(accuracies) - min(accuracies)
        said += [
            (
                f"{name}: at epsilon = {EPSILON:g} the ECE falls as the clip norm grows",
                all_of(above(a, b, "ece") for a, b in pairwise(lines)),
                places,
            ),
            (
                f"{name}: without clipping and noise it is the smallest",
                all_of(above(r, plain, "ece") for r in lines),
                places,
            ),
            (
                f"{name}: the clip norm changes the accuracy by less than {100 * LITTLE:g} points",
                lost < LITTLE,
                ", ".join(f"{r['clip']}: {100 * r['accuracy']:.2f} %" for r in lines),
            ),
        ]
    return said


def sheet(found: Rows) -> Sheet | None:
    """ECE by clip norm."""
    names = list(dict.fromkeys(r["data"] for r in found))
    panels = tuple(
        against(
            name,
            "clip norm",
            {"m0": [r for r in found if r["data"] == name and r["clip"] != "none"]},
            "clip",
        )
        for name in names
    )
    return Sheet(f"ECE by clip norm at epsilon = {EPSILON:g}", len(names), panels)
