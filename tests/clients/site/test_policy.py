"""A site's policy: each rule takes what is at its edge and refuses what is beyond it."""

import datetime
import json
import math
import re
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from refusals import each_is_refused

from fedcal.clients.site.policy import ADJACENCIES, Policy
from fedcal.core.classes import digest_of
from fedcal.core.errors import InputError
from fedcal.privacy.agreement import Terms
from fedcal.privacy.declared import Question
from fedcal.privacy.federation import Federation
from fedcal.privacy.making import make_plan
from fedcal.privacy.noise_plan import Plan
from fedcal.secure_aggregation.committee import Committee
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Member, Roster
from fedcal.units.bounding import Bound

KEYS = [SigningKey(bytes([n]) * 32) for n in range(1, 9)]
ROSTER = Roster(
    "hearts",
    tuple(Member(f"site {n}", key.public) for n, key in enumerate(KEYS[:7])),
    Committee((0, 1, 2, 3, 4), 4),
).signed(KEYS[7])
CLASSES = digest_of(["healthy", "disease"])
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
    """What a site is asked for; the policy below allows just that."""

    federation: Federation = FEDERATION
    rounds: int = 4
    job: dict[str, Any] = field(default_factory=dict)
    length: int = 50
    roster: Roster | None = ROSTER
    today: datetime.date = DAY
    plan: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    cells: float = 1.0
    fixed: dict[str, Any] = field(default_factory=dict)

    def of(self, policy: Policy) -> None:
        job = {
            **self.federation.to_fields(),
            "method": "fedtemp",
            "settings": json.dumps({"clip": 2.0}),
            "secure-aggregation": "protocol" if self.federation.committee else "none",
            "roster": "" if self.roster is None else self.roster.to_text(),
            "class-digest": CLASSES,
            **self.job,
        }
        plan = replace(plan_of(self.federation, self.rounds), **self.plan)
        if self.facts:
            plan = replace(plan, federation=replace(plan.federation, **self.facts))
        question = Question("temperature_update", self.fixed, {}, (1, self.rounds), self.cells)
        policy.check(job, Terms(job, plan, (question,)), self.length, self.roster, self.today)


POLICY = Policy(
    methods=("fedtemp", "fednewton"),
    unit=("example",),
    trust=("distributed",),
    adjacency=("add-remove",),
    rounds=4,
    expires=DAY,
    epsilon_per_run=1.0,
    epsilon_total=3.0,
    delta_per_run=1e-6,
    delta_total=1e-5,
    settings={"fedtemp": {"clip": (0.1, 2.0)}},
    federation=ROSTER.digest,
    class_digest=CLASSES,
    answers=5,
    colluding=2,
    committee=((5, 4), (7, 5)),
    largest_vector=50,
)
ANY_SUM = replace(POLICY, trust=("secagg", "central", "distributed"), colluding=0, answers=1)
OTHER = replace(ROSTER, committee=Committee((1, 2, 3, 4, 5), 4), signature=None)
OF_FOUR = replace(FEDERATION, committee=4, threshold=3, colluding=1)
NOBODY = replace(FEDERATION, committee=0, threshold=0, colluding=0)

