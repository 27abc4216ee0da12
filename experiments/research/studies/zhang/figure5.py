"""Figure 5: is it the accuracy? ECE and accuracy over epsilon, and at equal accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, counted
from fedcal.experiments.research.studies.zhang.grid import over_seeds, place
from fedcal.experiments.research.studies.zhang.models import PLAIN, Training
from fedcal.experiments.research.studies.zhang.panels import against
from fedcal.experiments.research.studies.zhang.scores import above
from fedcal.experiments.research.studies.zhang.tasks import tasks
from fedcal.strategies.server.outcome import Progress

SEEDS = 3
EPSILONS = (1.0, 3.0, 8.0)
BUDGET = 8.0
STOPS = (0.1, 0.5, 2.0)
"""Epochs after which training without privacy is stopped early."""

NEAR = 0.01
"""Accuracies that are called equal."""


def rows(
    data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
) -> Rows:
    """Private models by epsilon, and models without privacy by epochs.

    Returns
    -------
    list of dict
        what = "model": `model` ("DP", "non-private"), `epsilon`, `epochs`, see `grid.over_seeds`
    """
    trainings: list[tuple[str, float | None, Training]] = [
        ("DP", epsilon, Training(epsilon)) for epsilon in EPSILONS
    ]
    trainings += [
        ("non-private", None, replace(PLAIN, epochs=epochs)) for epochs in (*STOPS, PLAIN.epochs)
    ]
    todo = [(of, *entry) for of in tasks(data) for entry in trainings]
    return [
        place(of, what="model", model=model, epsilon=epsilon, epochs=how.epochs)
        | over_seeds(of, how, seeds)
        for of, model, epsilon, how in counted(todo, progress)
    ]


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """What section 4.3 says of both panels, of each of the data."""
    said: list[RowsClaim] = []
    for name in dict.fromkeys(r["data"] for r in found):
        mine = [r for r in found if r["data"] == name]
        private = [r for r in mine if r["model"] == "DP"]
        plain = [r for r in mine if r["model"] != "DP"]
        whole = max(plain, key=lambda r: r["epochs"])
        at, ece = (np.array([r[key] for r in private]) for key in ("accuracy", "ece"))
        slope, start = np.polyfit(at, ece, 1)
        line = float(start + slope * whole["accuracy"])
        one = next(r for r in private if r["epsilon"] == BUDGET)
        equal = min(plain, key=lambda r: abs(r["accuracy"] - one["accuracy"]))
        apart = abs(equal["accuracy"] - one["accuracy"])
        said += [
            (
                f"{name}: without privacy the ECE is below the line through the private models of "
                f"all epsilons, at its accuracy",
                above({"ece": line}, whole, "ece"),
                f"{whole['ece']:.4f} against {line:.4f}, at an accuracy of {whole['accuracy']:.4f}",
            ),
            (
                f"{name}: stopped early at the private model's accuracy, the model without privacy "
                "still has a smaller ECE",
                above(one, equal, "ece") if apart <= NEAR else None,
                f"{equal['ece']:.4f} (accuracy {equal['accuracy']:.4f}, {equal['epochs']:g} "
                f"epochs) against {one['ece']:.4f} ({one['accuracy']:.4f})",
            ),
        ]
    return said


def sheet(found: Rows) -> Sheet | None:
    """ECE against accuracy."""
    names = list(dict.fromkeys(r["data"] for r in found))
    looks = {"m0": "DP", "m1": "non-private"}
    panels = tuple(
        against(
            name,
            "accuracy",
            {
                look: [r for r in found if r["data"] == name and r["model"] == model]
                for look, model in looks.items()
            },
            "accuracy",
        )
        for name in names
    )
    return Sheet("ECE and accuracy", len(names), panels, tuple(looks.items()))
