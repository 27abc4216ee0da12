"""Conformity scores: how poorly each label conforms to a prediction; thresholds that suit them.

Scores by probability (`lac`) and randomised scores by order are spread over [0, 1] and concentrate
at its ends: thresholds are evenly spaced in their log-odds, or in arcsin sqrt(score). Deterministic
scores by order concentrate at 1: a model that is nearly always right has a score of 1 - 1e-8 for
nine labels of ten. The penalties of `raps` lie above that.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import check_kept, interval, one_of, unused, whole
from fedcal.core.imports import registry
from fedcal.core.numerics import (
    Floats,
    Integers,
    Kind,
    by_rows,
    check_seed,
    label_entries,
    override,
    probs_of,
)
from fedcal.core.shards import in_unit_interval, mixed
from fedcal.metrics.binning import DIGITS, arcsine_edges

if TYPE_CHECKING:
    from fedcal.calibrators import Calibrator

How = tuple[Floats | None, float, int]
"""u, (n,) uniform in [0, 1), the fraction of the label's own probability to leave out (None = leave
out nothing), and penalty and free ranks of `raps`."""


class Score(ABC):
    """Conformity score in [0, 1] of each label of each row; small = the label conforms.

    Attributes
    ----------
    name
        on the command line and in files
    ranked
        whether it uses the order of the classes, and so may be randomised and penalised
    """

    name: ClassVar[str]
    ranked: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of_all(cls, probs: Floats, how: How) -> Floats:
        """Return the score of every label.

        Parameters
        ----------
        probs
            (n, c), each row sums to 1
        how
            u, penalty and free ranks, see `How`

        Returns
        -------
        Floats
            (n, c)
        """

    @classmethod
    def of_labels(cls, probs: Floats, labels: Integers, how: How) -> Floats:
        """Return the score of each row's label, (n,), bit for bit as in `of_all`."""
        return cls.of_all(probs, how)[np.arange(len(labels)), labels]

    @classmethod
    def within(cls, probs: Floats, limits: Floats, how: How) -> NDArray[np.bool_]:
        """Return whether each label's rounded score is at most its limit.

        Parameters
        ----------
        probs, how
            as of `of_all`
        limits
            (1,), (c,) of each class or (n, 1) of each row

        Returns
        -------
        NDArray[np.bool_]
            (n, c)
        """
        return np.asarray(rounded(cls.of_all(probs, how)) <= limits)


def rounded(scores: Floats) -> Floats:
    """Round scores to `DIGITS` decimals, so that both sides of a file agree; the shape is kept."""
    return np.round(scores, DIGITS)


SPLIT = 2.0**13 + 1.0
"""Factor that splits the last 13 of 53 bits off a number (Veltkamp 1968; Dekker 1971)."""


def settled(probs: Floats) -> Floats:
    """Return probabilities without their last 13 bits, in which runtimes differ; the shape is kept.

    Scores of settled probabilities have the same bits, and the same ties, in each runtime.
    """
    scaled = probs * SPLIT
    return np.asarray(scaled - (scaled - probs))


class LAC(Score):
    """1 - p_y: least ambiguous sets, of the least mean size (Sadinle, Lei & Wasserman 2019)."""

    name = "lac"

    @classmethod
    @override
    def of_all(cls, probs: Floats, how: How) -> Floats:
        return 1.0 - probs


class APS(Score):
    """Probability of the label and of all classes ranked above it, minus the part u of its own.

    Sets adapt to how hard a row is (Romano, Sesia & Candes 2020, equations 5 to 8). Of classes with
    equal probability the smaller index comes first.
    """

    name = "aps"
    ranked = True

    @staticmethod
    def by_rank(falling: Floats, how: How) -> Floats:
        """Return scores of the classes from the most to the least probable, which never fall.

        Parameters
        ----------
        falling
            (n, c) probabilities, each row in falling order
        how
            as of `of_all`

        Returns
        -------
        Floats
            (n, c)
        """
        u, penalty, free = how
        excess = penalty * np.maximum(0.0, np.arange(1, falling.shape[1] + 1) - free)
        return np.asarray(np.minimum((mass(falling, u) + excess) / (1.0 + excess[-1]), 1.0))

    @classmethod
    @override
    def of_all(cls, probs: Floats, how: How) -> Floats:
        order = np.argsort(-probs, axis=1, kind="stable")
        by_rank = cls.by_rank(np.take_along_axis(probs, order, axis=1), how)
        out = np.empty_like(by_rank)
        np.put_along_axis(out, order, by_rank, axis=1)
        return out

    @classmethod
    @override
    def of_labels(cls, probs: Floats, labels: Integers, how: How) -> Floats:
        own = label_entries(probs, labels)[:, None]
        before = np.arange(probs.shape[1]) < labels[:, None]
        place = ((probs > own) | ((probs == own) & before)).sum(axis=1)
        return label_entries(cls.by_rank(_falling(probs), how), place)

    @classmethod
    def within(cls, probs: Floats, limits: Floats, how: How) -> NDArray[np.bool_]:
        """Return whether each label's rounded score is at most its limit, (n, c).

        Scores grow with the rank, so a set is the first k classes: all classes at least as
        probable as the last of them, except for ties.
        """
        if limits.shape[-1] != 1:  # each class has its own limit
            return super().within(probs, limits, how)
        falling = _falling(probs)
        count = (rounded(cls.by_rank(falling, how)) <= limits).sum(axis=1)
        least = np.where(count > 0, label_entries(falling, np.maximum(count - 1, 0)), np.inf)
        inside = probs >= least[:, None]
        tied = np.flatnonzero(inside.sum(axis=1) != count)
        if len(tied):
            own = limits[tied] if limits.ndim == 2 and len(limits) > 1 else limits
            parts = None if how[0] is None else how[0][tied]
            inside[tied] = super().within(probs[tied], own, (parts, *how[1:]))
        return np.asarray(inside)


