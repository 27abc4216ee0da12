"""Draw a few images under every corruption: severity 1 above, severity 5 below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.experiments.research.command import refuse_out, run_module
from fedcal.experiments.research.corruptions import CORRUPTIONS, TABLES, corrupt
from fedcal.experiments.research.shift.files import read_bytes
from fedcal.storage.atomic import whole_file

SHOWN = 4
"""Images of each corruption."""

_COLUMNS, _DPI, _COLOURS = 4, 72, 16


def grid(images: NDArray[Any], table: str | None, seed: int) -> list[tuple[str, NDArray[Any]]]:
    """(name, tiles): the images themselves, and below each other severities 1 and 5 of each kind.

    Parameters
    ----------
    images
        (n, h, w[, channels]) uint8
    table, seed
        see `fedcal.experiments.research.corruptions.corrupt`
    """
    panels = [("none", np.concatenate(list(images), axis=1))]
    for name in CORRUPTIONS:
        rows = [
            np.concatenate(list(corrupt(images, name, severity, seed, table=table)), axis=1)
            for severity in (1, 5)
        ]
        panels.append((name, np.concatenate(rows)))
    return panels


_OPTIONS: dict[str, dict[str, Any]] = {
    "images": {"required": True, "help": ".npz with x and y, or an image folder"},
    "out": {"type": Path, "required": True, "help": "the .png to write"},
    "table": {"choices": list(TABLES), "help": "whose constants (by image size)"},
    "seed": {"type": int, "default": 0, "help": "of what is drawn (0)"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read images, corrupt a few, draw."""
    run_module("shift.picture", __doc__, _OPTIONS, _run, arguments)


def _run(options: Any) -> None:
    refuse_out(options.out, ".png")
    images = read_bytes(options.images).x[:SHOWN]
    panels = grid(images, options.table, options.seed)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    height, width = panels[1][1].shape[:2]
    rows = -(-len(panels) // _COLUMNS)
    size = (_COLUMNS * 2 * width / _DPI, rows * (2 * height + 24) / _DPI)
    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, _COLUMNS).flat)
    for axis in axes:
        axis.axis("off")
    for axis, (name, tiles) in zip(axes, panels, strict=False):
        axis.imshow(tiles, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axis.set_title(name.replace("_", " "), fontsize=8)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba()))
    with whole_file(options.out) as file:  # few colours: a third of the bytes
        picture.convert("RGB").quantize(_COLOURS).save(file, format="PNG", optimize=True)


if __name__ == "__main__":
    main()
