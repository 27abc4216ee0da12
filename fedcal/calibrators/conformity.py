"""Conformity scores: how poorly each label conforms to a prediction; thresholds that suit them.

Scores by probability (`lac`) and randomised scores by order are spread over [0, 1] and concentrate
at its ends: thresholds are evenly spaced in their log-odds, or in arcsin sqrt(score). Deterministic
scores by order concentrate at 1: a model that is nearly always right has a score of 1 - 1e-8 for
nine labels of ten. The penalties of `raps` lie above that.

======  ==========================================================================================
name    score of a label; small = it conforms
======  ==========================================================================================
lac     1 - p: least ambiguous sets, of the least mean size (Sadinle, Lei & Wasserman 2019)
aps     probability of the label and of all classes ranked above it, minus the part u of its own:
        sets adapt to how hard a row is (Romano, Sesia & Candes 2020, equations 5 to 8). Of classes
        with equal probability the smaller index comes first
raps    (aps + penalty * max(0, rank - free)) / (1 + penalty * max(0, c - free)), ranks from 1: sets
        are smaller where probabilities have long tails (Angelopoulos, Bates, Malik & Jordan 2021,
        equation 4: their lambda is `penalty`, their k_reg is `free`). The divisor, the largest
        value of the sum, changes the scale of scores and no set
======  ==========================================================================================
"""

from dataclasses import dataclass

import numpy as np

from fedcal.calibrators.base import Calibrator, of_text
from fedcal.core.checks import check_kept, integer, interval, one_of, unused
from fedcal.core.fitting import by_rows, label_entries
from fedcal.core.numerics import Floats, Integers, Kind, probs_of
from fedcal.core.row_order import in_unit_interval, mixed
from fedcal.metrics.score_table import DIGITS, arcsine_edges

How = tuple[Floats | None, float, int]
"""u, (n,) uniform in [0, 1), the fraction of the label's own probability to leave out (None = leave
out nothing), and penalty and free ranks of `raps`."""


SPLIT = 2.0**13 + 1.0
"""Factor that splits the last 13 of 53 bits off a number (Veltkamp 1968; Dekker 1971)."""


def settled(probs: Floats) -> Floats:
    """Return probabilities without their last 13 bits, in which runtimes differ; the shape is kept.

    Scores of settled probabilities have the same bits, and the same ties, in each runtime.
    """
    scaled = probs * SPLIT
    return np.asarray(scaled - (scaled - probs))


def all_scores(ranked: bool, probs: Floats, how: How) -> Floats:
    """Return the score of every label, (n, c), of probabilities whose rows sum to 1."""
    if not ranked:
        return 1.0 - probs
    order = np.argsort(-probs, axis=1, kind="stable")
    by_rank = _by_rank(np.take_along_axis(probs, order, axis=1), how)
    out = np.empty_like(by_rank)
    np.put_along_axis(out, order, by_rank, axis=1)
    return out


def label_scores(ranked: bool, probs: Floats, labels: Integers, how: How) -> Floats:
    """Return the score of each row's label, (n,), bit for bit as in `all_scores`."""
    own = label_entries(probs, labels)
    if not ranked:
        return 1.0 - own
    before = np.arange(probs.shape[1]) < labels[:, None]
    place = ((probs > own[:, None]) | ((probs == own[:, None]) & before)).sum(axis=1)
    return label_entries(_by_rank(np.asarray(-np.sort(-probs, axis=1)), how), place)


def _by_rank(falling: Floats, how: How) -> Floats:
    """Return scores of the classes from the most to the least probable, (n, c), which never fall.

    Each row of `falling` is in falling order.
    """
    u, penalty, free = how
    excess = penalty * np.maximum(0.0, np.arange(1, falling.shape[1] + 1) - free)
    return np.asarray((mass(falling, u) + excess) / (1.0 + excess[-1]))


def mass(falling: Floats, u: Floats | None) -> Floats:
    """Return the probability of all classes up to each, minus the part u of its own, (n, c).

    It is summed as (mass of the classes before) + (1 - u) p, which never falls, not even in the
    last bit. The mass of all classes is set to 1, whatever the rounding error.
    """
    total = np.cumsum(falling, axis=1)
    if u is None:
        total[:, -1] = 1.0
    else:
        before = np.pad(total[:, :-1], ((0, 0), (1, 0)))
        total = before + (1.0 - u)[:, None] * falling
    return np.minimum(total, 1.0)


