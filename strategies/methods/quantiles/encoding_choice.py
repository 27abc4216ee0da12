"""Mechanism and encoding of counts under which prefix sums have the least noise."""

from __future__ import annotations

from collections.abc import Callable

from fedcal.core.errors import InputError
from fedcal.mechanisms import MECHANISMS, Gaussian, Laplace, Mechanism, Target
from fedcal.privacy.federation import AUTO, Federation
from fedcal.queries.base import Order
from fedcal.queries.encodings import ENCODINGS, TREE, prefix_std
from fedcal.units.bounding import Bound

HEIGHTS = (1, 2, 3, 4)
"""Levels of trees that are tried."""


def quietest(
    federation: Federation,
    buckets: int,
    rounds: int,
    names: tuple[str, ...] = tuple(ENCODINGS),
    heights: tuple[int, ...] = HEIGHTS,
    weight: Callable[[str, int, Order], float] = lambda name, height, order: 1.0,
) -> tuple[type[Mechanism], str, int]:
    """Return mechanism, encoding and height with the least noise, of those that the user allows.

    Raises InputError if the user's mechanism does not go without delta.

    Parameters
    ----------
    buckets
        counts that are encoded together
    rounds
        releases
    names, heights
        encodings that are tried, and levels of trees
    weight
        norm of a row's answer over the largest of the encoding's columns
    """
    order = None if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order
    target = Target(federation.epsilon, federation.delta, rounds)
    best: tuple[float, type[Mechanism], str, int] | None = None
    for law in (Laplace, Gaussian):
        if order not in (None, law.order) or not (law.pure or federation.delta > 0):
            continue
        made = law.calibrate(target)
        for name in names:
            for height in heights if name == TREE else (1,):
                bound = Bound((1,), (weight(name, height, law.order),), order=law.order)
                noise = float(made.std(made.scale(bound, 1), 1.0, bound).max())
                noise *= prefix_std(name, buckets, height, law.order)
                if best is None or noise < best[0]:
                    best = noise, law, name, height
    if best is None:
        raise InputError(f"mechanism '{federation.mechanism}' needs delta > 0")
    return best[1:]
