"""Conformity score with its parameters: scores of labels, and public thresholds that suit them.

Scores by probability (`lac`) and randomised scores by order are spread over [0, 1] and concentrate
at its ends: thresholds are evenly spaced in their log-odds, or in arcsin sqrt(score). Deterministic
scores by order concentrate at 1: a model that is nearly always right has a score of 1 - 1e-8 for
nine labels of ten. The penalties of `raps` lie above that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.calibrators import Calibrator
from fedcal.calibrators.base import of_text
from fedcal.conformal.scores import SCORES, Score, rounded, settled
from fedcal.core.checks import one_of, unused, whole
from fedcal.core.errors import InputError
from fedcal.core.parallel import by_rows
from fedcal.core.removed import check_kept
from fedcal.core.scores import Kind, probs_of
from fedcal.core.streams import check_seed, in_unit_interval, mixed
from fedcal.core.types import Floats, Integers
from fedcal.metrics.buckets import arcsine_edges

BY = ("none", "class", "group")
"""Parts with their own threshold: none (one threshold); each label; each group of rows."""

PENALTY, FREE = 0.01, 5
"""Defaults of `raps` (Angelopoulos et al. 2021, for many classes)."""

SPREAD = (-9.0, 9.0)
"""Log-odds of scores that are spread over [0, 1]."""

CROWDED = (-2.0, 22.0)
"""Log-odds of scores that concentrate at 1; the rounding to 12 decimals is at 27.6."""

_PENALISED = 3
"""One in three thresholds is for penalties, but at most one for each label with a penalty."""


@dataclass(frozen=True)
class Conformity:
    """Score of labels, computed from raw or calibrated probabilities.

    Attributes
    ----------
    name
        a key of `SCORES`
    randomised
        leave out a part of the label's own probability, uniform in [0, 1): sets are smaller, and
        coverage is exact. The part is a hash of the row's logits and `seed`, so that the same row
        always has the same set (and rows of the same logits have the same part); without it scores
        by order are deterministic
    penalty, free
        of `raps`: the penalty is added for each label after the first `free`
    seed
        of the parts
    calibrator
        file of the calibrator that computes the probabilities, in base64 text; "" = none
    """

    name: str = "lac"
    randomised: bool = False
    penalty: float | None = None
    free: int | None = None
    seed: int = 0
    calibrator: str = ""

    def __post_init__(self) -> None:
        check_kept(f"score={self.name}")
        one_of("score", self.name, SCORES)
        check_seed(self.seed)
        if not self.score.ranked:
            unused(
                f"the score '{self.name}' does not use the order of classes",
                randomised=self.randomised or None,
            )
        if self.name != "raps":
            unused(f"it is for the score 'raps', not for '{self.name}'", penalty=self.penalty)
            unused(f"it is for the score 'raps', not for '{self.name}'", free=self.free)
        penalty, free = self.regularisation
        if not 0.0 <= penalty <= 1e6:
            raise InputError(f"penalty must be a number in [0, 1e6], got {self.penalty!r}")
        whole("free", free, 0)

    @property
    def score(self) -> type[Score]:
        """Class of the score."""
        return SCORES[self.name]

    @property
    def regularisation(self) -> tuple[float, int]:
        """Values of `penalty` and `free`, or their defaults."""
        return (
            PENALTY if self.penalty is None else self.penalty,
            FREE if self.free is None else self.free,
        )

    def read_calibrator(self) -> Calibrator | None:
        """Return the calibrator, or None."""
        return of_text(self.calibrator) if self.calibrator else None

    def probs(self, logits: Floats, input: Kind) -> Floats:
        """Return probabilities, calibrated if there is a calibrator, (n, c) -> (n, c)."""
        made = self.read_calibrator()
        return probs_of(input, logits) if made is None else made.calibrated(logits, input)

    def of_all(self, logits: Floats, input: Kind = "logits") -> Floats:
        """Return the score of every label, (n, c) -> (n, c), in [0, 1], rounded to 12 decimals."""
        scores = np.empty(logits.shape)
        self._fill(scores, logits, input, lambda _, *seen: rounded(self.score.of_all(*seen)))
        return scores

    def of_labels(self, logits: Floats, labels: Integers, input: Kind = "logits") -> Floats:
        """Return the score of each row's label, (n, c), (n,) -> (n,), rounded to 12 decimals."""
        scores = np.empty(len(logits))
        of = self.score.of_labels
        self._fill(scores, logits, input, lambda part, p, *how: rounded(of(p, labels[part], *how)))
        return scores

    def within(self, logits: Floats, limits: Floats, input: Kind = "logits") -> NDArray[np.bool_]:
        """Return `of_all` <= limits, without computing all scores.

        Parameters
        ----------
        logits
            (n, c)
        limits
            (1,), (c,) of each label or (n, 1) of each row
        input
            what the logits were made of

        Returns
        -------
        NDArray[np.bool_]
            (n, c)
        """
        members = np.empty(logits.shape, np.bool_)

        def inside(part: slice, probs: Floats, *how: Any) -> NDArray[np.bool_]:
            return self.score.within(probs, limits[part] if limits.ndim == 2 else limits, *how)

        self._fill(members, logits, input, inside)
        return members

    def thresholds(self, classes: int, number: int, *, arcs: bool = False) -> Floats:
        """Return public thresholds, (number,), increasing, the last one 1.

        Parameters
        ----------
        classes
            of the model
        number
            at least 2
        arcs
            space them evenly in arcsin sqrt(score) where scores are spread: more in the middle
        """
        whole("bins", number, 2)
        penalty, free = self.regularisation
        penalised = max(0, classes - free) if self.name == "raps" and penalty > 0 else 0
        above = min(number // _PENALISED, penalised)
        if self.score.ranked and not self.randomised:
            edges = _log_odds(number - above, CROWDED)
        else:
            edges = spread(number - above, arcs=arcs)
        if above:
            most = 1.0 + penalty * penalised
            edges = np.append(edges / most, np.linspace(1.0 / most, 1.0, above + 1)[1:])
            edges[-1] = 1.0
        return np.asarray(edges)

    def _fill(self, out: Any, logits: Floats, input: Kind, score: Callable[..., Any]) -> None:
        """Fill an array in blocks.

        `score` gets the slice of a block, its `settled` probabilities, u, penalty and free.
        """

        def fill(part: slice) -> None:
            u = uniform_of(logits[part], self.seed) if self.randomised else None
            probs = settled(self.probs(logits[part], input))
            out[part] = score(part, probs, u, *self.regularisation)

        by_rows(fill, *logits.shape)


def uniform_of(logits: Floats, seed: int) -> Floats:
    """Return a number in [0, 1) for each row, a hash of its bits and the seed, (n, c) -> (n,).

    A row has the same number wherever it is computed, and each time it is a test row. Because the
    number is a function of the row, rows stay exchangeable, as the coverage proof requires.
    """
    bits = (np.ascontiguousarray(logits, np.float64) + 0.0).view(np.uint64)  # -0 is 0
    keys = mixed(np.arange(bits.shape[1], dtype=np.uint64) ^ mixed(np.array(seed, np.uint64)))
    state = mixed(mixed(bits ^ keys).sum(axis=1, dtype=np.uint64))
    return in_unit_interval(state)


def spread(number: int, *, arcs: bool = False) -> Floats:
    """Return thresholds of scores that are spread over [0, 1], (number,)."""
    return np.asarray(arcsine_edges(number)[1:]) if arcs else _log_odds(number, SPREAD)


def _log_odds(number: int, ends: tuple[float, float]) -> Floats:
    return np.append(1.0 / (1.0 + np.exp(-np.linspace(*ends, number - 1))), 1.0)
