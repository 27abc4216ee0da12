"""Bins, reliability records, and encodings of counts: by hand, against twins, merged, refused."""

import json
import math
from typing import Any

import numpy as np
import pytest
from made_up import scored
from refusals import each_is_refused

from fedcal.core.numerics import softmax
from fedcal.metrics import Reliability, bin_index, score_table, summary
from fedcal.strategies.methods import counting


@pytest.mark.parametrize("bins", [1, 2, 15, 49, 128, 2**20 - 1])
def test_an_edge_belongs_to_the_bin_above(bins):
    edges, each = np.arange(bins) / bins, np.arange(bins)
    single = edges.astype(np.float32)
    for same in (edges, single, edges * (1 + 1e-15), edges * (1 - 1e-15)):
        np.testing.assert_array_equal(bin_index(same, bins), each)
    below = np.nextafter(single, np.float32(-1.0))[1:]
    np.testing.assert_array_equal(bin_index(below, bins), each[:-1])
    assert bin_index([0.0, -0.0, 5e-324, 1e-40], bins).tolist() == [0] * 4


def test_three_rows_by_hand():
    probs = np.array([[0.75, 0.25], [0.875, 0.125], [0.5, 0.5]])
    r = Reliability.of(probs, [0, 1, 1], bins=4)
    assert (r.rows, r.classes, r.bins) == (3, 2, 4)
    assert r.to_json() == {
        "count": [0, 0, 1, 2],
        "sum_confidence": [0, 0, 0.5, 1.625],
        "sum_correct": [0, 0, 0, 1],
        "class_count": [[0, 0, 1, 2], [1, 1, 1, 0]],
        "class_sum_confidence": [[0, 0, 0.5, 1.625], [0.125, 0.25, 0.5, 0]],
        "class_sum_correct": [[0, 0, 0, 1], [1, 0, 1, 0]],
    }
    assert r.accuracy == pytest.approx(1 / 3)
    assert r.ece == pytest.approx((0.5 + 0.625) / 3)
    assert r.classwise_ece == pytest.approx((0.5 + 0.625 + 0.875 + 0.25 + 0.5) / 6)


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_scores_of_a_record_are_those_of_its_rows(bins):
    logits, labels = scored(3, 400, 0)
    record = Reliability.of(softmax(logits), labels, bins)
    expected = summary(softmax(logits), labels, bins)
    for name in ("accuracy", "ece", "classwise_ece"):
        assert getattr(record, name) == pytest.approx(expected[name], rel=0, abs=1e-12)
    text = json.dumps(record.to_json(), allow_nan=False)
    assert Reliability.from_json(json.loads(text)).to_json() == record.to_json()


def test_hostile_records():
    record = Reliability.of([[0.25, 0.75], [0.75, 0.25]], [0, 0], bins=2).to_json()
    assert Reliability.from_json(record).rows == 2  # fine before the change
    changes: dict[str, list[Any]] = {
        "extra": [1],
        "count": ["0 0", [True, False], [2, -1], [2], [1, 0], [2**62, 2**62]],
        "sum_confidence": [[math.nan, 0.0], [-0.5, 0.0], [0.5], None],
        "class_count": [[[1, 1]], [[1, 1], [1, 0]]],
        "class_sum_correct": [[[0, 0], [0, 0]]],
        "class_sum_confidence": [{"a": 1}],
    }
    table: list[tuple[Any, str]] = [
        ({**record, key: value}, "") for key, values in changes.items() for value in values
    ]
    without = {key: value for key, value in record.items() if key != "count"}
    each_is_refused([*table, (without, ""), ([1, 2], "reliability record")], Reliability.from_json)


@pytest.mark.parametrize("name", score_table.ENCODINGS)
def test_counts_come_back(name):
    for buckets, height in ((1, 1), (2, 3), (9, 2), (64, 3)):
        matrix = score_table.matrix_of(name, buckets, height)
        assert (matrix == np.rint(matrix)).all()
        decoded = score_table.decoder_of(name, buckets, height) @ matrix
        np.testing.assert_allclose(decoded, np.eye(buckets), atol=1e-8)


def largest(name: str, buckets: int, height: int, order: int) -> float:
    sums = np.cumsum(score_table.decoder_of(name, buckets, height), axis=0)
    norm = score_table.column_norm(name, buckets, height, order)
    return norm * float(np.sqrt(np.square(sums).sum(axis=1)).max())


def test_largest_noise_of_a_prefix_sum():
    """METHODS 7 of Henzinger et al. 2023 and Hay et al. 2010, 1,024 counts."""
    assert largest("flat", 1024, 1, 2) == pytest.approx(32.0)
    assert largest("prefix", 1024, 1, 2) == pytest.approx(3.279, abs=1e-3)
    # under pure epsilon few levels are best: a row counts once on each
    assert largest("tree", 1024, 3, 1) < 0.35 * largest("flat", 1024, 1, 1)
    assert counting.prefix_std("tree", 1024, 3, 1) < counting.prefix_std("tree", 1024, 10, 1)
