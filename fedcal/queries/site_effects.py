"""The question behind a prior where whole clients are hidden: how would you recalibrate?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedcal.queries.base import Classes, Order, Part, Query
from fedcal.units.bounding import Bound


@dataclass(frozen=True)
class SiteEffects(Query):
    """First and second moments of how your own rows would recalibrate the model.

    Each parameter of a recalibration (`fedcal.personal.prior`) is two numbers: m / s and
    (v + m^2) / s^2 - 1, with its best value m and variance v under the identity prior of standard
    deviation s. Both are 0 without rows. `bound` takes the clip of all of them together.

    Parameters
    ----------
    classes
        of the model
    """

    kind = "site_effects"
    row_sums = False
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"classes": 3},)

    classes: Classes

    def lengths(self) -> tuple[int, ...]:
        """Two numbers of each of two parameters for two classes, of one for more."""
        return (4 if self.classes == 2 else 2,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """The clip of all numbers together."""
        self.takes(part, clips, 1)
        return Bound(self.lengths(), (clips[0],), order=order)
