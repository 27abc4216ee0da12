"""What several runs on the same rows have spent: by run, and together, tighter than the sums.

A ledger's caps are on the sum of epsilons and the sum of deltas. Its runs together usually spend
less, and how much less may be said depends on who chose their budgets, and when:

=======================  =================================  ======================================
rule                     valid                              source
=======================  =================================  ======================================
"sum"                    always                             Dwork et al. 2006; the ledger's caps
"Gaussian DP"            Gaussian runs without sampling;    Dong, Roth & Su 2022; Smith & Thakurta
                         as a filter, see below             2022
"Renyi DP"               any; as a filter, see below        Feldman & Zrnic 2021; Whitehouse et al.
                                                            2023
"loss distributions"     all budgets were fixed before the  dp-accounting (Doroshenko et al. 2022)
                         first run
=======================  =================================  ======================================

A *filter*: budgets may be chosen by looking at earlier results, as long as a limit on the total was
fixed beforehand and every run that would pass it was refused. Where nobody fixed one, the totals
hold for budgets that were fixed beforehand, and for others the sums do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedcal.accounting import AnyStage, Guarantee, Stage, check_delta, composed_epsilon
from fedcal.core.errors import InputError
from fedcal.privacy.ledger import Entry

__all__ = ["Account", "RunCost", "by_stage", "stage_of"]

_EVENT = re.compile(
    r"(\d+) x Poisson(?: rows)?\(([^()]+)\) of (?:discrete )?Gaussian\(multiplier=([^()]+)\)"
)
_ORDERS = (*(1 + i / 10 for i in range(1, 100)), *range(11, 64), 80, 96, 128, 192, 256, 512, 1024)


@dataclass(frozen=True)
class RunCost:
    """Cost of one run.

    Attributes
    ----------
    run
        its name in the ledger
    what
        mechanism and releases, in words
    part
        the disjoint part of the rows that it uses; "" = all rows
    epsilon, delta
        of the run by itself
    """

    run: str
    what: str
    part: str
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Account:
    """Costs of runs, one by one and together.

    Attributes
    ----------
    runs
        in the ledger's order
    epsilon, delta
        of all of them together
    rule
        by which: "sum", "Gaussian DP", "Renyi DP" or "loss distributions"
    """

    runs: tuple[RunCost, ...]
    epsilon: float
    delta: float
    rule: str


def by_stage(
    entries: Sequence[Entry],
    *,
    delta: float | None = None,
    parts: Mapping[str, str] | None = None,
    fixed_beforehand: bool = False,
) -> Account:
    """Return the costs of runs on the same rows, one by one and together by the tightest rule.

    Parameters
    ----------
    entries
        a ledger's, of one unit of privacy
    delta
        at which epsilon is told, at least the sum of the runs' deltas; None = that sum
    parts
        run -> the disjoint part of the rows that it uses (a hashed split); other runs use all
        rows. Together they cost what the dearest part costs
    fixed_beforehand
        whether all budgets were fixed before the first run was made

    Raises
    ------
    InputError
        For entries of several units, a part of an unknown run, or a delta below the sum.
    """
    if len(units := {entry.unit for entry in entries}) > 1:
        raise InputError(f"runs of several units do not add up: {', '.join(sorted(units))}")
    parts = dict(parts or {})
    if unknown := set(parts) - {entry.run for entry in entries}:
        raise InputError(f"the ledger has no run {sorted(unknown)[0]!r} for a part of the rows")
    groups = [
        [entry for entry in entries if parts.get(entry.run, part) == part]
        for part in sorted(set(parts.values())) or [""]
    ]
    least = max((math.fsum(entry.delta for entry in group) for group in groups), default=0.0)
    if delta is None:
        delta = least
    elif check_delta(delta) < least * (1 - 1e-9):
        raise InputError(f"these runs have a delta of {least:g} together: {delta:g} is below it")
    epsilon, rule = max(
        (_together(group, delta, fixed_beforehand) for group in groups), default=(0.0, "sum")
    )
    runs = tuple(RunCost(e.run, e.event, parts.get(e.run, ""), e.epsilon, e.delta) for e in entries)
    return Account(runs, epsilon, delta, rule)


def stage_of(entry: Entry) -> AnyStage:
    """Return the noise of a run from its reservation.

    A `Stage` where it was (discrete) Gaussian and its noise alone accounts for the run's epsilon
    (sampling that amplifies nothing is written down, too); else a `Guarantee` of the run's epsilon
    and delta, which is always true.
    """
    known = Guarantee(entry.epsilon, entry.delta)
    match = _EVENT.fullmatch(entry.event)
    if match is None or entry.delta == 0:
        return known
    rounds, rate, multiplier = int(match[1]), float(match[2]), float(match[3])
    for candidate in (rate, 1.0):
        stage = Stage(multiplier, rounds, candidate)
        if 0.99 <= composed_epsilon([stage], entry.delta) / entry.epsilon <= 1.01:
            return stage
    return known


def _together(entries: Sequence[Entry], delta: float, fixed_beforehand: bool) -> tuple[float, str]:
    """(epsilon, rule) of runs on the same rows."""
    rules = [(math.fsum(entry.epsilon for entry in entries), "sum")]
    if delta == 0 or len(entries) < 2:
        return rules[0]
    stages = [stage_of(entry) for entry in entries]
    gaussian = [s for s in stages if isinstance(s, Stage) and s.rate == 1]
    if len(gaussian) == len(stages):
        return min(*rules, (composed_epsilon(stages, delta), "Gaussian DP"))
    rules.append((_renyi_epsilon(stages, delta), "Renyi DP"))
    if fixed_beforehand and _room(stages, delta):
        rules.append((composed_epsilon(stages, delta), "loss distributions"))
    return min(rules)


def _room(stages: Sequence[AnyStage], delta: float) -> bool:
    """Return whether delta leaves something for the stages with noise."""
    return delta > 1.01 * _known_delta(stages)


def _known_delta(stages: Sequence[AnyStage]) -> float:
    return math.fsum(s.delta for s in stages if isinstance(s, Guarantee))


def _renyi_epsilon(stages: Sequence[AnyStage], delta: float) -> float:
    """Epsilon by Renyi DP at the best order, deltas of guarantees set aside.

    An epsilon-DP run is (epsilon^2 / 2)-zCDP (Bun & Steinke 2016, Proposition 1.4).
    """
    if not _room(stages, delta):
        return math.inf
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(_ORDERS, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    for stage in stages:
        if isinstance(stage, Guarantee):
            accountant.compose(dp_accounting.ZCDpEvent(stage.epsilon**2 / 2), stage.rounds)
            continue
        noise = dp_accounting.GaussianDpEvent(stage.multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(stage.rate, noise)
        accountant.compose(noise if stage.rate == 1 else sampled, stage.rounds)
    return float(accountant.get_epsilon(delta - _known_delta(stages)))
