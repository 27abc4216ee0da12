"""Which mechanism a run takes: what the method prefers, what the user names, what trust allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from fedcal.core.errors import InputError
from fedcal.mechanisms import MECHANISMS, PRIVATE, Mechanism, Target
from fedcal.privacy.federation import AUTO, Federation
from fedcal.trust import NOISY, TRUSTS
from fedcal.units import UNITS
from fedcal.units.bounding import Bound


def choose(
    federation: Federation, prefers: Sequence[type[Mechanism]], bound: Bound, rounds: int
) -> type[Mechanism]:
    """Return the mechanism of a private run.

    Parameters
    ----------
    prefers
        what the method's release is made for; of several that add noise, the one with the
        least noise std is taken (those that need no delta where there is none)

    Raises
    ------
    InputError
        If the user's mechanism does not fit the method's release.
    """
    asked = federation.mechanism
    if prefers[0].answers != "sum":
        return _only(federation, prefers[0])
    if asked == AUTO:
        return prefers[0] if len(prefers) == 1 else _least(federation, prefers, bound, rounds)
    law = MECHANISMS[asked]
    if law.answers != "sum":
        sums = ", ".join(name for name, mechanism in PRIVATE.items() if mechanism.answers == "sum")
        raise InputError(
            f"mechanism '{asked}' does not fit a release that is a sum; allowed: {AUTO}, {sums}"
        )
    return law


def _only(federation: Federation, law: type[Mechanism]) -> type[Mechanism]:
    """Return the one mechanism that fits the method's release; InputError if it is not allowed."""
    trust, unit = TRUSTS[str(federation.trust)], UNITS[federation.unit]
    if not trust.accepts(law):
        home = " or ".join(f"'{name}'" for name, model in NOISY.items() if model.accepts(law))
        raise InputError(f"mechanism '{law.name}' needs trust {home}, got '{trust.name}'")
    if federation.mechanism not in (AUTO, law.name):
        raise InputError(
            f"this method's release is made for '{law.name}', not for '{federation.mechanism}'"
        )
    if law.part not in (None, unit.per):
        home = " or ".join(f"'{name}'" for name, model in UNITS.items() if model.per == law.part)
        raise InputError(
            f"mechanism '{law.name}' protects one client's answer: it needs unit {home}"
        )
    return law


def order_of(federation: Federation) -> Literal[1, 2]:
    """Return the order of the norm that a run bounds: L1 if the user wants Laplace noise."""
    return 2 if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order


def _least(
    federation: Federation, prefers: Sequence[type[Mechanism]], bound: Bound, rounds: int
) -> type[Mechanism]:
    """Return the mechanism with the least noise std; a pure one if delta = 0.

    A release with Laplace noise clips in L1, so one member's L1 norm is compared with one's L2
    norm.
    """
    target = Target(federation.epsilon, federation.delta, rounds, amplifying_rate(federation))
    possible = [law for law in prefers if law.pure or federation.delta > 0]

    def std(law: type[Mechanism]) -> float:
        own = replace(bound, order=law.order, norms=(1.0,) * len(bound.lengths), whole=False)
        made = law.calibrate(target)
        return float(made.std(made.scale(own, 1), 1.0, own).max())

    return min(possible, key=std)


def amplifying_rate(federation: Federation) -> float:
    """Return the sampling rate if it amplifies privacy, else 1; see `plan.make_plan`."""
    amplifies = TRUSTS[str(federation.trust)].amplifies and UNITS[federation.unit].whole_client
    return federation.sampling_rate if amplifies else 1.0
