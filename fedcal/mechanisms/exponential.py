"""The exponential mechanism: one of several candidates is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, override
from fedcal.mechanisms import samplers
from fedcal.mechanisms.base import Answers, Mechanism, Source, Sum
from fedcal.units.bounding import Bound


@dataclass(frozen=True)
class Exponential(Mechanism):
    """Draw of index i with probability ~ `exp(-epsilon |S_i| / (2 C))`.

    Neighbours differ in `|S_i|` by at most C. It is epsilon-DP (McSherry & Talwar 2007; Asi & Duchi
    2020). Only the index is released. The server must have the exact sums. A question may have its
    own costs in place of `|S_i|` (`Query.costs`): it is enough that the changes of any two costs by
    a neighbour differ by at most 2 C (bounded range, Dong, Durfee & Rogers 2020).
    """

    name: ClassVar[str] = "exponential"
    noise: ClassVar[str] = "a draw"
    meaning: ClassVar[str] = "exponential mechanism: one of several candidates is drawn"
    answers: ClassVar[Answers] = "index"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"lengths": (20,), "norms": (2.5,), "rule": "per_value"},
    )

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Require one draw, and a bound for each candidate."""
        if rounds != 1:
            raise InputError(f"the exponential mechanism needs one round, got rounds = {rounds}")
        if bound.rule == "joint" or (bound.rule == "per_block" and bound.order != 1):
            raise InputError("the exponential mechanism needs a bound for each candidate")

    @override
    def sentence(self) -> str:
        return "The released value is drawn at random (exponential mechanism) by the server"

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return the drawn index, (1,), and no std."""
        norm = max(of.bound.norms) * of.diameter
        costs = None if of.costs is None else of.costs(sums)
        scores = scores_of(sums, of.bound) if costs is None else costs
        index = draw_index(scores, self.epsilon, norm, source())
        return np.array([float(index)]), np.zeros(0)


def scores_of(sums: Floats, bound: Bound) -> Floats:
    """Return the candidates' scores, which are sums of absolute values.

    Each number is a candidate (rule "per_value"), or each block (rule "per_block", order 1).
    """
    if bound.rule == "per_value":
        return np.abs(sums)
    return np.asarray(np.add.reduceat(np.abs(sums), bound.firsts))


def draw_index(scores: Floats, epsilon: float, norm: float, source: Source) -> int:
    """Return an index drawn by the exponential mechanism, small |score| preferred.

    Parameters
    ----------
    scores
        (candidates,) exact sums S_i
    epsilon
        budget of this one draw
    norm
        C, largest change of any S_i by one protected unit
    """
    logits = -np.abs(scores) * (epsilon / (2.0 * norm))
    if source is None:
        return samplers.categorical(logits, samplers.system_words)
    weights = np.exp(logits - logits.max())
    cumulative = np.cumsum(weights)
    return int(np.searchsorted(cumulative, source.random() * cumulative[-1], side="right"))
