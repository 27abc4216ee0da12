"""Scores by declared kind, arithmetic of rows, and names."""

import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import each_is_refused

from fedcal import datasets
from fedcal.calibrators import BBQ
from fedcal.core import fitting, numerics
from fedcal.core.naming import printable
from fedcal.core.numerics import softmax
from fedcal.core.scores import SURE, check_scores, of_both, rows_by_owner
from fedcal.metrics import nll

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 90)
Z = 3 * RNG.normal(size=(90, 3)) + 2 * np.eye(3)[LABELS]
P = softmax(Z)
LOOKS = "rows lie in .0, 1. and sum to 1, as probabilities do; declare them as probs"


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_scores_that_contradict_their_declaration_are_refused(dtype):
    """A few rows may look like probabilities by chance, and are only warned about."""
    for p in (P.astype(dtype), P[:SURE].astype(dtype)):
        each_is_refused(
            [(p, f"^logits: {LOOKS}"), *((np.round(P, k), LOOKS) for k in (1, 3))],
            lambda p: check_scores("logits", "logits", p),
        )
        np.testing.assert_array_equal(check_scores("probs", "probs", p), p)
    each_is_refused(
        [
            (z, r"^probs: .*(must lie in \[0, 1\]|must sum to 1 within)")
            for z in (Z, Z[:1], P * 2, np.log(P), np.zeros((9, 3)))
        ],
        lambda z: check_scores("probs", "probs", z),
    )
    assert len(check_scores("probs", "probs", np.array([[0.33, 0.33, 0.33]]))) == 1  # on the edge
    for rows in range(1, SURE if dtype != np.float16 else 0):
        with pytest.warns(UserWarning, match=LOOKS):
            check_scores("logits", "logits", P[:rows].astype(dtype))


def test_two_numbers_that_sum_to_1_may_be_one_row_or_two():
    each_is_refused(
        [((0.3, 0.7), "p: two numbers that sum to 1"), ([[0.3], [1.2]], "must lie in")],
        lambda p: of_both("p", np.array(p)),
    )
    np.testing.assert_array_equal(of_both("p", np.array([[0.5], [0.5]])), np.full((2, 2), 0.5))
    assert nll([0.3, 0.7], [0, 1]) == pytest.approx(-np.log(0.7))  # two labels, so two rows


def test_no_entry_point_takes_probabilities_for_logits():
    test_part = {"test_logits": P, "test_labels": LABELS}
    entry_points: list[Callable[[], object]] = [
        lambda: datasets.from_arrays(logits=Z, labels=LABELS, **test_part),
        lambda: rows_by_owner(P, LABELS, LABELS, 3),
        lambda: BBQ().fit(Z, LABELS).predict_proba(P),
    ]
    each_is_refused([(call, LOOKS) for call in entry_points], lambda call: call())


ROWS = 131  # no multiple of a vector register, of 7 or of 64


def logits(classes: int, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(classes).normal(scale=4.0, size=(rows, classes))


ROW_FUNCTIONS: list[Callable[[np.ndarray], Any]] = [
    numerics.row_sum,
    numerics.row_max,
    numerics.softmax,
    lambda z: fitting.tempered_moments(numerics.shifted(z), 0.7)[1],
    lambda z: fitting.tempered_moments(numerics.shifted(z), np.exp(z[:, :1] / 8))[1],
]


@pytest.mark.parametrize("classes", [2, 33, 1000])
def test_a_row_has_the_same_bits_in_any_block(classes):
    z = logits(classes)
    before = z.copy()
    for function in ROW_FUNCTIONS:
        expected = function(z)
        np.testing.assert_array_equal(z, before)
        for block in (1, 7, 64, ROWS):
            for start in (0, 3):  # another alignment
                parts = [function(z[i : i + block]) for i in range(start, ROWS, block)]
                np.testing.assert_array_equal(np.concatenate(parts), expected[start:])


@settings(max_examples=40)
@given(st.text())
def test_a_stranger_s_text_controls_no_terminal_and_adds_no_line_to_a_log(text):
    left = printable(text)
    assert not {unicodedata.category(c) for c in left} & {"Cc", "Cs", "Co", "Zl", "Zp"}
    assert {c for c in left if unicodedata.category(c) == "Cf"} <= {"\u200c", "\u200d"}
    assert printable(left) == left
    left.encode("utf-8")
