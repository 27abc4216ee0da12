"""Figure 7: label noise; what the Bayes classifier may be sure of, and what a private model is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.research.studies.claims import all_of
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, counted
from fedcal.experiments.research.studies.zhang import models
from fedcal.experiments.research.studies.zhang.grid import (
    DP,
    NON_PRIVATE,
    over_seeds,
    place,
    probabilities,
)
from fedcal.experiments.research.studies.zhang.models import PLAIN, Training
from fedcal.experiments.research.studies.zhang.panels import LOOKS, histogram
from fedcal.experiments.research.studies.zhang.scores import above
from fedcal.experiments.research.studies.zhang.tasks import tasks
from fedcal.strategies.server.outcome import Progress

SEEDS, BARS = 2, 10
EPSILON = 8.0
SHARES = (0.0, 0.3, 0.6)
"""Of the training labels that are drawn anew, uniformly."""

METHODS = {DP: Training(EPSILON), NON_PRIVATE: PLAIN}
MORE = 0.05
"""By how much a confidence exceeds the best classifier's before it is called too high."""


def rows(
    data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
) -> Rows:
    """Both models by label noise. ECE and accuracy are of the test rows' own labels.

    Returns
    -------
    list of dict
        what = "model": `method`, `noise`, `best` (the most that a classifier which knows the true
        class may be confident of the noisy one), `over` (share of test rows with a confidence above
        `best` by `MORE`), `confidence` (mean), see `grid.over_seeds`. what = "bar": `method`,
        `noise`, `at`, `share`, of seed 0
    """
    found: Rows = []
    todo = [(of, title, share) for of in tasks(data) for title in METHODS for share in SHARES]
    for of, title, share in counted(todo, progress):
        how = replace(METHODS[title], label_noise=share)
        tops = [
            probabilities((models.trained(of, how, seed), None), of.test_x).max(axis=1)
            for seed in range(seeds)
        ]
        best = 1 - share * (1 - 1 / of.classes)
        line = place(of, what="model", method=title, noise=share, best=best)
        line["over"] = float(np.mean([top > best + MORE for top in tops]))
        line["confidence"] = float(np.mean(tops))
        found.append(line | over_seeds(of, how, seeds))
        counts, edges = np.histogram(tops[0], BARS, (0.0, 1.0))
        found += (
            place(of, what="bar", method=title, noise=share, at=round(float(a), 6), share=float(s))
            for a, s in zip(edges[:-1], counts / counts.sum(), strict=True)
        )
    return found


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """What appendix B.4 says, of each of the data."""
    said: list[RowsClaim] = []
    for name in dict.fromkeys(r["data"] for r in found):
        of = {
            (r["method"], r["noise"]): r
            for r in found
            if r["data"] == name and r["what"] == "model"
        }
        noisy = [share for share in SHARES if share]
        most = max(noisy)
        shown = "; ".join(
            f"at {share:g} (at best {of[DP, share]['best']:.2f}) "
            f"{100 * of[DP, share]['over']:.0f} %, without privacy "
            f"{100 * of[NON_PRIVATE, share]['over']:.0f} %"
            for share in noisy
        )
        said += [
            (
                f"{name}: with label noise the private model is surer than the best classifier may "
                "be, of more rows than the model without privacy",
                all_of(above(of[DP, s], of[NON_PRIVATE, s], "over") for s in noisy),
                shown,
            ),
            (
                f"{name}: with {most:g} of the labels drawn anew it is so of most rows",
                of[DP, most]["over"] > 0.5,
                f"{100 * of[DP, most]['over']:.0f} %; mean confidence "
                f"{of[DP, most]['confidence']:.3f}",
            ),
        ]
    return said


def sheet(found: Rows) -> Sheet | None:
    """Confidences by label noise, one row of panels for each of the data."""

    def of(name: str, share: float, title: str) -> Rows:
        wanted = {"what": "bar", "data": name, "noise": share, "method": title}
        return [r for r in found if all(r.get(k) == v for k, v in wanted.items())]

    panels = tuple(
        histogram(
            f"{100 * share:g} % drawn anew",
            name,
            "confidence",
            {
                look: of(name, share, title)
                for look, title in zip(LOOKS, (DP, NON_PRIVATE), strict=True)
            },
        )
        for name in dict.fromkeys(r["data"] for r in found)
        for share in SHARES
    )
    legend = tuple(zip(LOOKS, (DP, "without privacy"), strict=True))
    return Sheet("Confidences by label noise", len(SHARES), panels, legend)
