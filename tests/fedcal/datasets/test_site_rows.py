"""Rows of sites: text files as hospitals have them, and scores that cannot be right."""

import re

import numpy as np
import pytest
from refusals import each_is_refused, refused

from fedcal import datasets
from fedcal.core.numerics import Floats, Integers
from fedcal.core.scores import check_scores
from fedcal.datasets.plausible_rows import doubts_of
from fedcal.datasets.site_csv import Reading, read_site_csv

CLASSES = ("survived", "sepsis")
NAMED = Reading.of("outcome at 30 days=label, Risk score = score", "0=survived,1=sepsis", False)

EXCEL = """sep=;\r
Patient; Outcome at 30 days ;Risk score;Ward\r
p1;0;0,25;a\r
 p2 ; 1 ;0,75;a\r
\r
;;;\r
p3;0;1;b\r
"""
"""A file of German Excel: a first line of its own, decimal commas, spaces, lines of nothing."""

BAD = """patient,label,score
p1,1.0,.5
p2,,.3
p3,NaN,
p4,nan,.2
p5,NULL,0.3
,0,0.2
p6,dead,.2
p7,0,abc
p8,1,45
p9,1
p10,0,n/a
p11,0,inf
"""


def read(tmp_path, text, reading=None, classes=CLASSES, most=1.0, encoding="utf-8"):
    path = tmp_path / "rows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    rows, notes = read_site_csv(path, classes, reading or Reading(), most)
    return rows.labels.tolist(), rows.scores[:, 1].tolist(), notes


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252"])
def test_a_file_of_german_excel_is_read_as_it_is(tmp_path, encoding):
    text = EXCEL.replace(";b\r", ";Bär\r")
    labels, scores, notes = read(tmp_path, text, NAMED, encoding=encoding)
    assert (labels, scores) == ([0, 1, 0], [0.25, 0.75, 1.0])
    expected = ["columns are separated by semicolons", "decimals have commas"]
    expected += ["column outcome at 30 days is label", "column Risk score is score"]
    expected += ["label 0 is survived", "label 1 is sepsis", "columns that are ignored: Ward"]
    windows = ["letters are read as Windows has them (cp1252)"] * (encoding == "cp1252")
    assert notes == windows + expected


def test_marks_and_labels_are_recognised(tmp_path):
    cases = [
        ("label\tscore\nsurvived\t.25\nsepsis\t0.75\n", CLASSES, ["separated by tabs"]),
        ("label;score\n0.0;.25\nTRUE;0.75\n", CLASSES, ["separated by semicolons"]),
        ("label,prob_0,prob_1\n0,.75,.25\n1,.25,.75\n", None, []),
        ("label,prob_sepsis,prob_survived\nsurvived,.25,.75\nsepsis,.75,.25\n", CLASSES, []),
    ]
    for text, classes, words in cases:
        labels, scores, notes = read(tmp_path, text, classes=classes)
        assert (labels, scores) == ([0, 1], [0.25, 0.75]), text
        assert len(notes) == len(words), notes
        assert all(word in note for word, note in zip(words, notes, strict=True)), notes


def test_all_bad_lines_are_counted_by_kind_and_the_first_three_are_shown(tmp_path):
    expected = [
        "11 of 12 lines cannot be used: 4 without an outcome (line 3: '', line 4: 'NaN', "
        "line 5: 'nan' and 1 more)",
        "1 without a patient (line 7: '')",
        "1 with a label that is none of 'survived', 'sepsis' (line 8: 'dead')",
        "2 with a score that is no number (line 9: 'abc', line 13: 'inf')",
        "1 with a score outside 0 to 1 (line 10: '45')",
        "1 with other than 3 entries (line 11: '2')",
        "1 without a score (line 12: 'n/a')",
        "--drop-missing leaves out those without an outcome or without a score",
    ]
    refused(f"^{re.escape('; '.join(expected))}$", read, tmp_path, BAD)
    dropped = Reading(drop_missing=True)
    refused("^6 of 12 lines (?!.*--drop-missing)", read, tmp_path, BAD, dropped)


def test_lines_without_outcome_or_score_are_left_out_up_to_a_share(tmp_path):
    lines = [f"{k % 2},0.{k:02}" for k in range(95)]
    text = "\n".join(["label,score", *lines, ",.1", "NA,.1", "n/a,", "1,NaN", "0,."])
    labels, _, notes = read(tmp_path, text, Reading(drop_missing=True), most=0.05)
    assert len(labels) == 95
    assert notes == ["left out: 3 without an outcome, 2 more without a score: 5.0 % of 100 lines"]
    message = "4 .*, 2 .*: 5.9 % of 101 lines; at most 5 % may"
    refused(message, read, tmp_path, text + "\n,0.1", Reading(drop_missing=True), most=0.05)


def test_a_long_entry_is_refused_before_it_fills_the_memory(tmp_path):
    for row in (f"{'x' * 257},.5,a", f"sepsis,.5,{'x' * 257}"):
        text = f"label,score,subject\n{row}"
        refused("the longest text in column", read, tmp_path, text, None, None)
    long = f"label,score,note\nsepsis,.5,{'x' * 257}"
    assert read(tmp_path, long)[0] == [1]


