"""The fifteen corruptions of ImageNet-C, for images of digits: the shifts of shipped data.

After Hendrycks and Dietterich (2019), with numpy and scipy alone and rewritten: same ideas, not the
same bits, and constants of our own, because white digits on black bear more than photographs do.
Images are grey, 28 x 28. What differs is said at each function; `frost` differs most: the original
lays photographs over the image, and here a fractal is drawn.

An image's draws, and its bits, do not depend on the other images.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage

from fedcal.core.checks import InputError, integer, one_of
from fedcal.core.numerics import Floats, check_seed

Images: TypeAlias = NDArray[np.float32]
"""(n, 28, 28) in [0, 1]."""

SIDE = 28
CONSTANTS = tomllib.loads(Path(__file__).with_name("corruptions.toml").read_text("utf-8"))
"""Corruption -> arguments of its function by severity, chosen by the accuracy of a network."""
SUBPIXELS = 9
"""Points along each side of a pixel at which a disk is sampled."""


class Draws:
    """One generator for each image, keyed by seed, corruption and the image's number.

    The key does not include the severity: where two severities of one image draw alike they share
    their randomness, so that a stronger corruption is the same one, stronger.
    """

    def __init__(self, seed: int, corruption: str, images: int) -> None:
        text = f"fedcal corruption {check_seed(seed)} {corruption}"
        key = np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], "<u8")
        self._streams = [
            np.random.Generator(np.random.Philox(key=key, counter=[0, 0, number, 0]))
            for number in range(images)
        ]

    def normal(self, *shape: int) -> Images:
        """Draw (n, *shape) standard normal numbers."""
        return np.stack([g.standard_normal(shape, np.float32) for g in self._streams])

    def uniform(self, *shape: int) -> Images:
        """Draw (n, *shape) numbers in [0, 1)."""
        return np.stack([np.asarray(g.random(shape, np.float32)) for g in self._streams])

    def offsets(self, reach: int, *shape: int) -> NDArray[np.intp]:
        """Draw (n, *shape) whole numbers in [-reach, reach)."""
        drawn = [g.integers(-reach, reach, shape, np.int8) for g in self._streams]
        return np.stack(drawn).astype(np.intp)

    def poisson(self, mean: Images) -> Images:
        """Draw counts with the means `mean`, shape (n, ...)."""
        pairs = zip(self._streams, mean, strict=True)
        return np.stack([g.poisson(m).astype(np.float32) for g, m in pairs])


def corrupt(images: NDArray[np.uint8], name: str, severity: int, seed: int) -> NDArray[np.uint8]:
    """Return images under one corruption.

    Parameters
    ----------
    images
        (n, 28, 28), grey, 0..255
    name
        one of `CORRUPTIONS`
    severity
        1 (weakest) to 5
    seed
        of all draws

    Raises
    ------
    InputError
        An unknown name or severity, other shapes or types.
    """
    function = CORRUPTIONS[one_of("corruption", name, CORRUPTIONS)]
    level = CONSTANTS[name][integer("severity", severity, 1, 5) - 1]
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE):
        raise InputError(
            f"images must be (n, {SIDE}, {SIDE}) uint8, got {images.shape} {images.dtype}"
        )
    x = images.astype(np.float32) / np.float32(255)
    changed = function(x, Draws(seed, name, len(x)), *level)
    return np.rint(255 * np.clip(changed, 0, 1)).astype(np.uint8)


# -- what several share --------------------------------------------------------------------------


def blurred(x: Images, sigma: float) -> Images:
    """Blur by a normal kernel, cut at three sigma; a tenth of a pixel would not reach the next."""
    return x if sigma < 0.1 else ndimage.gaussian_filter(x, (0, sigma, sigma), truncate=3.0)


def trailed(x: Images, radius: float, sigma: float, angles: Images) -> Images:
    """Blur by motion: half a normal kernel along a line, each image in its own direction.

    The kernel has `2 radius + 1` taps one pixel apart, at the nearest pixel each, as ImageMagick's
    `-motion-blur` has it; beyond the edge the edge goes on. Angles are radians, from the direction
    of growing columns towards growing rows.
    """
    taps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    image, places = np.arange(len(x))[:, None, None], np.arange(SIDE)
    out = np.zeros_like(x)
    for tap, weight in zip(taps, (weights / weights.sum()).astype(np.float32), strict=True):
        rows, columns = (
            np.clip(places + np.rint(tap * part(angles)).astype(np.intp)[:, None], 0, SIDE - 1)
            for part in (np.sin, np.cos)
        )
        out += weight * x[image, rows[:, :, None], columns[:, None, :]]
    return out


def zoomed(x: Images, factor: float) -> Images:
    """Enlarge about the centre, with linear interpolation."""
    centre = (SIDE - 1) / 2 * (1 - 1 / factor)
    steps, starts = (1, 1 / factor, 1 / factor), (0, centre, centre)
    return np.asarray(ndimage.affine_transform(x, steps, starts, order=1, mode="nearest"))


def plasma(draws: Draws, decay: float) -> Images:
    """Draw plasma fractals in [0, 1], by diamonds and squares on a torus.

    Midpoints are the mean of their four neighbours and a uniform number, whose range shrinks by
    decay**2 from one level to the next (in the original the range goes in twice, too).
    """
    size = 32
    field = 2 * draws.uniform(size, size) - 1  # of each place first its number, then its value
    step, reach = size, 1.0
    field[:, 0, 0] = 0
    while step > 1:
        half = step // 2
        first, middle = slice(None, None, step), slice(half, None, step)
        corners = field[:, first, first]
        right, below = np.roll(corners, -1, 2), np.roll(corners, -1, 1)
        square = (corners + below + right + np.roll(below, -1, 2)) * np.float32(0.25)
        field[:, middle, middle] = square + reach * field[:, middle, middle]
        centres = field[:, middle, middle]
        for axis, beside, place in ((1, right, (first, middle)), (2, below, (middle, first))):
            diamond = centres + np.roll(centres, 1, axis) + corners + beside
            field[:, *place] = diamond * np.float32(0.25) + reach * field[:, *place]
        step, reach = half, reach / decay**2
    field -= field.min(axis=(1, 2), keepdims=True)
    field /= field.max(axis=(1, 2), keepdims=True)
    return field[:, :SIDE, :SIDE]


# -- noise and blur ------------------------------------------------------------------------------


def gaussian_noise(x: Images, draws: Draws, deviation: float) -> Images:
    """Add normal noise of one standard deviation everywhere, as in low light."""
    return x + np.float32(deviation) * draws.normal(SIDE, SIDE)


def shot_noise(x: Images, draws: Draws, photons: float) -> Images:
    """Draw Poisson photon counts; a white pixel has `photons` of them on average."""
    return draws.poisson(x * np.float32(photons)) / np.float32(photons)


def impulse_noise(x: Images, draws: Draws, share: float) -> Images:
    """Turn this fraction of the values black or white, with equal probability (bit errors)."""
    chance = draws.uniform(SIDE, SIDE)
    return np.where(chance < share / 2, np.float32(0), np.where(chance >= 1 - share / 2, 1, x))


def defocus_blur(x: Images, draws: Draws, radius: float, softness: float) -> Images:
    """Blur as out of focus: each point becomes a soft disk.

    Unlike the original a pixel counts by the share of it that the disk covers, so that radii need
    not be whole.
    """
    reach = int(np.ceil(radius + 0.5)) + int(np.ceil(2 * softness))
    size = 2 * reach + 1
    fine = (np.arange(size * SUBPIXELS) + 0.5) / SUBPIXELS - reach - 0.5
    inside = fine[:, None] ** 2 + fine[None, :] ** 2 <= radius**2
    kernel = inside.reshape(size, SUBPIXELS, size, SUBPIXELS).mean(axis=(1, 3))
    kernel = ndimage.gaussian_filter(kernel, softness, mode="constant")
    return np.asarray(ndimage.convolve(x, kernel[None] / kernel.sum(), mode="mirror"))


def glass_blur(x: Images, draws: Draws, sigma: float, near: int, rounds: int) -> Images:
    """Blur as by frosted glass: blur, swap near pixels some times over, blur again.

    The reach of swaps, here and in the original, ends one pixel earlier to the right and below.
    """
    x, images = blurred(x, sigma).copy(), np.arange(len(x))
    moves = draws.offsets(near, rounds, SIDE, SIDE, 2)
    places = range(SIDE - near - 1, near - 1, -1)
    for turn in range(rounds):
        for i in places:
            for j in places:
                rows, columns = i + moves[:, turn, i, j, 0], j + moves[:, turn, i, j, 1]
                there = x[images, rows, columns]
                x[images, rows, columns] = x[:, i, j]
                x[:, i, j] = there
    return blurred(x, sigma)


def motion_blur(x: Images, draws: Draws, radius: float, sigma: float) -> Images:
    """Blur by a moving camera: a trail within 45 degrees of the horizontal."""
    return trailed(x, radius, sigma, np.float32(np.pi / 2) * (draws.uniform() - np.float32(0.5)))


def zoom_blur(x: Images, draws: Draws, furthest: float, step: float) -> Images:
    """Average the image and its enlargements below `furthest`, as a camera that moves ahead does.

    The original crops to whole pixels before it enlarges; here the centre stays where it is.
    """
    factors = np.arange(1, furthest - step / 2, step)
    sizes = [x, *(zoomed(x, float(factor)) for factor in factors)]
    return np.asarray(np.mean(sizes, axis=0), np.float32)


# -- weather -------------------------------------------------------------------------------------


def snow(
    x: Images,
    draws: Draws,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    image_weight: float,
) -> Images:
    """Add flakes that fall steeply, in both directions, before a whitened image.

    Flakes are normal noise (`mean`, `deviation`), enlarged by `zoom`, cut below `threshold` and
    blurred along their fall; the image has the weight `image_weight`.
    """
    flakes = zoomed(np.float32(deviation) * draws.normal(SIDE, SIDE) + np.float32(mean), zoom)
    flakes = np.clip(np.where(flakes < threshold, np.float32(0), flakes), 0, 1)
    angles = np.float32(np.pi / 2) * (draws.uniform() - np.float32(1.5))
    flakes = trailed(flakes, radius, sigma, angles)
    white = np.maximum(x, 1.5 * x + np.float32(0.5))
    x = np.float32(image_weight) * x + np.float32(1 - image_weight) * white
    return np.asarray(x + flakes + flakes[:, ::-1, ::-1])


def frost(x: Images, draws: Draws, image_weight: float, ice: float) -> Images:
    """Add ice on the lens: bright ridges that are dense near the edges.

    Ridges of one plasma fractal, where another one, raised towards the edges, lets them grow.
    """
    ridge = 1 - np.abs(2 * plasma(draws, 1.6) - 1)
    side = np.abs(np.linspace(-1, 1, SIDE, dtype=np.float32))
    edge = np.maximum(side[:, None], side[None, :])
    growth = np.clip(plasma(draws, 2.0) + edge - np.float32(0.5), 0, 1)
    layer = np.clip(1.5 * ridge**2 * growth, 0, 1)
    return np.asarray(np.float32(image_weight) * x + np.float32(ice) * layer)


def fog(x: Images, draws: Draws, density: float, decay: float) -> Images:
    """Add a plasma fractal to the image, then dim it to its former largest value."""
    brightest = x.max(axis=(1, 2), keepdims=True)
    dim = brightest / (brightest + np.float32(density))
    return np.asarray((x + np.float32(density) * plasma(draws, decay)) * dim)


def brightness(x: Images, draws: Draws, more: float) -> Images:
    """Raise the value of each pixel."""
    return x + np.float32(more)


# -- digital -------------------------------------------------------------------------------------


def contrast(x: Images, draws: Draws, factor: float) -> Images:
    """Shrink differences from the image's mean to this fraction, as in haze."""
    mean = x.mean(axis=(1, 2), keepdims=True)
    return np.asarray((x - mean) * np.float32(factor) + mean)


