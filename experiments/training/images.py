"""Pools of labelled rows: images in `.npz` files, in folders or of LEAF, and files of features."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import near, unused
from fedcal.core.classes import places_of
from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.datasets import feature_sets, read_feature_set
from fedcal.experiments.training.features import features_of
from fedcal.experiments.training.rows import MOST_CLASSES, LabelledRows, check_ids, read_leaf
from fedcal.storage.atomic import path_of
from fedcal.storage.npz import read_npz

SUFFIXES = (".png", ".jpg", ".jpeg")
"""Files of a folder that are read as images."""

_KEYS = ("x", "y", "client", "test_x", "test_y", "test_client")


def read_pool(paths: str, feature_norm: float | None = None) -> LabelledRows:
    """Read labelled images or features; several sources of images become one pool.

    Test rows of a source stay apart: they are the pool's `test`.

    Parameters
    ----------
    paths
        separated by commas, of `.npz` files with `x`, `y`, optional `client`, and optional
        `test_x`, `test_y`, `test_client`; of folders with one folder of images per class; or of
        one folder that LEAF wrote (`train/*.json`, `test/*.json`). Or one `.npz` with `features`
        (see `features_of`), or the name of a shipped one
    feature_norm
        a bound on the Euclidean norm of a row of features, to which longer ones are scaled: a
        number that is known without the rows. None = the file's own `norm`

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    if paths in {entry.name for entry in feature_sets()}:
        with named(paths):
            return features_of(read_feature_set(paths), feature_norm)
    pool = _read(paths, feature_norm)
    if pool.kind != "features":
        why = f"{paths!r} holds {pool.kind}s, not features"
        unused(why, feature_norm=feature_norm)
    return pool


def _read(paths: str, feature_norm: float | None) -> LabelledRows:
    sources = [part.strip() for part in paths.split(",")]
    if not all(sources):
        raise InputError(f"--data: an entry of the list {paths!r} is empty")
    if len({path_of(source).resolve() for source in sources}) < len(sources):
        raise InputError(
            f"{paths!r}: one source occurs twice; its rows would be in training and test"
        )
    if len(sources) == 1 and any(path_of(sources[0]).glob("train/*.json")):
        return read_leaf(path_of(sources[0]))
    parts: list[LabelledRows] = []
    tests: list[LabelledRows] = []
    for source in sources:
        path = path_of(source)
        with named(source):
            if path.is_dir():
                parts.append(read_folder(path))
            elif path.suffix.lower() == ".npz":
                arrays = read_npz(path)
                if "features" not in arrays:
                    rows, *tested = image_rows(arrays)
                    parts.append(rows)
                    tests += tested
                elif len(sources) == 1:
                    return features_of(arrays, feature_norm)
                else:
                    raise InputError("holds features, which are read from one file alone")
            elif path.exists():
                raise InputError("unknown kind of data; allowed: .npz, .txt, .tsv, .tsv.gz, folder")
            else:
                raise InputError(
                    "no such file or folder, nor shipped features; "
                    f"{near(source, [entry.name for entry in feature_sets()])}"
                )
    with named(paths):
        _check_together([*parts, *tests])
        pool = replace(_merged(parts), test=_merged(tests) if tests else None)
        if pool.classes < 2:
            raise InputError("there is one class; at least 2 are needed")
        return pool


def read_bytes(paths: str) -> LabelledRows:
    """`read_pool`; InputError where pixels are no bytes."""
    pool = read_pool(paths)
    if pool.x.dtype != np.uint8:
        raise InputError(f"{paths!r}: images must be uint8 (0..255), got {pool.x.dtype}")
    return pool


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """Let what is wrong inside begin with the path."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path!r}: {error}") from None


def _check_together(parts: list[LabelledRows]) -> None:
    first = parts[0]
    for part in parts[1:]:
        if _kind(part) != _kind(first):
            raise InputError(f"images of {_kind(part)} and of {_kind(first)} do not go together")
        if part.names != first.names:
            raise InputError("the sources have different classes (names of their folders)")
        if (part.client is None) != (first.client is None):
            raise InputError("client is present in some sources and missing in others")


def _merged(parts: list[LabelledRows]) -> LabelledRows:
    first = parts[0]
    clients = [part.client for part in parts if part.client is not None]
    return LabelledRows(
        first.x if len(parts) == 1 else np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        first.names,
        np.concatenate(clients) if clients else None,
    )


def _kind(rows: LabelledRows) -> str:
    """Return the size of an image, and the type of its numbers."""
    return f"{' x '.join(map(str, rows.x.shape[1:]))} ({rows.x.dtype})"


def read_images(path: Path) -> list[LabelledRows]:
    """Return the rows of an `.npz` file of images, and its test rows, if it has some.

    Raises InputError, one line without the path.
    """
    return image_rows(read_npz(path))


def image_rows(arrays: dict[str, NDArray[Any]]) -> list[LabelledRows]:
    """`read_images` of the arrays of a file."""
    for key in arrays:
        if key not in _KEYS:
            raise InputError(f"unknown key {key[:80]!r}; allowed: {', '.join(_KEYS)}, or features")
    tested = "test_x" in arrays or "test_y" in arrays
    parts = [_checked(arrays, prefix) for prefix in ("", "test_")[: 1 + tested]]
    rows, test = parts[0], parts[-1]
    if _kind(rows) != _kind(test):
        raise InputError(f"test_x: {_kind(test)}, but x has {_kind(rows)}")
    if (rows.client is None) != (test.client is None):
        raise InputError("client and test_client: give both or none of them")
    return parts


def _checked(arrays: dict[str, NDArray[Any]], prefix: str) -> LabelledRows:
    for key in (f"{prefix}x", f"{prefix}y"):
        if key not in arrays:
            raise InputError(f"the array {key!r} is missing")
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
    labels = places_of(f"{prefix}y", y, None, (len(x), MOST_CLASSES), "images")
    client = arrays.get(f"{prefix}client")
    if client is not None:
        client = check_ids(f"{prefix}client", client, len(x))
    return LabelledRows(x, labels, client=client)


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
    pillow = need("PIL.Image", "train", "reading images")
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
