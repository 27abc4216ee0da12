"""Modules of PyTorch as files: programs of `torch.export`, ONNX models of plain operators."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import fedcal
from fedcal.core.optional import need

if TYPE_CHECKING:
    import onnx

OPSET = 17
"""Old on purpose: it has every operator used here, and any ONNX Runtime >= 1.12 runs it."""


def program_of(module: nn.Module, example: Tensor, header: Mapping[str, str]) -> bytes:
    """Return a `torch.export` program of the module.

    Parameters
    ----------
    module
        in evaluation mode
    example
        (2, c) input; the number of rows is free
    header
        kept as `fedcal.json` in the program
    """
    rows = torch.export.Dim("rows", min=0)
    program = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
    buffer = io.BytesIO()  # torch writes a path or a seekable buffer, not any open file
    torch.export.save(program, buffer, extra_files={"fedcal.json": json.dumps(header)})
    return buffer.getvalue()


def onnx_of(
    module: nn.Module, example: Tensor, names: tuple[str, str], header: Mapping[str, str]
) -> onnx.ModelProto:
    """Return a checked ONNX model of the module.

    Parameters
    ----------
    module, example
        as for `program_of`
    names
        of input and output
    header
        kept as the model's metadata
    """
    need("onnx", "export", "export to ONNX")
    import onnx

    given, made = names
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # the newer exporter takes seconds, two more packages, and refuses a stable sort
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            buffer,  # type: ignore[arg-type]
            input_names=[given],
            output_names=[made],
            dynamic_axes={given: {0: "rows"}, made: {0: "rows"}},
            opset_version=OPSET,
            dynamo=False,
        )
    model = onnx.load_from_string(buffer.getvalue())
    model.producer_name, model.producer_version = "fedcal", fedcal.__version__
    onnx.helper.set_model_props(model, dict(header))
    onnx.checker.check_model(model, full_check=True)
    return model