EDGES: dict[str, tuple[Policy, Asked, Asked, str]] = {
    "methods": (
        replace(POLICY, methods=("fedtemp",)), Asked(), Asked(job={"method": "fednewton"}),
        "method: asked is fednewton, allowed fedtemp",
    ),
    "unit": (POLICY, Asked(), Asked(facts={"unit": "user"}), "unit: asked is user"),
    "trust": (POLICY, Asked(), Asked(facts={"trust": "central"}), "trust: asked is central"),
    "adjacency": (
        POLICY, Asked(), Asked(plan={"adjacency": "replace"}), "adjacency: asked is replace",
    ),
    "rounds": (POLICY, Asked(), Asked(rounds=5), "rounds: asked is 5, allowed at most 4"),
    "expires": (
        POLICY, Asked(), Asked(today=DAY + datetime.timedelta(1)), "asked is 2027-07-01",
    ),
    "begins": (
        replace(POLICY, begins=DAY), Asked(), Asked(today=DAY - datetime.timedelta(1)),
        "asked is 2027-06-29, allowed from 2027-06-30 on",
    ),
    "mechanism": (
        replace(POLICY, mechanism=("discrete-gaussian",)), Asked(),
        Asked(replace(FEDERATION, mechanism="laplace")), "mechanism: asked is laplace",
    ),
    "epsilon_per_run": (
        POLICY, Asked(), Asked(plan={"epsilon": 1.0000001}), "epsilon: asked is 1.0000001",
    ),
    "delta_per_run": (POLICY, Asked(), Asked(plan={"delta": 1.1e-6}), "delta: asked is 1.1e-06"),
    "settings": (
        POLICY, Asked(job={"settings": '{"clip": 0.1}'}), Asked(job={"settings": '{"clip": 2.01}'}),
        "clip of fedtemp: asked is 2.01, allowed from 0.1 to 2.0",
    ),
    "federation": (POLICY, Asked(), Asked(roster=OTHER), f"federation: asked is {OTHER.digest}"),
    "coordinator": (
        replace(POLICY, federation="", coordinator=KEYS[7].public.hex().upper()), Asked(),
        Asked(roster=ROSTER.signed(KEYS[6])), f"coordinator: asked is {KEYS[6].public.hex()}",
    ),
    "class_digest": (
        POLICY, Asked(), Asked(job={"class-digest": ""}), "class digest: asked is none",
    ),
    "secure_aggregation": (
        replace(POLICY, secure_aggregation="any"), Asked(),
        Asked(replace(NOBODY, epsilon=float("inf"), trust="secagg", quorum=0.9)),
        "secure aggregation: asked is none, allowed protocol, for exact sums",
    ),
    "site_rows": (  # 4 rounds of 7 numbers, 28 cells, 10 rows each, 5 sites in a sum
        replace(ANY_SUM, site_rows=56), Asked(CENTRAL, cells=7.0),
        Asked(CENTRAL, cells=7.01), "resolution of sums without noise: asked is 28 numbers of "
        "about 280 rows, allowed at least 10 rows for each number",
    ),
    "cell_rows": (
        replace(ANY_SUM, site_rows=56, cell_rows=5), Asked(CENTRAL, cells=14.0),
        Asked(CENTRAL, cells=math.inf), "asked is cuts chosen in the run of about 280 rows",
    ),
    "answers": (
        POLICY, Asked(), Asked(replace(FEDERATION, quorum=4 / 7)),
        "fewest contributions in a sum: asked is 4, allowed at least 5",
    ),
    "colluding": (
        POLICY, Asked(), Asked(replace(FEDERATION, colluding=1)),
        "number that may collude: asked is 1, allowed at least 2",
    ),
    "committee": (
        replace(POLICY, committee=((4, 3),), federation="", coordinator=KEYS[7].public.hex(),
                colluding=1, answers=3),
        Asked(OF_FOUR, roster=replace(ROSTER, committee=Committee((0, 1, 2, 3), 3),
                                      signature=None).signed(KEYS[7])),
        Asked(), r"committee and threshold: asked is (5, 4), allowed [(4, 3)]",
    ),
    "largest_vector": (
        POLICY, Asked(), Asked(length=51), "numbers in an answer: asked is 51, allowed at most 50",
    ),
    "exact_sums": (
        replace(ANY_SUM, exact_sums=True, cell_rows=0), Asked(replace(EXACT, quorum=3 / 7)),
        Asked(replace(EXACT, quorum=2 / 7)), "exact sum: asked is 2, allowed at least 3",
    ),
}  # fmt: skip
KEPT_ELSEWHERE = {
    *(f"{of}_{over}" for of in ("epsilon", "delta") for over in ("a_year", "total")),
    *("cpu_seconds", "memory_mib"),
}
"""By the site's records, and by the process that answers."""


def test_every_rule_has_an_edge():
    assert {f.name for f in fields(Policy)} == EDGES.keys() | KEPT_ELSEWHERE
    assert (POLICY.epsilon_total, POLICY.delta_total) == (3.0, 1e-5)


