"""Every number that a person may read in what a run or a comparison leaves; strict JSON."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

CLASS_ROWS = (1009, 1103, 1301)
"""Primes, of rows of each class: numbers that no setting, bin or test count equals."""
FIGURE = re.compile("<svg.*?</svg>", re.DOTALL)
TAG = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def numbers_of(content: Any) -> np.ndarray:
    """The numbers of an array, or those in a text."""
    if isinstance(content, np.ndarray) and content.dtype.kind in "fiub":
        return content.astype(float).ravel()
    return np.array([float(n) for n in NUMBER.findall(str(content))])


def numbers_in(folder: Path, *but: str) -> np.ndarray:
    """Every number in every file of a folder but these, in arrays and in text.

    Of the report that is what a person reads; figures are made of the other files' numbers, and
    their coordinates would equal any number by chance.
    """
    found: list[Any] = []
    for path in folder.rglob("*"):
        if path.is_dir() or path.name in but or path.suffix in (".png", ".svg", ".pdf"):
            continue
        if path.suffix == ".npy":
            found.append(np.load(path, allow_pickle=False).ravel())
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                found += [arrays[name] for name in arrays]
        elif path.suffix == ".html":
            words = TAG.sub(" ", FIGURE.sub(" ", path.read_text("utf-8")))
            found.append(re.sub(r"(?<=\d),(?=\d{3})", "", words))
        else:
            found.append(path.read_text("utf-8"))
    return np.concatenate([numbers_of(content) for content in found])


def strict(text: str) -> Any:
    """What JSON says; ValueError if it has a constant that JSON has not, such as NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)
