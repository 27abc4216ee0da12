"""Images with labels: `.npz` files, folders of a folder per class, and LEAF's JSON."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.errors import InputError
from fedcal.experiments.training.leaf import is_leaf, read_leaf
from fedcal.experiments.training.pool import MOST_CLASSES, Pool
from fedcal.npz import read_npz
from fedcal.optional import need
from fedcal.types import Integers

SUFFIXES = (".png", ".jpg", ".jpeg")
"""Files of a folder that are read as images."""

_KEYS = ("x", "y", "client", "test_x", "test_y", "test_client")


def read_pool(paths: str) -> Pool:
    """Read labelled images; several sources, separated by commas, become one pool.

    Parameters
    ----------
    paths : of `.npz` files with `x`, `y`, optional `client`, and optional `test_x`, `test_y`,
        `test_client`; of folders with one folder of images per class; or of one folder that
        LEAF wrote (`train/*.json`, `test/*.json`)

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    sources = [part.strip() for part in paths.split(",")]
    if not all(sources):
        raise InputError(f"--data: an entry of the list {paths!r} is empty")
    if len({Path(source).expanduser().resolve() for source in sources}) < len(sources):
        raise InputError(f"{paths!r}: one source is there twice; its rows would train and test")
    if len(sources) == 1 and is_leaf(Path(sources[0])):
        return read_leaf(Path(sources[0]))
    found = []
    for source in sources:
        path = Path(source).expanduser()
        with _named(source):
            if path.is_dir():
                found.append(_folder(path))
            elif path.suffix.lower() == ".npz":
                found.append(_npz(path))
            elif path.exists():
                raise InputError("unknown kind of data; allowed: .npz, .txt, .tsv, .tsv.gz, folder")
            else:
                raise InputError("no such file or folder")
    with _named(paths):
        return _merged(found)


@contextlib.contextmanager
def _named(path: str) -> Any:
    try:
        yield
    except InputError as error:
        raise InputError(f"{path!r}: {error}") from None


@dataclass(frozen=True)
class _Part:
    """Rows of one file or folder; `classes` names them where labels are folders."""

    x: NDArray[Any]
    y: Integers
    client: NDArray[Any] | None = None
    classes: tuple[str, ...] | None = None


def _merged(parts: list[_Part]) -> Pool:
    first = parts[0]
    for part in parts[1:]:
        if part.x.shape[1:] != first.x.shape[1:] or part.x.dtype != first.x.dtype:
            raise InputError(
                f"images of {_shown(part.x)} and of {_shown(first.x)} do not go together"
            )
        if part.classes != first.classes:
            raise InputError("the sources have different classes (names of their folders)")
        if (part.client is None) != (first.client is None):
            raise InputError("client is there in some sources and missing in others")
    y = np.concatenate([part.y for part in parts])
    classes = int(y.max()) + 1 if first.classes is None else len(first.classes)
    if classes < 2:
        raise InputError("there is one class; at least 2 are needed")
    x = first.x if len(parts) == 1 else np.concatenate([part.x for part in parts])
    if first.client is None:
        return Pool(x, y, classes)
    ids = np.concatenate([part.client for part in parts if part.client is not None])
    names, owner = np.unique(ids, return_inverse=True)
    return Pool(x, y, classes, owner.astype(np.int64), tuple(str(name) for name in names))


def _shown(x: NDArray[Any]) -> str:
    return f"{' x '.join(map(str, x.shape[1:]))} ({x.dtype})"


