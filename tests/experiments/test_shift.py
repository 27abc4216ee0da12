"""Domain shift: `mnist-shift` is made by one command."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.shift import mnist
from fedcal.datasets import shifted
from fedcal.datasets._load import key_of, unpacked


def digits(rows: int, seed: int) -> dict[str, NDArray[Any]]:
    """Images whose class, of three, is where a white stripe lies."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    x = rng.integers(0, 40, (rows, 12, 12))
    for row, label in enumerate(y):
        x[row, :, 4 * label : 4 * label + 3] += 180
    return {"x": x.astype(np.uint8), "y": y}


def test_the_shipped_set_is_made_from_images(tmp_path):
    np.savez(tmp_path / "train.npz", **digits(300, 0))
    np.savez(tmp_path / "test.npz", **digits(41, 1))
    given = (tmp_path / "train.npz", tmp_path / "test.npz")
    made, again = (mnist.shipped(*given, epochs=2) for _ in range(2))
    assert set(made) == {"labels", *map(key_of, shifted())}
    np.testing.assert_array_equal(made["labels"], digits(41, 1)["y"][::2])
    right = [unpacked(made[key]).argmax(1) == made["labels"] for key in ("none_0", "fog_5")]
    assert right[0].mean() > 0.9
    assert all(np.array_equal(again[key], made[key]) for key in made)
