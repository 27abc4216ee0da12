"""The fifteen corruptions of ImageNet-C, for digits and photographs: the shifts of shipped data.

After Hendrycks and Dietterich (2019), rewritten with numpy, scipy and Pillow. Photographs, 32 x 32
in three colours, are corrupted at the strength of CIFAR-10-C, with its constants and by its
definitions. Digits, grey and 28 x 28, have constants of our own,
because white on black bears more, and some definitions of our own. What differs is said at each
function; `frost` differs most: the original lays photographs over the image, and here a fractal is
drawn.

An image's draws, and its bits, do not depend on the other images.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from fedcal.core.checks import InputError, integer, one_of
from fedcal.core.numerics import check_seed

Images: TypeAlias = NDArray[np.float32]
"""(n, side, side, channels) in [0, 1]."""

SHAPES = {(28, 28): "digits", (32, 32, 3): "photographs"}
"""Shape of an image -> its table of constants."""

CONSTANTS = tomllib.loads(Path(__file__).with_name("corruptions.toml").read_text("utf-8"))
"""Table -> corruption -> arguments of its function by severity; of digits, chosen by accuracy."""
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
        (n, 28, 28), grey, or (n, 32, 32, 3), 0..255
    name
        one of `CORRUPTIONS`
    severity
        1 (weakest) to 5; 0 leaves all as it is
    seed
        of all draws

    Raises
    ------
    InputError
        An unknown name or severity, other shapes or types.
    """
    if severity == 0:
        return images
    function = CORRUPTIONS[one_of("corruption", name, CORRUPTIONS)]
    table = SHAPES.get(images.shape[1:])
    if images.dtype != np.uint8 or table is None:
        raise InputError(
            f"images must be (n, 28, 28) or (n, 32, 32, 3) uint8, got {images.shape} {images.dtype}"
        )
    level = CONSTANTS[table][name][integer("severity", severity, 1, 5) - 1]
    x = images.reshape(*images.shape[:3], -1).astype(np.float32) / np.float32(255)
    changed = 255 * np.clip(function(x, Draws(seed, name, len(x)), *level), 0, 1)
    # as in the benchmark a fraction of photographs is cut off; no last bit decides
    integers = np.rint(changed) if images.ndim == 3 else np.floor(changed + np.float32(0.001))
    return integers.astype(np.uint8).reshape(images.shape)


# -- what several share --------------------------------------------------------------------------


def blurred(x: Images, sigma: float) -> Images:
    """Blur by a normal kernel, cut at three sigma; a tenth of a pixel would not reach the next."""
    return x if sigma < 0.1 else ndimage.gaussian_filter(x, sigma, truncate=3.0, axes=(1, 2))


def trailed(x: Images, radius: float, sigma: float, angles: Images) -> Images:
    """Blur by motion: half a normal kernel along a line, each image in its own direction.

    The kernel has `2 radius + 1` taps one pixel apart, at the nearest pixel each, as ImageMagick's
    `-motion-blur` has it; beyond the edge the edge goes on. Angles are radians, from the direction
    of growing columns towards growing rows.
    """
    taps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    image, places = np.arange(len(x))[:, None, None], np.arange(x.shape[1])
    out = np.zeros_like(x)
    for tap, weight in zip(taps, (weights / weights.sum()).astype(np.float32), strict=True):
        rows, columns = (
            np.clip(places + np.rint(tap * part(angles)).astype(np.intp)[:, None], 0, places[-1])
            for part in (np.sin, np.cos)
        )
        out += weight * x[image, rows[:, :, None], columns[:, None, :]]
    return out


def mapped(x: Images, line: Images) -> Images:
    """Multiply each row and each column by one matrix."""
    return np.moveaxis(np.asarray(line @ np.moveaxis(x, 3, 1) @ line.T, np.float32), 1, 3)


def zoomed(x: Images, factor: float, crops: bool) -> Images:
    """Enlarge about the centre, with linear interpolation.

    `crops`: as published, whole pixels are cut off before and after: the centre moves by a pixel at
    most.
    """
    side = x.shape[1]
    if crops:
        size = int(np.ceil(side / factor))
        line = ndimage.zoom(np.eye(size, dtype=np.float32), (factor, 1), order=1)
        before, after = (side - size) // 2, (len(line) - side) // 2
        inner = slice(before, before + size)
        return mapped(x[:, inner, inner], line[after : after + side])
    centre = (side - 1) / 2 * (1 - 1 / factor)
    steps, starts = (1, 1 / factor, 1 / factor, 1), (0, centre, centre, 0)
    return np.asarray(ndimage.affine_transform(x, steps, starts, order=1, mode="nearest"))


