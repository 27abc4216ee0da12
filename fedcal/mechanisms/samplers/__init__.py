"""Integer noise whose law is known exactly: table look-ups on random words.

A source of bits is a callable ``Words``: `system_words` (the operating system's CSPRNG, for
deployment) or `seeded_words` (repeatable, for simulation; it protects nothing from whoever has the
seed). The sampler is one and the same for both, so what is simulated is what is deployed. Values,
scales and stds are in grid units: the caller multiplies by the grid of its ring.

What is exact, and how exact
----------------------------
Each returned variate is within ``TOTAL_VARIATION`` = 2**-60 of its ideal law. Whoever accounts for
a release adds ``draws * (1 + exp(epsilon)) * TOTAL_VARIATION`` to its delta, where draws is the
number of variates in it: replacing the ideal noise by ours on both sides of P <= e^eps Q + delta
costs one total variation on each. The samplers themselves count nothing.

What each part adds to the total variation of one variate, at most:

* probabilities in units of 2**-128 (6 tables of 8400 values): 6 * 8400 * 2**-128 < 2**-112
* weights of 60 digits (every table): recurrences lose at most 10 digits of them: < 2**-160
* tail of a geometric variate (above 50 scales): exp(-50) < 2**-72
* tail of a Gaussian table (beyond 10.2 stds of it, 6 tables): 6 * 2**-74 < 2**-71
* smoothing of a split Gaussian (5 splits (`noise`)): 5 * 2 * 2**-190
* jumps of a Polya share (up to 56 expected (`polya`)): < 2**-63
* weights of `categorical` (65536 candidates): < 2**-110

Scales given as doubles stand for their exact binary values; thresholds are computed in decimals of
60 digits and in integers. Doubles only ever size a batch of `polya_share`.

Bounded support: no value lies beyond 50 scales or about 11 stds (a share: 200 scales for each of
its jumps). That is inside the total variation above, and a pure epsilon (delta = 0) therefore does
not survive in the strict sense: count the 2**-60, or state the ideal law's epsilon and say so.

Timing
------
How many words are taken, and the sizes of all arrays, depend on arguments, which are public, and
not on what is drawn, except that (a) with probability up to 2**-51 a look-up is not decided by its
first word and takes a second one, and (b) `polya_share` packs the accepted ones of
its tries, whose number is independent of the values. What does depend on the drawn value is *which
entry* of a table is read. Whoever can watch the processor's cache while noise is drawn (code on the
same machine, sharing a cache with this process) may learn the 64-byte line, that is about 8
neighbouring columns and so few candidates for a digit of the noise. Whoever only sees how long a
call takes sees cache misses: entries that are rarely drawn are less likely to be in the cache. We
know of no way to use that over a network, and have not shown that there is none. Against both: draw
on a machine, or at least a core, of one's own, and answer at fixed times. `categorical` multiplies
Python integers and searches their sums: its time depends, by little, on the weights, that is on
private scores. Nothing here erases memory after use.
"""

from fedcal.mechanisms.samplers.by_weight import categorical
from fedcal.mechanisms.samplers.noise import (
    bernoulli,
    discrete_gaussian,
    discrete_laplace,
    rounded_gaussian,
    rounded_laplace,
)
from fedcal.mechanisms.samplers.polya import polya_share
from fedcal.mechanisms.samplers.words import Words, seeded_words, system_words

__all__ = [
    "TOTAL_VARIATION",
    "Words",
    "bernoulli",
    "categorical",
    "discrete_gaussian",
    "discrete_laplace",
    "polya_share",
    "rounded_gaussian",
    "rounded_laplace",
    "seeded_words",
    "system_words",
]

TOTAL_VARIATION = 2.0**-60
"""Bound on the total variation distance of each returned variate from its ideal law."""
