"""Making shipped sets: corruptions, `mnist-shift`, and who trained the model of four hospitals."""

import numpy as np
import pytest
from numpy.typing import NDArray
from refusals import refused
from scipy import ndimage

from experiments.corruptions import CORRUPTIONS, corrupt
from experiments.shipped import cifar10_cnn, hospitals, mnist_shift
from fedcal.datasets import shifted
from fedcal.datasets._load import key_of, unpacked

PUBLISHED = {
    "defocus_blur": (1.2, 4.3, 8.3),
    "glass_blur": (17.2, 16.0, 25.7),
    "zoom_blur": (12.3, 17.8, 23.8),
    "elastic_transform": (35.2, 29.1, 21.1),
    "pixelate": (4.6, 7.4, 11.3),
}
"""Root mean square of the change of `pictures` by the benchmark's own code, severities 1, 3, 5."""

UNDRAWN = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}


def pictures(n: int = 6, shape: tuple[int, ...] = (28, 28)) -> NDArray[np.uint8]:
    """Smooth images with structure: blurred noise, spread over all levels."""
    x = np.random.default_rng(0).random((n, *shape))
    x = ndimage.gaussian_filter(x, 1.5, axes=(1, 2))
    x -= x.min(axis=(1, 2), keepdims=True)
    return np.rint(255 * x / x.max(axis=(1, 2), keepdims=True)).astype(np.uint8)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severity_and_seed_decide_and_other_images_do_not(name):
    images = pictures()
    ends = [corrupt(images, name, severity, 1) for severity in (1, 5)]
    off = [np.abs(end.astype(float) - images).mean() for end in ends]
    assert 0 < off[0] < off[1]
    assert np.array_equal(corrupt(images[:2], name, 5, 1), ends[1][:2])
    assert np.array_equal(corrupt(images, name, 5, 2), ends[1]) == (name in UNDRAWN)
    twins = corrupt(np.repeat(images[:1], 2, axis=0), name, 5, 1)
    assert np.array_equal(twins[0], twins[1]) == (name in UNDRAWN)


def test_noise_has_its_distribution():
    grey = np.full((40, 28, 28), 102, np.uint8)  # .4
    noise = corrupt(grey, "gaussian_noise", 1, 0) / 255
    assert np.median(noise) == pytest.approx(0.4, abs=0.01)
    assert (noise <= 0.1).mean() == pytest.approx(0.1587, abs=0.01)  # one standard deviation below
    counts = corrupt(grey, "shot_noise", 1, 0) / 255 * 5
    assert (counts == 0).mean() == pytest.approx(np.exp(-2), abs=0.01)
    out = corrupt(grey, "impulse_noise", 5, 0)
    assert [(out == v).mean() for v in (0, 255)] == pytest.approx([0.15, 0.15], abs=0.01)
    refused("28", corrupt, grey[:, 1:], "fog", 1, 0)


@pytest.mark.parametrize(("name", "strengths"), PUBLISHED.items())
def test_photographs_change_as_much_as_by_the_published_code(name, strengths):
    images = pictures(40, (32, 32, 3))
    for severity, strength in zip((1, 3, 5), strengths, strict=True):
        change = corrupt(images, name, severity, 0) - images.astype(float)
        assert np.sqrt((change**2).mean()) == pytest.approx(strength, rel=0.1)


def test_mnist_shift_is_made_from_images(tmp_path):
    """Images whose class, of ten, is where a white stripe lies."""
    for name, rows in (("train", 600), ("test", 81)):
        y = np.arange(rows) % 10
        x = np.random.default_rng(rows).integers(0, 40, (rows, 28, 28))
        for row, label in enumerate(y):
            x[row, :, 2 * label + 4 : 2 * label + 7] += 180
        np.savez(tmp_path / f"{name}.npz", x=x.astype(np.uint8), y=y)
    given = (tmp_path / "train.npz", tmp_path / "test.npz")
    made, again = (mnist_shift.shipped(*given, epochs=2) for _ in range(2))
    assert set(made) == {"labels", *map(key_of, shifted())}
    np.testing.assert_array_equal(made["labels"], y[::2])
    assert (unpacked(made["none_0"]).argmax(1) == y[::2]).mean() > 0.9
    assert all(np.array_equal(again[key], made[key]) for key in made)


def test_logits_of_cifar10_keep_their_distances_and_clients(tmp_path):
    z, y = np.random.default_rng(0).normal(0, 4, (20, 10)), np.arange(20) % 10
    file = {"logits": z, "labels": y, "client": 5 * y, "test_logits": z, "test_labels": y}
    np.savez(tmp_path / "logits.npz", **file)
    found = cifar10_cnn.shipped(tmp_path / "logits.npz")
    assert np.abs(found["logits"] + z.max(axis=1, keepdims=True) - z).max() <= 1 / 16
    np.testing.assert_array_equal(found["client"], 5 * y)
    np.testing.assert_array_equal(found["test_logits"], found["logits"][::2])
    np.testing.assert_array_equal(found["test_labels"], y[::2])


def test_no_patient_of_the_model_s_training_is_shipped(tmp_path):
    """Patients like UCI's, whose disease follows from their age."""
    rng = np.random.default_rng(0)
    for name in hospitals.HOSPITALS.values():
        lines = []
        for age in rng.normal(55, 9, 41):
            ill = int(age + rng.normal(0, 5) > 55)
            lines.append(f"{age:.0f},1,1,145,233,1,2,150,0,2.3,3,0,6,{ill}")
        (tmp_path / name).write_text("\n".join(lines))
    hospital, *_ = hospitals.read_patients(tmp_path)
    train, fit, test = hospitals.halves(hospital)
    everybody = np.sort(np.concatenate([train, fit, test]))
    np.testing.assert_array_equal(everybody, np.arange(4 * 41))  # disjoint, and nobody is lost
    assert (hospital[train] == 0).all()
    assert np.bincount(hospital[fit]).tolist() == [10, 20, 20, 20]
    arrays = hospitals.shipped(tmp_path)
    assert arrays["subject"].tolist() == fit.tolist()
    assert ((arrays["logits"][:, 1] > 0) == (arrays["labels"] == 1)).mean() > 0.7
