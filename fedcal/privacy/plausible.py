"""Sums that honest clients cannot have made are not released.

A contribution that is masked may be any integers modulo 2**64: masks hide whether a client has
clipped, and the ring bounds nothing. What can be said of a sum of K answers is

* each number is at most K times what one client may add to it: the norm of its block where a
  client's answer is clipped, and where each row (or subject) is, what `Ring.limit` or 2**31 rows
  let a client add. Of answers that are a single 1 among zeros, it is at most K;
* it is not negative where the question cannot be answered so (`Query.signed`);
* the noise in it leaves this range by no more than its tail (`Mechanism.tail`), which each number
  exceeds with probability < 2**-60, and one of 2**20 numbers with < 2**-40.

**Guarantee.** Looking at a sum is a release of it. So only what is about to be released is looked
at: the sum with all of its noise, after the ledger was charged. Whether it is refused is then
post-processing, and costs nothing more. Of candidates of which one is drawn (`exponential`) the
exact sums are nobody's to see, and nothing is checked. K are the enrolled clients, because who was
sampled may be secret.

Honest clients are never refused (but for the tail). Liars are stopped only beyond the range: up to
it they may move a sum as far as all K clients together, and nobody can tell which of them did. With
exact sums and no bound a signed number may be anything: `docs/guide/secure-aggregation.md` has
figures.
"""

from __future__ import annotations

import numpy as np

from fedcal.core.errors import RoundFailed
from fedcal.core.types import Floats, Words
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.request import Request
from fedcal.secure_aggregation.fixed_point import MOST_ROWS

_ROUNDED = 1.0 + 2.0**-40
"""Room for what floats lose of sums and of their limits."""


def honest_range(plan: Plan, request: Request) -> tuple[Floats, Floats]:
    """Least and largest value of each number of a sum with its noise, (length,) each.

    Parameters
    ----------
    plan
        of the run
    request
        the question, with its bound

    Returns
    -------
    tuple
        In the statistic's units; infinite where nothing is bounded.
    """
    bound, ring = request.bound, request.ring
    if plan.law.answers == "onehot":
        one = np.ones(bound.length)
    elif not bound.finite:
        one = np.full(bound.length, np.inf)
    elif bound.per == "client":
        one = bound.scale
    else:
        one = np.minimum(ring.limit * ring.grid, MOST_ROWS * bound.scale)
    most = plan.clients * one
    least = -most if request.query.signed and plan.law.answers != "onehot" else np.zeros_like(most)
    tail = np.zeros_like(most)
    if plan.noisy_sums and plan.noise is not None:
        scales = plan.grid * np.repeat(plan.noise.scales, plan.noise.lengths)
        tail = scales * plan.tail
    return (least - tail) * _ROUNDED, (most + tail) * _ROUNDED


def check_plausible(total: Words, plan: Plan, request: Request) -> None:
    """Refuse a sum that honest clients cannot have made.

    Parameters
    ----------
    total
        (length,) words of the ring, with all noise that the release will have
    plan, request
        as above

    Raises
    ------
    RoundFailed
        If a number is out of range. The message has no value of it.
    """
    if plan.law.answers == "index":
        return
    sums = request.ring.decode(total)
    least, most = honest_range(plan, request)
    if ((sums < least) | (sums > most)).any():
        raise RoundFailed(
            f"round {request.round}: {plan.clients} clients within their bound cannot make this "
            "sum, so some client exceeded its bound; nothing is released, and what was charged "
            "stays spent"
        )
