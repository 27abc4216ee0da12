"""Claims are computed: from the paper's own numbers, worked out by hand, and from made-up cells."""

from typing import Any

import pytest
from study_row import CELL

from fedcal.experiments.studies import claims
from fedcal.experiments.studies.cells import completed, printed_rows
from fedcal.experiments.studies.claims import Verdict
from fedcal.experiments.studies.maddock import CLAIMS, mean_ratio
from fedcal.experiments.studies.registry import experiment
from fedcal.experiments.studies.spec import Record, Rows


def judge(key: str, scores: Rows, beside: Rows | None = None) -> Verdict:
    return claims.judge(key, CLAIMS[key], scores, beside or [])


def cell(title: str, ece: float, accuracy: float = 0.9, **more: Any) -> Record:
    own = {"title": title, "classwise_ece": [ece], "accuracy": [accuracy]}
    return completed(CELL | own | more)


@pytest.mark.parametrize(
    ("table", "claim", "said"),
    [
        # 2.499 > 2.428, .194 > .187 and .2 > .165
        ("table2", "weighted-beats-scaling", "4; not on CIFAR10 (18), Tinyimnet (18), Shakespeare"),
        # CIFAR10: 2.375 of the unweighted one is below 2.428
        ("table2", "binning-beats-scaling", "5; not on Tinyimnet (18), Shakespeare (3)"),
        ("table2", "temp-best-scaling", "6; not on Tinyimnet (18)"),
        # 3.086 < 4.423, .129 < .346 and .192 < .198
        ("table3", "temp-best-private", "4; not on CIFAR10 (18), CIFAR100 (18), Tinyimnet (18)"),
        ("table3", "fedcal-worse-at-1", "7"),  # 1.0 > .94 on CIFAR100 is the narrowest
        ("table2", "fedcal-worse-at-1", None),  # without privacy
        # what the paper marks but does not print
        ("table3", "unweighted-loses", None),
        ("table3", "weighted-keeps", None),
        ("table3", "order-preserving-keep", None),
    ],
)
def test_where_the_paper_s_own_numbers_bear_it_out(table, claim, said):
    paper = experiment(f"maddock-{table}").paper
    assert paper is not None
    found = judge(claim, [], printed_rows(paper))
    count, _, places = (said or "").partition("; ")
    expected = f"on {count} of 7; {places}" if places else f"on {count} of 7"
    assert found.printed.startswith(expected) if said else found.printed == ""
    assert (found.holds, found.word) == (None, "not told here")


# --- ours ---------------------------------------------------------------------------------------


def test_each_some_and_all():
    good, bad = cell("FedBBQ", 0.02, 0.9), cell("FedBBQ", 0.02, 0.88, network="other")
    some = judge("unweighted-loses", [good, bad])
    assert (some.holds, some.said) == (True, "on 1 of 2; not on net")
    assert judge("unweighted-loses", [good]).word == "does not hold"
    weighted = [c | {"title": "FedBBQ all weight"} for c in (good, bad)]
    each = judge("weighted-keeps", weighted)
    assert (each.holds, each.word) == (False, "holds in part")
    assert each.said == "on 1 of 2; not on other"
    failed = cell("FedBBQ all weight", 0.02, failures=["nobody answered"])
    assert judge("weighted-keeps", [failed]).holds is None


def test_the_mean_ratio_is_over_networks():
    cells = [
        cell("pooled temperature", 0.01, baseline=True),
        cell("pooled temperature", 0.02, baseline=True, network="b"),
        cell("FedNewton", 0.0104),
        cell("FedNewton", 0.0212, network="b"),
    ]
    assert mean_ratio(cells, "FedNewton", "pooled temperature") == pytest.approx(1.05)
    assert judge("newton-ratio", cells).holds
    worse = [*cells[:3], cell("FedNewton", 0.0214, network="b")]
    assert not judge("newton-ratio", worse).holds


def by_rounds(title: str, values: dict[int, float], **more: Any) -> Rows:
    return [cell(title, v, part="rounds", rounds=t, **more) for t, v in values.items()]


