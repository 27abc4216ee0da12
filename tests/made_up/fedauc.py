"""A method that is not in the repository, of another family, with an artifact of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcal.artifact import Artifact, Holdout
from fedcal.calibrators.top_label import outcome_cells
from fedcal.mechanisms import Laplace
from fedcal.pages import Curve, Table
from fedcal.privacy import Federation, make_plan
from fedcal.queries import BinOutcomes
from fedcal.release import Release
from fedcal.strategies import STRATEGIES, CalibrationStrategy


@dataclass(frozen=True)
class AUC(Artifact):
    """How well confidence tells right predictions from wrong ones, from histograms of both."""

    form = "auc"
    correct: np.ndarray  # (bins,) rows, noisy
    wrong: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        return {"correct": self.correct, "wrong": self.wrong}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(arrays["correct"], arrays["wrong"])

    @property
    def points(self) -> np.ndarray:
        """(bins + 1, 2) shares of wrong and of correct predictions above each edge."""
        above = [np.cumsum(np.maximum(n, 0.0)[::-1]) for n in (self.wrong, self.correct)]
        shares = [n / max(n[-1], 1e-12) for n in above]
        return np.concatenate([[[0.0, 0.0]], np.stack(shares, axis=1)])

    @property
    def value(self) -> float:
        x, y = self.points.T
        return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))

    def record(self) -> dict[str, Any]:
        return {"auc": self.value}

    def judge(self, test: Holdout) -> dict[str, Any]:
        bins = len(self.correct)
        cells = outcome_cells(test.logits, test.labels, bins)
        counts = np.bincount(cells, minlength=2 * bins).astype(float)
        return {"auc": self.value, "test_auc": AUC(counts[:bins], counts[bins:]).value}

    def page(self) -> list[Table | Curve]:
        edges = np.linspace(0, 1, len(self.correct) + 1)
        rows = zip(edges, edges[1:], self.correct.tolist(), self.wrong.tolist(), strict=False)
        return [
            Table(
                "Rows by <confidence>",
                ("confidence", "correct, rows", "wrong, rows"),
                tuple((f"{a:.2f} to {b:.2f}", c, w) for a, b, c, w in rows),
                "Counts carry the noise of the release.",
            ),
            Curve(
                "Right against wrong",
                "wrong predictions above a confidence, share",
                "correct ones, share",
                {"federation": tuple(map(tuple, self.points.tolist()))},
            ),
        ]


class FedAUC(CalibrationStrategy):
    """Histograms of the confidence, asked for in each round and averaged."""

    name, family = "fedauc", "evaluate"
    examples = ({"bins": 5},)

    def __init__(self, federation: Federation, *, bins: int = 10, **base: Any) -> None:
        self.bins, self.question = bins, BinOutcomes(bins, "correct_wrong")
        plan = make_plan(
            federation,
            rounds=federation.rounds or 2,
            bound=self.question.bound(self.question.part(federation.unit), (20.0,), order=1),
            prefers=(Laplace,),
            row_sums=self.question.row_sums,
        )
        self.sum, self.asked = np.zeros(2 * bins), 0
        super().__init__(plan, **base)

    def query(self, round_number: int) -> BinOutcomes:
        return self.question

    def update(self, release: Release) -> None:
        self.sum, self.asked = self.sum + release.values, self.asked + 1

    def result(self) -> AUC:
        mean = self.sum / max(self.asked, 1)
        return AUC(mean[: self.bins], mean[self.bins :])


def register() -> None:
    """The row that it would have."""
    STRATEGIES["fedauc"] = FedAUC
