"""SECURITY.md and the guide of secure aggregation: their tables say what the code says."""

from pathlib import Path

from fedcal.mechanisms import Gaussian
from fedcal.privacy.making import make_plan
from fedcal.privacy.privacy import Federation
from fedcal.secure_aggregation.roster import Committee, read_committee
from fedcal.units import Bound

ROOT = Path(__file__).parents[2]
PAGE, GUIDE = ROOT / "SECURITY.md", ROOT / "docs" / "guide" / "secure-aggregation.md"


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
        told = (
            len(committee.members) - committee.threshold,
            committee.colluding,
            len(committee.pieces),
        )
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
