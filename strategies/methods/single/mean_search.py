"""The mean of a value of rows, from noisy sums of (value - a): where they cross zero."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedcal.core.types import Floats
from fedcal.metrics.buckets import Score
from fedcal.privacy.federation import Federation
from fedcal.queries import MeanGaps
from fedcal.strategies.methods.steps.root_posterior import root_posterior
from fedcal.strategies.methods.temperature import draws_index

POINTS = 1001
"""Candidates of a draw, in [0, 1]."""

ASKED = 5
"""Rounds where no candidate is drawn: each asks at one candidate."""

_STRETCH = 3.0
"""Units of `root_posterior`, which is made for logarithms, in one unit of a share."""

How = Literal["exact", "draw", "rounds"]


def how_to_ask(federation: Federation) -> How:
    """Return "draw" if trust and mechanism allow a draw, else "rounds"; "exact" without privacy."""
    if not federation.private:
        return "exact"
    return "draw" if draws_index(federation) else "rounds"


@dataclass
class MeanSearch:
    """Search for one mean in [0, 1]: the current estimate and the next question.

    The sum of (value - a) over all rows falls with a and crosses zero at their mean, whatever
    the number of rows. Clients that are clipped near the crossing move it (by little: there sums
    of rows like all others are around 0).

    Parameters
    ----------
    how
        "exact": the sums at 0 and 1, without noise; "draw": an index of `POINTS` candidates, by
        the exponential mechanism; "rounds": a sum with noise at one candidate in each of `ASKED`
        rounds, at the mean of what the last ones leave (`root_posterior`)
    subject_rows
        as of `ScoreCounts`
    value
        the mean: so far, and where the first round asks
    noise
        its std by the releases' noise
    """

    how: How
    subject_rows: int = 0
    value: float = 0.5
    noise: float = 0.0
    _asked: list[float] = field(default_factory=list)
    _heard: list[float] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Number of questions."""
        return ASKED if self.how == "rounds" else 1

    def question(self, classes: int, score: Score, values: Floats, scale: float) -> MeanGaps:
        """Return the next question; answers are in units of `scale`."""
        low, high, points = 0.0, 1.0, 2
        if self.how == "draw":
            points = POINTS
        elif self.how == "rounds":
            low, high, points = self.value, self.value, 1
        gain, some = 1.0 / scale, self.subject_rows
        return MeanGaps(classes, score, values.ravel(), low, high, points, gain, subject_rows=some)

    def hear(self, sums: Floats, std: Floats, tailed: bool, draw_std: float) -> None:
        """Learn from a release.

        Parameters
        ----------
        sums
            (points,) as released, in units of the scale; (1,) the drawn index
        std
            of their noise
        tailed
            whether that is Laplace's; False = normal, or nearly so
        draw_std
            of a drawn candidate
        """
        if self.how == "draw":
            self.value, self.noise = float(sums[0]) / (POINTS - 1), draw_std
        elif self.how == "exact":
            rows = float(sums[0] - sums[1])  # sums at 0 and at 1
            self.value = float(sums[0]) / rows if rows > 0 else math.nan
        else:
            self._asked.append(self.value)
            self._heard.append(float(sums[0]))
            roots = np.linspace(0.0, 1.0, POINTS)
            belief = root_posterior(
                _STRETCH * np.array(self._asked),
                np.array(self._heard),
                float(std[0]),
                _STRETCH * roots,
                tailed,
            )
            self.value = float(belief @ roots)
            self.noise = math.sqrt(max(float(belief @ (roots - self.value) ** 2), 0.0))


def draw_std(scale: float, diameter: int, epsilon: float, rows: float) -> float:
    """Std of a candidate that the exponential mechanism draws, where no client is clipped.

    The sums fall by `rows` per unit of a, so that the draw is Laplace's around the crossing, with
    scale 2 C / (epsilon rows).

    Parameters
    ----------
    scale
        C, what a client may add to a sum
    diameter
        how many times that a neighbour may change it by
    """
    return math.sqrt(2.0) * 2.0 * scale * diameter / (epsilon * rows)
