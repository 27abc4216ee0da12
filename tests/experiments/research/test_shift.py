"""Domain shift: readers of the benchmarks' layouts, logits of a model on them, `mnist-shift`."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedcal.datasets import shifted
from fedcal.datasets._load import key_of, unpacked
from fedcal.experiments.research.corruptions import corrupt
from fedcal.experiments.research.shift import images, mnist
from fedcal.experiments.research.shift.images import read_shifted


def stacked(source: images.ShiftedImages, size: int = 3) -> NDArray[np.uint8]:
    return np.concatenate(list(source.batches(size)))


@pytest.fixture
def cifar_c(tmp_path):
    """Eight images in five severities, as CIFAR-10-C lies in its folder."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    for name in ("fog", "gaussian_noise"):
        np.save(folder / f"{name}.npy", rng.integers(0, 256, (40, 32, 32, 3), np.uint8))
    np.save(folder / "labels.npy", np.tile(np.arange(8), 5))
    return folder


class Mean(torch.nn.Module):
    """Two logits: the mean of the channels, and its negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = x.mean(dim=(1, 2, 3))
        return torch.stack([value, -value], dim=1)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.pt2"
    rows = {0: torch.export.Dim("rows", min=1, max=1000)}
    torch.export.save(
        torch.export.export(Mean(), (torch.zeros(2, 3, 32, 32),), dynamic_shapes=(rows,)), path
    )
    return path


def test_cifar_c_is_read_by_severity(cifar_c):
    fog = np.load(cifar_c / "fog.npy")
    for severity in (1, 4):
        found = read_shifted(cifar_c, "fog", severity)
        np.testing.assert_array_equal(found.labels, np.arange(8))
        np.testing.assert_array_equal(stacked(found), fog[8 * (severity - 1) : 8 * severity])


def test_clean_images_are_corrupted_here_in_any_batches(tmp_path):
    x = np.random.default_rng(1).integers(0, 256, (7, 12, 12), np.uint8)
    np.savez(tmp_path / "clean.npz", x=x, y=np.arange(7) % 2)
    found = read_shifted(tmp_path / "clean.npz", "shot_noise", 3)
    np.testing.assert_array_equal(stacked(found, 2), corrupt(x, "shot_noise", 3, 0))
    np.testing.assert_array_equal(stacked(read_shifted(tmp_path / "clean.npz", "none", 0)), x)


def run(module: Any, *options: object) -> int:
    try:
        module.main([str(option) for option in options])
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def digits(rows: int, seed: int) -> dict[str, NDArray[Any]]:
    """Images whose class, of three, is where a white stripe lies."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    x = rng.integers(0, 40, (rows, 12, 12))
    for row, label in enumerate(y):
        x[row, :, 4 * label : 4 * label + 3] += 180
    return {"x": x.astype(np.uint8), "y": y}


def test_the_shipped_set_is_made_by_one_command(tmp_path, capsys):
    np.savez(tmp_path / "train.npz", **digits(300, 0))
    np.savez(tmp_path / "test.npz", **digits(41, 1))
    given = ("--train", tmp_path / "train.npz", "--test", tmp_path / "test.npz", "--epochs", 2)
    for out in ("one.npz", "again.npz"):
        assert run(mnist, *given, "--out", tmp_path / out) == 0
    said = capsys.readouterr().out
    with np.load(tmp_path / "one.npz", allow_pickle=False) as archive:
        made = dict(archive)
    assert set(made) == {"labels", *map(key_of, shifted())}
    np.testing.assert_array_equal(made["labels"], digits(41, 1)["y"][::2])
    right = [unpacked(made[key]).argmax(1) == made["labels"] for key in ("none_0", "fog_5")]
    assert right[0].mean() > 0.9
    (clean,) = {line for line in said.splitlines() if line.startswith("none ")}
    assert clean.split()[4] == f"{100 * right[0].mean():.2f}"
    with np.load(tmp_path / "again.npz", allow_pickle=False) as archive:
        assert all(np.array_equal(archive[key], made[key]) for key in archive)
