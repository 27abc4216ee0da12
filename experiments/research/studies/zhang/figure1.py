"""Figure 1: two Gaussians in the plane; a private model is sure of most rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, counted
from fedcal.experiments.research.studies.zhang import models
from fedcal.experiments.research.studies.zhang.grid import (
    DP,
    NON_PRIVATE,
    over_seeds,
    place,
    probabilities,
)
from fedcal.experiments.research.studies.zhang.mixture import HOW, without_privacy
from fedcal.experiments.research.studies.zhang.panels import LOOKS, histogram
from fedcal.experiments.research.studies.zhang.scores import above
from fedcal.experiments.research.studies.zhang.tasks import MIXTURE, task
from fedcal.strategies.server.outcome import Progress

SEEDS, BARS = 5, 10
SURE = 0.95
"""Confidences from here on are called near 1."""

POINT = 0.01


def rows(seeds: int = SEEDS, progress: Progress | None = None) -> Rows:
    """Both models, and histograms of their probability of the second class.

    Returns
    -------
    list of dict
        what = "model": `model`, see `grid.over_seeds`; `sure`, the share of test rows whose
        confidence is `SURE` or more. what = "bar": `model`, `at`, `share`; of seed 0
    """
    rows_of, found = task(MIXTURE), Rows()
    for title, how in counted({NON_PRIVATE: without_privacy(), DP: HOW}.items(), progress):
        told = [
            probabilities((models.trained(rows_of, how, seed), None), rows_of.test_x)
            for seed in range(seeds)
        ]
        sure = float(np.mean([probs.max(axis=1) >= SURE for probs in told]))
        line = place(rows_of, what="model", model=title, sure=sure)
        found.append(line | over_seeds(rows_of, how, seeds))
        counts, edges = np.histogram(told[0][:, 1], BARS, (0.0, 1.0))
        found += (
            place(rows_of, what="bar", model=title, at=round(float(at), 6), share=float(share))
            for at, share in zip(edges[:-1], counts / counts.sum(), strict=True)
        )
    return found


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """What the introduction says."""
    plain, private = (
        next(r for r in found if r["what"] == "model" and r["model"] == title)
        for title in (NON_PRIVATE, DP)
    )
    return [
        (
            "The accuracies are within one point",
            abs(plain["accuracy"] - private["accuracy"]) <= POINT,
            f"{100 * private['accuracy']:.2f} % and {100 * plain['accuracy']:.2f} %",
        ),
        (
            f"At least twice as many confidences of the private model are {SURE:g} or more",
            private["sure"] >= 2 * plain["sure"],
            f"{100 * private['sure']:.1f} % of the rows against {100 * plain['sure']:.1f} %",
        ),
        (
            "The private model's ECE is larger",
            above(private, plain, "ece"),
            f"{private['ece']:.4f} against {plain['ece']:.4f}",
        ),
    ]


def sheet(found: Rows) -> Sheet | None:
    """Probabilities of the second class, of both models."""
    panels = tuple(
        histogram(
            title,
            MIXTURE,
            "probability of the second class",
            {LOOKS[0]: [r for r in found if r["what"] == "bar" and r["model"] == title]},
        )
        for title in (NON_PRIVATE, DP)
    )
    return Sheet("What the models say of the test rows", 2, panels)
