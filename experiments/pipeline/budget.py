"""What each stage may spend, so that all of them keep to one (epsilon, delta).

Stages that read the same part of the rows compose: their privacy losses add up, read off once
(`fedcal.accounting.composed_epsilon`). Parts that are disjoint, whatever the rows are, compose in
parallel: the whole costs the largest of them (Zhang et al. 2022, Proposition A.1). Both are
settled before the first stage runs, which is what the account asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedcal.accounting import (
    Guarantee,
    Stage,
    composed_epsilon,
    multiplier_beside,
    parallel_epsilon,
)
from fedcal.accounting.stages import AnyStage
from fedcal.core.errors import InputError
from fedcal.privacy.noise_plan import Plan

_CLOSE = 1e-3  # of epsilon, that a search by halving may leave unspent


@dataclass(frozen=True)
class Spender:
    """A stage that spends.

    Attributes
    ----------
    name
        of the stage
    part
        of the rows that it reads
    epsilon
        what it may spend by itself; None = what the others on the part leave
    plan
        its privacy plan for such an epsilon
    """

    name: str
    part: str
    epsilon: float | None
    plan: Callable[[float], Plan]


@dataclass(frozen=True)
class Budget:
    """Budgets of all stages.

    Attributes
    ----------
    epsilons
        of each stage by itself, at `delta`
    plans
        of each stage
    by_part
        epsilon of all stages on one part of the rows
    epsilon, delta
        of the whole
    basic
        what epsilons would add up to, had the stages all read the same rows: basic composition
    """

    epsilons: Mapping[str, float]
    plans: Mapping[str, Plan]
    by_part: Mapping[str, float]
    epsilon: float
    delta: float
    basic: float


def account_of(plan: Plan) -> AnyStage:
    """Return a private run as a stage of a longer account.

    Gaussian noise by its multiplier; of other mechanisms what the whole run guarantees.
    """
    if plan.multiplier:
        return Stage(plan.multiplier, plan.rounds // plan.parts, plan.amplifying_rate)
    return Guarantee(plan.epsilon, plan.delta)


def budget_of(spenders: Sequence[Spender], epsilon: float, delta: float) -> Budget:
    """Say what each stage spends.

    Raises InputError if epsilons that are given exceed the whole, or leave nothing to a stage that
    needs it.

    Parameters
    ----------
    spenders
        at least one
    epsilon, delta
        of all of them together
    """
    epsilons: dict[str, float] = {}
    parts = {part: [s for s in spenders if s.part == part] for part in {s.part for s in spenders}}
    for part, stages in parts.items():
        fixed = {s.name: s.epsilon for s in stages if s.epsilon is not None}
        beside = [account_of(s.plan(e)) for s in stages if (e := s.epsilon) is not None]
        if beside and (spent := composed_epsilon(beside, delta)) > epsilon * (1 + 1e-9):
            raise InputError(
                f"{' and '.join(fixed)} spend epsilon = {spent:.4g} on the rows '{part}', the "
                f"pipeline has {epsilon:g}"
            )
        epsilons |= fixed | _left([s for s in stages if s.epsilon is None], beside, epsilon, delta)
    plans = {s.name: s.plan(epsilons[s.name]) for s in spenders}
    accounts = {part: [account_of(plans[s.name]) for s in stages] for part, stages in parts.items()}
    return Budget(
        epsilons={s.name: epsilons[s.name] for s in spenders},
        plans=plans,
        by_part={part: composed_epsilon(accounts[part], delta) for part in sorted(parts)},
        epsilon=parallel_epsilon(accounts.values(), delta),
        delta=delta,
        basic=sum(epsilons.values()),
    )


def _left(
    open_stages: Sequence[Spender], beside: Sequence[AnyStage], epsilon: float, delta: float
) -> dict[str, float]:
    """Epsilons of the stages without one: they share what the others leave of a part."""
    if not open_stages:
        return {}
    if not beside and len(open_stages) == 1:
        return {open_stages[0].name: epsilon}
    kinds = [account_of(s.plan(epsilon)) for s in open_stages]
    gaussian = [one for one in kinds if isinstance(one, Stage)]
    if len(gaussian) == len(kinds):
        noise = _common_multiplier(gaussian, beside, epsilon, delta)
        most = [composed_epsilon([Stage(noise, g.rounds, g.rate)], delta) for g in gaussian]
    else:
        most = [epsilon] * len(open_stages)

    def fits(scale: float) -> bool:
        own = [account_of(s.plan(scale * e)) for s, e in zip(open_stages, most, strict=True)]
        return composed_epsilon([*beside, *own], delta) <= epsilon

    scale = 1.0
    if len(gaussian) == len(kinds):
        while not fits(scale):  # each search has its own tolerance
            scale -= _CLOSE / 2
    elif not fits(scale):
        low, high = _CLOSE, 1.0
        if not fits(low):
            names = " and ".join(s.name for s in open_stages)
            raise InputError(f"the other stages leave nothing of epsilon = {epsilon:g} to {names}")
        while high - low > _CLOSE:
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        scale = low
    return {s.name: scale * e for s, e in zip(open_stages, most, strict=True)}


def _common_multiplier(
    stages: Sequence[Stage], beside: Sequence[AnyStage], epsilon: float, delta: float
) -> float:
    """Return the least noise multiplier that all these stages may have."""
    rounds, rate = sum(s.rounds for s in stages), stages[0].rate
    if all(s.rate == rate for s in stages):
        return multiplier_beside(epsilon, delta, beside, rounds, rate)
    # each of them alone, with all others at the noise that it would need by itself, needs less
    low = max(multiplier_beside(epsilon, delta, beside, s.rounds, s.rate) for s in stages)
    high = multiplier_beside(epsilon, delta, beside, rounds, max(s.rate for s in stages))
    while high / low > 1 + _CLOSE:
        middle = (low * high) ** 0.5
        own = [Stage(middle, s.rounds, s.rate) for s in stages]
        spent = composed_epsilon([*beside, *own], delta)
        low, high = (low, middle) if spent <= epsilon else (middle, high)
    return high
