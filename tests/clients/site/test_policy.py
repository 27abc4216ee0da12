"""A site's policy: each rule takes what is at its edge and refuses what is beyond it."""

import datetime
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from refusals import each_is_refused

from fedcal.clients.site.policy import Policy
from fedcal.core.checks import InputError
from fedcal.privacy.agreement import Terms
from fedcal.privacy.making import make_plan
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.privacy import Federation
from fedcal.privacy.query import Question
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Committee, Member, Roster
from fedcal.units import Bound

KEYS = [SigningKey(bytes([n]) * 32) for n in range(1, 9)]
ROSTER = Roster(
    "hearts",
    tuple(Member(f"site {n}", key.public) for n, key in enumerate(KEYS[:7])),
    Committee((0, 1, 2, 3, 4), 4),
)
DAY = datetime.date(2027, 6, 30)
FEDERATION = Federation(
    clients=7, classes=2, epsilon=1.0, delta=1e-6, unit="example", trust="distributed",
    committee=5, threshold=4, colluding=2, quorum=5 / 7,
)  # fmt: skip


def plan_of(federation: Federation = FEDERATION, rounds: int = 4) -> Plan:
    return make_plan(federation, rounds=rounds, bound=Bound((3,), (1.0,)), row_sums=True)


EXACT = replace(FEDERATION, epsilon=float("inf"), trust="secagg", colluding=0)
CENTRAL = replace(FEDERATION, trust="central", colluding=0)


@dataclass(frozen=True)
class Asked:
    """What a site is asked to accept; the policy below allows just that."""

    federation: Federation = FEDERATION
    job: dict[str, Any] = field(default_factory=dict)
    roster: Roster | None = ROSTER
    today: datetime.date = DAY
    plan: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def of(self, policy: Policy) -> None:
        job = {
            **self.federation.to_fields(),
            "secure-aggregation": "protocol" if self.federation.committee else "none",
            "roster": "" if self.roster is None else self.roster.to_text(),
            **self.job,
        }
        plan = replace(plan_of(self.federation), **self.plan)
        if self.facts:
            plan = replace(plan, federation=replace(plan.federation, **self.facts))
        question = Question("temperature_update", {}, {}, (1, 4), 1.0)
        policy.check(Terms(job, plan, (question,)), self.roster, self.today)


POLICY = Policy(
    federation=ROSTER.digest,
    expires=DAY,
    epsilon_total=1.0,
    delta_total=1e-6,
    answers=5,
    colluding=2,
)
ANY_SUM = replace(POLICY, colluding=0, answers=1)
FOUR = replace(ROSTER, committee=Committee((0, 1, 2, 3), 3))
SMALL = replace(ROSTER, committee=Committee((0, 1, 2), 2))
OTHER = replace(ROSTER, committee=Committee((1, 2, 3, 4, 5), 4))
OF_FOUR = replace(FEDERATION, committee=4, threshold=3, colluding=1)
NOBODY = replace(FEDERATION, committee=0, threshold=0, colluding=0)
A_YEAR = replace(POLICY, begins=DAY, epsilon_total=3.0, delta_total=1e-5)

EDGES: dict[str, tuple[Policy, Asked, Asked, str]] = {
    "expires": (
        POLICY, Asked(), Asked(today=DAY + datetime.timedelta(1)), "asked is 2027-07-01",
    ),
    "begins": (
        replace(POLICY, begins=DAY), Asked(), Asked(today=DAY - datetime.timedelta(1)),
        "asked is 2027-06-29, allowed from 2027-06-30 on",
    ),
    "epsilon_total": (
        POLICY, Asked(), Asked(plan={"epsilon": 1.0000001}), "epsilon: asked is 1.0000001",
    ),
    "delta_total": (POLICY, Asked(), Asked(plan={"delta": 1.1e-6}), "delta: asked is 1.1e-06"),
    "epsilon_a_year": (
        replace(A_YEAR, epsilon_a_year=1.0), Asked(), Asked(plan={"epsilon": 1.0000001}),
        "epsilon: asked is 1.0000001, allowed at most 1.0",
    ),
    "delta_a_year": (
        replace(A_YEAR, delta_a_year=1e-6), Asked(), Asked(plan={"delta": 1.1e-6}),
        "delta: asked is 1.1e-06, allowed at most 1e-06",
    ),
    "federation": (POLICY, Asked(), Asked(roster=OTHER), f"federation: asked is {OTHER.digest}"),
    "answers": (
        POLICY, Asked(), Asked(replace(FEDERATION, quorum=4 / 7)),
        "fewest contributions in a sum: asked is 4, allowed at least 5",
    ),
    "colluding": (
        POLICY, Asked(), Asked(replace(FEDERATION, colluding=1)),
        "number that may collude: asked is 1, allowed at least 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", EDGES)
def test_the_edge_is_taken_and_what_is_beyond_it_refused(rule):
    policy, edge, beyond, message = EDGES[rule]
    edge.of(policy)
    with pytest.raises(InputError, match=f"this site's policy refuses.*{re.escape(message)}"):
        beyond.of(policy)


MORE: list[tuple[Policy, Asked, str]] = [
    (ANY_SUM, Asked(EXACT), "sums: asked is trust secagg, allowed with noise of each site's own"),
    (ANY_SUM, Asked(CENTRAL), "sums: asked is trust central, allowed with noise of each"),
    (POLICY, Asked(NOBODY), "secure aggregation: asked is none, allowed protocol"),
    (POLICY, Asked(roster=None), "federation: asked is none"),
    (POLICY, Asked(job={"roster": OTHER.to_text()}), f"digest {ROSTER.digest}"),
    (
        POLICY, Asked(replace(FEDERATION, clients=8)), "number of sites: asked is 8, allowed 7"
    ),
    (
        replace(POLICY, federation=FOUR.digest, colluding=1, answers=3),
        Asked(OF_FOUR, roster=FOUR, facts={"threshold": 4}),
        "committee and threshold: asked is (4, 4), allowed (4, 3)",
    ),
    (POLICY, Asked(plan={"epsilon": float("nan")}), "epsilon: asked"),
    (
        replace(POLICY, federation=SMALL.digest), Asked(roster=SMALL),
        "number that may collude: asked is 0, allowed at least 2",
    ),
]  # fmt: skip


def test_what_else_is_refused():
    table = (((policy, asked), re.escape(message)) for policy, asked, message in MORE)
    each_is_refused(table, lambda given: given[1].of(given[0]), most=400)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"answers": 0}, "answers must be a whole number >= 1"),
    ({"epsilon_total": float("nan")}, "epsilon-total must be in [0, inf)"),
    ({"epsilon_a_year": 1.5, "begins": DAY}, "epsilon-a-year must be in [0, 1.0]"),
    ({"epsilon_a_year": 0.5}, "begins is needed"),
    ({"federation": ""}, "federation must be 64 hexadecimal digits"),
]  # fmt: skip


def test_what_a_policy_may_not_say():
    table = ((changed, re.escape(message)) for changed, message in WRONG)
    each_is_refused(table, lambda changed: replace(POLICY, **changed), most=500)
