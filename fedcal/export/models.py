"""Trained models for other runtimes: those that are dense layers, as linear and mlp are."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import fedcal
from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.export.targets import SUFFIXES
from fedcal.storage.atomic import path_of, whole_file
from fedcal.training.network import Dense
from fedcal.training.networks import NETWORKS
from fedcal.training.trained_model import TrainedModel

if TYPE_CHECKING:
    from torch import nn


def save_model(model: TrainedModel, path: str | Path) -> None:
    """Write a trained model for another runtime, atomically: inputs (rows, d) -> logits (rows, c).

    Both are float32. `.onnx` is of plain operators of opset 17, its input is called `inputs` and
    its output `logits`; `.pt2` is a program of `torch.export`. Logits are those of
    `TrainedModel.predict` up to rounding.

    Raises
    ------
    InputError
        Another suffix, a network that is not made of dense layers, or what is needed is not
        installed.
    """
    path = path_of(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"cannot export to {path}: its name must end in {' or '.join(SUFFIXES)}")
    content = _onnx(model) if path.suffix == ".onnx" else _program(model)
    with whole_file(path) as file:
        file.write(content)


def model_to_torch(model: TrainedModel) -> nn.Module:
    """A trained model as a `torch.nn.Module`: inputs (n, d) -> logits (n, c), in float32.

    Raises
    ------
    InputError
        As `save_model`.
    """
    layers = _layers(model)
    need("torch", "export", "export to PyTorch")
    from fedcal.export.torch_modules import DenseLayers

    return DenseLayers(layers, NETWORKS[model.network].longest).eval()


def _layers(model: TrainedModel) -> list[Dense]:
    found = NETWORKS[model.network].dense(model.w, model.shape, model.classes)
    if found is None:
        there = ", ".join(n for n, network in NETWORKS.items() if network.is_dense)
        raise InputError(
            f"the network {model.network} has no export; these networks have one: {there}"
        )
    return found


def _header(model: TrainedModel) -> dict[str, str]:
    return {
        "fedcal": fedcal.__version__,
        "kind": model.network,
        "classes": str(model.classes),
        "features": str(model.shape[0]),
    }


def _program(model: TrainedModel) -> bytes:
    module = model_to_torch(model)
    import torch

    rows = torch.export.Dim("rows", min=0)
    example = torch.zeros(2, model.shape[0])
    program = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"fedcal.json": json.dumps(_header(model))})
    return buffer.getvalue()


def _onnx(model: TrainedModel) -> bytes:
    layers = _layers(model)
    need("onnx", "export", "export to ONNX")
    from fedcal.export.onnx_graph import Graph, checked

    graph, x = Graph("float32"), "inputs"
    longest = NETWORKS[model.network].longest
    if math.isfinite(longest):
        most = graph.constant(longest, np.float32)
        norm = graph.op("ReduceL2", x, axes=[1], keepdims=1)
        x = graph.op("Mul", x, graph.op("Div", most, graph.op("Max", norm, most)))
    for number, (weights, bias) in enumerate(layers):
        x = x if number == 0 else graph.op("Relu", x)
        product = graph.op("MatMul", x, graph.constant(weights.T, np.float32))
        x = graph.op("Add", product, graph.constant(bias, np.float32))
    graph.nodes[-1].output[0] = "logits"
    written = checked(
        graph,
        f"fedcal_{model.network}",
        "inputs -> logits of a trained model",
        {"inputs": ("float32", model.shape[0])},
        {"logits": ("float32", model.classes)},
        _header(model),
    )
    content: bytes = written.SerializeToString(deterministic=True)
    return content
