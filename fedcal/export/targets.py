"""Exports of a calibrator or of prediction sets: a PyTorch module, an ONNX model."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import fedcal
from fedcal.calibrators import Calibrator
from fedcal.conformal import PredictionSets
from fedcal.core.checks import InputError, one_of
from fedcal.core.imports import need
from fedcal.storage.atomic import path_of, write_file

if TYPE_CHECKING:
    import onnx

    from fedcal.export.torch_modules import CalibrationModule


DTYPES = ("float32", "float64")
INPUT_NAMES = {"logits": "logits", "probs": "model_probs"}
"""Kind of scores -> name of an ONNX model's input; `probs` is the name of the output."""

OPSET = 17
"""Old on purpose: it has every operator used here, and any ONNX Runtime >= 1.12 runs it."""


def to_torch(calibrator: Calibrator | PredictionSets) -> CalibrationModule:
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
            "on more than a model's scores; make them with --set randomised=false, or for one "
            "group: PredictionSets(..., by='none')"
        )
    else:
        part = calibrator.conformity.read_calibrator()
    need("torch", "export", "export to PyTorch")
    from fedcal.export.torch_modules import MODULES, SetModule

    # by exact class: what a subclass computes otherwise must not be exported as its parent
    if part is not None and type(part) not in MODULES:
        raise InputError(
            f"a {part.kind} calibrator ({type(part).__name__}) has no export; these kinds have "
            f"one: {', '.join(cls.kind for cls in MODULES)}"
        )
    if not isinstance(calibrator, PredictionSets):
        return MODULES[type(calibrator)](calibrator, calibrator.input).eval()
    model = None if part is None else MODULES[type(part)](part, calibrator.input)
    return SetModule(calibrator, model, calibrator.input).eval()


def to_onnx(
    calibrator: Calibrator | PredictionSets,
    path: str | Path | None = None,
    *,
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
        ending in .onnx, where to write the model, too, atomically; None = nowhere
    dtype
        of input and output

    Raises
    ------
    InputError
        As `to_torch`; or `dtype` or the suffix is not allowed, or onnx is not installed.
    FedcalError
        Writing failed half way; what was there before still is.
    """
    if path is not None:
        path = path_of(path)
        one_of("suffix of a file to export to", path.suffix, (".onnx",))
    one_of("dtype", dtype, DTYPES)
    module = to_torch(calibrator)
    need("onnx", "export", "export to ONNX")
    import onnx
    import torch

    about = {"fedcal": fedcal.__version__, "classes": str(module.classes), "input": module.input}
    if isinstance(calibrator, PredictionSets):
        output, about["kind"] = "sets", calibrator.form
        about |= {"alpha": f"{calibrator.alpha:g}", "score": calibrator.conformity.name}
    else:
        output, about["kind"] = "probs", calibrator.kind
    scores, buffer = INPUT_NAMES[module.input], io.BytesIO()
    example = torch.full((2, module.classes), 1 / module.classes, dtype=getattr(torch, dtype))
    with warnings.catch_warnings():
        # the newer exporter takes seconds, two more packages, and refuses a stable sort
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            buffer,  # type: ignore[arg-type]
            input_names=[scores],
            output_names=[output],
            dynamic_axes={scores: {0: "rows"}, output: {0: "rows"}},
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
