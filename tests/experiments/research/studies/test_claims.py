"""Claims are computed: from the paper's own numbers, worked out by hand, and from made-up cells."""

from typing import Any

import pytest
from study_row import CELL

from fedcal.experiments.research.studies import claims
from fedcal.experiments.research.studies.cells import completed, printed_rows
from fedcal.experiments.research.studies.claims import Verdict
from fedcal.experiments.research.studies.maddock.claims import CLAIMS, mean_ratio
from fedcal.experiments.research.studies.registry import experiment
from fedcal.experiments.research.studies.spec import Record, Rows


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
    found = judge(claim, [], printed_rows(paper))
    count, _, places = (said or "").partition("; ")
    expected = f"on {count} of 7; {places}" if places else f"on {count} of 7"
    assert found.printed.startswith(expected) if said else found.printed == ""
    assert (found.holds, found.word) == (None, "not told here")


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


def test_all_of_several_is_decided_by_the_one_that_fails():
    same = claims.larger(1.0, 1.1, margin=0.2)
    assert same == "no difference"
    assert (claims.larger(1.0, 0.5, 0.2), claims.larger(0.5, 1.0, 0.2)) == (True, False)
    assert claims.all_of([True, same, None, False]) is False
    assert claims.all_of([True, same, None]) is None
    assert claims.all_of([True, same]) == same
    assert claims.all_of([True]) is True
    assert claims.all_of([]) is None