@pytest.mark.parametrize("rule", EDGES)
def test_the_edge_is_taken_and_what_is_beyond_it_refused(rule):
    policy, edge, beyond, message = EDGES[rule]
    edge.of(policy)
    with pytest.raises(InputError, match=re.escape(message)) as refused:
        beyond.of(policy)
    assert "\n" not in str(refused.value)
    assert "this site's policy refuses" in str(refused.value)


MORE: list[tuple[Policy, Asked, str]] = [
    (ANY_SUM, Asked(EXACT), "sums: asked is without noise, allowed with noise alone"),
    (  # the server's noise over two
        ANY_SUM, Asked(replace(CENTRAL, quorum=2 / 7)), "exact sum: asked is 2, allowed at least 3"
    ),
    (  # each site has its own numbers in such a sum
        replace(ANY_SUM, exact_sums=True, cell_rows=0), Asked(EXACT, fixed={"by": "site"}),
        "exact sum: asked is 1, allowed at least 3",
    ),
    (ANY_SUM, Asked(CENTRAL, fixed={"by": "site"}), "exact sum: asked is 1, allowed at least 3"),
    (POLICY, Asked(NOBODY), "secure aggregation: asked is none, allowed protocol"),
    (POLICY, Asked(facts={"committee": 0, "threshold": 0, "colluding": 0}), "allowed protocol"),
    (POLICY, Asked(roster=None), "federation: asked is none"),
    (replace(POLICY, secure_aggregation="any"), Asked(roster=None), "this site has no federation"),
    (POLICY, Asked(job={"roster": OTHER.to_text()}), f"digest {ROSTER.digest}"),
    (
        POLICY, Asked(replace(FEDERATION, clients=8)), "number of sites: asked is 8, allowed 7"
    ),
    (POLICY, Asked(facts={"threshold": 5}), "committee and threshold: asked is (5, 5)"),
    (
        replace(POLICY, settings={}), Asked(), "settings of fedtemp: asked is clip, allowed none"
    ),
    (POLICY, Asked(job={"method": None}), "method: asked is None"),
    (POLICY, Asked(plan={"epsilon": float("nan")}), "epsilon: asked"),
    *((POLICY, Asked(job={"settings": text}), said) for text, said in (
        ('{"clip": 1, "rate": 3}', "settings of fedtemp: asked is rate, allowed clip"),
        ("{}", "clip of fedtemp: asked is the default"),
        ('{"clip": true}', "asked is True"),
        ('{"clip": NaN}', "asked is nan"),
        ("[1]", "allowed a JSON object"),
        ("[" * 99999, "a JSON object"),
    )),
]  # fmt: skip


def test_what_else_is_refused():
    table = (((policy, asked), re.escape(said)) for policy, asked, said in MORE)
    each_is_refused(table, lambda given: given[1].of(given[0]), most=400)


def test_without_the_protocol_only_what_has_its_own_noise_or_a_trusted_server():
    Asked(fixed={"by": "site"}).of(POLICY)  # each site's numbers have the noise of all
    policy = replace(ANY_SUM, secure_aggregation="any", answers=99)
    Asked(NOBODY).of(policy)
    Asked(replace(NOBODY, trust="central", quorum=0.9), roster=None).of(policy)


@given(
    st.sampled_from([(1, 3), (0.5, 0.5), ("a", "b"), (True,), (False, True)]),
    st.one_of(st.integers(-5, 5), st.floats(), st.booleans(), st.sampled_from(["a", "b", "c"])),
)
def test_a_setting_is_within_its_range_or_its_list(allowed, value):
    policy = replace(POLICY, settings={"fedtemp": {"clip": allowed}})
    if isinstance(value, bool) or isinstance(allowed[0], (bool, str)):
        fits = any(value is one or (isinstance(value, str) and value == one) for one in allowed)
    else:
        fits = not isinstance(value, str) and allowed[0] <= value <= allowed[1]
    asked = Asked(job={"settings": json.dumps({"clip": value})})
    if fits:
        asked.of(policy)
    else:
        with pytest.raises(InputError, match="clip of fedtemp"):
            asked.of(policy)


