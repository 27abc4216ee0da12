"""Images as they lie on disk: `.npz` files, and folders with one folder per class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, located
from fedcal.experiments.training.data import LabelledRows, read_labelled
from fedcal.storage.atomic import path_of

SUFFIXES = (".png", ".jpg", ".jpeg")
"""Files of a folder that are read as images."""


def read_bytes(source: str) -> LabelledRows:
    """Read an `.npz` of images (`x`, `y`, see `read_labelled`), or a folder of them.

    Raises InputError, one line that begins with the path; also where pixels are no bytes.
    """
    path = path_of(source)
    if path.is_dir():
        with located(repr(source)):
            return read_folder(path)
    rows = read_labelled(source)
    if rows.x.dtype != np.uint8:
        raise InputError(f"{source!r}: images must be uint8 (0..255), got {rows.x.dtype}")
    return rows


def read_folder(path: Path) -> LabelledRows:
    """`path/CLASS/*.png`; classes in the order of their names, files in the order of theirs.

    Raises InputError, one line without the path: no images, or images of several sizes.
    """
    names = class_folders(path)
    files = image_files(path, {name: label for label, name in enumerate(names)})
    if not files:
        raise InputError(
            f"holds no images: it must have one folder per class, with {', '.join(SUFFIXES)} files"
        )
    first = read_image(files[0][1])
    x = np.empty((len(files), *first.shape), np.uint8)
    for row, (_, file) in enumerate(files):
        x[row] = read_image(file, "L" if first.ndim == 2 else "RGB", first.shape[:2])
    y = np.array([label for label, _ in files], np.int64)
    return LabelledRows(x, y, tuple(names))


def class_folders(folder: Path) -> list[str]:
    """Names of the folders inside, sorted; hidden ones are passed over."""
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def image_files(folder: Path, numbers: Mapping[str, int]) -> list[tuple[int, Path]]:
    """Return the images in the classes' folders, with the number of the class, by name."""
    return [
        (number, file)
        for name, number in numbers.items()
        for file in sorted((folder / name).iterdir())
        if file.suffix.lower() in SUFFIXES
    ]


def read_image(
    file: Path, mode: str | None = None, size: tuple[int, ...] | None = None
) -> NDArray[np.uint8]:
    """Pixels of an image file, (h, w) or (h, w, 3); needs Pillow.

    Parameters
    ----------
    mode
        "L" (grey) or "RGB"; None = as the file has it
    size
        (h, w) that it must have

    Raises
    ------
    InputError
        One line: no intact image, more than 8 bits per channel, another size.
    """
    from PIL import Image as pillow

    name = f"{file.parent.name}/{file.name}"
    try:
        with pillow.open(file) as image:
            deep = image.mode.startswith(("I", "F"))  # Pillow would cut at 255
            own = "L" if image.mode in ("1", "L") else "RGB"
            pixels = np.asarray(image.convert(mode or own), np.uint8)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError):
        raise InputError(f"{name} is not an intact image") from None
    if deep:
        raise InputError(f"{name} has more than 8 bits per channel")
    if size is not None and pixels.shape[:2] != size:
        raise InputError(
            f"{name} is {pixels.shape[1]} x {pixels.shape[0]}, the first image "
            f"{size[1]} x {size[0]}; all must have one size"
        )
    return pixels
