"""Corruptions: what each one does to an image, the same alone and in a batch, bad input."""

import io

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.corruptions import CORRUPTIONS, TABLES, corrupt
from experiments.corruptions._digital import jpeg_compression
from experiments.corruptions._images import Draws, gaussian

DRAWN = {
    *("gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "motion_blur"),
    *("snow", "frost", "fog", "elastic_transform"),
}


def pictures(n: int = 6, size: tuple[int, ...] = (24, 20), seed: int = 0) -> NDArray[np.uint8]:
    """Smooth images with structure: blurred noise, spread over all levels."""
    x = np.random.default_rng(seed).random((n, *size, *(() if len(size) == 3 else (1,))))
    x = gaussian(x.astype(np.float32), 1.5)
    x -= x.min(axis=(1, 2, 3), keepdims=True)
    x /= x.max(axis=(1, 2, 3), keepdims=True)
    return np.rint(255 * x).astype(np.uint8).reshape(n, *size)


def distance(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    return float(np.abs(a.astype(float) - b).mean())


@pytest.mark.parametrize("size", [(24, 20), (16, 16, 3), (9, 13, 2), (4, 4)])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_shape_and_type_stay_and_the_image_changes(name, size):
    for images in (pictures(3, size), (pictures(3, size) / 255).astype(np.float32)):
        before = images.copy()
        for table in TABLES:
            out = corrupt(images, name, 5, 1, table=table)
            assert (out.shape, out.dtype) == (images.shape, images.dtype)
            assert out.min() >= 0
            assert out.max() <= (255 if images.dtype == np.uint8 else 1)
            if min(size[:2]) >= 16:  # below, a blur of the benchmarks is less than a pixel
                assert not np.array_equal(out, images)
        assert np.array_equal(images, before)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_part_is_corrupted_as_in_the_whole(name, table, monkeypatch):
    images = pictures(7)
    whole = corrupt(images, name, 4, 3, table=table)
    some = [5, 0, 6]
    assert np.array_equal(corrupt(images[some], name, 4, 3, table=table, numbers=some), whole[some])
    monkeypatch.setattr("experiments.corruptions._CHUNK", 2 * images[0].size)
    assert np.array_equal(corrupt(images, name, 4, 3, table=table), whole)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_seed_decides_what_is_drawn_and_nothing_else(name):
    images = pictures()
    one = corrupt(images, name, 5, 1, table="digits")
    assert np.array_equal(one, corrupt(images, name, 5, 1, table="digits"))
    assert np.array_equal(one, corrupt(images, name, 5, 2, table="digits")) == (name not in DRAWN)
    twins = corrupt(np.repeat(images[:1], 2, axis=0), name, 5, 1, table="digits")
    assert np.array_equal(twins[0], twins[1]) == (name not in DRAWN)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severity_5_of_digits_is_further_from_the_image_than_1(name):
    images = pictures(12, (28, 28))
    ends = [distance(images, corrupt(images, name, s, 0, table="digits")) for s in (1, 5)]
    assert ends[0] < ends[1]


def grey(level: float, n: int = 8, size: int = 32) -> NDArray[np.float64]:
    return np.full((n, size, size), level)


def test_noise_has_its_law():
    noise = corrupt(grey(0.5), "gaussian_noise", 5, 0) - 0.5
    assert noise.std() == pytest.approx(0.10, rel=0.03)
    assert abs(noise.mean()) < 0.005
    counts = corrupt(grey(0.4), "shot_noise", 5, 0) * 50
    assert np.allclose(counts, np.rint(counts), atol=1e-4)
    assert counts.mean() == pytest.approx(20, rel=0.02)
    assert counts.var() == pytest.approx(20, rel=0.05)
    out = corrupt(grey(0.5), "impulse_noise", 5, 0)
    assert set(np.unique(out)) == {0.0, 0.5, 1.0}
    assert (out == 0).mean() == pytest.approx(0.035, abs=0.007)
    assert (out == 1).mean() == pytest.approx(0.035, abs=0.007)


@pytest.mark.parametrize("quality", [7, 25, 50, 80])
def test_grey_jpeg_is_libjpeg_s_to_a_level_or_two(quality):
    image = pytest.importorskip("PIL.Image")
    x = pictures(4, (37, 42))
    wide = x[..., None].astype(np.float32) / 255
    draws = Draws(0, "none", np.arange(4))
    ours = np.rint(255 * np.clip(jpeg_compression(wide, draws, 1.0, quality), 0, 1))[..., 0]
    for mine, original in zip(ours, x, strict=True):
        packed = io.BytesIO()
        image.fromarray(original).save(packed, "JPEG", quality=quality)
        theirs = np.asarray(image.open(packed), float)
        # libjpeg fills incomplete blocks alike; its integer DCT may round a tie the other way
        assert np.abs(mine - theirs).mean() < 0.6
        assert distance(original, theirs) > 0.6 or quality == 80