def test_what_is_no_such_file_is_one_line(tmp_path):
    named = Reading.of("risk=score", None, False)
    cases = [
        (b"\xff\xd8\x00\x01\x81", Reading(), "is not UTF-8 text"),
        ("", Reading(), "no column 'label' among"),
        ("label,risk\n1,.2\n", Reading(), "no score columns among 'label', 'risk'; --map"),
        ("label,score\n1,.2\n", named, "unknown column of --map 'risk'"),
        ("label,risk\n1,.2\n", Reading.of("risk=scroe", None, False), "'scroe' is no column of a"),
        ('label;score\n1;"1.234,5"\n0;0,5\n', Reading(), "no number with a comma .line 2"),
        ("label,score\n1,.2\n", Reading.of(None, "1=dead", False), "unknown class of --labels"),
    ]
    for text, reading, problem in cases:
        refused(problem, read, tmp_path, text, reading)
    for text in ("a", "a=", "=b", "a=b,a=c", "a=b,"):
        refused("is not OLD=NEW, or OLD occurs twice", Reading.of, text, None, False)


BINARY = ["heart-disease", "adult-income", "game-forecasts", "imdb-binary"]
MANY = ["resnet110-cifar10", "mnist-shift", "densenet-cifar100"]


def scores_of(name: str) -> tuple[Floats, Integers]:
    data = datasets.load(name).split(0)
    assert data.test_scores is not None
    assert data.test_labels is not None
    return data.test_scores, data.test_labels


@pytest.mark.parametrize("name", [*BINARY, *MANY, "mmlu-llama"])
def test_real_rows_are_not_doubted(name):
    scores, labels = scores_of(name)
    assert doubts_of("", scores, labels) == []
    rng = np.random.default_rng(0)
    for rows in (5, 20, 100):
        for part in rng.choice(len(labels), (10, rows)):
            assert "order?" not in "".join(doubts_of("", scores[part], labels[part]))


@pytest.mark.parametrize("name", BINARY)
def test_two_classes_in_the_wrong_order(name):
    scores, labels = scores_of(name)
    (finding,) = doubts_of("", scores[:, ::-1], labels, ["well", "sick"])
    assert "rows of sick have lower scores for it" in finding
    assert finding.endswith("in the right order?")


@pytest.mark.parametrize("name", MANY)
def test_the_order_that_fits_is_found(name):
    """All columns moved by one, and two of them exchanged."""
    scores, labels = scores_of(name)
    c = scores.shape[1]
    for wrong in (np.roll(np.arange(c), 1), np.array([1, 0, *range(2, c)])):
        names = [f"kind {j}" for j in range(c)]
        moved = [f"kind {j} for kind {k}" for j, k in enumerate(wrong) if j != k][:2]
        message = f"^site: the scores name .*{moved[1]}"
        refused(message, doubts_of, "site", scores[:, wrong], labels, names)


@pytest.mark.parametrize("c", [3, 5, 10])
@pytest.mark.parametrize("n", [40, 300])
def test_labels_that_count_from_1_are_refused(c, n):
    rng = np.random.default_rng(c * n)
    truth = rng.integers(0, c - 1, n)  # no row of the last class: each label has a column
    scores = rng.normal(size=(n, c)) + 6 * np.eye(c)[truth]
    assert "order?" not in "".join(doubts_of("", scores, truth))
    refused(
        "^site: .* one lower than its label. Are .* count from 0",
        doubts_of,
        "site",
        scores,
        truth + 1,
    )


def test_what_knows_nothing_or_is_skewed_is_not_inverted():
    rng = np.random.default_rng(1)
    for _ in range(300):
        c, n = int(rng.integers(2, 12)), int(rng.integers(5, 500))
        labels = rng.choice(c, n, p=rng.dirichlet(np.full(c, 0.3)))
        scores = rng.normal(size=(n, c)) + rng.normal(size=c)
        assert "order?" not in "".join(doubts_of("", scores, labels))
    # a model that is tuned to find 1 % of sick: mostly wrong, in the right order
    labels = (np.arange(2000) % 100 == 0).astype(np.int64)
    risk = rng.normal(size=2000) + 2 * labels + 1
    assert ((risk > 0) == labels).mean() < 0.3
    assert not doubts_of("", np.stack([np.zeros(2000), risk], axis=1), labels)
    scores = rng.normal(size=(40, 3))  # of one class alone
    (finding,) = doubts_of("", scores, np.ones(40, np.int64), ["a", "b", "c"])
    assert finding.startswith("all 40 rows have the same label, b")
    assert not doubts_of("", scores[:3], np.ones(3, np.int64))


def test_percentages_are_refused_by_that_name():
    p = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    table = [("probs", "percentages must be divided by 100"), ("logits", "percentages")]
    each_is_refused(table, lambda kind: check_scores("scores", kind, 100 * p))
    check_scores("scores", "logits", 50 * p)
