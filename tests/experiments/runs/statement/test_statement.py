"""The privacy record: each sentence is there where it is true, and nowhere else."""

import math
from itertools import product
from typing import Any

import pytest
from laws import prefer

from fedcal.experiments.runs.statement import about_subjects, of_plan
from fedcal.experiments.runs.statement.sentences import in_short
from fedcal.privacy.mechanism_choice import amplifying_rate
from fedcal.privacy.noise_plan import Federation, Plan, make_plan
from fedcal.secure_aggregation import SECURE_AGGREGATION
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

CLIENTS = 20
TRUSTS = ("central", "distributed", "local")


def plan_of(row_sums: bool = False, preferred: Any = "gaussian", **fields: Any) -> Plan:
    rounds = 1 if preferred == "exponential" else 2
    public = {"clients": CLIENTS, "classes": 3, "rounds": rounds, "epsilon": 1.0, **fields}
    if public.get("committee"):
        public = {"threshold": 4, "colluding": 2, **public}
    rule: Any = "per_value" if preferred == "exponential" else "joint"
    norm = 2.0 if preferred == "unary" else 1.0
    bound = Bound((4,), (norm,), rule)
    return make_plan(
        Federation(**public),
        rounds=rounds,
        bound=bound,
        prefers=prefer(preferred),
        row_sums=row_sums,
    )


def record(
    plan: Plan, masks: str = "none", rows: float | None = None, real: bool = False
) -> dict[str, Any]:
    return of_plan(plan, plan.rounds, masks, rows, real=real)


def statement(plan: Plan, masks: str = "none", rows: float | None = None) -> str:
    return " ".join(record(plan, masks, rows)["statement"])


def server(plan: Plan, masks: str) -> str:
    sees = {s["who"]: str(s["what"]) for s in record(plan, masks)["sees"]}
    return sees["the server"]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("preferred", ["gaussian", "laplace"])
@pytest.mark.parametrize("row_sums", [False, True])
def test_the_numbers_are_the_plan_s(unit, trust, preferred, row_sums):
    plan = plan_of(row_sums, preferred, unit=unit, trust=trust)
    found = record(plan, "masks")
    for key in ("unit", "adjacency", "trust", "epsilon", "delta", "mechanism", "noise_source"):
        assert found[key] == getattr(plan, key)
    assert (found["releases"], found["diameter"]) == (2, plan.diameter)
    assert found["quorum"] == (18 if trust == "distributed" else None)
    assert found["secure_aggregation"] == "masks"
    answers = {"central": 1.0, "distributed": CLIENTS / 18, "local": CLIENTS}[trust]
    if preferred == "gaussian":
        one = plan.multiplier * plan.diameter
    else:
        one = math.sqrt(2.0) * plan.diameter / plan.epsilon_per_release
    assert found["noise_std"] == pytest.approx(one * math.sqrt(answers))
    replaced = UNITS[unit].adjacency(trust == "local") == "replace"
    twice = replaced or not (UNITS[unit].whole_client or row_sums)
    assert found["diameter"] == (2 if twice else 1)
    # delta is named only where there is one
    said, lost = statement(plan), " ".join(found["not_protected"])
    pure = preferred == "laplace"
    assert ("(1, 0)-DP" in said) is pure
    assert ("without exception (delta is 0)" in said) is pure
    assert ("except with probability 1e-05" in said) is not pure
    assert ("and more delta" in said + lost) is not pure


