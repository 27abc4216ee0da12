"""Image corruptions by weather, cameras and file formats.

The fifteen of ImageNet-C (Hendrycks and Dietterich 2019), each in five severities, with numpy and
scipy alone and rewritten: same ideas and same constants, not the same bits. The constants are
those of CIFAR-10-C; lengths grow with the image. What differs
is documented at each function; `frost` differs most, because the original lays photographs over the
image, and here a fractal is drawn instead.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.corruptions import _camera, _digital, _weather
from experiments.corruptions._images import Draws, Images
from fedcal.core.checks import InputError, one_of, whole

TABLES = {"cifar10-c": 32, "digits": 28}
"""Tables of constants, and the side in pixels of the images that each is for."""

_CHUNK = 2**21  # values that are corrupted at a time

_FUNCTIONS: tuple[Callable[..., Images], ...] = (
    *(_camera.gaussian_noise, _camera.shot_noise, _camera.impulse_noise),
    *(_camera.defocus_blur, _camera.glass_blur, _camera.motion_blur, _camera.zoom_blur),
    *(_weather.snow, _weather.frost, _weather.fog, _weather.brightness),
    *(_digital.contrast, _digital.elastic_transform),
    *(_digital.pixelate, _digital.jpeg_compression),
)
_BY_NAME = {function.__name__: function for function in _FUNCTIONS}

CORRUPTIONS: tuple[str, ...] = tuple(_BY_NAME)
"""The fifteen corruptions of ImageNet-C, by name: noise, blurs, weather, digital."""


@cache
def _constants() -> dict[str, dict[str, list[list[float]]]]:
    """Return corruption -> table -> the arguments of its function by severity."""
    text = Path(__file__).with_name("constants.toml").read_text("utf-8")
    return tomllib.loads(text)


def corrupt(
    images: ArrayLike,
    name: str,
    severity: int,
    seed: int,
    *,
    table: str = "cifar10-c",
    numbers: ArrayLike | None = None,
) -> NDArray[Any]:
    """Return images under one corruption of Hendrycks and Dietterich (2019).

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
        Random seed of all draws. Each image draws from a stream of its own.
    table
        Name of the table of constants, of `TABLES`. "digits" is not from a benchmark: it is
        stronger, for images like MNIST. Lengths are multiplied by the image's shorter side over
        the table's.
    numbers
        (n,) number of each image, which with `seed` determines its draws; None = 0 to n - 1.
        Pass them to corrupt a part of the images exactly as in the complete set.

    Returns
    -------
    NDArray[Any]
        New images of the same shape and type. Values are computed in float32, clipped at 0 and 1
        and, for uint8, rounded to the nearest.

    Raises
    ------
    InputError
        Unknown names, severities, shapes, types; values outside [0, 1].
    """
    function = _BY_NAME[one_of("corruption", name, CORRUPTIONS)]
    severity = whole("severity", severity, 1, 5)
    x = _checked(np.asarray(images))
    keys = np.arange(len(x)) if numbers is None else np.asarray(numbers, np.int64)
    scale = min(x.shape[1:3]) / TABLES[one_of("table", table, TABLES)]
    constants = _constants()[name][table][severity - 1]
    out = np.empty_like(x, order="C")
    step = max(_CHUNK // max(x[0].size, 1), 1) if len(x) else 1
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        draws = Draws(seed, name, keys[part])
        wide = _as_float(x[part])
        changed = function(wide, draws, scale, *constants)
        out[part] = _as_type(changed.reshape(x[part].shape), x.dtype)
    return out


def _checked(x: NDArray[Any]) -> NDArray[Any]:
    if x.ndim not in (3, 4) or 0 in x.shape[1:] or min(x.shape[1:3]) < 4:
        raise InputError(f"images must be (n, h, w[, channels]), 4 x 4 at least, got {x.shape}")
    if x.dtype != np.uint8 and not (x.dtype.kind == "f" and ((x >= 0) & (x <= 1)).all()):
        raise InputError(f"images must be uint8 or floats in [0, 1], got {x.dtype}")
    return x


def _as_float(x: NDArray[Any]) -> Images:
    wide = x[..., None] if x.ndim == 3 else x
    return wide.astype(np.float32) / np.float32(255 if x.dtype == np.uint8 else 1)


def _as_type(x: Images, kind: np.dtype[Any]) -> NDArray[Any]:
    x = np.clip(x, 0, 1)
    return np.rint(255 * x).astype(np.uint8) if kind == np.uint8 else x.astype(kind)
