"""Shipped logits under domain shift: many corruptions of one test set, in one small file."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.errors import InputError
from fedcal.core.types import Floats

STEPS = 12
"""Steps of sqrt(depth) per unit: with 12 a file of 31 variants stays under 1 MiB."""

Variant = tuple[str, int]
"""Corruption and severity; ("none", 0) is the unchanged images."""


def packed(logits: ArrayLike) -> NDArray[np.uint8]:
    """Return logits as bytes, (n, c): sqrt(largest logit of the row - logit), in steps of 1/12.

    Values above 255 steps are cut. Confidence depends on the runners-up, so steps are fine near the
    top and coarse far below: depth 1 is stored to 1/12 nat, depth 25 to 5/12. Rounding keeps the
    row's order except for ties.

    """
    z = np.asarray(logits, np.float64)
    depth = z.max(axis=1, keepdims=True) - z
    code = np.minimum(np.rint(STEPS * np.sqrt(depth)), 255)
    return np.asarray(code, np.uint8)


def unpacked(code: NDArray[np.uint8]) -> Floats:
    """Return logits from `packed`, (n, c), with the largest of each row at 0."""
    return -((code.astype(np.float64) / STEPS) ** 2)


def key_of(variant: Variant) -> str:
    """Return the name of the variant's array in the file, such as `fog_5`."""
    return f"{variant[0]}_{variant[1]}"


def parse(text: str, name: str, variants: tuple[Variant, ...]) -> Variant:
    """Return the variant of a name `name:CORRUPTION:SEVERITY`, or raise InputError."""
    corruption, _, severity = text.removeprefix(f"{name}:").partition(":")
    for variant in variants:
        if (corruption, severity) == (variant[0], str(variant[1])):
            return variant
    corruptions = dict.fromkeys(c for c, _ in variants if c != "none")
    severities = sorted({s for c, s in variants if c != "none"})
    raise InputError(
        f"unknown data set {text[:200]!r}; allowed: {name}:none:0 and {name}:CORRUPTION:SEVERITY "
        f"with severity {' or '.join(map(str, severities))} and corruption {', '.join(corruptions)}"
    )
