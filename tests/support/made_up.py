"""Rows of a model that is too sure, made up."""

from typing import Any

import numpy as np


def scored(classes: int, n: int, seed: Any, scale: float = 3.0, shift: float = 4.0) -> Any:
    """Logits (n, classes), and labels that they are often right about."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    logits = rng.normal(scale=scale, size=(n, classes))
    logits[np.arange(n), labels] += shift
    return logits, labels


def halves(classes: int, n: int, seed: int, shift: float) -> dict[str, Any]:
    """Arrays of n fit rows and of as many test rows."""
    logits, labels = scored(classes, 2 * n, seed, 1.0, shift)
    fit = {"logits": 3 * logits[:n], "labels": labels[:n]}
    return fit | {"test_logits": 3 * logits[n:], "test_labels": labels[n:]}
