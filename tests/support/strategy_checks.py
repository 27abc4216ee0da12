"""Checks of many strategies: tables of bad input, noise of a known size, no rows."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from refusals import each_is_refused

from fedcal.core.numerics import Floats
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.strategies import STRATEGIES
from fedcal.strategies.settings import exact_only

BUDGETED = tuple(name for name in STRATEGIES if name not in {*exact_only(), "fedprior"})
"""All that take a budget of every unit."""


def assert_refused(table: Iterable[tuple[Any, ...]], make: Callable[..., object]) -> None:
    """`make(*given)` of each line (*given, message) is refused in one line that says so."""
    each_is_refused(((given, message) for *given, message in table), lambda given: make(*given))


def assert_std_is_one(draws: Iterable[Floats], kurtosis: float = 3.0) -> None:
    """Check draws in units of their std; 2/3 and 3/2 of it would be rejected."""
    sample = np.concatenate([np.ravel(draw) for draw in draws])
    spread = 4.5 * np.sqrt((kurtosis - 1) / (4 * len(sample)))
    assert spread < 0.24
    assert abs(sample.std() - 1) < spread
    assert abs(sample.mean()) < 4.5 / np.sqrt(len(sample))
    for wrong in (2 / 3, 3 / 2):
        assert abs(wrong * sample.std() - 1) > spread


def nobody(clients: int, classes: int = 3, **columns: Any) -> Shards:
    none = np.zeros(0, np.int64)
    return rows_by_owner(np.zeros((0, classes)), none, none, clients, **columns)


def some_shards(
    c: int = 4, rows: int = 600, seed: int = 0, clients: int = 12, scale: float = 2.0
) -> Shards:
    """Overconfident rows; the first and the last client have none."""
    rng = np.random.default_rng([c, seed])
    labels, owner = rng.integers(0, c, rows), rng.integers(1, clients - 1, rows)
    logits = rng.normal(0, 1, (rows, c))
    logits[np.arange(rows), labels] += rng.normal(1.5, 1, rows)
    return rows_by_owner(logits * scale, labels, owner, clients)


def algorithm_1(f: Callable[[float], float], low: float, high: float, k: int) -> list[float]:
    """Luo et al., Algorithm 1, line by line; the answer last."""
    ratio = (math.sqrt(5) - 1) / 2
    t0, t1 = high - (high - low) * ratio, low + (high - low) * ratio
    asked = [t0, t1]
    v0, v1 = f(t0), f(t1)
    for i in range(k):
        if abs(v0) >= abs(v1):
            low, t0, v0 = t0, t1, v1
            t1 = low + (high - low) * ratio
            if i < k - 1:
                v1 = f(t1)
                asked.append(t1)
        else:
            high, t1, v1 = t1, t0, v0
            t0 = high - (high - low) * ratio
            if i < k - 1:
                v0 = f(t0)
                asked.append(t0)
    return [*asked, (low + high) / 2]
