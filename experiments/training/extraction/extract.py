"""From images or texts to the arrays of a features file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, stream
from fedcal.experiments.research.corruptions import CORRUPTIONS, corrupt
from fedcal.experiments.training.extraction.extractors import Extractor, Features

BATCH = 16
"""Rows at a time: a network's activations of more do not fit a core's cache."""

REACH = 4.5
"""Standard deviations of a projected feature that 127 steps cover."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Source:
    """Rows of which features are made.

    Attributes
    ----------
    parts
        what keys of the file begin with -> rows: nothing -> all but the source's test rows,
        `test_` -> these, if it has some. Images (n, h, w[, channels]) uint8, or lists of texts
    columns
        further arrays of the file: `labels`, `test_labels`, `class_names`, `client`, ...
    """

    parts: dict[str, Any]
    columns: dict[str, NDArray[Any]]


def extract(
    source: Source,
    extractor: Extractor,
    size: int | None = None,
    corruptions: Iterable[str] = (),
    severity: int = 3,
    progress: Progress | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a features file.

    Every row is made by itself: the extractor's features, of unit length; with `size` a random
    projection, whose matrix has a fixed seed, again to unit length, and int8 steps of a fixed
    width, cut towards zero, so that no row gets longer than 1.

    Parameters
    ----------
    size
        of the projection; None = all features of the extractor, as float16
    corruptions
        of images: the test rows are also kept after each of these
    severity
        of the corruptions, 1 to 5
    progress
        called with the rows that are done, and all

    Raises
    ------
    InputError
        Corruptions without test rows or of texts; a corruption or severity that there is not.
    """
    names = [one_of("corruption", name, CORRUPTIONS) for name in corruptions]
    if names and (extractor.reads != "image" or "test_" not in source.parts):
        raise InputError("corruption: only images of a source with test rows are corrupted")
    jobs: dict[str, Any] = {f"{p}features": rows for p, rows in source.parts.items()}
    total = sum(map(len, jobs.values())) + len(names) * len(source.parts.get("test_", ()))
    done, arrays = 0, dict(source.columns)
    packed = _Packer(extractor.name, size)

    def made(rows: Any) -> NDArray[Any]:
        nonlocal done
        blocks: list[NDArray[Any]] = []
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            blocks.append(packed(extractor.features(batch)))
            done += len(batch)
            if progress is not None:
                progress(done, total)
        return np.concatenate(blocks)

    for key, rows in jobs.items():
        arrays[key] = made(rows)
    for name in names:
        images = corrupt(source.parts["test_"], name, severity, 0)
        arrays[f"test_{name}_{severity}"] = made(images)
    if size is not None:
        arrays["scale"] = np.array(step_of(size))
    return arrays | {"norm": np.array(1.0)}


def step_of(size: int) -> float:
    """Width of a step of int8, for rows of length 1 that are spread over `size` numbers."""
    return float(REACH / np.sqrt(size) / 127)


def projection(width: int, size: int, name: str) -> Features:
    """Return a public random matrix (width, size) of standard normals, by a fixed seed."""
    what = f"projection {name} {width} {size}"
    drawn = stream(0, Purpose.SAMPLING, 0, what).standard_normal((width, size))
    return drawn.astype(np.float32)


def unit(x: Features) -> Features:
    """Rows (n, d) of length 1; zeros stay zeros."""
    length = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))
    return (x / np.where(length > 0, length, 1)[:, None]).astype(np.float32)


def steps(x: Features, step: float) -> NDArray[np.int8]:
    """Rows in steps of int8, cut towards zero and at 127: no row gets longer."""
    whole = np.trunc(x / np.float32(step))
    return np.asarray(np.clip(whole, -127, 127), np.int8)


class _Packer:
    """Features of one extractor to the numbers of the file."""

    def __init__(self, name: str, size: int | None) -> None:
        self._name, self._size = name, size
        self._matrix: Features | None = None

    def __call__(self, x: Features) -> NDArray[Any]:
        """(n, d) to (n, size) int8, or to (n, d) float16."""
        if self._size is None:
            return unit(x).astype(np.float16)
        if self._matrix is None:
            self._matrix = projection(x.shape[1], self._size, self._name)
        return steps(unit(unit(x) @ self._matrix), step_of(self._size))
