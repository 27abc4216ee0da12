"""Rows by score and outcome as released: the input of every metric."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Integers
from fedcal.core.options import array, increasing
from fedcal.mechanisms import NoiseDistribution
from fedcal.metrics.score_table import has_nodes


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of rows in buckets of a score, by outcome; estimates where a release had noise.

    Bucket b holds scores in [edges[b], edges[b + 1]), the last one both its edges. Counts may be
    negative and fractional: they are unbiased as they stand, and cutting them at 0 is up to who
    reads them.

    Attributes
    ----------
    edges
        (buckets + 1,) increasing from 0 to 1
    counts
        (2, buckets) rows of outcome 0 (negative, wrong), and of outcome 1 (positive, correct)
    root
        (buckets, variates): the noise of each of the two rows of counts is `root @ z`, with
        independent z of mean 0 and variance 1, other ones for each row; no columns = exact counts
    law
        distribution of z
    parted
        the same counts with each tail of the score in two nodes (see `has_nodes`), for metrics of
        its logarithm; None = not counted so

    Raises
    ------
    InputError
        If shapes do not fit, edges do not increase, or a number is not finite.
    """

    edges: Floats
    counts: Floats
    root: Floats
    distribution: NoiseDistribution = field(default_factory=NoiseDistribution)
    parted: Histogram | None = None

    def __post_init__(self) -> None:
        edges = array("edges", self.edges, (None,))
        increasing("edges", edges)
        counts = array("counts", self.counts, (2, len(edges) - 1))
        root = np.array(self.root, np.float64)
        if len(root) != len(edges) - 1 or not np.isfinite(root).all():
            raise InputError(f"noise must be finite numbers of each bucket, got {root.shape}")
        root.setflags(write=False)
        for name, value in (("edges", edges), ("counts", counts), ("root", root)):
            object.__setattr__(self, name, value)

    @classmethod
    def exact(cls, edges: Floats, counts: Floats) -> Histogram:
        """Return a histogram of counts without noise."""
        return cls(edges, counts, np.zeros((len(edges) - 1, 0)))

    def merged(self, starts: Integers) -> Histogram:
        """Join neighbouring buckets; `starts` are the first bucket of each group, from 0 on."""
        return Histogram(
            np.append(self.edges[:-1][starts], self.edges[-1]),
            np.add.reduceat(self.counts, starts, axis=1),
            np.add.reduceat(self.root, starts, axis=0),
            self.distribution,
        )

    def joined(self) -> Histogram:
        """Return the histogram with both nodes of each tail joined, and as it is as `parted`."""
        starts = np.array([0, *range(2, self.buckets - 1)])
        return replace(self.merged(starts), parted=self) if self.nodes else self

    @property
    def nodes(self) -> list[int]:
        """Places of the nodes of both tails: outer, inner, inner, outer; [] = there are none."""
        return [0, 1, -2, -1] if has_nodes(self.edges) else []

    @property
    def buckets(self) -> int:
        """Number of buckets, one fewer than edges."""
        return len(self.edges) - 1

    @property
    def middles(self) -> Floats:
        """Middle of each bucket, or its node, (buckets,)."""
        middles = np.asarray((self.edges[1:] + self.edges[:-1]) / 2)
        if self.nodes:
            middles[self.nodes] = self.edges[[1, 2, -3, -2]]
        return middles

    @property
    def rows(self) -> float:
        """Sum of all counts, noise included."""
        return float(self.counts.sum())

    @property
    def rows_std(self) -> float:
        """Std of the noise of `rows`."""
        return float(self.noise_std(np.ones_like(self.counts)))

    @property
    def noisy(self) -> bool:
        """True if the counts contain noise."""
        return bool(self.root.any())

    def noise_std(self, weights: Floats) -> Floats:
        """Return the noise std of `sum(weights * counts)`, (..., 2, buckets) -> (...)."""
        return np.asarray(np.sqrt(np.square(weights @ self.root).sum(axis=(-1, -2))))

    def draws(self, rng: np.random.Generator, number: int) -> Floats:
        """Draw noise of the counts' distribution, (number, 2, buckets)."""
        return self.distribution.sample(rng, (number, 2, self.root.shape[1])) @ self.root.T

    def widening(self, weights: Floats, level: float) -> float:
        """Return the factor of the noise in a normal interval of `sum(weights * counts)`.

        Weights are (2, buckets). It is above 1 where few numbers of a release with Laplace noise
        make up the sum; see `NoiseDistribution.widening`.
        """
        return self.distribution.widening(weights @ self.root, level)


@lru_cache(maxsize=8)
def monotone_counts(h: Histogram) -> Floats:
    """Return counts whose prefix sums are isotonic fits of the released ones, (2, buckets).

    Prefix sums of counts never fall; the nearest such sequence is never farther from the truth
    (Xu & Cormode 2025, arXiv 2510.04979; Hay et al. 2010). Unlike cutting each bucket at 0 it
    adds nearly no rows. Counts without noise stay as they are.
    """
    if not h.noisy:
        return h.counts
    from scipy.optimize import isotonic_regression

    fitted = np.stack([isotonic_regression(row).x for row in np.cumsum(h.counts, axis=1)])
    return np.asarray(np.diff(np.maximum(fitted, 0.0), axis=1, prepend=0.0))


def from_each_edge(counts: Floats) -> Floats:
    """Return sums of the buckets from each edge on, (..., buckets) -> (..., buckets + 1).

    The last sum is 0.
    """
    ends = np.zeros((*counts.shape[:-1], 1))
    return np.concatenate([np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1], ends], axis=-1)


def divide(top: Floats, bottom: Floats, empty: float = 0.0) -> Floats:
    """Return top / bottom, `empty` where the bottom is not above 0."""
    return np.divide(top, bottom, out=np.full_like(top, empty), where=bottom > 0)
