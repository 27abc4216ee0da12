"""`fedcal apply`: rows come back as they stood; coverage of sets is that of the test part."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refused

from fedcal import datasets
from fedcal.calibrators import TemperatureScaling
from fedcal.cli.apply import command as apply_command
from fedcal.cli.main import exit_code_of
from fedcal.conformal import Conformity, PredictionSets

ROWS = 60
RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 3, ROWS)
LOGITS = RNG.normal(size=(ROWS, 3)) + 2 * np.eye(3)[LABELS]
TEST = RNG.permutation(ROWS) < 20  # not behind the others
IDS = {
    "client": np.array(["north", "south"])[np.arange(ROWS) % 2],
    "subject": np.arange(ROWS) // 2 + 1000,
    "group": np.array(["a", "b"])[np.arange(ROWS) // 4 % 2],
}
COLUMNS: dict[str, Any] = {
    **IDS,
    "label": LABELS,
    **{f"logit_{j}": LOGITS[:, j] for j in range(3)},
    "split": np.where(TEST, "test", "train"),
}
SETS = PredictionSets(Conformity(), np.array([0.8]), 3, 0.1)
BY_GROUP = PredictionSets(Conformity(), np.array([0.5, 0.9, 1.0]), 3, 0.1, "group", ("a", "b"))


def test_rows_come_back_in_their_order_with_their_ids(tmp_path, capsys):
    data, calibrator = tmp_path / "rows.csv", TemperatureScaling().fit(LOGITS, LABELS)
    with data.open("w", newline="") as file:
        lines = zip(*(column.tolist() for column in COLUMNS.values()), strict=True)
        csv.writer(file).writerows([[*COLUMNS], *lines])
    calibrator.save(tmp_path / "c.npz")
    command = ["apply", "--calibrator", str(tmp_path / "c.npz"), "--data", str(data), "--out"]
    files = {suffix: tmp_path / f"p.{suffix}" for suffix in ("npz", "csv", "parquet")}
    for file in files.values():
        assert exit_code_of([*command, str(file)]) == 0
    shown = capsys.readouterr().out
    accuracy = (LOGITS[TEST].argmax(axis=1) == LABELS[TEST]).mean()
    assert "metrics: the 20 of its test part" in shown
    assert f"before: accuracy % {100 * accuracy:.2f}" in shown
    expected = calibrator.predict_proba(LOGITS)
    with np.load(files.pop("npz")) as found:
        np.testing.assert_allclose(found["probs"], expected)
        assert_array_equal(found["labels"], LABELS)
        for name, ids in IDS.items():
            assert_array_equal(found[name], ids)
    for file in files.values():
        back = datasets.load(file)  # a data file again
        np.testing.assert_allclose(back.probs, expected)
        assert_array_equal(back.labels, LABELS)
        assert back.client is not None
        assert [back.client_names[k] for k in back.client] == IDS["client"].tolist()
        assert_array_equal(back.subject, np.arange(ROWS) // 2)
        assert back.group_names == ("a", "b")


def apply_sets(folder: Path, sets: PredictionSets, data: dict[str, Any], **more: Any) -> Path:
    sets.write(folder, "sets")
    np.savez(folder / "d.npz", **data)
    options = {"alpha": None, "quiet": True, "json": False, "overwrite": True, **more}
    apply_command(folder / "sets.npz", str(folder / "d.npz"), folder / "s.npy", **options)
    return folder / "s.npy"


def test_coverage_is_that_of_the_test_part(tmp_path, capsys):
    test = {"test_logits": LOGITS[40:], "test_labels": LABELS[40:]}
    data = {"logits": LOGITS[:40], "labels": LABELS[:40], **test}
    apply_sets(tmp_path, SETS, data, quiet=False, json=True)
    record = json.loads(capsys.readouterr().out)
    sets = SETS.predict_set(LOGITS[40:])
    assert record["rows"] == ROWS
    assert record["after"]["coverage"] == pytest.approx(sets[np.arange(20), LABELS[40:]].mean())
    assert record["after"]["set_size"] == pytest.approx(sets.sum() / 20)
    assert record["before"]["coverage"] == (LOGITS[40:].argmax(axis=1) == LABELS[40:]).mean()
    assert record["coverage_by"]["class"]["0"]["rows"] == (LABELS[40:] == 0).sum()


def test_groups_of_sets_are_a_column_of_the_file(tmp_path):
    groups = np.array(["a", "b", "c"])[np.arange(ROWS) % 3]
    expected = BY_GROUP.predict_set(LOGITS, groups)
    for column in ("group", "client"):  # groups or sites
        data = {"logits": LOGITS, "labels": LABELS, column: groups}
        assert_array_equal(np.load(apply_sets(tmp_path, BY_GROUP, data)), expected)
    refused("pass the rows' groups", apply_sets, tmp_path, BY_GROUP, {"logits": LOGITS})


def test_sets_of_probabilities_without_names_take_logits_and_named_labels(tmp_path):
    replace(SETS, input="probs").write(tmp_path, "s")
    np.savez(tmp_path / "r.npz", logits=LOGITS, labels=np.array(["a", "b", "c"])[LABELS])
    apply_command(tmp_path / "s.npz", tmp_path / "r.npz", tmp_path / "o.npy", class_names="a,b,c")
    assert_array_equal(np.load(tmp_path / "o.npy"), SETS.predict_set(LOGITS))
