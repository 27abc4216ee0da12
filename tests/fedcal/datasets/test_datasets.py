"""Shipped sets against the numbers of their sources, arrays, parts, and paths."""

from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.datasets import catalogue, from_arrays, load, shifted
from fedcal.partition import deal

NAMES = [entry.name for entry in catalogue()]


def accuracy_and_ece(probs: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """ECE: sum over 15 bins of |sum(hit - confidence)| / n; [a,b), last closed."""
    hit, confidence = probs.argmax(axis=1) == labels, probs.max(axis=1)
    place = np.minimum(np.floor(confidence * 15), 14).astype(int)
    return float(hit.mean()), float(np.abs(np.bincount(place, hit - confidence)).sum() / len(hit))


# Computed once from the original files of each source, in float64 and without any rounding of
# ours (imdb: probabilities as published, which sum to 1.00002; forecasts: a tie counts as 0).
SOURCE = {
    ("resnet110-cifar10", "fit"): (0.9462, 0.03986457),
    ("resnet110-cifar10", "test"): (0.9356, 0.04750350),  # Guo et al. 2017: 4.75 %
    ("densenet-cifar100", "fit"): (0.7544, 0.14007919),
    ("densenet-cifar100", "test"): (0.7538, 0.14472724),
    ("imdb-binary", "fit"): (0.89576, 0.04039552),
    ("game-forecasts", "fit"): (0.61862298, 0.01298954),
    ("mnist-cnn", "fit"): (0.93353302, 0.02360432),
    ("mnist-cnn", "test"): (0.93424618, 0.01886959),
    ("heart-disease", "fit"): (0.69531250, 0.09030338),
    ("heart-disease", "test"): (0.72727273, 0.05864971),
    ("mmlu-llama", "fit"): (0.40540541, 0.05611041),
    ("adult-income", "fit"): (0.84675388, 0.00869889),
}


@pytest.mark.parametrize(("name", "part"), SOURCE)
def test_shipped_scores_are_as_good_as_their_source(name, part):
    data = load(name)
    probs, labels = data.probs, data.labels
    if part != "fit":
        probs, labels = data.test_probs, data.test_labels
    assert accuracy_and_ece(probs, labels) == pytest.approx(SOURCE[name, part], abs=2e-4)


@pytest.mark.parametrize("entry", catalogue(), ids=NAMES)
def test_catalogue_tells_the_truth(entry):
    data = load(entry.name)
    assert data.name == entry.name
    assert data.input == entry.input
    assert data.scores.shape == (entry.rows, entry.classes)
    assert data.scores.dtype == np.float64
    assert data.labels.dtype == np.int64
    assert len(np.unique(data.labels)) == data.classes == entry.classes
    assert (0 if data.test_scores is None else len(data.test_scores)) == entry.test_rows
    assert len(data.client_names or ()) == entry.clients
    assert len(data.group_names or ()) == entry.groups
    if data.input == "probs":
        np.testing.assert_allclose(data.scores.sum(axis=1), 1, atol=1e-12)


def test_every_variant_of_the_shifted_set_has_the_same_labels():
    usual = load("mnist-shift")
    np.testing.assert_array_equal(usual.scores, load("mnist-shift:fog:5").scores)
    for corruption, severity in shifted():
        data = load(f"mnist-shift:{corruption}:{severity}")
        assert (data.input, data.test_scores, data.scores.shape) == ("logits", None, (5000, 10))
        np.testing.assert_array_equal(data.labels, usual.labels)


# --- parts ---------------------------------------------------------------------------------


def test_split_is_deterministic_disjoint_and_complete_and_columns_stay_with_their_rows():
    row = np.arange(101)
    z = np.stack([row, -row], axis=1).astype(float)
    data = from_arrays(
        logits=z, labels=row % 2, client=row % 5, subject=row, group=row % 7, other_logits=-z
    )
    one, other = data.split(3), data.split(4)
    assert (len(one.scores), len(one.test_scores)) == (51, 50)
    assert not np.array_equal(one.test_scores, other.test_scores)
    fit_rows, test_rows = one.scores[:, 0].astype(int), one.test_scores[:, 0].astype(int)
    assert sorted([*fit_rows, *test_rows]) == list(range(101))
    np.testing.assert_array_equal(one.labels, fit_rows % 2)
    np.testing.assert_array_equal(one.test_labels, test_rows % 2)
    np.testing.assert_array_equal(one.test_client, test_rows % 5)
    np.testing.assert_array_equal(one.subject, fit_rows)
    np.testing.assert_array_equal(one.test_group, test_rows % 7)
    np.testing.assert_array_equal(one.other_scores, -one.scores)
    assert one.split(99) is one
    shards = deal(one, "dirichlet:0.5", 9, 0)
    np.testing.assert_array_equal(shards.groups, shards.logits[:, 0] % 7)
    np.testing.assert_array_equal(shards.other, -shards.logits)


def test_the_column_split_tells_the_test_part_and_rows_keep_their_order(tmp_path):
    path, fit, test = tmp_path / "x.csv", [".1,0,train", ".2,0,train"], [".3,1,test", ".4,0,test"]
    path.write_text("\n".join(["score,label,split", fit[0], *test, fit[1]]))
    data = load(path, labels_required=False)
    np.testing.assert_array_equal(data.given.order, [0, 3, 1, 2])
    np.testing.assert_array_equal(data.scores[:, 1], [0.1, 0.2])
    np.testing.assert_array_equal(data.test_scores[:, 1], [0.3, 0.4])
    path.write_text("score,split\n.1,test\n.2,train")  # without labels there is no test part
    data = load(path, labels_required=False)
    np.testing.assert_array_equal(data.scores[:, 1], [0.1, 0.2])
    assert data.test_scores is None


# --- arrays --------------------------------------------------------------------------------

Z = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [1.0, 0.0, 1.0]])
P = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]])
Y = np.array([0, 2, 1, 2])


