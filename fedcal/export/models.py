"""Trained models for other runtimes: those that are dense layers, as softmax and mlp are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import fedcal
from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.export.expressions import logits_of_layers
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

    Raises InputError for another suffix, a network that is not made of dense layers, or if what is
    needed is not installed.
    """
    path = path_of(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"cannot export to {path}: its name must end in {' or '.join(SUFFIXES)}")
    content = _onnx(model) if path.suffix == ".onnx" else _program(model)
    with whole_file(path) as file:
        file.write(content)


def model_to_torch(model: TrainedModel) -> nn.Module:
    """Return a trained model as a `torch.nn.Module`: inputs (n, d) -> logits (n, c), float32.

    Raises InputError as `save_model`.
    """
    layers = _layers(model)
    need("torch", "export", "export to PyTorch")
    from fedcal.export.torch_modules import DenseLayers

    return DenseLayers(layers, math.inf).eval()


def _layers(model: TrainedModel) -> list[Dense]:
    layers = model.architecture.dense(model.w, model.shape, model.classes)
    if layers is None:
        raise InputError(
            f"the network {model.network} has no export; these have one: {', '.join(NETWORKS)}"
        )
    return layers


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

    from fedcal.export.torch_modules import program_of

    return program_of(module, torch.zeros(2, model.shape[0]), _header(model))


def _onnx(model: TrainedModel) -> bytes:
    layers = _layers(model)
    need("onnx", "export", "export to ONNX")
    from fedcal.export.onnx_graph import Graph, Value, checked

    graph = Graph(model.classes)
    constants = [[graph.constant(x, np.float32) for x in layer] for layer in layers]
    x = Value(graph, "inputs", np.float32)
    graph.output(logits_of_layers(graph, x, constants, math.inf), "logits")
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
