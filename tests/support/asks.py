"""A question that is any question: its bound is what a test says."""

from dataclasses import dataclass
from typing import Any

from fedcal.core.shards import Shards
from fedcal.privacy.query import QUERIES, Query
from fedcal.units import Bound


@dataclass(frozen=True)
class Asks(Query):
    """Any question."""

    kind, examples = "statistic", ()
    sizes: tuple[int, ...] = (2, 1)
    w: float = 0.5

    def lengths(self) -> tuple[int, ...]:
        return self.sizes

    def params(self) -> dict[str, Any]:
        return {"w": self.w}

    def bound(self, part: Any, clips: Any = (), order: Any = 2) -> Bound:
        return Bound(self.sizes, clips, order=order)

    def sums(self, shards: Shards, sites: Any = None) -> Any:
        raise NotImplementedError


del QUERIES[Asks.kind]  # of no message