def _npz(path: Path) -> _Part:
    arrays = read_npz(path)
    for key in arrays:
        if key not in _KEYS:
            raise InputError(f"unknown key {key[:80]!r}; allowed: {', '.join(_KEYS)}")
    for key in ("x", "y"):
        if key not in arrays:
            raise InputError(f"the array {key!r} is missing")
    parts = [_checked(arrays, "")]
    if "test_x" in arrays or "test_y" in arrays:
        for key in ("test_x", "test_y"):
            if key not in arrays:
                raise InputError(f"the array {key!r} is missing")
        parts.append(_checked(arrays, "test_"))
        if parts[0].x.shape[1:] != parts[1].x.shape[1:] or parts[0].x.dtype != parts[1].x.dtype:
            raise InputError(f"test_x: {_shown(parts[1].x)}, but x has {_shown(parts[0].x)}")
        if (parts[0].client is None) != (parts[1].client is None):
            raise InputError("client and test_client: give both or none of them")
    clients = [part.client for part in parts if part.client is not None]
    return _Part(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate(clients) if clients else None,
    )


def _checked(arrays: dict[str, NDArray[Any]], prefix: str) -> _Part:
    x, y = arrays[f"{prefix}x"], arrays[f"{prefix}y"]
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise InputError(
            f"{prefix}x: must have shape (rows, height, width) or (rows, height, width, "
            f"channels), got {x.shape}"
        )
    if x.dtype != np.uint8:
        if x.dtype.kind != "f":
            raise InputError(f"{prefix}x: must be uint8 (0..255) or float, got {x.dtype}")
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise InputError(f"{prefix}x: all values must be finite")
    if y.shape != (len(x),):
        raise InputError(f"{prefix}y: must have shape ({len(x)},), one per image, got {y.shape}")
    if y.dtype.kind not in "iuf":
        raise InputError(f"{prefix}y: must hold whole numbers, got type {y.dtype}")
    bad = ~((y >= 0) & (y < MOST_CLASSES)) | (y != np.floor(np.where(np.isfinite(y), y, 0)))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{prefix}y: {y[row]:g} at row {row}; must be a class, a whole number in "
            f"[0, {MOST_CLASSES - 1}]"
        )
    client = arrays.get(f"{prefix}client")
    if client is not None:
        if client.shape != (len(x),):
            raise InputError(f"{prefix}client: must have shape ({len(x)},), got {client.shape}")
        if client.dtype.kind not in "iuU":
            raise InputError(
                f"{prefix}client: must hold whole numbers or strings, got type {client.dtype}"
            )
    return _Part(x, y.astype(np.int64), client)


def _folder(path: Path) -> _Part:
    """`path/CLASS/*.png`; classes in the order of their names, files in the order of theirs."""
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    files = [
        (label, file)
        for label, folder in enumerate(folders)
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise InputError(
            f"holds no images: it must have one folder per class, with {', '.join(SUFFIXES)} files"
        )
    pillow = need("PIL.Image", "train", "reading images")
    with _image(pillow, files[0][1]) as image:
        mode = "L" if image.mode in ("1", "L") else "RGB"
        size = image.size
    channels = () if mode == "L" else (3,)
    x = np.empty((len(files), size[1], size[0], *channels), np.uint8)
    for row, (_, file) in enumerate(files):
        with _image(pillow, file) as image:
            if image.size != size:
                raise InputError(
                    f"{file.parent.name}/{file.name} is {image.size[0]} x {image.size[1]}, the "
                    f"first image {size[0]} x {size[1]}; all must have one size"
                )
            x[row] = _pixels(image, mode, file)
    y = np.array([label for label, _ in files], np.int64)
    return _Part(x, y, classes=tuple(folder.name for folder in folders))


def _image(pillow: Any, file: Path) -> Any:
    try:
        image = pillow.open(file)
    except (OSError, ValueError, pillow.DecompressionBombError) as error:
        raise InputError(f"{file.parent.name}/{file.name} is no readable image") from error
    if image.mode.startswith(("I", "F")):  # more than 8 bits: Pillow would cut at 255
        image.close()
        raise InputError(f"{file.parent.name}/{file.name} has more than 8 bits per channel")
    return image


def _pixels(image: Any, mode: str, file: Path) -> NDArray[np.uint8]:
    try:
        return np.asarray(image.convert(mode), np.uint8)
    except (OSError, ValueError, SyntaxError) as error:  # truncated: seen when it is unpacked
        raise InputError(f"{file.parent.name}/{file.name} is no intact image") from error
