"""Mechanisms as tests name them, and the distributions of their noise, by definition."""

import math

import numpy as np
from scipy import stats

from fedcal.mechanisms import MECHANISMS, Gaussian, Laplace, Mechanism, Noise

ADDITIVE = ("laplace", "gaussian")
"""Those whose formulas tests know by heart; what holds for all is asked in tests/contracts."""


def prefer(name: str) -> tuple[type[Mechanism], ...]:
    """Return preferences of a method; "least" = Laplace or Gaussian noise, whichever is less."""
    return (Laplace, Gaussian) if name == "least" else (MECHANISMS[name],)


def noise(name: str, *fields: object) -> Noise:
    return Noise(MECHANISMS[name], *fields)


def probabilities(mechanism: str, scale: float, k: np.ndarray) -> np.ndarray:
    """Probabilities of the integers `k`, from the definition of the mechanism's distribution."""
    weights = np.exp(-(k**2) / (2 * scale**2) if mechanism == "gaussian" else -np.abs(k) / scale)
    return np.asarray(weights / weights.sum())


def follows(counts: np.ndarray, chances: np.ndarray, level: float = 1e-6) -> bool:
    """Pearson's chi-square, rare outcomes (below 5 expected) lumped into the likeliest."""
    expected = counts.sum() * chances
    rare = expected < 5
    seen, want = counts[~rare].astype(float), expected[~rare]
    seen[want.argmax()] += counts[rare].sum()
    want[want.argmax()] += expected[rare].sum()
    if len(want) < 2:
        return True
    return bool(stats.chi2(len(want) - 1).sf(((seen - want) ** 2 / want).sum()) > level)


def drawn_from(drawn: np.ndarray, chances: np.ndarray) -> bool:
    """Return whether integers follow a distribution on -far ... far."""
    far = len(chances) // 2
    return follows(np.bincount(np.clip(drawn, -far, far) + far, minlength=len(chances)), chances)


def has_scale(drawn: np.ndarray, mechanism: str, scale: float) -> bool:
    """Return whether integers may have been drawn from the distribution of this scale."""
    far = math.ceil(60 * scale)
    return drawn_from(drawn, probabilities(mechanism, scale, np.arange(-far, far + 1)))