NEIGHBOURS = {
    "removing all rows of one client": ("user", ("central", "distributed")),
    "replacing all rows of one client by any others": ("user", ("local",)),
    "adding or removing one row": ("example", TRUSTS),
    "adding or removing all rows of one subject at one client": ("subject", TRUSTS),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("trust", TRUSTS)
def test_the_promise_names_unit_and_neighbours(unit, trust):
    said = statement(plan_of(unit=unit, trust=trust))
    assert f"(1, 1e-05)-DP for each {unit}:" in said
    for words, (of_unit, trusts) in NEIGHBOURS.items():
        assert (words in said) is (unit == of_unit and trust in trusts)
    assert ("All 2 answers of a client" in said) is (trust == "local")
    assert ("All 2 releases" in said) is (trust != "local")
    assert ("does not protect whole clients" in said) is not UNITS[unit].whole_client
    neighbours = UNITS[unit].neighbours[UNITS[unit].adjacency(trust == "local")]
    assert f"-DP for each {unit}: {neighbours} changes" in said
    for other in UNITS.values():
        for sentence in (*other.curators, *other.limits(" and more delta")):
            own = (*UNITS[unit].curators, *UNITS[unit].limits(" and more delta"))
            assert (sentence in said) is (sentence in own)
    assert ("A person at two sites is two subjects" in said) is (unit == "subject")
    assert unit != "example" or "gives no protection against a row's own client" in said


AGAINST = {
    # (trust, masks): (what holds, what must not be claimed)
    ("central", "none"): (
        "server sees each client's bounded contribution, and so the exact sums, and is trusted",
        ("against everyone", "share of the noise", "quorum"),
    ),
    ("central", "masks"): (
        "The server sees the exact sums and is trusted to forget them",
        ("against everyone", "share of the noise", "each client's bounded"),
    ),
    ("distributed", "masks"): (
        "against everyone, the server too, if the secure aggregation shows nothing but the sum "
        "and at least 18 of the 20 clients answer and are honest",
        ("trusted to forget", "does not hold against it"),
    ),
    ("distributed", "none"): (
        "the server sees each client's contribution with 1/18 of the noise's variance, and this "
        "does not hold against it. It holds against everyone else if at least 18 of the 20",
        ("trusted to forget", "the server too"),
    ),
    **dict.fromkeys(
        [("local", "none"), ("local", "masks")],
        (
            "against everyone, the server too, whatever other clients do",
            ("trusted to forget", "share of the noise", "honest"),
        ),
    ),
}


@pytest.mark.parametrize(("trust", "masks"), AGAINST)
def test_against_whom_it_holds(trust, masks):
    said = statement(plan_of(trust=trust), masks)
    holds, never = AGAINST[trust, masks]
    assert holds in said
    for words in never:
        assert words not in said
    assert ("clients answer every request" in said) is (trust != "central")
    assert ("Secure aggregation is simulated here" in said) is (
        (trust, masks) == ("distributed", "masks")
    )


@pytest.mark.parametrize("masks", SECURE_AGGREGATION)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("trust", TRUSTS)
def test_what_the_server_sees(trust, unit, masks):
    under = {"committee": 5} if masks == "protocol" else {}
    sees = server(plan_of(trust=trust, unit=unit, **under), masks)
    assert ("exact sum" in sees) is (trust == "central")
    local = trust == "local" and masks != "none"
    assert ("noisy sum" in sees) is (trust == "distributed" or local)
    assert ("masked contributions" in sees) is (masks == "masks")
    assert ("18 or more contributions" in sees) is (masks == "protocol")
    assert ("Each client's" in sees) is (masks == "none")
    seers = [line["who"] for line in record(plan_of(trust=trust, unit=unit))["sees"]]
    own = UNITS[unit].own_client
    assert (seers[0] == own[0]) if own else (seers[0] == "another client")
    assert ("a subject's own client" in seers) is (unit == "subject")


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("real", [False, True])
def test_who_opens_sums_under_the_protocol(trust, real):
    found = record(plan_of(trust=trust, committee=5), "protocol", real=real)
    assert (found["committee"], found["colluding"], found["quorum"]) == ([5, 4], 2, 18)
    said = " ".join(found["statement"])
    assert "any 4 of the 5 members of a committee open one sum a round, of 18 or more" in said
    assert "together with up to 2 of the sites learns nothing else" in said
    assert ("protects nobody. Seeded" in said) is not real
    assert ("keys in federation.toml being the sites' own" in said) is real
    assert ("computes the plan itself" in said) is (real and trust != "central")
    assert ("clients answer every request" in said) is (not real and trust != "central")
    assert ("no site can verify" in said) is (trust == "central")
    assert "any site can stop one" in " ".join(found["not_protected"])
    (member,) = [s["what"] for s in found["sees"] if s["who"] == "a member of the committee"]
    assert "nothing of a contribution" in member
    for words in ("masks", "simulated here", "trusted to follow"):
        assert words not in said + member


def test_shares_under_the_protocol_are_those_of_the_honest():
    plan = plan_of(trust="distributed", committee=5)
    said = statement(plan, "protocol")
    assert "any 16 shares make all of it" in said
    assert "no more than 2 of the sites work with it or leave out their noise" in said
    assert "fewer than 18 contributions is not opened" in said
    assert "16 shares make all of it" in record(plan, "protocol")["noise"]
    nobody = plan_of(trust="distributed", committee=5, colluding=0)
    said = statement(nobody, "protocol")
    assert "against a client only 17 of 18 parts of the noise's variance are left" in said
    assert "together with up to" not in said
    all_members = statement(plan_of(trust="distributed", committee=3, threshold=3), "protocol")
    assert "all 3 members of a committee, none of which may be absent, open one sum" in all_members


@pytest.mark.parametrize("trust", TRUSTS)
def test_under_the_protocol_each_site_tosses_its_own_coin(trust):
    found = record(plan_of(trust=trust, committee=5, sampling_rate=0.5), "protocol")
    said = " ".join(found["statement"])
    claimed = trust != "local"
    assert ("no one else sees, not even the server" in said) is claimed
    assert ("No amplification by sampling is claimed" in said) is not claimed
    assert "sees who answers" not in said
    assert "does not hold against the server" not in said
    assert "not whose rows a secret coin left out" in " ".join(found["not_protected"])


def test_exact_sums_under_the_protocol():
    plan = plan_of(epsilon=math.inf, committee=5)
    found = record(plan, "protocol")
    assert (found["committee"], found["colluding"], found["quorum"]) == ([5, 4], 2, 18)
    assert "No differential privacy" in found["statement"][0]
    assert "any 4 of the 5 members" in found["statement"][1]
    assert "18 or more contributions" in server(plan, "protocol")
    assert "received its contribution unmasked" not in " ".join(found["not_protected"])


def test_a_quorum_leaves_room_for_those_who_know_their_share():
    for share, least in ((0.9, 18), (0.5, 10), (1.0, 20), (0.01, 1)):
        assert record(plan_of(trust="distributed", quorum=share))["quorum"] == least
    said = statement(plan_of(trust="distributed"), "masks")
    assert "of 20 clients up to 2 in all may fail to answer or work together" in said
    assert "fewer than 18 answers is not released" in said
    whole = statement(plan_of(trust="distributed", quorum=1.0), "masks")
    assert "against a client only 19 of 20 parts of the noise's variance are left" in whole
    assert "may fail to answer or work together" not in whole
    alone = statement(plan_of(trust="distributed", clients=1), "masks")
    assert "the one client answers and is honest" in alone
    assert "knows its own" not in alone


def test_sums_clipped_row_by_row_have_no_bound_of_a_client_and_may_saturate():
    for row_sums in (False, True):
        said = statement(plan_of(row_sums, trust="central", unit="example"))
        assert ("each client's bounded contribution" in said) is not row_sums
    said = statement(plan_of(row_sums=True, unit="example", clients=10**6, epsilon=8.0))
    assert "has room for" in said
    assert "saturated" in said
    for unit in UNITS:
        assert "saturated" not in statement(plan_of(row_sums=True, unit=unit))


@pytest.mark.parametrize("partition", ["natural", "iid"])
@pytest.mark.parametrize("held_out", [True, False])
@pytest.mark.parametrize("unit", UNITS)
def test_what_a_simulation_does_to_subjects(unit, held_out, partition):
    said = " ".join(about_subjects(plan_of(unit=unit), partition, held_out))
    torn, cut = "Partition iid deals rows, not subjects", "held out one by one"
    assert (torn in said) is (unit == "subject" and partition == "iid")
    assert (cut in said) is (unit == "subject" and held_out)
    assert about_subjects(plan_of(unit=unit, epsilon=math.inf), partition, held_out) == []


@pytest.mark.parametrize(("trust", "unit"), list(product(TRUSTS, UNITS)))
def test_what_is_said_of_sampling_is_what_the_plan_claims(trust, unit):
    federation = Federation(CLIENTS, 3, sampling_rate=0.5, epsilon=1.0, trust=trust, unit=unit)
    plan = plan_of(trust=trust, unit=unit, sampling_rate=0.5)
    claimed = amplifying_rate(federation) < 1
    assert plan.amplified is claimed
    said = statement(plan, "masks")
    assert ("No amplification by sampling is claimed" in said) is not claimed
    assert ("secret coin" in said) is (claimed and trust == "distributed")
    assert ("does not hold against the server and, with masks" in said) is (
        claimed and trust == "central"
    )
    assert ("the server sees who answers" in said) is (trust == "local")
    whole = UNITS[unit].whole_client
    assert ("other rows of its client" in said) is (not whole and trust != "local")
    everybody = statement(plan_of(trust=trust, unit=unit), "masks")
    for words in ("amplification", "secret coin", "counts on"):
        assert words not in everybody


NOISES = {
    ("central", "gaussian"): "Gaussian noise is added to each sum by the server, once",
    ("central", "laplace"): "Laplace noise is added to each sum by the server, once",
    ("central", "exponential"): "drawn at random (exponential mechanism) by the server",
    ("distributed", "gaussian"): "a share of discrete Gaussian noise to its answer. 18 shares",
    ("distributed", "laplace"): "a share of discrete Laplace noise to its answer. 18 shares",
    ("local", "gaussian"): "Gaussian noise is added by each client to its own answer",
    ("local", "laplace"): "Laplace noise is added by each client to its own answer",
    ("local", "unary"): "bit by bit (optimal unary encoding): a 1 stays with probability 1/2",
}


@pytest.mark.parametrize(("trust", "preferred"), NOISES)
def test_who_adds_which_noise(trust, preferred):
    found = record(plan_of(preferred=preferred, trust=trust))
    said = found["noise"]
    assert NOISES[trust, preferred] in said
    assert sum(words in said for words in NOISES.values()) == 1
    if preferred == "unary":
        assert (found["delta"], found["mechanism"], found["adjacency"]) == (0.0, "unary", "replace")
        assert f"probability {1 / (1 + math.exp(0.5)):.4g}" in said
    if preferred == "exponential":
        assert (found["noise_std"], found["delta"]) == (None, 0.0)


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("preferred", ["gaussian", "laplace"])
def test_where_the_noise_comes_from(trust, preferred):
    seeded = plan_of(preferred=preferred, trust=trust)
    system = plan_of(preferred=preferred, trust=trust, noise_source="system")
    assert "Seeded noise gives no protection against anyone who knows the seed" in statement(seeded)
    assert "operating system" not in statement(seeded)
    said = statement(system)
    assert "2^-60 a value) is counted in delta" in said
    assert "Seeded noise" not in said
    lost = " ".join(record(system)["not_protected"])
    assert "the time of a draw may reveal it" in lost
    assert "can subtract the noise" not in lost
    assert "gives other numbers" in record(system)["noise"]
    if preferred == "laplace":  # what was pure is so no more, by very little
        assert 0 < system.delta < 1e-9
        assert "without exception" not in said


def test_the_nominal_number_of_rows_sets_no_noise_where_rows_are_clipped():
    of_clients = plan_of(unit="example", trust="central")
    of_rows = plan_of(True, unit="example", trust="central")
    said = statement(of_clients, rows=50.0)
    assert "rows_per_client = 50 sets the clip bound" in said
    assert "then it, and the values derived from it, tell the exact number of fit rows" in said
    said = statement(of_rows, rows=50.0)
    assert "noise scales" not in said
    assert "then it, and the values derived from it, tell the exact number of fit rows" in said
    unary = statement(plan_of(preferred="unary", trust="local"), rows=50.0)
    assert "rows_per_client = 50 sets no noise here" in unary
    for plan in (of_clients, of_rows):
        lost = " ".join(record(plan, rows=50.0)["not_protected"])
        assert ("noise_std" in lost) is (plan is of_clients)
        assert "reveal" in lost


def test_without_privacy_nothing_is_promised():
    adjacencies = {"user": "zero-out", "subject": "add-remove", "example": "add-remove"}
    for unit in UNITS:
        found = record(plan_of(epsilon=math.inf, unit=unit))
        told = (found["epsilon"], found["unit"], found["adjacency"])
        assert told == (None, unit, adjacencies[unit])
        assert "No differential privacy" in found["statement"][0]
        assert "DP for each" not in " ".join(found["statement"])


@pytest.mark.parametrize("how", SECURE_AGGREGATION)
@pytest.mark.parametrize(("trust", "unit"), list(product(TRUSTS, UNITS)))
def test_a_guarantee_in_short(trust, unit, how):
    adjacency = plan_of(trust=trust, unit=unit).adjacency
    masks, colluding = how != "none", 2 if how == "protocol" else 0
    said = in_short(trust, unit, adjacency, how, 0.9, colluding)
    assert said.startswith(f"Trust {trust}, unit {unit}: ")
    assert ("with up to 2 sites that work with it" in said) is (
        (trust, how) == ("distributed", "protocol")
    )
    everyone = trust == "local" or (trust == "distributed" and masks)
    assert ("the server too" in said) is everyone
    assert ("everyone but the server" in said) is not everyone
    assert ("90 %" in said) is (trust == "distributed")
    assert ("each client's contribution" in said) is (trust == "central" and not masks)
    assert said.endswith(f"{UNITS[unit].in_short}.")
    assert ("m times the epsilon" in said) is ("m times the epsilon" in UNITS[unit].in_short)
    assert ("a person at k clients" in said) is (unit == "subject")
