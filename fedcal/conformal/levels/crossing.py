"""Draw of one threshold: exponential mechanism for the crossing of a level by centred counts.

S_j is the sum over rows of [score <= t_j] - (1 - alpha); the cost of candidate j is its distance
from the crossing of the level L, and it is drawn with probability ~ g^j exp(-cost_j / b), where
b = 2 C / epsilon and C is the largest change of S_j by a neighbour. Let A = sum over j below the
crossing of g^j e^{-(L - S_j) / b}, over the crossing's g^j. The draw falls x ranks short of the
level with probability at most A(x) / (1 + A(x)), A(x) = M e^{-x / b}, with M = sum of g^-i over the
other candidates: a candidate at the crossing costs nothing. So a level of

    L = (1 - alpha) + b ln(1 + M)

gives mean coverage >= 1 - alpha for exchangeable rows with any scores. Leaving the new row out of
the rows of the crossing gives a second bound, b e^{1/b} W(e^{-1/b} M / e) (W = Lambert's), which is
smaller where b is not small; the smaller bound is used. At least (L - (1 - alpha)) / alpha rows are
needed: with fewer the level cannot be reached, and sets hold all labels.

If a client's counts are clipped to +-C, the sum may be larger than the sum over all rows: if all
rows of a client miss, all misses but C / (1 - alpha) are cut off. Of the sums the proofs above use
only that the rows missed at t are at most alpha n - S(t). With clipping they are at most
alpha n + D - S(t), where D is cut off; and, whatever the rows are, at most
lambda (alpha n - S(t)), see `sure_coverage`. So coverage is at least
1 - alpha - E[D] / (n + 1), and at least 1 - lambda alpha.

Larger thresholds have a larger prior (g > 1): the union bound over m candidates, which costs
b ln m, becomes one over about 1 / ln g of them.

The constants below were chosen by looking at resnet110-cifar10, densenet-cifar100 and imdb-binary
(test rows, alpha = .1, epsilon .3 and 1, 100 and 1,000 clients); no bound depends on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import lambertw

CLIP, CLIP_ROOT = 0.08, 2.75
"""Clipping bound of a client's centred counts: at least `CLIP` of its rows, and at least one row
more than `CLIP_ROOT` standard deviations of a client whose rows are like all others."""

_FEWEST = 32


@dataclass(frozen=True)
class Spacing:
    """Number of candidates, and the prior ratio of the last to the first.

    Attributes
    ----------
    dense
        candidates over the root of q, the missed rows in units of b
    most
        largest number of candidates
    tilt
        ln of the likelihood ratio, over q
    """

    dense: float
    most: int
    tilt: float


OF_ROWS = Spacing(32.0, 512, 0.4)
OF_CLIENTS = Spacing(16.0, 256, 0.25)

_MOST_TILT = 20.0


@dataclass(frozen=True)
class Draw:
    """Candidates and their prior.

    Attributes
    ----------
    candidates
        m
    tilt
        ln g
    """

    candidates: int
    tilt: float

    @classmethod
    def of(cls, missed: float, scale: float, spacing: Spacing) -> Draw:
        """Return the draw for an approximate number of missed rows, and b = `scale`."""
        q = missed / scale
        m = min(max(round(spacing.dense * math.sqrt(q)), _FEWEST), spacing.most)
        return cls(m, min(_MOST_TILT, spacing.tilt * q) / m)

    @property
    def weight(self) -> float:
        """M: upper bound of the weight of all other candidates below one, over its own."""
        if self.tilt < 1e-12:
            return self.candidates - 1.0
        return -math.expm1(-self.tilt * (self.candidates - 1)) / math.expm1(self.tilt)

    def slack(self, scale: float, *, whole_rows: bool) -> float:
        """Return by how much the level exceeds 1 - alpha.

        Parameters
        ----------
        scale
            b
        whole_rows
            whether each row counts 0 or 1, and all equally, as the second bound requires
        """
        plain = scale * math.log1p(self.weight)
        if not whole_rows or scale < 0.05:  # below it e^{1/b} is large, and the first is less
            return plain
        left_out = scale * math.exp(1.0 / scale)
        left_out *= float(lambertw(math.exp(-1.0 / scale) * self.weight / math.e).real)
        return min(plain, left_out)


def sure_coverage(clip: float, rows: float, alpha: float) -> float:
    """Return the coverage that holds for any rows, if no client has more than `rows`.

    A client of r <= m rows with h hits at t adds g = h - (1 - alpha) r, clipped to +-C. With
    lambda = m / (C + alpha m), if that is more than 1, its misses r - h are at most
    lambda (alpha r - g): at g unclipped, because h <= r; at g = C a fortiori; at g = -C, because
    r - lambda alpha r <= (1 - lambda alpha) m = lambda C. Summed over clients, misses are at most
    lambda times what they are without clipping. It is reached by clients of m rows that all miss
    beside others that all hit, so many that the sums cancel. With lambda <= 1 nothing is ever cut
    off below.

    Parameters
    ----------
    clip
        C, in rows
    rows
        m
    alpha
        share of rows whose label may be missing

    Returns
    -------
    float
        1 - max(lambda, 1) alpha; 0 if a client may have any number of rows (infinite `rows`)
    """
    if math.isinf(rows):
        return 0.0
    return 1.0 - max(rows / (clip + alpha * rows), 1.0) * alpha


def client_clip(rows: float, alpha: float) -> float:
    """Return the clipping bound of a client's centred counts, from its public nominal rows."""
    return max(CLIP * rows, 1.0 + CLIP_ROOT * math.sqrt(alpha * (1.0 - alpha) * rows))
