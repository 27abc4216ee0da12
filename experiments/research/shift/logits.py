"""A model's logits on corrupted images, as a data file for `fedcal simulate --data`.

Images come from a folder of CIFAR-10-C or ImageNet-C, or clean ones from a .npz, corrupted here.
The model is your own PyTorch program: TorchScript (`torch.jit.save`) or, with the ending .pt2,
`torch.export.save` with a dynamic batch. Loading one runs its code, so take only what you trust.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, whole
from fedcal.core.imports import need
from fedcal.datasets import from_arrays
from fedcal.experiments.research.command import refuse_out, run_module
from fedcal.experiments.research.shift.images import ShiftedImages, read_shifted
from fedcal.metrics import summary
from fedcal.storage.atomic import whole_file

Model = Callable[[Any], Any]
"""(m, channels, h, w) float32 tensor -> (m, classes) tensor of logits."""


def load_model(path: Path) -> Model:
    """Load a TorchScript program, or an exported one (.pt2), on the CPU; InputError otherwise.

    Whether it is in its evaluation mode was decided where it was saved.
    """
    torch = need("torch", "train", "running a model")
    if not path.is_file():
        raise InputError(f"{str(path)!r}: no such file")
    try:
        if path.suffix == ".pt2":
            exported: Model = torch.export.load(path).module()
            return exported
        program: Model = torch.jit.load(path, map_location="cpu").eval()
    except Exception:  # noqa: BLE001  torch raises all kinds, over many lines
        raise InputError(
            f"{str(path)!r} is not a TorchScript program (torch.jit.save), nor a .pt2 of "
            "torch.export.save"
        ) from None
    return program


def logits_on(
    model: Model,
    images: ShiftedImages,
    *,
    batch: int = 100,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
) -> NDArray[np.float32]:
    """(n, classes) logits of a model on images.

    Parameters
    ----------
    model
        see `load_model`
    images
        their bytes are divided by 255; then `mean` is subtracted and divided by `std`
    batch
        images at a time
    mean, std
        one number, or one for each channel

    Raises
    ------
    InputError
        If the model fails, or gives anything but one row of at least two logits per image.
    """
    torch = need("torch", "train", "running a model")
    shift, scale = (np.asarray(v, np.float32) for v in (mean, std))
    parts = []
    with torch.no_grad():
        for x in images.batches(whole("batch", batch, 1)):
            wide = x[..., None] if x.ndim == 3 else x
            if {len(shift), len(scale)} - {1, wide.shape[3]}:
                raise InputError(f"mean and std: give 1 or {wide.shape[3]} numbers each")
            floats = (wide.astype(np.float32) / np.float32(255) - shift) / scale
            try:
                out = model(torch.from_numpy(np.ascontiguousarray(floats.transpose(0, 3, 1, 2))))
            except (RuntimeError, ValueError, TypeError, AssertionError) as error:
                last = (str(error).strip().splitlines() or [""])[-1]
                raise InputError(
                    f"the model cannot take images {tuple(wide.shape[1:])}: {last[:200]}"
                ) from None
            if not isinstance(out, torch.Tensor) or out.ndim != 2 or len(out) != len(x):
                raise InputError("the model must give one row of logits for each image")
            parts.append(out.to(torch.float32).numpy())
    return np.concatenate(parts)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


_OPTIONS: dict[str, dict[str, Any]] = {
    "model": {"type": Path, "required": True, "help": "TorchScript, or .pt2 of export"},
    "images": {"required": True, "help": "folder of CIFAR-10-C or ImageNet-C, .npz"},
    "corruption": {"required": True, "help": "such as fog"},
    "severity": {"type": int, "required": True, "help": "1 to 5"},
    "out": {"type": Path, "required": True, "help": "the .npz file to write"},
    "classes": {"type": Path, "help": "names in the model's order, one a line"},
    "mean": {"type": _numbers, "default": (0.0,), "help": "of channels in 0..1 (0)"},
    "std": {"type": _numbers, "default": (1.0,), "help": "of channels in 0..1 (1)"},
    "batch": {"type": int, "default": 100, "help": "images at a time (100)"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read, run the model, write `logits` and `labels`, and print accuracy and ECE."""
    run_module("shift.logits", __doc__, _OPTIONS, _run, arguments)


def _run(options: Any) -> None:
    refuse_out(options.out)
    if not (
        np.isfinite(options.mean).all() and np.isfinite(options.std).all() and all(options.std)
    ):
        raise InputError("--mean and --std must be finite, and --std not 0")
    classes = None if options.classes is None else _lines(options.classes)
    images = read_shifted(options.images, options.corruption, options.severity, classes)
    logits = logits_on(
        load_model(options.model),
        images,
        batch=options.batch,
        mean=options.mean,
        std=options.std,
    )
    data = from_arrays(logits=logits, labels=images.labels, name=options.out.name)
    with whole_file(options.out) as file:
        np.savez_compressed(file, logits=logits, labels=images.labels)
    said = summary(data.probs, data.labels)
    print(
        f"{options.corruption} {options.severity}: {len(logits):,} images, {data.classes} classes, "
        f"accuracy {100 * said['accuracy']:.2f} %, ECE {100 * said['ece']:.2f} %; "
        f"written to {options.out}"
    )


def _lines(path: Path) -> list[str]:
    try:
        names = path.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"--classes {path}: cannot be read as text") from None
    if len(set(names)) < len(names):
        raise InputError(f"--classes {path}: a name is there twice")
    return names


if __name__ == "__main__":
    main()