def plasma(draws: Draws, side: int, decay: float) -> Images:
    """Draw plasma fractals in [0, 1], (n, side, side, 1) with side up to 32.

    By diamonds and squares on a torus: midpoints are the mean of their four neighbours and a
    uniform number, whose range shrinks by decay**2 from one level to the next (in the original the
    range goes in twice, too).
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
    return field[:, :side, :side, None]


# -- noise and blur ------------------------------------------------------------------------------


def gaussian_noise(x: Images, draws: Draws, deviation: float) -> Images:
    """Add normal noise of one standard deviation everywhere, as in low light."""
    return x + np.float32(deviation) * draws.normal(*x.shape[1:])


def shot_noise(x: Images, draws: Draws, photons: float) -> Images:
    """Draw Poisson photon counts; a white pixel has `photons` of them on average."""
    return draws.poisson(x * np.float32(photons)) / np.float32(photons)


def impulse_noise(x: Images, draws: Draws, share: float) -> Images:
    """Turn this fraction of the values black or white, with equal probability (bit errors)."""
    chance = draws.uniform(*x.shape[1:])
    return np.where(chance < share / 2, np.float32(0), np.where(chance >= 1 - share / 2, 1, x))


def defocus_blur(x: Images, draws: Draws, radius: float, softness: float) -> Images:
    """Blur as out of focus: each point becomes a soft disk.

    In photographs a pixel counts if its centre is in the disk, as in the original; in digits by the
    share of it that the disk covers, so that radii need not be whole.
    """
    points, taps = (1, 1) if x.shape[3] == 3 else (SUBPIXELS, None)
    reach = int(np.ceil(radius + 0.5)) + int(np.ceil(2 * softness))
    size = 2 * reach + 1
    fine = (np.arange(size * points) + 0.5) / points - reach - 0.5
    inside = fine[:, None] ** 2 + fine[None, :] ** 2 <= radius**2
    kernel = inside.reshape(size, points, size, points).mean(axis=(1, 3))
    kernel = ndimage.gaussian_filter(kernel, softness, mode="constant", radius=taps)
    return np.asarray(ndimage.convolve(x, kernel[None, ..., None] / kernel.sum(), mode="mirror"))


def glass_blur(x: Images, draws: Draws, sigma: float, near: int, rounds: int) -> Images:
    """Blur as by frosted glass: blur, swap near pixels some times over, blur again.

    The reach of swaps, here and in the original, ends one pixel earlier to the right and below. In
    photographs, as published, a pixel is not swapped but takes a near one's colour.
    """
    side, copies = x.shape[1], x.shape[3] == 3
    x, images = blurred(x, sigma).copy(), np.arange(len(x))
    moves = draws.offsets(near, rounds, side, side, 2)
    places = range(side - near - 1 + copies, near - 1 + copies, -1)
    for turn in range(rounds):
        for i in places:
            for j in places:
                rows, columns = i + moves[:, turn, i, j, 0], j + moves[:, turn, i, j, 1]
                there = x[images, rows, columns]
                if not copies:
                    x[images, rows, columns] = x[:, i, j]
                x[:, i, j] = there
    return blurred(x, sigma)


def motion_blur(x: Images, draws: Draws, radius: float, sigma: float) -> Images:
    """Blur by a moving camera: a trail within 45 degrees of the horizontal."""
    return trailed(x, radius, sigma, np.float32(np.pi / 2) * (draws.uniform() - np.float32(0.5)))


def zoom_blur(x: Images, draws: Draws, furthest: float, step: float) -> Images:
    """Average the image and its enlargements below `furthest`, as a camera that moves ahead does.

    In photographs whole pixels are cropped, as in the original; in digits the centre stays.
    """
    factors = np.arange(1, furthest - step / 2, step)
    sizes = [x, *(zoomed(x, float(factor), x.shape[3] == 3) for factor in factors)]
    return np.asarray(np.mean(sizes, axis=0), np.float32)


# -- weather -------------------------------------------------------------------------------------


_GREY = np.array([[0.299], [0.587], [0.114]], np.float32)
"""ITU-R BT.601: shares of red, green and blue."""


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
    flakes = np.float32(deviation) * draws.normal(*x.shape[1:3], 1) + np.float32(mean)
    flakes = zoomed(flakes, zoom, x.shape[3] == 3)
    flakes = np.clip(np.where(flakes < threshold, np.float32(0), flakes), 0, 1)
    angles = np.float32(np.pi / 2) * (draws.uniform() - np.float32(1.5))
    flakes = trailed(flakes, radius, sigma, angles)
    grey = x @ _GREY if x.shape[3] == 3 else x
    white = np.maximum(x, 1.5 * grey + np.float32(0.5))
    x = np.float32(image_weight) * x + np.float32(1 - image_weight) * white
    return np.asarray(x + flakes + flakes[:, ::-1, ::-1])


def frost(x: Images, draws: Draws, image_weight: float, ice: float) -> Images:
    """Add ice on the lens: bright ridges that are dense near the edges.

    Ridges of one plasma fractal, where another one, raised towards the edges, lets them grow.
    """
    side = x.shape[1]
    ridge = 1 - np.abs(2 * plasma(draws, side, 1.6) - 1)
    line = np.abs(np.linspace(-1, 1, side, dtype=np.float32))
    edge = np.maximum(line[:, None, None], line[:, None])
    growth = np.clip(plasma(draws, side, 2.0) + edge - np.float32(0.5), 0, 1)
    layer = np.clip(1.5 * ridge**2 * growth, 0, 1)
    return np.asarray(np.float32(image_weight) * x + np.float32(ice) * layer)


def fog(x: Images, draws: Draws, density: float, decay: float) -> Images:
    """Add a plasma fractal to the image, then dim it to its former largest value."""
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    dim = brightest / (brightest + np.float32(density))
    return np.asarray((x + np.float32(density) * plasma(draws, x.shape[1], decay)) * dim)


def brightness(x: Images, draws: Draws, more: float) -> Images:
    """Raise the value of each pixel, its largest channel; hue and saturation stay."""
    value = x.max(axis=3, keepdims=True)
    share = np.divide(x, value, out=np.ones_like(x), where=value > 0)
    return np.asarray(x + share * (np.minimum(value + np.float32(more), 1) - value))


# -- digital -------------------------------------------------------------------------------------


def contrast(x: Images, draws: Draws, factor: float) -> Images:
    """Shrink differences from each channel's mean to this fraction, as in haze."""
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
    side = x.shape[1]
    points = side // 2 + side // 3 * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + affine * (2.0 * draws.uniform(3, 2) - 1)
    # rows [r, c, 1] of `moved` times the map give the places where to read; each image solves alone
    maps = np.linalg.solve(np.concatenate([moved, np.ones((len(x), 3, 1))], axis=2), 1.0 * points)
    grid = np.stack([*np.mgrid[:side, :side], np.ones((side, side))], axis=-1)
    noise = np.moveaxis(2 * draws.uniform(side, side, 2) - 1, 3, 0)
    read = [
        np.einsum("ijk,nk->nij", grid, maps[:, :, axis]) + stretch * blurred(noise[axis], sigma)
        for axis in (0, 1)
    ]
    image = np.broadcast_to(np.arange(len(x))[:, None, None], x.shape[:3])
    planes = [
        ndimage.map_coordinates(plane, [image, *read], order=1, mode="mirror")
        for plane in np.moveaxis(x, 3, 0)
    ]
    return np.stack(planes, axis=3)


