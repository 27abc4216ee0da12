"""Domain shift: readers of the benchmarks' layouts, logits of a model on them, `mnist-shift`."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from refusals import refused

from fedcal.datasets import load, shifted
from fedcal.datasets._shipped import key_of, unpacked
from fedcal.experiments.research.corruptions import corrupt
from fedcal.experiments.research.shift import images, logits, mnist
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


@pytest.fixture
def imagenet_c(tmp_path):
    """Three images of two classes, as ImageNet-C lies in its folders."""
    image = pytest.importorskip("PIL.Image")
    for wnid, level in (("n01443537", 60), ("n01440764", 200)):
        for severity in (1, 5):
            folder = tmp_path / "ImageNet-C" / "fog" / str(severity) / wnid
            folder.mkdir(parents=True)
            for k in range(1 + (level == 60)):
                pixels = np.full((24, 20, 3), level + severity, np.uint8)
                image.fromarray(pixels).save(folder / f"ILSVRC2012_val_0000000{k}.JPEG")
    return tmp_path / "ImageNet-C"


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


def test_imagenet_c_is_read_with_classes_in_the_order_of_their_names(imagenet_c):
    found = read_shifted(imagenet_c, "fog", 5)
    assert found.labels.tolist() == [0, 1, 1]
    x = stacked(found, 2)
    assert x.shape == (3, 24, 20, 3)
    assert [int(v) for v in x.mean(axis=(1, 2, 3)).round()] == [205, 65, 65]
    order = ["n01440764", "n01442222", "n01443537"]
    assert read_shifted(imagenet_c, "fog", 1, order).labels.tolist() == [0, 2, 2]


def test_clean_images_are_corrupted_here_in_any_batches(tmp_path):
    x = np.random.default_rng(1).integers(0, 256, (7, 12, 12), np.uint8)
    np.savez(tmp_path / "clean.npz", x=x, y=np.arange(7) % 2)
    found = read_shifted(tmp_path / "clean.npz", "shot_noise", 3)
    np.testing.assert_array_equal(stacked(found, 2), corrupt(x, "shot_noise", 3, 0))
    np.testing.assert_array_equal(stacked(read_shifted(tmp_path / "clean.npz", "none", 0)), x)


def test_broken_cifar_c_and_what_is_not_in_it_gets_one_line(cifar_c):
    fog, labels = cifar_c / "fog.npy", cifar_c / "labels.npy"
    whole = {path: path.read_bytes() for path in (fog, labels)}

    fog.write_bytes(whole[fog][:-100])
    refused("fog.npy is not an intact", read_shifted, cifar_c, "fog", 5)
    for path, array, message in (
        (fog, np.array([{}, 1], object), "fog.npy is not an intact"),
        (fog, np.zeros((40, 32, 32, 3)), "of uint8, got"),
        (labels, np.arange(8), "labels.npy must hold 40 whole numbers"),
    ):
        np.save(path, array)
        refused(message, read_shifted, cifar_c, "fog", 5)
        path.write_bytes(whole[path])
    for corruption, severity, message in (
        ("snow", 1, "unknown corruption 'snow'; allowed: fog, gaussian_noise"),
        ("fog", 0, r"severity must be a whole number in \[1, 5\]"),
    ):
        refused(message, read_shifted, cifar_c, corruption, severity)
    np.save(fog, np.zeros((41, 8, 8, 3), np.uint8))
    np.save(labels, np.zeros(41, int))
    refused("not a multiple of 5", read_shifted, cifar_c, "fog", 5)


def run(module: Any, *options: object) -> int:
    try:
        module.main([str(option) for option in options])
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def test_logits_of_a_model_become_a_data_file(cifar_c, model, tmp_path, capsys):
    labels = np.tile([0, 1], 20)
    np.save(cifar_c / "labels.npy", labels)
    given = ("--model", model, "--images", cifar_c, "--corruption", "fog", "--severity", 2)
    out = tmp_path / "fog-2.npz"
    assert run(logits, *given, "--mean", "0.5,0.5,0.5", "--std", "0.25", "--out", out) == 0
    assert "fog 2: 8 images, 2 classes, accuracy" in capsys.readouterr().out
    data = load(out)
    assert data.input == "logits"
    np.testing.assert_array_equal(data.labels, labels[8:16])
    mean = np.load(cifar_c / "fog.npy")[8:16].mean(axis=(1, 2, 3)) / 255
    expected = (mean - 0.5) / 0.25
    np.testing.assert_allclose(data.logits, np.stack([expected, -expected], 1), atol=1e-4)


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
