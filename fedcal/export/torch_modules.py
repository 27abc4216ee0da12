"""Calibrators as PyTorch modules; imported only when one is asked for, because torch is slow.

Everything a module learns is a *buffer*, not a parameter: it moves with `.to`, it is in the
`state_dict`, and no optimiser of a model around it changes it by mistake. Gradients flow through
to the scores: fully for the identity and all scaling, while a table is piecewise constant, so
that only a weighted table's share of the model's own probabilities has one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from fedcal.calibrators import Calibrator, Identity
from fedcal.calibrators.operators import Operators
from fedcal.conformal import PredictionSets
from fedcal.core.errors import InputError
from fedcal.core.numerics import FLOOR
from fedcal.core.types import Floats
from fedcal.export.expressions import logits_of_layers, sets_of_probs


class _TorchOperators(Operators):
    """Operators that act on tensors."""

    def exp(self, x: Tensor) -> Tensor:
        return torch.exp(x)

    def log(self, x: Tensor) -> Tensor:
        return torch.log(x)

    def log1p(self, x: Tensor) -> Tensor:
        return torch.log1p(x)

    def relu(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    def sigmoid(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def double(self, x: Tensor) -> Tensor:
        return x.double()

    def like(self, x: Tensor, reference: Tensor) -> Tensor:
        return x.to(reference.dtype)

    def eps(self, x: Tensor) -> float:
        return torch.finfo(x.dtype).eps

    def rounded(self, x: Tensor, digits: int) -> Tensor:
        return torch.round(x, decimals=digits)

    def places(self, count: int, like: Tensor) -> Tensor:
        return torch.arange(count, device=like.device)

    def softplus(self, x: Tensor) -> Tensor:
        return torch.logaddexp(x, torch.zeros_like(x))

    def softmax(self, x: Tensor) -> Tensor:
        return torch.softmax(x, dim=-1)

    def log_softmax(self, x: Tensor) -> Tensor:
        return torch.log_softmax(x, dim=-1)

    def shifted(self, x: Tensor) -> Tensor:
        return x - x.amax(dim=-1, keepdim=True).detach()

    def clip(self, x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
        return x.clamp(low, high)

    def where(self, condition: Tensor, yes: Any, no: Any) -> Tensor:
        return torch.where(condition, yes, no)

    def equal(self, x: Tensor, right: Tensor) -> Tensor:
        return x == right

    def total(self, x: Tensor) -> Tensor:
        return x.sum(dim=-1, keepdim=True)

    def largest(self, x: Tensor) -> Tensor:
        return x.amax(dim=-1, keepdim=True)

    def argmax(self, x: Tensor) -> Tensor:
        return x.argmax(dim=-1, keepdim=True)

    def norm(self, x: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return norms

    def column(self, x: Tensor, index: int) -> Tensor:
        return x[..., index : index + 1]

    def join(self, *columns: Tensor) -> Tensor:
        return torch.cat(columns, dim=-1)

    def gaps(self, x: Tensor) -> Tensor:
        return x.diff(dim=-1, append=x[..., -1:])

    def sums(self, x: Tensor, *, exclusive: bool = False) -> Tensor:
        if not exclusive:
            return x.cumsum(dim=-1)
        return torch.cat([torch.zeros_like(x[..., :1]), x[..., :-1].cumsum(dim=-1)], dim=-1)

    def sort(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, order = torch.sort(x, dim=-1, descending=True, stable=True)
        return values, order

    def unsort(self, x: Tensor, order: Tensor) -> Tensor:
        return torch.zeros_like(x).scatter(-1, order, x)

    def entry(self, constant: Tensor, index: int) -> Tensor:
        return constant[index]

    def transposed(self, constant: Tensor) -> Tensor:
        return constant.T

    def take(self, constant: Tensor, index: Tensor) -> Tensor:
        return torch.take(constant, index)

    def bins(self, x: Tensor, count: int) -> Tensor:
        numbers = x.masked_fill(x.isnan(), 0.0)  # no cast of a NaN to an integer is defined
        return (numbers * count).long().clamp_max(count - 1)

    def or_nan(self, x: Tensor, of: Tensor) -> Tensor:
        return torch.where(of.isnan(), of, x)

    def bucket(self, x: Tensor, edges: Tensor) -> Tensor:
        return torch.bucketize(x.contiguous(), edges, right=True)


OPERATORS = _TorchOperators()


class CalibrationModule(nn.Module):
    """Scores (..., c) -> calibrated probabilities (..., c).

    The calibrator's constants are buffers of their names.

    Attributes
    ----------
    classes
        c
    input
        "logits" or "probs": what `forward` takes
    """

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        self.calibrator, self.classes, self.input = copy(calibrator), calibrator.classes, "logits"
        self.names = _register(self, calibrator.constants(), torch.float64)

    def forward(self, scores: Tensor) -> Tensor:
        """Calibrated probabilities in the type of `scores`, at least float32."""
        if scores.shape[-1] != self.classes:
            raise InputError(
                f"the calibrator is for {self.classes} classes, the scores have {scores.shape[-1]}"
            )
        if scores.dtype != torch.float64:
            scores = scores.float()
        logits = torch.log(scores.clamp_min(FLOOR)) if self.input == "probs" else scores
        return self.calibrated(logits, _TorchOperators(self.input == "probs")).to(scores.dtype)

    def calibrated(self, logits: Tensor, o: _TorchOperators) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        constants = {name: self.get_buffer(name).double() for name in self.names}
        probs: Tensor = self.calibrator.expression(o, logits, constants)
        return probs


class SetModule(CalibrationModule):
    """Scores of a model (..., c) -> which labels are in each row's set, bool (..., c).

    All is computed in float64. The buffer `thresholds` has one entry or c; `model` maps logits to
    the probabilities that sets are made of; None = they are the model's own.
    """

    thresholds: Tensor

    def __init__(self, sets: PredictionSets) -> None:
        super().__init__(Identity(sets.classes))
        self.sets = copy(sets)
        calibrator = sets.conformity.read_calibrator()
        self.model = None if calibrator is None else CalibrationModule(calibrator)
        self.register_buffer("thresholds", torch.tensor(sets.thresholds, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        """Return which labels are in the sets."""
        if scores.shape[-1] != self.classes:
            raise InputError(
                f"these sets are for {self.classes} classes, the scores have {scores.shape[-1]}"
            )
        z = scores.double()
        logits = torch.log(z.clamp_min(FLOOR)) if self.input == "probs" else z
        o = _TorchOperators(self.input == "probs")
        probs = o.probs(logits) if self.model is None else self.model.calibrated(logits, o)
        inside: Tensor = sets_of_probs(o, probs, self.sets, self.thresholds)
        return inside


class DenseLayers(nn.Module):
    """Inputs (n, d) -> logits (n, c) of a trained model, in float32: dense layers and ReLUs.

    `layers` are weights (out, in) and biases (out,); rows longer than `longest` are shortened.
    """

    def __init__(self, layers: Sequence[tuple[Floats, Floats]], longest: float) -> None:
        super().__init__()
        self.longest, self.count = longest, len(layers)
        for number, (weights, bias) in enumerate(layers):
            named = {f"weights{number}": weights, f"bias{number}": bias}
            _register(self, named, torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of inputs."""
        layers = [
            (self.get_buffer(f"weights{number}"), self.get_buffer(f"bias{number}"))
            for number in range(self.count)
        ]
        logits: Tensor = logits_of_layers(OPERATORS, x.float(), layers, self.longest)
        return logits


def _register(module: nn.Module, named: Mapping[str, ArrayLike], dtype: Any) -> list[str]:
    """Register copies of the arrays as buffers, and return their names."""
    for name, value in named.items():
        module.register_buffer(name, torch.tensor(value, dtype=dtype))
    return list(named)


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
