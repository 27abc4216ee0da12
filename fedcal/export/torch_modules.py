"""Calibrators as PyTorch modules; imported only when one is asked for, because torch is slow.

Everything a module learns is a *buffer*, not a parameter: it moves with `.to`, it is in the
`state_dict`, and no optimiser of a model around it changes it by mistake. Gradients flow through
to the scores: fully for the identity and temperature, while a table is piecewise constant, so
that only a weighted table's share of the model's own probabilities has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

import torch
from torch import Tensor, nn

from fedcal.calibrators import (
    BBQ,
    Calibrator,
    HistogramBinning,
    Identity,
    TemperatureScaling,
    WeightedBinning,
)
from fedcal.errors import InputError
from fedcal.numerics import FLOOR
from fedcal.types import Floats


class CalibrationModule(nn.Module):
    """Scores (..., c) -> calibrated probabilities (..., c).

    Subclasses define `calibrated`, logits -> probabilities.

    Attributes
    ----------
    classes : c
    input : "logits" or "probs": what `forward` takes
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.input = "logits"

    def forward(self, scores: Tensor) -> Tensor:
        """Calibrated probabilities in the type of `scores`, at least float32."""
        if scores.shape[-1] != self.classes:
            raise InputError(
                f"the calibrator is for {self.classes} classes, the scores have {scores.shape[-1]}"
            )
        if scores.dtype != torch.float64:
            scores = scores.float()
        logits = torch.log(scores.clamp_min(FLOOR)) if self.input == "probs" else scores
        return self.calibrated(logits).to(scores.dtype)

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"classes={self.classes}, input={self.input!r}"


class Softmax(CalibrationModule):
    """softmax(z)."""

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        return torch.softmax(logits, dim=-1)


class Temperature(CalibrationModule):
    """softmax(z / T); T is the buffer `temperature`, ()."""

    temperature: Tensor

    def __init__(self, temperature: float, classes: int) -> None:
        super().__init__(classes)
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        # shifted first: the quotient of a large logit would lose digits that softmax needs
        shifted = logits - logits.amax(dim=-1, keepdim=True).detach()
        return torch.softmax(shifted / self.temperature, dim=-1)


class Binning(CalibrationModule):
    """A table of probabilities, the buffer `table`, (tables, bins); then normalised."""

    table: Tensor

    def __init__(self, table: Floats, classes: int) -> None:
        super().__init__(classes)
        self.register_buffer("table", torch.tensor(table, dtype=torch.float64))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        probs = torch.softmax(logits.double(), dim=-1)
        return normalised(self.scores(probs), probs)

    def scores(self, probs: Tensor) -> Tensor:
        """The table's entry for each predicted probability, not normalised, (..., c)."""
        columns = probs[..., 1:] if self.classes == 2 else probs
        tables, bins = self.table.shape
        lost = columns.isnan()  # no bin is theirs, and no cast to an integer is defined
        index = (columns.masked_fill(lost, 0.0) * bins).long().clamp_max(bins - 1)
        start = torch.arange(tables, device=index.device) * bins
        g = torch.take(self.table, index + start).double()
        g = torch.where(lost, columns, g)
        return torch.cat([1.0 - g, g], dim=-1) if self.classes == 2 else g


class WeightedTable(Binning):
    """A table mixed with the model's own probabilities by the buffer `weights`, (tables,).

    `changed`: only rows whose prediction the table changes are mixed, otherwise all rows.
    """

    weights: Tensor

    def __init__(self, table: Floats, weights: Floats, changed: bool, classes: int) -> None:
        super().__init__(table, classes)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float64))
        self.changed = changed

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        probs = torch.softmax(logits.double(), dim=-1)
        g = self.scores(probs)
        mixed = normalised(self.weights * g + (1.0 - self.weights) * probs, probs)
        if not self.changed:
            return mixed
        plain = normalised(g, probs)
        kept = plain.argmax(dim=-1, keepdim=True) == probs.argmax(dim=-1, keepdim=True)
        return torch.where(kept, plain, mixed)


def normalised(g: Tensor, probs: Tensor) -> Tensor:
    """Rows of g divided by their sum; a row that sums to 0 falls back to `probs`."""
    total = g.sum(dim=-1, keepdim=True)
    empty = total <= 0
    return torch.where(empty, probs, g / torch.where(empty, 1.0, total))


MODULES: dict[type[Calibrator], Callable[[Any], CalibrationModule]] = {
    Identity: lambda c: Softmax(c.classes),
    TemperatureScaling: lambda c: Temperature(c.temperature, c.classes),
    HistogramBinning: lambda c: Binning(c.table, c.classes),
    BBQ: lambda c: Binning(c.table, c.classes),
    WeightedBinning: lambda c: WeightedTable(
        c.base.table, c.weights, c.rows == "changed", c.classes
    ),
}
"""Class of calibrator -> its module, for logits."""


def write_program(module: CalibrationModule, dtype: str, header: str, file: IO[bytes]) -> None:
    """Write a `torch.export` program of the module.

    Parameters
    ----------
    module : in evaluation mode
    dtype : "float32" or "float64", of the scores
    header : JSON, kept as `fedcal.json` in the program
    file : seekable
    """
    example = torch.full((2, module.classes), 1 / module.classes, dtype=getattr(torch, dtype))
    rows = torch.export.Dim("rows", min=0)
    program = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
    torch.export.save(program, file, extra_files={"fedcal.json": header})
