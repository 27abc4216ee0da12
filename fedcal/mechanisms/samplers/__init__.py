"""Integer noise with an exactly known distribution, by table look-ups on random words.

A source of bits is a callable ``Words``: `system_words` (the operating system's CSPRNG, for
deployment) or `seeded_words` (repeatable, for simulation; it gives no protection against anyone who
has the seed). The sampler is the same for both, so a simulation runs the deployed code. Values,
scales and stds are in grid units: the caller multiplies by the grid of its ring.

Exactness
---------
Each returned variate is within ``TOTAL_VARIATION`` = 2**-60 of its ideal distribution. The
accountant of a release adds ``draws * (1 + exp(epsilon)) * TOTAL_VARIATION`` to its delta, where
draws is the number of variates in it: replacing the ideal noise by this noise on both sides of
P <= e^eps Q + delta costs one total variation on each. The samplers themselves count nothing.

Upper bounds of the contribution of each part to the total variation of one variate:

* probabilities in units of 2**-128 (6 tables of 8400 values): 6 * 8400 * 2**-128 < 2**-112
* weights of 60 digits (every table): recurrences lose at most 10 digits of them: < 2**-160
* tail of a geometric variate (above 50 scales): exp(-50) < 2**-72
* tail of a Gaussian table (beyond 10.2 stds of it, 6 tables): 6 * 2**-74 < 2**-71
* smoothing of a split Gaussian (5 splits (`noise`)): 5 * 2 * 2**-190
* jumps of a Polya share (up to 56 expected (`polya`)): < 2**-63
* weights of `categorical` (65536 candidates): < 2**-110

Scales given as doubles stand for their exact binary values; thresholds are computed in decimals of
60 digits and in integers. Doubles are used only for the size of a batch of `polya_share`.

Bounded support: no value lies beyond 50 scales or about 11 stds (a share: 200 scales for each of
its jumps). That is within the total variation above. A pure epsilon (delta = 0) therefore does not
hold in the strict sense: count the 2**-60, or state that the epsilon is for the ideal distribution.

Timing
------
The number of words used, and the sizes of all arrays, depend on arguments, which are public, and
not on the drawn values, with two exceptions: (a) with probability up to 2**-51 a look-up is not
decided by its first word and uses a second one; (b) `polya_share` packs its accepted tries, whose
number is independent of the values. *Which entry* of a table is read does depend on the drawn
value. An attacker who can watch the processor's cache while noise is drawn (code on the same
machine, sharing a cache with this process) may learn the 64-byte line, that is about 8 neighbouring
columns and so few candidates for a digit of the noise. An attacker who only measures the duration
of a call sees cache misses: entries that are rarely drawn are less likely to be in the cache. We
know of no way to use that over a network, and have not shown that there is none. Against both, draw
on a dedicated machine, or at least a dedicated core, and answer at fixed times. `categorical`
multiplies Python integers and searches their sums: its time depends slightly on the weights, that
is on private scores. Nothing here erases memory after use.
"""

from fedcal.mechanisms.samplers.by_weight import categorical
from fedcal.mechanisms.samplers.noise import (
    LEAST_LAPLACE,
    bernoulli,
    discrete_gaussian,
    discrete_laplace,
)
from fedcal.mechanisms.samplers.polya import polya_share
from fedcal.mechanisms.samplers.words import Words, seeded_words, system_words

__all__ = [
    "LEAST_LAPLACE",
    "TOTAL_VARIATION",
    "Words",
    "bernoulli",
    "categorical",
    "discrete_gaussian",
    "discrete_laplace",
    "polya_share",
    "seeded_words",
    "system_words",
]

TOTAL_VARIATION = 2.0**-60
"""Bound of the total variation distance of each variate from its ideal distribution."""