TEST = {"logits": Z, "test_logits": Z, "test_labels": Y}
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "logits or probs is needed"),
    ({"logits": Z, "labels": None}, "labels is needed"),
    ({"logits": [[1.0, 2.0], [1.0]], "labels": [0, 0]}, "logits: cannot be read"),
    ({"logits": np.array([[None, 1]]), "labels": [0]}, "logits: a missing value at row 0"),
    ({"logits": Z[:, :1]}, "with 2 to 100,000 classes"),
    ({"logits": np.where(Z == 7, np.nan, Z)}, "logits: nan at row 2, column 1"),
    ({"logits": np.where(Z == 3, -1e200, Z)}, r"-1e\+200 at row 1, column 0"),
    ({"probs": Z}, r"probs: 2 at row 0, column 2; .*\[0, 1\]"),
    ({"logits": Z, "labels": Y[:3]}, "one entry for each row of logits, got"),
    ({"logits": Z, "labels": [0, 1, 1.5, 0]}, "labels: 1.5 at row 2"),
    ({"logits": Z, "labels": np.array([0, 1, 2, 2**64 - 1], np.uint64)}, r"1\.84467e\+19 at row 3"),
    ({"logits": Z, "client": [1j] * 4}, "client: must hold"),
    ({"logits": Z, "client": [b"\xff"] * 4}, "client: .* UTF-8"),
    ({"logits": Z, "client": [0, 1, 2, 1e30]}, "client: .* those beyond"),
    ({"logits": Z, "test_probs": P, "test_labels": Y}, "kind of test scores, .* must be"),
    ({**TEST, "test_logits": Z[:, :2]}, "classes of test_logits, as of logits, must be 3, got 2"),
    ({"probs": P, "test_probs": P}, "test_labels is needed: test_probs is given"),
    ({**TEST, "test_labels": Y + 1}, "test_labels: 3 at row 1"),
    ({**TEST, "client": Y, "test_client": [2, 3, 0, 0]}, "at row 1 '3'; all"),
    ({"logits": Z, "client": Y, "test_client": Y}, "test_client has no effect .* no test_logits"),
]


def test_bad_arrays_are_refused_in_one_line():
    each_is_refused(BAD, lambda arguments: from_arrays(**{"labels": Y, **arguments}))


def test_paths_and_names_that_are_no_data_get_one_line(tmp_path):
    (tmp_path / "scores.txt").write_text("1")
    for folder in ("folder.npz", "some"):
        (tmp_path / folder).mkdir()
    table = [
        *((name, "no such file") for name in ("missing.npz", "missing.csv")),
        ("folder.npz", "is not a file"),
        ("absent", r"unknown data set; .* or the path of a \.npz, \.csv, .* file"),
        *(
            (name, r"cannot be read as data; give .* of a \.npz, \.csv, .* file")
            for name in ("scores.txt", "some")
        ),
        *((f"a.b.{end}", "was removed in 0.3") for end in ("arrow", "feather", "csv.gz", "CSV.gz")),
    ]
    each_is_refused([(tmp_path / name, message) for name, message in table], load)
    names = ("a\nb", "a\0b", "x" * 5000 + ".npz", "")
    each_is_refused([(name, "") for name in names], load, most=600)
