"""`fedcal apply` and `fedcal export` of prediction sets."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refused

from fedcal.cli.apply import command as apply_command
from fedcal.cli.main import exit_code_of
from fedcal.conformal import Conformity, PredictionSets
from fedcal.core.checks import InputError
from fedcal.training.networks import TrainedModel

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(60, 3)) * 2
LABELS = RNG.integers(0, 3, 60)
GROUPS = np.array(["a", "b", "c"])[np.arange(60) % 3]
SETS = PredictionSets(Conformity(), np.array([0.8]), 3, 0.1)
BY_GROUP = PredictionSets(Conformity(), np.array([0.5, 0.9, 1.0]), 3, 0.1, "group", ("a", "b"))


def applied(
    folder: Path, sets: PredictionSets, out: str, data: dict[str, Any], **more: Any
) -> Path:
    sets.write(folder, "sets")
    np.savez(folder / "d.npz", **data)
    how = {"alpha": None, "quiet": True, "json": False, "overwrite": True, **more}
    apply_command(folder / "sets.npz", str(folder / "d.npz"), folder / out, **how)
    return folder / out


def test_coverage_where_there_are_labels(tmp_path, capsys):
    test = {"test_logits": LOGITS[40:], "test_labels": LABELS[40:]}
    data = {"logits": LOGITS[:40], "labels": LABELS[:40], **test}
    applied(tmp_path, SETS, "s.npy", data, quiet=False, json=True)
    told = json.loads(capsys.readouterr().out)
    own = SETS.predict_set(LOGITS[40:])  # of the test part alone
    assert told["rows"] == 60
    assert told["after"]["coverage"] == pytest.approx(own[np.arange(20), LABELS[40:]].mean())
    assert told["after"]["set_size"] == pytest.approx(own.sum() / 20)
    assert told["before"]["coverage"] == (LOGITS[40:].argmax(axis=1) == LABELS[40:]).mean()
    assert told["coverage_by"]["class"]["0"]["rows"] == (LABELS[40:] == 0).sum()


def test_groups_are_read_from_the_file_and_what_does_not_fit_is_refused(tmp_path):
    expected = BY_GROUP.predict_set(LOGITS, GROUPS)
    for column in ("group", "client"):  # groups or sites
        data = {"logits": LOGITS, "labels": LABELS, column: GROUPS}
        assert_array_equal(np.load(applied(tmp_path, BY_GROUP, "s.npy", data)), expected)
    refused("pass the rows' groups", applied, tmp_path, BY_GROUP, "s.npy", {"logits": LOGITS})
    probs = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1)[:, None]
    with pytest.raises(InputError, match=r"kind of scores in .* must be 'logits', got 'probs'"):
        applied(tmp_path, SETS, "s.npy", {"probs": probs})
    (tmp_path / "sets.npz").write_bytes(b"x")
    sets, data = tmp_path / "sets.npz", str(tmp_path / "d.npz")
    refused("calibrator", apply_command, sets, data, tmp_path / "new.npy", quiet=True)


def test_a_model_is_applied_and_exported_elsewhere(tmp_path, capsys):
    model = TrainedModel("softmax", (4,), 3, np.zeros(15))
    model.write(tmp_path, "model")
    for command in ("apply --data imdb-binary", "export"):
        words = [*command.split(), "--calibrator", str(tmp_path / "model.npz"), "--out", "m.npz"]
        assert exit_code_of(words) == 2
        assert "ing a model.npz was removed in 0.3" in capsys.readouterr().err
