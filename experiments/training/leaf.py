"""Folders that LEAF wrote (Caldas et al. 2018): FEMNIST's images, Shakespeare's windows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.errors import InputError
from fedcal.experiments.training.pool import MOST_CLASSES, LabelledRows
from fedcal.experiments.training.text import CHARACTERS, CONTEXT, encode


def is_leaf(folder: Path) -> bool:
    """Whether there is a JSON file in its folder `train`."""
    return any(folder.expanduser().glob("train/*.json"))


def read_leaf(folder: Path) -> LabelledRows:
    """Read `train/*.json` and `test/*.json`: `users`, and `user_data` with `x` and `y` of each.

    A user's `x` is a list of square grey images (of size^2 numbers in [0, 1] each) with classes
    `y`, or a list of texts of 80 characters with the character `y` that follows each.

    Raises
    ------
    InputError
        One line that begins with the file.
    """
    x: list[Any] = []
    y: list[Any] = []
    users: list[str] = []
    training: list[bool] = []
    for part in ("train", "test"):
        for file in sorted(folder.expanduser().glob(f"{part}/*.json")):
            try:
                data = json.loads(file.read_text("utf-8"))["user_data"]
                for user in data:
                    inputs, labels = data[user]["x"], data[user]["y"]
                    if len(inputs) != len(labels):
                        raise InputError(
                            f"{str(file)!r}: user {user!r} has {len(inputs)} x and {len(labels)} y"
                        )
                    x += inputs
                    y += labels
                    users += [user] * len(labels)
                    training += [part == "train"] * len(labels)
            except OSError as error:
                raise InputError(f"{str(file)!r}: {error.strerror}") from None
            except InputError:
                raise
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise InputError(f"{str(file)!r}: is not JSON as LEAF writes it") from None
    if not x:
        raise InputError(f"{str(folder)!r}: no rows")
    names, owner = np.unique(np.array(users), return_inverse=True)
    known = {
        "client": owner.astype(np.int64),
        "names": tuple(str(name) for name in names),
        "training": np.array(training),
    }
    return _windows(folder, x, y, known) if isinstance(x[0], str) else _images(folder, x, y, known)


def _windows(folder: Path, x: list[Any], y: list[Any], known: dict[str, Any]) -> LabelledRows:
    fit = all(isinstance(t, str) and len(t) == CONTEXT for t in x)
    if not fit or not all(isinstance(c, str) and len(c) == 1 for c in y):
        raise InputError(f"{str(folder)!r}: each x must be {CONTEXT} characters, each y one")
    inputs = encode("".join(x)).reshape(len(x), CONTEXT)
    labels = encode("".join(y)).astype(np.int64)
    return LabelledRows(inputs, labels, len(CHARACTERS), ordered=True, **known)


def _images(folder: Path, x: list[Any], y: list[Any], known: dict[str, Any]) -> LabelledRows:
    try:
        with np.errstate(over="ignore"):  # not finite then, which is refused below
            pixels, labels = np.array(x, np.float32), np.array(y)
    except (ValueError, TypeError):
        raise InputError(f"{str(folder)!r}: x must hold images of one size") from None
    size = math.isqrt(pixels.shape[1]) if pixels.ndim == 2 else 0
    if pixels.ndim != 2 or size * size != pixels.shape[1] or not np.isfinite(pixels).all():
        raise InputError(f"{str(folder)!r}: x must hold square images, as lists of finite numbers")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= MOST_CLASSES:
        raise InputError(f"{str(folder)!r}: y must hold classes, whole numbers >= 0")
    if labels.max() < 1:
        raise InputError(f"{str(folder)!r}: there is one class; at least 2 are needed")
    images = pixels.reshape(-1, size, size)
    return LabelledRows(images, labels.astype(np.int64), int(labels.max()) + 1, **known)
