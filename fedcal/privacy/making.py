"""A plan is made here: mechanism and noise that spend a federation's budget, by their accounting.

A process that only answers questions of a plan does not load this module.

Whether terms hold together: what a site computes before it accepts them, and believes of no one.

It is no part of the process that answers: that process compares with what was accepted.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial
from typing import Any

from fedcal import accounting
from fedcal.core.checks import InputError, damaged, integer, one_of, same
from fedcal.mechanisms import MECHANISMS, PRIVATE, Gaussian, Mechanism, NoNoise, Target, samplers
from fedcal.privacy.agreed_plan import AgreedPlan
from fedcal.privacy.agreement import PROTOCOL, Terms
from fedcal.privacy.noise_plan import Plan, amplifying_rate
from fedcal.privacy.privacy import AUTO, MOST_ROUNDS, Federation
from fedcal.privacy.query import QUERIES, Question
from fedcal.privacy.wire import federation_of
from fedcal.trust import NOISY, TRUSTS, Trust
from fedcal.units import UNITS, Bound

_SMALL_DELTA = 1e-9  # what the samplers' errors may add up to where delta = 0 was asked for


def make_plan(
    federation: Federation,
    *,
    rounds: int,
    bound: Bound,
    prefers: Sequence[type[Mechanism]] = (Gaussian,),
    row_sums: bool = False,
    counting_rounds: int = 0,
    asked_once: bool = False,
    row_rate: float = 1.0,
    fine: bool = False,
    cohort: bool = False,
) -> Plan:
    """Make the plan of a run: the noise that meets the target, on its private side.

    Parameters
    ----------
    federation
        public facts and the budget
    rounds
        private releases (the method's default where the federation names none)
    bound
        what one client may add to each of them; with `row_sums` and a unit that is a part of a
        client what that part may add. Its `order` and `per` are set here, to suit mechanism and
        unit
    prefers
        what the method prefers if epsilon is finite, see `choose`
    row_sums
        whether a client's contribution is a sum over its rows. If it is not, one row may
        move it from one end of the bound to the other: units "example" and "subject" then cost
        twice the bound
    counting_rounds
        further exact rounds that a method needs without privacy
    asked_once
        each client answers in one of the rounds only, which then is all that it spends
    row_rate
        each row takes part in a round with this probability, by a coin of its client's
    fine, cohort
        as in `Plan`

    Returns
    -------
    Plan
        Without privacy: exact sums. Gaussian: the smallest multiplier for `rounds` releases,
        closed form at sampling rate 1 (Balle & Wang 2018), PLD with Poisson sampling below 1.
        Pure-DP mechanisms: epsilon / rounds for each release, amplified by sampling.

    Notes
    -----
    Amplification by sampled clients is claimed for unit "user" under trust `central` and
    `distributed` only. Under `local` the server sees who answers. For one row of a sampled client
    it would need that the client's *other* rows change little, too. Amplification by sampled rows
    is claimed for unit "example" under the same models: nobody but its client sees a row's coin.

    With noise from the operating system the samplers' total variation is part of delta.
    """
    model, unit = TRUSTS[str(federation.trust)], UNITS[federation.unit]
    parts = rounds if asked_once and federation.private else 1
    quorum = model.quorum(federation.quorum, federation.clients)
    if federation.committee:
        quorum = federation.fewest(parts)
    adjacency = unit.adjacency(model.replaces)
    if fine and unit.per == "row":
        adjacency = "zero-out"  # a row keeps its slot among those that are computed with it
    plan = partial(
        Plan,
        federation,
        adjacency=adjacency,
        row_rate=accounting.check_rate(row_rate),
        fine=fine,
        quorum=quorum,
    )
    if not federation.private:
        return plan(
            rounds=rounds + counting_rounds,
            counting_rounds=counting_rounds,
            mechanism=NoNoise(),
            epsilon=math.inf,
            delta=0.0,
            cohort=cohort,
        )
    per = unit.per if row_sums else "client"
    bound = replace(bound, per=per, whole=bound.whole and per == unit.per != "client")
    if asked_once:
        same("sampling_rate of clients that answer only once", federation.sampling_rate, 1)
    if asked_once and model.asks_everyone:
        raise InputError(f"trust '{model.name}' needs noise of all clients in each round")
    rate = amplifying_rate(federation)
    if row_rate < 1:
        if unit.per != "row" or not row_sums or not model.amplifies:
            home = " or ".join(f"'{name}'" for name, one in TRUSTS.items() if one.amplifies)
            raise InputError(
                "rows that take part by chance need unit 'example', answers that are sums over "
                f"rows, and trust {home}; got unit '{unit.name}', trust '{model.name}'"
            )
        rate = row_rate
    spent = 1 if asked_once else rounds
    mechanism = choose(federation, prefers, bound, spent)
    if mechanism.order == 1:
        bound = replace(bound, order=1)
    if not mechanism.pure:
        accounting.check_delta(federation.delta)
    mechanism.check(bound, spent)
    diameter = 2 if adjacency == "replace" or per != unit.per else 1
    if mechanism.settles_replacement:
        diameter = 1
    slack = _slack(federation, model, rounds, bound, row_rate)
    target = Target(federation.epsilon, federation.delta, spent, rate, slack)
    return plan(
        rounds=rounds,
        mechanism=mechanism.calibrate(target),
        epsilon=federation.epsilon,
        delta=slack if mechanism.pure else federation.delta,
        bound=bound,
        diameter=diameter,
        parts=parts,
    )


@lru_cache(maxsize=8)  # of many sites of a simulation; the account takes seconds with sampling
def made_again(plan: AgreedPlan) -> Plan:
    """Return the plan that our own accounting makes of a plan's facts, bound, rounds and rates.

    Formal guarantee: a plan that equals it has noise that meets its epsilon and delta in all of its
    rounds, for contributions within its bound, whoever calibrated it.
    """
    integer("the number of rounds", plan.rounds, 1, MOST_ROUNDS)
    return make_plan(
        plan.federation,
        rounds=plan.rounds - integer("counting rounds", plan.counting_rounds, 0, plan.rounds - 1),
        bound=plan.bound or Bound((1,)),
        prefers=(type(plan.mechanism),),
        row_sums=plan.bound is not None and plan.bound.per != "client",
        counting_rounds=plan.counting_rounds,
        asked_once=plan.parts > 1,
        row_rate=plan.row_rate,
        fine=plan.fine,
        cohort=plan.cohort,
    )


def _slack(
    federation: Federation, model: Trust, rounds: int, bound: Bound, row_rate: float
) -> float:
    """Return the part of delta for errors of draws from the operating system."""
    if federation.noise_source == "seeded":
        return 0.0
    draws = rounds * model.draws(bound.length, federation.clients)
    if federation.sampling_rate < 1:
        draws += rounds * federation.clients  # coins
    if row_rate < 1:
        draws += rounds  # coins of the one row that neighbours differ in
    # A neighbour's view, too, is off by that much: e^epsilon + 1 times (both sides).
    slack = draws * samplers.TOTAL_VARIATION * (1.0 + math.exp(min(federation.epsilon, 700.0)))
    if slack > (federation.delta / 2 or _SMALL_DELTA):
        raise InputError(
            f"epsilon = {federation.epsilon:g} and delta = {federation.delta:g} do not go with "
            f"{draws} draws from the operating system: these may be off by {slack:.3g} together"
        )
    return slack


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
    asked, sums = federation.mechanism, prefers[0].answers == "sum"
    fitting = [one for one in PRIVATE.values() if one.answers == "sum"] if sums else prefers[:1]
    allowed = (AUTO, *(one.name for one in fitting))
    if asked not in allowed:
        raise InputError(
            f"mechanism '{asked}' does not fit this method's release; allowed: {', '.join(allowed)}"
        )
    if not sums:
        mechanism = prefers[0]
        allowed_by = {
            "trust": [name for name, model in NOISY.items() if model.accepts(mechanism)],
            "unit": [name for name, one in UNITS.items() if mechanism.part in (None, one.per)],
        }
        for what, names in allowed_by.items():
            if (own := getattr(federation, what)) not in names:
                home = " or ".join(f"'{name}'" for name in names)
                raise InputError(f"mechanism '{mechanism.name}' needs {what} {home}, got '{own}'")
        return mechanism
    if asked != AUTO:
        return MECHANISMS[asked]
    return prefers[0] if len(prefers) == 1 else _least(federation, prefers, bound, rounds)


def _least(
    federation: Federation, prefers: Sequence[type[Mechanism]], bound: Bound, rounds: int
) -> type[Mechanism]:
    """Return the mechanism with the least noise std; a pure one if delta = 0.

    A release with Laplace noise clips in L1, so one member's L1 norm is compared with one's L2
    norm.
    """
    target = Target(federation.epsilon, federation.delta, rounds, amplifying_rate(federation))
    possible = [mechanism for mechanism in prefers if mechanism.pure or federation.delta > 0]

    def std(mechanism: type[Mechanism]) -> float:
        own = replace(bound, order=mechanism.order, norms=(1.0,) * len(bound.lengths), whole=False)
        made = mechanism.calibrate(target)
        return float(made.std(made.scale(own, 1), 1.0, own).max())

    return min(possible, key=std)


_LAST_DIGITS = 1e-9
"""Relative difference of floats that types of CPU make."""


def check_terms(terms: Terms) -> None:
    """Refuse terms that do not hold together, whoever wrote them.

    Formal guarantee of terms that pass: the plan is the one of the job's facts; its noise meets the
    stated epsilon and delta over all its rounds, for what is clipped to its bound, by this site's
    own accounting; each question may be clipped in that way, has all its parameters fixed or within
    a range, and answers of at most `Question.cells` numbers. Numbers of the plan may differ from
    our own by a relative 1e-9, as those of another CPU do in their last digits: so may epsilon.

    Raises InputError, one line that names the first thing that differs.
    """
    plan = terms.plan
    with damaged("the terms of the job make no plan"):
        facts = federation_of({**terms.job, "seed": 0}, classes=plan.federation.classes)
        for name in facts.__dataclass_fields__:
            what, own = f"{name} of the plan, by the job's facts,", getattr(facts, name)
            same(what, getattr(plan.federation, name), own)
        made, own_plan = plan.to_plain(), made_again(plan).to_plain()
        for name in own_plan:
            what = "noise" if name == "mechanism" else name.replace("_", " ")
            what = f"{what} of the plan, by its own epsilon, bound, rounds and rates,"
            check_alike(what, made[name], own_plan[name])
        protocol = terms.job["secure-aggregation"] == PROTOCOL
        same("committee of the plan, by the job's facts,", bool(plan.committee), protocol)
        integer("the number of questions", len(terms.questions), 1)
        for question in terms.questions:
            _check_declared(question, plan)


def check_alike(what: str, asked: Any, own: Any) -> None:
    """Refuse plain values that differ from our own, but in the last digits of floats."""
    for at, one, another in differences("", asked, own, _LAST_DIGITS):
        where = f"{at} of the {what}" if at else f"the {what}"
        raise InputError(f"{where} must be {another!r:.80}, got {one!r:.80}")


def differences(
    where: str, old: Any, new: Any, relative: float, absolute: float = 0.0
) -> Iterator[tuple[str, Any, Any]]:
    """Yield differences of two values of JSON, beyond the last digits of other machines."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            at = f"{where}.{key or 'all'}".lstrip(".")
            yield from differences(at, old.get(key), new.get(key), relative, absolute)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (one, another) in enumerate(zip(old, new, strict=True)):
            yield from differences(f"{where}.{k}".lstrip("."), one, another, relative, absolute)
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=relative, abs_tol=absolute):
            yield where, old, new
    elif type(old) is not type(new) or old != new:
        yield where, old, new


def _check_declared(question: Question, plan: AgreedPlan) -> None:
    """Refuse a question that leaves a parameter open, or whose answers the noise does not fit."""
    query = QUERIES[one_of("question", question.kind, sorted(QUERIES))]
    what = f"the question '{query.kind}'"
    named, own = sorted([*question.fixed, *question.moving]), sorted(f.name for f in fields(query))
    same(f"parameters of {what}", named, own)
    if not math.isinf(question.cells):
        moving = sorted({*query.cuts} & {*question.moving})
        same(f"cuts that the server chooses, of {what} with fixed cells,", moving, [])
    if plan.bound is None:
        return
    same(f"part that the bound of {what} is per", plan.bound.per, query.part(plan.unit))
    same(f"coin of {what}, which all clients answer,", query.everyone, False)
    if plan.parts > 1:
        same(f"answers of a site to {what}, in a job of parts,", query.asked_once, True)
    one_hot = plan.mechanism.answers == "onehot"
    same(f"unary encoding of {what}", one_hot, query.one_hot)
