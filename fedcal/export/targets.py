"""Exports of a calibrator: a PyTorch module, an ONNX model."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import fedcal
from fedcal.calibrators import Calibrator
from fedcal.core.checks import InputError, one_of
from fedcal.core.imports import need
from fedcal.storage.atomic import path_of, write_file

if TYPE_CHECKING:
    import onnx

    from fedcal.export.torch_modules import CalibrationModule


INPUT_NAMES = {"logits": "logits", "probs": "model_probs"}
"""Kind of scores -> name of an ONNX model's input; `probs` is the name of the output."""

OPSET = 17
"""Old on purpose: it has every operator used here, and any ONNX Runtime >= 1.12 runs it."""


def to_torch(calibrator: Calibrator) -> CalibrationModule:
    """Return the calibrator as a `torch.nn.Module`.

    It maps scores (..., c) to calibrated probabilities (..., c) of the same floating type (at
    least float32), on any device that the module was moved to. All parameters are buffers: they
    move and are saved with the module, but no optimiser ever sees them. All but the identity and
    temperature of logits is computed in float64 inside, whatever the type of the scores (so it
    needs a device that has float64).

    Unlike `predict_proba` it does not look at values: a row with a NaN gives NaN.

    Parameters
    ----------
    calibrator
        fitted

    Returns
    -------
    torch.nn.Module
        Equal to `predict_proba` of the same scores to 1e-6, on edges of bins, too.

    Raises
    ------
    InputError
        The calibrator is not fitted, its kind has no PyTorch export, or torch is not installed.
    """
    calibrator.need_fitted()
    need("torch", "export", "export to PyTorch")
    from fedcal.export.torch_modules import MODULES

    # by exact class: what a subclass computes otherwise must not be exported as its parent
    if type(calibrator) not in MODULES:
        raise InputError(
            f"a {calibrator.kind} calibrator ({type(calibrator).__name__}) has no export; these "
            f"kinds have one: {', '.join(cls.kind for cls in MODULES)}"
        )
    return MODULES[type(calibrator)](calibrator, calibrator.input).eval()


def to_onnx(calibrator: Calibrator, path: str | Path | None = None) -> onnx.ModelProto:
    """Return the calibrator as an ONNX model of plain operators.

    `torch.onnx.export` writes the module of `to_torch` in opset 17: ONNX Runtime >= 1.12 runs it.
    The input is called `logits` or `model_probs`, shape (rows, c), float32, the output `probs`,
    (rows, c); `rows` is free. The metadata hold the fedcal version, the calibrator's kind, its
    number of classes and its input.

    Parameters
    ----------
    calibrator
        fitted
    path
        ending in .onnx, where to write the model, too, atomically; None = nowhere

    Raises
    ------
    InputError
        As `to_torch`; or the suffix is not allowed, or onnx is not installed.
    FedcalError
        Writing failed half way; what was there before still is.
    """
    if path is not None:
        path = path_of(path)
        one_of("suffix of a file to export to", path.suffix, (".onnx",))
    module = to_torch(calibrator)
    need("onnx", "export", "export to ONNX")
    import onnx
    import torch

    about = {"fedcal": fedcal.__version__, "classes": str(module.classes)}
    about |= {"input": module.input, "kind": calibrator.kind}
    scores, buffer = INPUT_NAMES[module.input], io.BytesIO()
    example = torch.full((2, module.classes), 1 / module.classes, dtype=torch.float32)
    with warnings.catch_warnings():
        # the newer exporter takes seconds, two more packages, and refuses a stable sort
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            buffer,  # type: ignore[arg-type]
            input_names=[scores],
            output_names=["probs"],
            dynamic_axes={scores: {0: "rows"}, "probs": {0: "rows"}},
            opset_version=OPSET,
            dynamo=False,
        )
    model = onnx.load_from_string(buffer.getvalue())
    model.producer_name, model.producer_version = "fedcal", fedcal.__version__
    onnx.helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    if path is not None:
        write_file(path, model.SerializeToString(deterministic=True))
    return model
