"""Top-k accuracy of the model on the clients' rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.clients.questions.label_ranks import LabelRanks
from fedcal.core.checks import InputError, unused
from fedcal.core.numerics import Floats
from fedcal.core.options import Positive
from fedcal.core.pages import Curve, Table
from fedcal.mechanisms import Laplace
from fedcal.privacy import Plan
from fedcal.privacy.curator import Release
from fedcal.storage.artifact import Artifact, Holdout
from fedcal.strategies.base import FederatedStrategy


@dataclass(frozen=True, eq=False)
class TopK(Artifact):
    """Top-1, top-2, ... accuracy.

    Attributes
    ----------
    counts : (most + 1,) noisy numbers of rows by the rank of their label; the last is all others
    """

    form = "top-k"
    counts: Floats

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the counts."""
        return {"counts": self.counts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the artifact of these counts."""
        counts = np.asarray(arrays["counts"], np.float64)
        if counts.ndim != 1 or len(counts) < 2 or not np.isfinite(counts).all():
            raise InputError("counts must be two or more finite numbers")
        return cls(counts)

    @property
    def shares(self) -> list[float]:
        """Top-1, top-2, ... accuracy in [0, 1]; 0 if no count is positive."""
        counts = np.maximum(self.counts, 0.0)
        return [float(n) for n in np.cumsum(counts)[:-1] / max(counts.sum(), 1e-12)]

    def record(self) -> dict[str, Any]:
        """Return the entries of a line of `rounds.jsonl`."""
        return {"top_k": self.shares}

    def judge(self, test: Holdout) -> dict[str, Any]:
        """Return the accuracies, with those of the test rows."""
        own = np.take_along_axis(test.logits, test.labels[:, None], axis=1)
        rank = (test.logits > own).sum(axis=1)
        tested = [float((rank <= k).mean()) for k in range(len(self.shares))]
        return {"top_k": self.shares, "test_top_k": tested}

    def page(self) -> list[Table | Curve]:
        """Return a table and a curve."""
        rows = tuple((k, 100 * share) for k, share in enumerate(self.shares, 1))
        return [
            Table("Top-k accuracy", ("k", "accuracy, %"), rows, "Counts are noisy."),
            Curve("Accuracy by k", "k", "accuracy, %", {"federation": rows}),
        ]


class FedRanks(FederatedStrategy):
    """Counts of rows by the rank of their label, requested in each round and added up.

    Privacy: the federation's unit and trust; a row adds 1 to one count.

    Parameters
    ----------
    federation : public facts and budget
    most : the largest k
    clip : the most that a client adds to all counts together, in rows; only for unit `user` with
        privacy; None = 20
    """

    name, family = "fedranks", "evaluate"
    examples = ({}, {"most": 2})

    most: int = 3
    clip: Positive | None = None

    def prepare(self) -> Plan:
        """Return the plan of the rounds; the query checks `most`."""
        if not self.hides_clients:
            unused("only whole clients are clipped, and only with privacy", clip=self.clip)
        self.question, self.sums = LabelRanks(self.most), np.zeros(self.most + 1)
        clips = (self.clip or 20.0,)
        return self.plan_for(self.question, clips, rounds=1, order=1, prefers=(Laplace,))

    def query(self, round_number: int) -> LabelRanks:
        """Return the same query each time."""
        return self.question

    def update(self, release: Release) -> None:
        """Add the release to the sums."""
        self.sums += release.values

    def result(self) -> TopK:
        """Return the counts so far."""
        return TopK(self.sums.copy())
