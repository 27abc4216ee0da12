"""Bisection as the strategies do it, walked by many trials at once.

Golden section and bisection decide by comparisons alone, so a search of six evaluations has 32
or 64 outcomes: trials and strategies ask the same temperatures, to the last bit. Golden section's
are in `fedcal.search.GoldenTree`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from fedcal.search import Ask, Bisection
from fedcal.types import Floats, Integers

LOW, HIGH = 0.5, 3.0
ITERATIONS = 5
EVALUATIONS = ITERATIONS + 1
"""Golden section shrinks five times and asks six times; the others ask as often."""


@dataclass(frozen=True)
class BisectionTree:
    """All ways that bisection can go.

    Attributes
    ----------
    temperatures : (2**evaluations - 1,) the point that is asked after k decisions, whose bits
        make the number i, is the one at 2**k - 1 + i
    answers : (2**evaluations,)
    """

    temperatures: Floats
    answers: Floats


def bisection_tree(
    low: float = LOW, high: float = HIGH, evaluations: int = EVALUATIONS
) -> BisectionTree:
    """Drive `fedcal.search.Bisection` along every way."""

    def driven(ups: tuple[bool, ...]) -> Bisection:
        search = Bisection(low, high, evaluations)
        for up in ups:
            search.tell(search.answer(), -1.0 if up else 1.0)
        return search

    asked = [
        driven(ups).answer()
        for decisions in range(evaluations)
        for ups in product((False, True), repeat=decisions)
    ]
    answers = [driven(ups).answer() for ups in product((False, True), repeat=evaluations)]
    return BisectionTree(np.array(asked), np.array(answers))


def bisection(tree: BisectionTree, ask: Ask, trials: int) -> Integers:
    """Which of the tree's answers each trial ends at, (trials,).

    Parameters
    ----------
    ask : gives an objective that rises through 0; below 0 the root lies above
    """
    way = np.zeros(trials, np.int64)
    for k in range(len(tree.answers).bit_length() - 1):
        way = 2 * way + (ask(2**k - 1 + way, k) < 0)
    return way
