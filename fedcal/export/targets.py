"""What may be asked for: which calibrator, which target, which scores, which file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import fedcal
from fedcal.calibrators import Calibrator
from fedcal.conformal import PredictionSets
from fedcal.core.checks import InputError, one_of
from fedcal.core.imports import need
from fedcal.core.numerics import KINDS, Kind
from fedcal.storage.atomic import path_of, write_whole

if TYPE_CHECKING:
    import onnx
    from torch import Tensor

    from fedcal.export.torch_modules import CalibrationModule


DTYPES = ("float32", "float64")
SUFFIXES = (".onnx", ".pt2")
INPUT_NAMES = {"logits": "logits", "probs": "model_probs"}
"""What an ONNX model takes -> name of its input; `probs` is the name of the output."""


def to_torch(
    calibrator: Calibrator | PredictionSets, *, input: Kind | None = None
) -> CalibrationModule:
    """Return the calibrator, or prediction sets, as a `torch.nn.Module`.

    It maps scores (..., c) to calibrated probabilities (..., c) of the same floating type (at
    least float32), on any device that the module was moved to. All parameters are buffers: they
    move and are saved with the module, but no optimiser ever sees them. All but the identity and
    temperature of logits is computed in float64 inside, whatever the type of the scores (so it
    needs a device that has float64).

    Unlike `predict_proba` it does not look at values: a row with a NaN gives NaN.

    Prediction sets become a module from the model's scores (..., c) to bool (..., c), which labels
    are in the set of each row; all is computed in float64. They are those of `predict_set`, ties
    included, for scores of the same bits (see `to_onnx`).

    Parameters
    ----------
    calibrator
        fitted; or prediction sets that are neither randomised nor by group
    input
        what the module takes; None = what the calibrator's data were declared to be

    Returns
    -------
    torch.nn.Module
        Equal to `predict_proba` of the same scores to 1e-6, on edges of bins, too.

    Raises
    ------
    InputError
        The calibrator is not fitted, its kind has no PyTorch export, or torch is not installed.
    """
    if not isinstance(calibrator, PredictionSets):
        calibrator.need_fitted()
        part: Calibrator | None = calibrator
    elif calibrator.conformity.randomised or calibrator.by == "group":
        raise InputError(
            "randomised sets, and sets with a threshold of each group, have no export: they depend "
            "on more than a model's scores; for one group: PredictionSets(..., by='none')"
        )
    else:
        part = calibrator.conformity.read_calibrator()
    taken = one_of("input", calibrator.input if input is None else input, KINDS)
    need("torch", "export", "export to PyTorch")
    from fedcal.export.torch_modules import MODULES, SetModule

    # by exact class: what a subclass computes otherwise must not be exported as its parent
    if part is not None and type(part) not in MODULES:
        raise InputError(
            f"a {part.kind} calibrator ({type(part).__name__}) has no export; these kinds have "
            f"one: {', '.join(cls.kind for cls in MODULES)}"
        )
    if not isinstance(calibrator, PredictionSets):
        return MODULES[type(calibrator)](calibrator, taken).eval()
    model = None if part is None else MODULES[type(part)](part, taken)
    return SetModule(calibrator, model, taken).eval()


def to_onnx(
    calibrator: Calibrator | PredictionSets,
    path: str | Path | None = None,
    *,
    input: Kind | None = None,
    dtype: Literal["float32", "float64"] = "float32",
) -> onnx.ModelProto:
    """Return the calibrator, or prediction sets, as an ONNX model of plain operators.

    `torch.onnx.export` writes the module of `to_torch` in opset 17: ONNX Runtime >= 1.12 runs it.
    The input is called `logits` or `model_probs`, shape (rows, c), the output `probs`, (rows, c);
    `rows` is free. The metadata hold the fedcal version, the calibrator's kind, its number of
    classes and its input.

    The output of prediction sets is called `sets`, bool (rows, c); all is computed in float64. They
    are those of `predict_set` for scores of the same bits: what a label's score is made of is cut
    to 40 bits before it is compared, so that the last bits of a runtime decide nothing, unless
    they cross a cut (about one value in 4,000) and the label's score is within 1e-12 of the
    threshold. Scores that lose digits in float32 are other scores: where many rows have exactly
    the score of the threshold, these may be in one set and not in the other.

    Parameters
    ----------
    calibrator
        fitted; or prediction sets that are neither randomised nor by group
    path
        where to write the model, too; None = nowhere
    input
        what the model takes; None = what the calibrator's data were declared to be
    dtype
        of input and output

    Raises
    ------
    InputError
        As `to_torch`; or `dtype` is not allowed, onnx is not installed, or nothing can be written
        at `path`.
    """
    parts = _parts_of(calibrator, input, dtype)
    from fedcal.export.torch_modules import onnx_of

    model = onnx_of(*parts)
    if path is not None:
        write_whole(path_of(path), model.SerializeToString(deterministic=True))
    return model


def save(
    calibrator: Calibrator | PredictionSets,
    path: str | Path,
    *,
    input: Kind | None = None,
    dtype: Literal["float32", "float64"] = "float32",
) -> None:
    """Write the calibrator, or prediction sets, for another runtime, atomically.

    The suffix says which:

    `.onnx`
        as `to_onnx`
    `.pt2`
        a program of `torch.export`, for `torch.export.load(path).module()`; it takes (rows, c) of
        exactly `dtype`, on the CPU (`torch.export.passes.move_to_device_pass` moves it; a module
        from `to_torch` is freer). The file `fedcal.json` in it says what it is. (PyTorch's older
        TorchScript files, `.pt`, are deprecated and not written.)

    Parameters
    ----------
    calibrator, input, dtype
        as for `to_onnx`
    path
        ends in .onnx or .pt2

    Raises
    ------
    InputError
        Another suffix; or as `to_onnx` and `to_torch`.
    FedcalError
        Writing failed half way; what was there before still is.
    """
    path = path_of(path)
    one_of("suffix of a file to export to", path.suffix, SUFFIXES)
    module, example, names, about = _parts_of(calibrator, input, dtype)
    from fedcal.export.torch_modules import onnx_of, program_of

    if path.suffix == ".onnx":
        model = onnx_of(module, example, names, about)
        content: bytes = model.SerializeToString(deterministic=True)
    else:
        content = program_of(module, example, about)
    write_whole(path, content)


def _parts_of(
    calibrator: Calibrator | PredictionSets, input: Kind | None, dtype: str
) -> tuple[CalibrationModule, Tensor, tuple[str, str], dict[str, str]]:
    """Return the module, an input of two rows, the names of input and output, and a description."""
    one_of("dtype", dtype, DTYPES)
    module = to_torch(calibrator, input=input)
    import torch

    c, kind, output = calibrator.classes, calibrator.form, "sets"
    if not isinstance(calibrator, PredictionSets):
        kind, output = calibrator.kind, "probs"
    about = {"fedcal": fedcal.__version__, "kind": kind, "classes": str(c), "input": module.input}
    if isinstance(calibrator, PredictionSets):
        about |= {"alpha": f"{calibrator.alpha:g}", "score": calibrator.conformity.name}
    example = torch.full((2, c), 1 / c, dtype=getattr(torch, dtype))
    return module, example, (INPUT_NAMES[module.input], output), about
