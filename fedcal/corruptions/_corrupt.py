"""`corrupt`: checks, the right constants, one chunk of images after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.checks import one_of, whole
from fedcal.core.errors import InputError
from fedcal.core.types import Integers
from fedcal.corruptions import _blur, _digital, _noise, _weather
from fedcal.corruptions._draws import Draws, Images

TABLES = {"cifar10-c": 32, "imagenet-c": 224, "digits": 28}
"""Whose constants there are, and the side of the images, in pixels, that they are for."""

SEVERITIES = (1, 2, 3, 4, 5)

_SMALL = 96  # images with a shorter side get the constants of CIFAR-10-C
_CHUNK = 2**21  # values that are corrupted at a time

_Level = tuple[float, ...]


@dataclass(frozen=True)
class _Kind:
    """A corruption and its constants for severities 1 to 5, table by table."""

    function: Callable[..., Images]
    cifar10: tuple[_Level, ...]
    imagenet: tuple[_Level, ...]
    digits: tuple[_Level, ...]

    def constants(self, table: str, severity: int) -> _Level:
        tables = (self.cifar10, self.imagenet, self.digits)
        return dict(zip(TABLES, tables, strict=True))[table][severity - 1]


def _one(*values: float) -> tuple[_Level, ...]:
    return tuple((value,) for value in values)


# Constants of Hendrycks and Dietterich (2019), as in their published generators of CIFAR-10-C and
# ImageNet-C (Apache-2.0), with lengths in pixels of 32 x 32 and of 224 x 224 images; the third
# table is our own, in pixels of 28 x 28: white digits on black bear more than photographs do.
_KINDS = {
    "gaussian_noise": _Kind(
        _noise.gaussian_noise,
        _one(0.04, 0.06, 0.08, 0.09, 0.10),
        _one(0.08, 0.12, 0.18, 0.26, 0.38),
        _one(0.3, 0.36, 0.42, 0.48, 0.55),
    ),
    "shot_noise": _Kind(
        _noise.shot_noise,
        _one(500, 250, 100, 75, 50),
        _one(60, 25, 12, 5, 3),
        _one(5, 3.5, 2.5, 1.6, 1),
    ),
    "impulse_noise": _Kind(
        _noise.impulse_noise,
        _one(0.01, 0.02, 0.03, 0.05, 0.07),
        _one(0.03, 0.06, 0.09, 0.17, 0.27),
        _one(0.1, 0.15, 0.2, 0.25, 0.3),
    ),
    "defocus_blur": _Kind(
        _blur.defocus_blur,
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        ((2, 0.3), (2.3, 0.3), (2.6, 0.3), (2.9, 0.3), (3.2, 0.3)),
    ),
    "glass_blur": _Kind(
        _blur.glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ),
    "motion_blur": _Kind(
        _blur.motion_blur,
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        ((6, 3), (7, 3.5), (8, 4), (9, 4.5), (10, 5)),
    ),
    "zoom_blur": _Kind(
        _blur.zoom_blur,
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        ((1.36, 0.04), (1.44, 0.04), (1.52, 0.04), (1.6, 0.04), (1.68, 0.04)),
    ),
    "snow": _Kind(
        _weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        (
            (0.3, 0.3, 1.5, 0.65, 3, 2, 0.8),
            (0.35, 0.3, 1.5, 0.65, 3, 2, 0.75),
            (0.4, 0.3, 1.5, 0.65, 3, 2, 0.7),
            (0.45, 0.3, 1.5, 0.65, 3, 2, 0.65),
            (0.5, 0.3, 1.5, 0.65, 3, 2, 0.6),
        ),
    ),
    "frost": _Kind(
        _weather.frost,
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        ((0.8, 0.6), (0.7, 0.7), (0.6, 0.8), (0.5, 0.85), (0.45, 0.9)),
    ),
    "fog": _Kind(
        _weather.fog,
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    "brightness": _Kind(
        _weather.brightness,
        _one(0.05, 0.1, 0.15, 0.2, 0.3),
        _one(0.1, 0.2, 0.3, 0.4, 0.5),
        _one(0.55, 0.62, 0.68, 0.74, 0.8),
    ),
    "contrast": _Kind(
        _digital.contrast,
        _one(0.75, 0.5, 0.4, 0.3, 0.15),
        _one(0.4, 0.3, 0.2, 0.1, 0.05),
        _one(0.3, 0.26, 0.23, 0.2, 0.17),
    ),
    "elastic_transform": _Kind(
        _digital.elastic_transform,
        ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
        (
            (488, 170.8, 24.4),
            (488, 19.52, 48.8),
            (12.2, 2.44, 4.88),
            (17.08, 2.44, 4.88),
            (29.28, 2.44, 4.88),
        ),
        ((6, 2, 2), (9, 2, 2), (12, 2, 2), (15, 2, 2), (18, 2, 2)),
    ),
    "pixelate": _Kind(
        _digital.pixelate,
        _one(0.95, 0.9, 0.85, 0.75, 0.65),
        _one(0.6, 0.5, 0.4, 0.3, 0.25),
        _one(0.5, 0.4, 0.33, 0.3, 0.25),
    ),
    "jpeg_compression": _Kind(
        _digital.jpeg_compression,
        _one(80, 65, 58, 50, 40),
        _one(25, 18, 15, 10, 7),
        _one(8, 6, 4, 2, 1),
    ),
}

CORRUPTIONS: tuple[str, ...] = tuple(_KINDS)
"""The fifteen corruptions of ImageNet-C, by name: noise, blurs, weather, digital."""


def corrupt(
    images: ArrayLike,
    name: str,
    severity: int,
    seed: int,
    *,
    table: str | None = None,
    numbers: ArrayLike | None = None,
) -> NDArray[Any]:
    """Images under one corruption of Hendrycks and Dietterich (2019).

    Parameters
    ----------
    images
        (n, h, w) grey or (n, h, w, channels), 0..255 as uint8 or floats in [0, 1]; at least
        4 x 4 pixels.
    name
        One of `CORRUPTIONS`.
    severity
        1 (weakest) to 5.
    seed
        Of all that is drawn. Each image draws from a stream of its own.
    table
        Whose constants, of `TABLES`; None = those of "cifar10-c" for images below 96 pixels,
        else of "imagenet-c". "digits" is no benchmark's: stronger, for the likes of MNIST.
        Lengths are multiplied by the image's shorter side over the table's.
    numbers
        (n,) number of each image, which with `seed` says what it draws; None = 0 to n - 1.
        Give them for a part of the images to be corrupted as in the whole.

    Returns
    -------
    NDArray[Any]
        New images of the same shape and type. Values are computed in float32, cut at 0 and 1 and,
        for uint8, rounded to the nearest.

    Raises
    ------
    InputError
        Unknown names, severities, shapes, types; values outside [0, 1].
    """
    kind = _KINDS[one_of("corruption", name, CORRUPTIONS)]
    severity = whole("severity", severity, 1, 5)
    x = _checked(np.asarray(images))
    keys = _numbers(numbers, len(x))
    side = min(x.shape[1:3])
    if table is None:
        table = "imagenet-c" if side >= _SMALL else "cifar10-c"
    scale = side / TABLES[one_of("table", table, TABLES)]
    constants = kind.constants(table, severity)
    out = np.empty_like(x, order="C")
    step = max(_CHUNK // max(x[0].size, 1), 1) if len(x) else 1
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        draws = Draws(seed, name, keys[part])
        wide = _as_float(x[part])
        changed = kind.function(wide, draws, scale, *constants)
        out[part] = _as_type(changed.reshape(x[part].shape), x.dtype)
    return out


def _checked(x: NDArray[Any]) -> NDArray[Any]:
    if x.ndim not in (3, 4) or 0 in x.shape[1:]:
        raise InputError(f"images must have shape (n, h, w) or (n, h, w, channels), got {x.shape}")
    if min(x.shape[1:3]) < 4:
        raise InputError(f"images of {x.shape[1]} x {x.shape[2]} are too small: at least 4 x 4")
    if x.dtype != np.uint8:
        if x.dtype.kind != "f":
            raise InputError(f"images must be uint8 or float in [0, 1], got {x.dtype}")
        inside = (x >= 0) & (x <= 1)  # false for nan, too
        if not inside.all():
            image = int(np.argwhere(~inside)[0, 0])
            raise InputError(f"image {image} has values outside [0, 1]; bytes must be uint8")
    return x


def _numbers(numbers: ArrayLike | None, rows: int) -> Integers:
    if numbers is None:
        return np.arange(rows)
    keys = np.asarray(numbers)
    if keys.shape != (rows,) or keys.dtype.kind not in "iu" or (keys < 0).any():
        raise InputError(f"numbers must be ({rows},) whole numbers >= 0, one per image")
    return keys.astype(np.int64)


def _as_float(x: NDArray[Any]) -> Images:
    wide = x[..., None] if x.ndim == 3 else x
    return wide.astype(np.float32) / np.float32(255 if x.dtype == np.uint8 else 1)


def _as_type(x: Images, kind: np.dtype[Any]) -> NDArray[Any]:
    x = np.clip(x, 0, 1)
    return np.rint(255 * x).astype(np.uint8) if kind == np.uint8 else x.astype(kind)
