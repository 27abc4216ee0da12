"""Benchmarks of corrupted images as they come: CIFAR-10-C, CIFAR-100-C, ImageNet-C.

And any clean images of yours, corrupted here. Images are handed out in batches: ImageNet-C has
7 GB in each of its 75 variants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, located, one_of, whole
from fedcal.core.numerics import Integers
from fedcal.experiments.research.corruptions import SEVERITIES, corrupt
from fedcal.experiments.research.shift.files import (
    class_folders,
    image_files,
    read_bytes,
    read_image,
)
from fedcal.storage.atomic import path_of

CLEAN = "none"
"""The name of no corruption, severity 0: only for clean images, the benchmarks have none."""

_MOST_CLASSES = 100_000


@dataclass(frozen=True)
class ShiftedImages:
    """Images of one corruption and severity.

    Attributes
    ----------
    labels
        (n,) int64, the class of each image
    read
        of a range of rows, (m, h, w[, channels]) uint8
    """

    labels: Integers = field(repr=False)
    read: Callable[[range], NDArray[np.uint8]] = field(repr=False)

    def batches(self, size: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the images in order, `size` at a time."""
        rows = range(len(self.labels))
        for start in rows[::size]:
            yield self.read(rows[start : start + size])


def read_shifted(
    path: str | Path, corruption: str, severity: int, classes: Sequence[str] | None = None
) -> ShiftedImages:
    """Images of one corruption and severity, from whichever of the three layouts lies there.

    Parameters
    ----------
    path
        a folder of CIFAR-10-C's layout (see `read_cifar_c`) or ImageNet-C's (`read_imagenet_c`),
        or clean images in a `.npz` with `x` and `y`, which are corrupted here by
        `fedcal.experiments.research.corruptions`
    corruption, severity
        of the benchmark; for clean images also "none" and 0
    classes
        see `read_imagenet_c`

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    folder = path_of(path)
    if folder.is_dir():
        with located(repr(str(path))):
            if (folder / "labels.npy").exists():
                return read_cifar_c(folder, corruption, severity)
            return read_imagenet_c(folder, corruption, severity, classes)
    if "," in str(path):
        raise InputError(f"{str(path)!r}: one source of images at a time")
    return _clean(str(path), corruption, severity)


def read_cifar_c(folder: Path, corruption: str, severity: int) -> ShiftedImages:
    """CIFAR-10-C or CIFAR-100-C: the rows of one severity.

    `folder/CORRUPTION.npy` holds (5 n, h, w, channels) bytes, severity 1 first, and
    `folder/labels.npy` the classes of all 5 n. Only the rows asked for are read.
    """
    names = sorted(p.stem for p in folder.glob("*.npy") if p.stem != "labels")
    one_of("corruption", corruption, names)
    whole("severity", severity, 1, 5)
    labels, x = (_array(folder / f"{name}.npy") for name in ("labels", corruption))
    if x.dtype != np.uint8 or x.ndim != 4 or 0 in x.shape:
        raise InputError(
            f"{corruption}.npy must hold (rows, height, width, channels) of uint8, got {x.shape} "
            f"of {x.dtype}"
        )
    if labels.shape != (len(x),) or labels.dtype.kind not in "iu":
        raise InputError(
            f"labels.npy must hold {len(x)} whole numbers, one per image of {corruption}.npy, got "
            f"{labels.shape} of {labels.dtype}"
        )
    if len(x) % len(SEVERITIES):
        raise InputError(f"{corruption}.npy has {len(x)} images, which is not a multiple of 5")
    count = len(x) // len(SEVERITIES)
    first = (severity - 1) * count
    y = labels[first : first + count].astype(np.int64)
    if y.min() < 0 or y.max() >= _MOST_CLASSES:
        raise InputError(f"labels.npy holds {y.min()} and {y.max()}, which are not classes")
    return ShiftedImages(y, lambda rows: np.array(x[first + rows.start : first + rows.stop]))


def read_imagenet_c(
    folder: Path, corruption: str, severity: int, classes: Sequence[str] | None = None
) -> ShiftedImages:
    """ImageNet-C: `folder/CORRUPTION/SEVERITY/WNID/*.JPEG`, all images of one size.

    Classes are numbered in the order of their folders' names, as for ImageNet; give `classes`,
    all names in the model's order, where folders are missing. Needs Pillow.
    """
    names = class_folders(folder)
    if not names:
        raise InputError(
            "holds neither labels.npy (CIFAR-10-C) nor folders CORRUPTION/SEVERITY/CLASS "
            "(ImageNet-C)"
        )
    one_of("corruption", corruption, names)
    inner = folder / corruption / str(whole("severity", severity, 1, 5))
    if not inner.is_dir():
        raise InputError(f"{corruption} has no folder {severity}")
    found = class_folders(inner)
    order = found if classes is None else list(classes)
    unknown = sorted(set(found) - set(order))
    if unknown:
        raise InputError(f"{corruption}/{severity}: class {unknown[0]!r} is not among the classes")
    number = {name: k for k, name in enumerate(order)}
    files = image_files(inner, {name: number[name] for name in found})
    if not files:
        raise InputError(f"{corruption}/{severity} holds no images in folders of classes")

    def read(rows: range) -> NDArray[np.uint8]:
        first = read_image(files[0][1], "RGB").shape[:2]
        return np.stack([read_image(files[row][1], "RGB", first) for row in rows])

    return ShiftedImages(np.array([label for label, _ in files], np.int64), read)


def _clean(path: str, corruption: str, severity: int) -> ShiftedImages:
    pool = read_bytes(path)
    pool = pool.test or pool
    if (corruption, severity) == (CLEAN, 0):
        return ShiftedImages(pool.y, lambda rows: pool.x[rows.start : rows.stop])
    corrupt(pool.x[:1], corruption, severity, 0)  # what is wrong is said now, not in a batch
    return ShiftedImages(
        pool.y, lambda rows: corrupt(pool.x[rows], corruption, severity, 0, numbers=np.array(rows))
    )


def _array(path: Path) -> NDArray[Any]:
    """Map an untrusted `.npy` file without reading it: no pickles, its header checked."""
    try:
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror or 'damaged'}") from None
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError, KeyError, RecursionError):
        raise InputError(
            f"{path.name} is not an intact .npy file of numbers (truncated, damaged, pickled)"
        ) from None
