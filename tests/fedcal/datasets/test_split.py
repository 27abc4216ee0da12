"""The column `split` of text files: which rows are the test part."""

from pathlib import Path

import numpy as np

from fedcal.datasets import load


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_rows_that_are_calibrated_keep_their_order(tmp_path):
    head, fit, test = "score,label,split", [".1,0,train", ".2,0,train"], [".3,1,test", ".4,0,test"]
    data = load(write(tmp_path / "sorted.csv", head, *fit, *test), labels_required=False)
    np.testing.assert_array_equal(data.test_scores, [[0.7, 0.3], [0.6, 0.4]])
    mixed = write(tmp_path / "mixed.csv", head, fit[0], *test, fit[1])
    assert load(mixed).test_scores is not None
    data = load(mixed, labels_required=False)
    np.testing.assert_array_equal(data.given.order, [0, 3, 1, 2])
    np.testing.assert_array_equal(data.test_scores[:, 1], [0.3, 0.4])
    unlabelled = write(tmp_path / "unlabelled.csv", "score,split", ".1,test", ".2,train")
    data = load(unlabelled, labels_required=False)
    np.testing.assert_array_equal(data.scores[:, 1], [0.1, 0.2])
    assert data.test_scores is None
