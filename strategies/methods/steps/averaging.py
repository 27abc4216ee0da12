"""Means of clients' bounded local updates: what averaged temperatures and scalings share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fedcal.core.checks import positive
from fedcal.core.errors import InputError
from fedcal.privacy.federation import Federation
from fedcal.privacy.noise_plan import EXACT_GRID, Plan, make_plan
from fedcal.queries import Query
from fedcal.strategies.base import FederatedStrategy
from fedcal.units.bounding import Bound

CLIP = 0.5
"""Bound of one client's update where means of updates are asked for; Maddock et al., A.3.2."""

_LEAST_CLIP = 1024 * EXACT_GRID


def exact_norms(plan: Plan, bound: Bound, clip: float | None) -> tuple[float, ...]:
    """Without privacy a `clip` bounds a client's influence all the same (Maddock et al., A.3.5).

    Returns
    -------
    tuple of float
        The bound's norms; () with privacy, where the plan has them, and without a clip.
    """
    if plan.private or clip is None:
        return ()
    if clip < _LEAST_CLIP:
        raise InputError(
            f"clip = {clip:g} is lost on the grid of exact sums: without privacy it must be at "
            f"least {_LEAST_CLIP:g}"
        )
    return bound.norms


class Averaging(FederatedStrategy):
    """Each client trains from w and sends how far it came; the server steps by the mean.

    Parameters
    ----------
    federation
        public facts and budget; default 12 rounds
    clip
        bound of one client's update, in units of w; None = 0.5 with privacy, none without
    server_lr
        step of the server
    """

    def __init__(
        self, federation: Federation, *, clip: float | None, server_lr: float, **base: Any
    ) -> None:
        self.classes = federation.classes
        self.clip = None if clip is None else positive("clip", clip)
        self.server_lr = positive("server_lr", server_lr)
        self._count = not federation.private
        bound = self.query(1).bound("client", (self.clip or CLIP,))
        super().__init__(make_plan(federation, rounds=federation.rounds or 12, bound=bound), **base)
        self.norms = exact_norms(self.plan, bound, self.clip)

    @abstractmethod
    def query(self, round_number: int) -> Query:
        """Return the question for the step from w that training on a client's own rows takes.

        Without privacy it also asks whether the client has rows.
        """