def elastic_transform(
    x: Images, draws: Draws, stretch: float, sigma: float, affine: float
) -> Images:
    """Apply a random affine map, and small displacements that are smooth over `sigma` pixels.

    As in the original, after Simard et al. (2003): three points a third of the side away from the
    centre move by up to `affine` pixels; displacements are uniform noise in [-1, 1], blurred and
    multiplied by `stretch`. The image is read once where both lead to, mirrored beyond the edge.
    """
    points = SIDE // 2 + SIDE // 3 * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + affine * (2.0 * draws.uniform(3, 2) - 1)
    # rows [r, c, 1] of `moved` times the map give the places where to read; each image solves alone
    maps = np.linalg.solve(np.concatenate([moved, np.ones((len(x), 3, 1))], axis=2), 1.0 * points)
    grid = np.stack([*np.mgrid[:SIDE, :SIDE], np.ones((SIDE, SIDE))], axis=-1)
    noise = np.moveaxis(2 * draws.uniform(SIDE, SIDE, 2) - 1, 3, 0)
    read = [
        np.einsum("ijk,nk->nij", grid, maps[:, :, axis]) + stretch * blurred(noise[axis], sigma)
        for axis in (0, 1)
    ]
    image = np.broadcast_to(np.arange(len(x))[:, None, None], x.shape)
    return np.asarray(ndimage.map_coordinates(x, [image, *read], order=1, mode="mirror"))