SCORES = ("lac", "aps", "raps")
"""Names on the command line and in files."""

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
        coverage is exact. The part is a hash of the row's logits, so that the same row
        always has the same set (and rows of the same logits have the same part); without it scores
        by order are deterministic
    penalty, free
        of `raps`: the penalty is added for each label after the first `free`
    calibrator
        file of the calibrator that computes the probabilities, in base64 text; "" = none
    """

    name: str = "lac"
    randomised: bool = False
    penalty: float | None = None
    free: int | None = None
    calibrator: str = ""

    def __post_init__(self) -> None:
        check_kept(f"score={self.name}")
        one_of("score", self.name, SCORES)
        if not self.ranked:
            unused(
                f"the score '{self.name}' does not use the order of classes",
                randomised=self.randomised or None,
            )
        if self.name != "raps":
            raps = {"penalty": self.penalty, "free": self.free}
            unused(f"it is for the score 'raps', not for '{self.name}'", **raps)
        penalty, free = self.regularisation
        interval("[0, 1e6]")("penalty", penalty)
        integer("free", free, 0)

    @property
    def ranked(self) -> bool:
        """Condition that the score uses the order of the classes, and so may be randomised."""
        return self.name != "lac"

    @property
    def regularisation(self) -> tuple[float, int]:
        """Values of `penalty` and `free`, or their defaults; 0 of other scores than `raps`."""
        if self.name != "raps":
            return 0.0, 0
        penalty = PENALTY if self.penalty is None else self.penalty
        return penalty, FREE if self.free is None else self.free

    def read_calibrator(self) -> Calibrator | None:
        """Return the calibrator, or None."""
        return of_text(self.calibrator) if self.calibrator else None

    def probs(self, logits: Floats, input: Kind) -> Floats:
        """Return probabilities, calibrated if there is a calibrator, (n, c) -> (n, c)."""
        made = self.read_calibrator()
        return probs_of(input, logits) if made is None else made.calibrated(logits, input)

    def of_all(self, logits: Floats, input: Kind = "logits") -> Floats:
        """Return the score of every label, (n, c) -> (n, c), in [0, 1], rounded to 12 decimals."""
        return self._scores(logits, input)

    def of_labels(self, logits: Floats, labels: Integers, input: Kind = "logits") -> Floats:
        """Return the score of each row's label, (n, c), (n,) -> (n,), rounded to 12 decimals."""
        return self._scores(logits, input, labels)

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
        integer("bins", number, 2)
        penalty, free = self.regularisation
        penalised = max(0, classes - free) if penalty > 0 else 0
        above = min(number // _PENALISED, penalised)
        if self.ranked and not self.randomised:
            edges = _log_odds(number - above, CROWDED)
        else:
            edges = arcsine_edges(number - above)[1:] if arcs else _log_odds(number - above, SPREAD)
        if above:
            most = 1.0 + penalty * penalised
            edges = np.append(edges / most, np.linspace(1.0 / most, 1.0, above + 1)[1:])
            edges[-1] = 1.0
        return np.asarray(edges)

    def _scores(self, logits: Floats, input: Kind, labels: Integers | None = None) -> Floats:
        """Return scores of all labels, or of each row's, by blocks, so that both sides agree."""
        out = np.empty(logits.shape if labels is None else len(logits))

        def fill(part: slice) -> None:
            how = uniform_of(logits[part]) if self.randomised else None, *self.regularisation
            probs = settled(self.probs(logits[part], input))
            if labels is None:
                scores = all_scores(self.ranked, probs, how)
            else:
                scores = label_scores(self.ranked, probs, labels[part], how)
            out[part] = np.round(scores, DIGITS)

        by_rows(fill, *logits.shape)
        return out


def uniform_of(logits: Floats) -> Floats:
    """Return a number in [0, 1) for each row, a hash of its bits, (n, c) -> (n,).

    A row has the same number wherever it is computed, and each time it is a test row. Because the
    number is a function of the row, rows stay exchangeable, as the coverage proof requires.
    """
    bits = (np.ascontiguousarray(logits, np.float64) + 0.0).view(np.uint64)  # -0 is 0
    columns = np.arange(bits.shape[1], dtype=np.uint64)
    keys = mixed(columns ^ mixed(np.zeros(1, np.uint64)))  # of seed 0, as earlier versions
    state = mixed(mixed(bits ^ keys).sum(axis=1, dtype=np.uint64))
    return in_unit_interval(state)


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