def budgets(title: str, low: float, high: float) -> Rows:
    return [cell(title, v, part="budgets", epsilon=e) for e, v in ((0.1, low), (30.0, high))]


TEMP, MEAN = cell("FedTemp", 0.02), cell("FedTemp (mean of T)", 0.01)
CURVE, FEW = by_rounds("FedTemp", {1: 0.02, 30: 0.02}), by_rounds("FedBBQ", {30: 0.02})
BINNING = budgets("FedBBQ", 0.02, 0.01)
BASE = cell("Base", 0.02, baseline=True)
WORSE = [BASE, *(cell("FedCal", 0.03, epsilon=e) for e in (0.1, 1.0))]
BELOW = [cell("Base", 0.02), cell("20", 0.01)]

JUDGED: list[tuple[str, Rows, bool | None]] = [
    # a marked method neither wins nor stands in the way
    ("temp-best-private", [TEMP, cell("FedBBQ", 0.01, 0.8)], True),
    ("temp-best-private", [TEMP, cell("FedBBQ", 0.01)], False),
    ("temp-best-private", [cell("FedTemp", 0.001, 0.8), cell("FedCal", 0.5)], False),
    # better than FedVector, but not than itself
    ("temp-best-private", [TEMP, MEAN, cell("FedCal", 0.03)], True),
    ("temp-best-private", [TEMP, MEAN, cell("FedVector", 0.01)], False),
    # not a single row
    ("order-preserving-keep", [TEMP], True),
    ("order-preserving-keep", [TEMP, cell("FedOPVector", 0.02, 0.9 - 1e-4)], False),
    # where the curves cross
    ("binning-overtakes", [*CURVE, *by_rounds("FedBBQ all weight", {1: 0.05, 30: 0.01})], True),
    ("binning-overtakes", [*CURVE, *by_rounds("FedBBQ all weight", {1: 0.05, 30: 0.03})], False),
    # the fewest rounds
    ("few-rounds-cost", [*FEW, *by_rounds("FedBBQ", {1: 0.02}, accuracy_before=0.95)], True),
    ("few-rounds-cost", FEW, False),
    # growth from the largest budget to the smallest: 1.5 against 2
    ("temp-resilient", [*budgets("FedTemp", 0.03, 0.02), *BINNING], True),
    ("temp-resilient", [*budgets("FedTemp", 0.05, 0.02), *BINNING], False),
    # every budget below ten; nothing is said of one
    ("fedcal-unsuitable", WORSE, True),
    ("fedcal-unsuitable", [BASE, WORSE[-1]], None),
    ("fedcal-unsuitable", [*WORSE, cell("FedCal", 0.01, epsilon=3.0)], False),
    ("fedcal-unsuitable", [*WORSE, cell("FedCal", 0.01, epsilon=10.0)], True),
    ("fedcal-worse-at-1", [*WORSE, cell("FedCal", 0.01, epsilon=3.0)], True),
    # columns on both sides of the model
    ("bound-decides", [*BELOW, cell("100", 0.03)], True),
    ("bound-decides", BELOW, False),
]


def test_a_claim_holds_or_does_not():
    for claim, cells, holds in JUDGED:
        assert judge(claim, cells).holds is holds, (claim, cells)
    for key, title in (("newton-beats-paper", "FedNewton"), ("oneshot-beats-paper", "FedOneShot")):
        ours = [cell(title, 0.02), cell("FedTemp", 0.03)]
        assert judge(key, ours).holds
        for paper in ("FedTemp (mean of T)", "FedVector", "FedBBQ", "Base"):
            assert not judge(key, [*ours, cell(paper, 0.01)]).holds, (key, paper)


def test_all_of_several_is_decided_by_the_one_that_fails():
    same = claims.larger(1.0, 1.1, margin=0.2)
    assert same == "no difference"
    assert (claims.larger(1.0, 0.5, 0.2), claims.larger(0.5, 1.0, 0.2)) == (True, False)
    assert claims.all_of([True, same, None, False]) is False
    assert claims.all_of([True, same, None]) is None
    assert claims.all_of([True, same]) == same
    assert claims.all_of([True]) is True
    assert claims.all_of([]) is None
