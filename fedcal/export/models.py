"""Trained models for other runtimes: those that are dense layers, as softmax and mlp are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

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

    Both are float32. `.onnx` is of opset 17, its input is called `inputs` and its output `logits`;
    `.pt2` is a program of `torch.export`. Logits are those of `TrainedModel.predict` up to
    rounding.

    Raises InputError for another suffix, a network that is not made of dense layers, or if what is
    needed is not installed.
    """
    path = path_of(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"cannot export to {path}: its name must end in {' or '.join(SUFFIXES)}")
    module = model_to_torch(model)
    import torch

    from fedcal.export.torch_files import onnx_of, program_of

    example = torch.zeros(2, model.shape[0])
    if path.suffix == ".onnx":
        written = onnx_of(module, example, ("inputs", "logits"), _header(model))
        content: bytes = written.SerializeToString(deterministic=True)
    else:
        content = program_of(module, example, _header(model))
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