def written(path: Path, **changed: Any) -> Path:
    table = {f.name: getattr(POLICY, f.name) for f in fields(Policy)} | changed
    text = {k.replace("_", "-"): _listed(v) for k, v in table.items() if v is not None}
    (file := path / "site.toml").write_text(tomli_w.dumps(text), "utf-8")
    return file


def _listed(value: Any) -> Any:
    return json.loads(json.dumps(value)) if isinstance(value, (tuple, dict)) else value


NEEDED = {f.name for f in fields(Policy) if f.default is MISSING and f.default_factory is MISSING}
WRONG: list[tuple[dict[str, Any], str]] = [
    *(({name: None}, f"'{name}' of a site's policy is missing") for name in sorted(NEEDED)),
    ({"epsilons-total": 1.0}, "unknown key of a site's policy 'epsilons-total'; did "
                    "you mean 'epsilon-total'?"),
    ({"methods": "fedtemp"}, "methods must be a list of texts"),
    ({"methods": []}, "the number of methods must be a whole number >= 1"),
    ({"unit": ["rows"]}, "unknown unit 'rows'; allowed: user"),
    ({"adjacency": ["any"]}, f"allowed: {', '.join(ADJACENCIES)}"),
    ({"expires": "2027-06-30"}, "expires must be a day"),
    ({"expires": datetime.datetime(2027, 6, 30)}, "expires must be a day"),
    ({"rounds": 0}, "rounds must be a whole number >= 1"),
    ({"rounds": True}, "rounds must be a whole number, got True"),
    ({"epsilon_per_run": float("nan")}, "(at most epsilon-total) must be in [0, 3.0]"),
    ({"epsilon_total": float("inf")}, "epsilon-total must be in [0, inf)"),
    ({"delta_total": 1.0}, "delta-total must be in [0, 1)"),
    ({"epsilon_total": 0.5}, "(at most epsilon-total) must be in [0, 0.5]"),
    ({"delta_total": 1e-9}, "(at most delta-total) must be in [0, 1e-09]"),
    ({"settings": {"fednewto": {}}}, "did you mean 'fednewton'?"),
    ({"settings": {"clip": [0, 1]}}, "settings.clip must be a table"),
    ({"settings": {"fedtemp": {"clip": 1}}}, "settings.fedtemp.clip must be a list of values"),
    ({"settings": {"fedtemp": {"clip": [1, 2, 3]}}}, "must be [lowest, highest], or"),
    ({"settings": {"fedtemp": {"clip": [2, 1]}}}, "[lowest, highest]"),
    ({"federation": "ab"}, "federation must be 64 hexadecimal digits"),
    ({"federation": ""}, "federation is needed"),
    ({"secure_aggregation": "masks"}, "unknown secure-aggregation 'masks'"),
    ({"committee": [[5]]}, "committee number 1 must be a list of 2 whole numbers"),
    ({"committee": [[5, 2]]}, "threshold of a committee of 5 must be"),
    ({"exact_sums": 1}, "exact-sums must be true or false"),
]  # fmt: skip


def test_what_a_policy_may_not_say(tmp_path):
    table = ((changed, f"site.toml.*{re.escape(said)}") for changed, said in WRONG)
    each_is_refused(table, lambda changed: Policy.read(written(tmp_path, **changed)), most=500)


def test_a_committee_that_is_not_allowed_is_refused_at_the_start():
    small = replace(ROSTER, signature=None, committee=Committee((0, 1, 2), 2)).signed(KEYS[7])
    named = {"federation": small.digest}
    with pytest.raises(InputError, match=r"committee and threshold: asked is \(3, 2\), allowed"):
        replace(POLICY, committee=((5, 4),), **named).check_roster(small)
    with pytest.raises(InputError, match="number that may collude: asked is 0, allowed at least 1"):
        replace(POLICY, committee=(), colluding=1, **named).check_roster(small)
    replace(POLICY, committee=((3, 2),), colluding=0, **named).check_roster(small)