def _falling(probs: Floats) -> Floats:
    """Return each row sorted from its largest entry to its smallest."""
    return np.asarray(-np.sort(-probs, axis=1))


def mass(falling: Floats, u: Floats | None) -> Floats:
    """Return the probability of all classes up to each, minus the part u of its own, (n, c).

    It is summed as (mass of the classes before) + (1 - u) p, which never falls, not even in the
    last bit. The mass of all classes is set to 1, whatever the rounding error.
    """
    total = np.cumsum(falling, axis=1)
    if u is None:
        total[:, -1] = 1.0
        return total
    before = np.zeros_like(total)
    before[:, 1:] = total[:, :-1]
    return np.asarray(before + (1.0 - u)[:, None] * falling)


class RAPS(APS):
    """(APS + penalty * max(0, rank - free)) / (1 + penalty * max(0, c - free)), ranks from 1.

    Sets are smaller than those of APS where probabilities have long tails (Angelopoulos, Bates,
    Malik & Jordan 2021, equation 4: their lambda is `penalty`, their k_reg is `free`). The divisor
    is the largest value of the sum; it depends on the number of classes and on the two settings
    alone, and so changes the scale of scores and no set.
    """

    name = "raps"


SCORES: dict[str, type[Score]] = registry(LAC, APS, RAPS)
"""Name on the command line and in files -> score."""


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
            raps = {"penalty": self.penalty, "free": self.free}
            unused(f"it is for the score 'raps', not for '{self.name}'", **raps)
        penalty, free = self.regularisation
        interval("[0, 1e6]")("penalty", penalty)
        whole("free", free, 0)

    @property
    def score(self) -> type[Score]:
        """Class of the score."""
        return SCORES[self.name]

    @property
    def regularisation(self) -> tuple[float, int]:
        """Values of `penalty` and `free`, or their defaults; 0 of other scores than `raps`."""
        if self.name != "raps":
            return 0.0, 0
        penalty = PENALTY if self.penalty is None else self.penalty
        return penalty, FREE if self.free is None else self.free

    def read_calibrator(self) -> "Calibrator | None":
        """Return the calibrator, or None."""
        from fedcal.calibrators.base import of_text  # few scores are of calibrated probabilities

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
        self._fill(scores, logits, input, lambda part, p, how: rounded(of(p, labels[part], how)))
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

        def inside(part: slice, probs: Floats, how: How) -> NDArray[np.bool_]:
            return self.score.within(probs, limits[part] if limits.ndim == 2 else limits, how)

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
        penalised = max(0, classes - free) if penalty > 0 else 0
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

        `score` gets the slice of a block, its `settled` probabilities, and `How`.
        """

        def fill(part: slice) -> None:
            u = uniform_of(logits[part], self.seed) if self.randomised else None
            probs = settled(self.probs(logits[part], input))
            out[part] = score(part, probs, (u, *self.regularisation))

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


def quantile_costs(counts: Floats | Integers, q: float) -> Floats:
    """Return the exponential mechanism's cost of each bin as the q-quantile.

    Parameters
    ----------
    counts
        (..., m) rows in each bin
    q
        level in [0, 1]

    Returns
    -------
    Floats
        (..., m): max{(1-q)/q #<, #>} for q >= 1/2, else max{#<, q/(1-q) #>}, where #< and #> are
        the rows in bins below and above. An added row raises each cost by 0 to 1.
    """
    upto = np.cumsum(counts, axis=-1, dtype=np.float64)
    below, above = upto - counts, upto[..., -1:] - upto
    if q >= 0.5:
        below *= (1 - q) / q
    else:
        above *= q / (1 - q)
    return np.asarray(np.maximum(below, above, out=below))
