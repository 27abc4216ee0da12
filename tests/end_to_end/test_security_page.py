"""SECURITY.md and the guide of secure aggregation: their tables say what the code says."""

from itertools import product
from pathlib import Path

import pytest

from fedcal.mechanisms import Gaussian
from fedcal.privacy.noise_plan import Federation, make_plan
from fedcal.secure_aggregation import SECURE_AGGREGATION
from fedcal.secure_aggregation.committee import Committee, read_committee
from fedcal.trust import NOISY, TRUSTS, Facts
from fedcal.units.bounding import Bound

ROOT = Path(__file__).parents[2]
PAGE, GUIDE = ROOT / "SECURITY.md", ROOT / "docs" / "guide" / "secure-aggregation.md"
HEADER = "| trust | secure aggregation | (epsilon, delta) against |"
COLLUDING = 2


def rows() -> dict[tuple[str, str], list[str]]:
    """(trust, secure aggregation) -> the other cells of its row."""
    lines = PAGE.read_text("utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(HEADER))
    found: dict[tuple[str, str], list[str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        trust, how, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        assert (trust, how) not in found
        assert len(cells) == 4
        found[trust, how] = cells
    return found


def test_every_pair_has_its_row():
    assert list(rows()) == list(product(TRUSTS, SECURE_AGGREGATION))


@pytest.mark.parametrize(("trust", "how"), list(product(TRUSTS, SECURE_AGGREGATION)))
def test_a_row_says_what_the_trust_model_says(trust, how):
    against, alone, some, more = rows()[trust, how]
    holds = TRUSTS[trust].holds(how, 0.9, COLLUDING)
    assert (against == "nobody") is ("against nobody" in holds)
    assert (against == "readers") is ("everyone but the server" in holds)
    assert ("server" in against or against == "everybody") is ("the server too" in holds)
    assert ("up to c sites" in against) is ("sites that work with it" in holds)
    assert (against == "everybody") is ("whatever other clients do" in holds)
    sees = TRUSTS[trust].server_sees(Facts(20, 18, "each client's contribution", how)).lower()
    exact = "exact" in alone
    assert exact is ("exact sum" in sees)
    assert ("nois" in alone) is (TRUSTS[trust].noise_by == "client")
    assert ("each contribution" in alone.partition(";")[0]) is (how == "none")
    assert ("at least m" in alone) is (how == "protocol")
    assert ("knows the seed" in alone) is (how == "masks" and trust != "local")
    assert ("single contributions" in more) is (how == "protocol")
    if how == "none":
        assert (some, more) == ("the same", "the same")
    if how == "protocol" and trust in NOISY:
        assert "with all of the noise" in some or "m - c" in some


def table(header: str) -> list[list[str]]:
    """The cells of a table of the guide."""
    lines = GUIDE.read_text("utf-8").splitlines()
    start = lines.index(header)
    end = lines.index("", start)
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines[start + 2 : end]]


def test_what_committees_bear():
    found = table(
        "| committee | may be absent | c: may work with the server | masks of a contributor |"
    )
    for name, *numbers in found:
        committee = Committee.of_first(*read_committee(name))
        told = (committee.dropouts, committee.colluding, len(committee.pieces))
        assert tuple(map(int, numbers)) == told
    assert [name for name, *_ in found] == ["3,2", "3,3", "5,4", "7,5"]


def test_what_colluding_sites_cost_in_noise():
    bound = Bound((4,), (1.0,), "joint")
    for sites, share, least, *factors in table("| sites | quorum | m | c = 0 | c = 1 | c = 2 |"):
        public = {"clients": int(sites), "classes": 2, "epsilon": 1.0, "quorum": float(share)}
        prefers = (Gaussian,)
        alone = make_plan(
            Federation(**public, trust="central"), rounds=1, bound=bound, prefers=prefers
        )
        for colluding, factor in enumerate(factors):
            secure = Federation(
                **public, trust="distributed", committee=5, threshold=4, colluding=colluding
            )
            plan = make_plan(secure, rounds=1, bound=bound, prefers=prefers)
            assert plan.quorum == int(least)
            std = plan.std_of_sum(int(sites))[0] / alone.std_of_sum(int(sites))[0]
            assert f"{std:.2f}" == factor
