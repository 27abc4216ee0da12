"""Claims are computed: from the paper's own numbers, worked out by hand, and from made-up cells."""

from typing import Any

import pytest

from experiments.studies import claims
from experiments.studies.cells import LOSS, MEAN
from experiments.studies.claims import Verdict
from experiments.studies.maddock.claims import CLAIMS, mean_ratio
from experiments.studies.spec import Record, Rows


def judge(key: str, scores: Rows, beside: Rows | None = None) -> Verdict:
    return claims.judge(key, CLAIMS[key], scores, beside or [])


def cell(title: str, ece: float, accuracy: float = 0.9, **more: Any) -> Record:
    known = {"network": "net", "row": "", "title": title, "failures": [], "classwise_ece": [ece]}
    means = {MEAN: ece, "accuracy_mean": accuracy, "accuracy_before": 0.9}
    return known | means | {"loses_accuracy": accuracy < 0.9 - LOSS} | more


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
        cell("pooled temperature", 0.01),
        cell("pooled temperature", 0.02, network="b"),
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