def pixelate(x: Images, draws: Draws, share: float) -> Images:
    """Enlarge pixels: `share` of them along each side, each the average of what it covers."""
    cells, pixels = int(SIDE * share), np.arange(SIDE)
    edges = np.linspace(0, SIDE, cells + 1)
    cover = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    cover = np.maximum(cover, 0) / np.maximum(cover, 0).sum(axis=1, keepdims=True)
    line = cover[((pixels + 0.5) * cells / SIDE).astype(np.intp)].astype(np.float32)
    return np.asarray(line @ x @ line.T)


_LUMINANCE = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
"""ITU-T T.81 (the JPEG standard), annex K.1: quantisation table for quality 50."""


def jpeg_compression(x: Images, draws: Draws, quality: float) -> Images:
    """Compress by a baseline JPEG of this quality, below 50 as in libjpeg.

    8 x 8 blocks by the DCT, rounded to the standard's table; incomplete blocks repeat the last row
    or column.
    """
    table = np.clip(np.floor((_LUMINANCE * (5000 // quality) + 50) / 100), 1, 255)[:, None, :]
    levels = np.rint(255 * x.astype(np.float64)) - 128
    plane = np.pad(levels, ((0, 0), (0, -SIDE % 8), (0, -SIDE % 8)), mode="edge")
    blocks = plane.reshape(len(x), plane.shape[1] // 8, 8, plane.shape[2] // 8, 8)
    # ties are common (a DC is an eighth of a sum): a hair up, so that no last bit decides
    steps = np.floor(fft.dctn(blocks, axes=(2, 4), norm="ortho") / table + (0.5 + 1e-7))
    back: Floats = fft.idctn(steps * table, axes=(2, 4), norm="ortho").reshape(plane.shape)
    return ((back[:, :SIDE, :SIDE] + 128) / 255).astype(np.float32)


_FUNCTIONS: tuple[Callable[..., Images], ...] = (
    *(gaussian_noise, shot_noise, impulse_noise),
    *(defocus_blur, glass_blur, motion_blur, zoom_blur),
    *(snow, frost, fog, brightness),
    *(contrast, elastic_transform, pixelate, jpeg_compression),
)
CORRUPTIONS = {function.__name__: function for function in _FUNCTIONS}
"""The fifteen corruptions, by name: noise, blurs, weather, digital."""