def pixelate(x: Images, draws: Draws, share: float) -> Images:
    """Enlarge pixels: `share` of them along each side, each the average of what it covers.

    In photographs a cell averages the pixels whose centres it covers, as Pillow's box filter does.
    """
    side = x.shape[1]
    cells, pixels = int(side * share), np.arange(side)
    edges = np.linspace(0, side, cells + 1)
    cover = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    cover = np.maximum(cover, 0) if x.shape[3] == 1 else 1.0 * (cover > 0.5)
    cover /= cover.sum(axis=1, keepdims=True)
    return mapped(x, cover[((pixels + 0.5) * cells / side).astype(np.intp)].astype(np.float32))


def jpeg_compression(x: Images, draws: Draws, quality: int) -> Images:
    """Compress by a baseline JPEG of this quality, which stores colours at half the resolution."""
    found = np.empty_like(x)
    for k, row in enumerate(np.rint(255 * x).astype(np.uint8)):
        file = BytesIO()
        Image.fromarray(row.squeeze()).save(file, "JPEG", quality=quality)
        found[k] = np.asarray(Image.open(file)).reshape(row.shape) / np.float32(255)
    return found


CORRUPTIONS: dict[str, Callable[..., Images]] = {
    name: globals()[name] for name in CONSTANTS["photographs"]
}
"""The fifteen corruptions, by name: noise, blurs, weather, digital."""
