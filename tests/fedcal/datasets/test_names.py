"""Names of classes: matched, brought in order, and never assumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from fedcal.core.checks import InputError
from fedcal.datasets import from_arrays, load


def write_csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def test_labels_that_are_names_need_named_columns(tmp_path):
    """Cats, dogs and birds in the columns: in sorted order 3 % would be right instead of 94 %."""
    rng = np.random.default_rng(0)
    names = np.array(["cat", "dog", "bird"])
    y = rng.integers(0, 3, 400)
    probs = rng.dirichlet(np.ones(3), 400) * 0.4 + 0.6 * np.eye(3)[y]
    refused("labels are names", from_arrays, probs=probs, labels=names[y])
    np.savez(tmp_path / "x.npz", probs=probs, labels=names[y])
    refused("have none: name these by the classes", load, tmp_path / "x.npz")
    said = from_arrays(probs=probs, labels=names[y], classes=names.tolist())
    assert (said.labels == y).all()
    assert said.class_names == tuple(names)
    # one column is of the class that is said to be positive
    score, two = probs[:, 0] / probs[:, :2].sum(axis=1), np.where(y == 0, "bad", "good")
    kept = y < 2
    refused("are names", from_arrays, probs=score[kept], labels=two[kept])
    right = from_arrays(probs=score[kept], labels=two[kept], positive="bad")
    assert right.class_names == ("good", "bad")
    np.testing.assert_array_equal(right.scores[:, 1], score[kept])
    assert (right.labels == (y[kept] == 0)).all()


def test_named_columns_come_in_the_order_that_was_asked_for(tmp_path):
    lines = ("label,prob_cat,prob_dog,prob_bird", "dog,.1,.7,.2", "bird,.2,.2,.6")
    path = write_csv(tmp_path / "x.csv", *lines)
    asked = load(path, classes=["bird", "cat", "dog"])
    assert asked.class_names == ("bird", "cat", "dog")
    assert asked.labels.tolist() == [2, 0]
    np.testing.assert_array_equal(asked.scores, [[0.2, 0.1, 0.7], [0.6, 0.2, 0.2]])
    again = asked.in_order(("dog", "bird", "cat"))  # each column is where it was in the file
    assert asked.moved == (2, 0, 1)
    assert again.moved == (1, 2, 0)
    refused("are for the classes cat, dog, bird, not a, b, c", load, path, classes=list("abc"))
    numbered = write_csv(tmp_path / "z.csv", lines[0], "1,.1,.7,.2")
    assert load(numbered).labels.tolist() == [1]
    wrong = write_csv(tmp_path / "y.csv", *lines[:-1], "Bird,.2,.2,.6")
    refused("labels: 'Bird' at row 1; did you mean 'bird'", load, wrong)
    refused("with cat as the positive one, must be 2, got 3", load, path, positive="cat")


@pytest.mark.parametrize("key", ["probs", "other_probs"])
def test_the_positive_class_becomes_column_1(key, tmp_path):
    p, y = np.array([0.1, 0.8, 0.7]), [0, 1, 0]
    given: dict[str, Any] = {"probs": p, key: p}
    plain = from_arrays(**given, labels=y, test_probs=p, test_labels=y)
    turned = from_arrays(**given, labels=y, test_probs=p, test_labels=y, positive="0")
    assert turned.class_names == ("1", "0")
    assert turned.labels.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(turned.scores, plain.scores[:, ::-1])
    assert turned.test_scores is not None
    np.testing.assert_array_equal(turned.test_scores, plain.scores[:, ::-1])
    assert turned.test_labels.tolist() == [1, 0, 1]
    if turned.other_scores is not None:
        np.testing.assert_array_equal(turned.other_scores, plain.scores[:, ::-1])
    np.savez(tmp_path / "x.npz", probs=p, labels=["no", "yes", "no"], class_names=["no", "yes"])
    assert load(tmp_path / "x.npz", positive="no").class_names == ("yes", "no")
    with pytest.raises(InputError, match="unknown positive class 'maybe'; allowed: no, yes"):
        load(tmp_path / "x.npz", positive="maybe")
