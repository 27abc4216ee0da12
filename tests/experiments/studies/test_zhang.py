"""Studies of models trained with DP-SGD: budgets, splits, noise, and what is claimed of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

from experiments.studies.angelopoulos import figures
from experiments.studies.zhang import models, tables
from experiments.studies.zhang.models import Training, task
from experiments.studies.zhang.tables import METHODS, made, table1, table3


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """600 rows of three classes, and as many to test on."""
    rng = np.random.default_rng(0)
    arrays = {}
    for prefix in ("", "test_"):
        y = rng.integers(0, 3, 600)
        x = rng.standard_normal((600, 4)) * 0.3 + np.eye(4)[y]
        arrays |= {f"{prefix}features": x.astype(np.float32), f"{prefix}labels": y}
    path = tmp_path_factory.mktemp("data") / "made.npz"
    np.savez(path, **arrays)
    return str(path)


def test_a_table_of_a_file(file, tmp_path):
    found = table1.rows(data=[file], seeds=1)
    assert [r["method"] for r in found if r["what"] == "method"] == list(METHODS)
    assert {r["data"] for r in found if r["what"] != "paper"} == {"made"}
    output = list(table1.claims(found))
    assert all(text and words for text, _, words, *_ in output)
    assert any("in the paper's order" in text for text, *_ in output)
    assert np.linalg.norm(task(file).x, axis=1).max() <= 1 + 1e-6
    refused("corrupted", table3.rows, data=[file], seeds=1)
    refused("twice", table1.rows, data=[file, file])
    alone = tmp_path / "alone.npz"
    np.savez(alone, features=np.ones((4, 2), np.float32), labels=np.array([0, 1, 0, 1]))
    refused("test_features", task, str(alone))


def test_split_and_recalibration_share_the_model_and_no_row(file):
    of = task(file)
    held = models.kept_from(of, 0)
    assert 0 < held.sum() < of.rows / 5
    z, y = models.held_logits(of, models.rest(Training(8.0)), 0)
    assert (y == of.y[held]).all()
    assert len(z) == held.sum()
    split, exact = (made(of, title, 8.0, 0)[0] for title in (tables.SPLIT, tables.EXACT_TS))
    assert (split.w == exact.w).all()


def test_added_noise_has_the_std_that_it_is_reported_to_have(file):
    of = task(file)
    one = replace(models.PLAIN, epochs=1e-9, lr=1.0)  # one step
    noisy = [models.trained(of, replace(one, added=400.0), seed).w for seed in range(40)]
    plain = [models.trained(of, one, seed).w for seed in range(40)]
    steps = np.subtract(noisy, plain) * one.batch
    assert steps.std() == pytest.approx(400.0, rel=0.15)
    assert abs(steps.mean()) < 4 * 400 / math.sqrt(steps.size)


def test_privately_trained_heads_stand_beside_others_in_figure_3(file):
    rows = figures.figure3.rows(data=[file], splits=50)
    of = {(r["model"], r["sets"]): r for r in rows if r["what"] == "setting"}
    assert {model for model, _ in of} == {"non-private", "DP-SGD"}
    for line in of.values():
        assert (line["splits"], line["n"], line["tests"]) == (50, 300, 300)
        assert line["between"] > 0  # over five trainings
