"""Files of features: what they hold, what is refused, how their rows are cut."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.datasets import feature_sets
from fedcal.partition import held_out
from fedcal.run.training_config import TrainConfig
from fedcal.run.training_data import PARTS, read_labelled, split

RNG = np.random.default_rng(0)
X = RNG.integers(-127, 128, (200, 5)).astype(np.int8)
Y = np.arange(200) % 3
TEST: dict[str, Any] = {"test_features": X[:40], "test_labels": Y[:40]}


def npz(folder: Path, name: str = "data.npz", **arrays: Any) -> str:
    path = folder / name
    np.savez(path, **arrays)
    return str(path)


def test_bytes_are_scaled_and_long_rows_shortened(tmp_path):
    data = npz(tmp_path, features=X, scale=0.01, labels=Y, norm=1.5)
    pool = read_labelled(data)
    assert (pool.x.dtype, pool.classes) == (np.float32, 3)
    given = X * 0.01
    length = np.linalg.norm(given, axis=1)
    assert (length > 1.5).any()
    assert (length < 1.5).any()
    expected = given * np.minimum(1, 1.5 / length)[:, None]  # each row by its own norm alone
    np.testing.assert_allclose(pool.x, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(read_labelled(data, 9.0).x, given, rtol=1e-6)
    floats = read_labelled(npz(tmp_path, "f.npz", features=given, y=Y, class_names=list("abcd")))
    assert floats.names == ("a", "b", "c", "d")
    np.testing.assert_allclose(floats.x, given, rtol=1e-6)


def test_the_source_s_test_rows_stay_test_rows(tmp_path):
    group = np.array(["w", "m"])[np.arange(200) % 2]
    path = npz(
        tmp_path,
        **{"features": X, "scale": 1.0, "labels": Y, "group": group, "subject": np.arange(200)},
        **{**TEST, "test_group": group[:40], "test_fog_3": -X[:40]},
    )
    made = split(read_labelled(path), TrainConfig(data=path, clients=4, partition="iid", seed=3))
    assert (made.parts["train"].group_names, made.classes, made.shape) == (("m", "w"), 3, (5,))
    ids = {part: made.parts[part].subject for part in ("train", "calibration")}
    ids["test"] = np.arange(40)
    assert sorted([*ids["train"], *ids["calibration"]]) == list(range(200))
    np.testing.assert_array_equal(  # Algorithm 1's tenth
        np.sort(ids["calibration"]), np.flatnonzero(held_out(np.arange(200), 3, 0.1))
    )
    for part in PARTS:
        np.testing.assert_array_equal(made.parts[part].x, X[ids[part]])
        np.testing.assert_array_equal(made.parts[part].y, ids[part] % 3)
        np.testing.assert_array_equal(made.parts[part].group, 1 - ids[part] % 2)


@pytest.mark.parametrize("entry", feature_sets(), ids=lambda entry: entry.name)
def test_shipped_features_are_what_the_list_says(entry):
    pool = read_labelled(entry.name)
    assert pool.x.shape == (entry.rows, entry.features)
    assert pool.test.x.shape == (entry.test_rows, entry.features)
    assert (pool.classes, len(pool.group_names)) == (entry.classes, entry.groups)
    assert set(pool.y) == set(pool.test.y) == set(range(entry.classes))
    for x in (pool.x, pool.test.x):
        length = np.linalg.norm(x.astype(np.float64), axis=1)
        assert 0.4 < length.min() <= length.max() <= 1 + 1e-6
