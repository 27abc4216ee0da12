"""Calibrators as PyTorch modules; imported only when one is asked for, because torch is slow.

Everything a module learns is a *buffer*, not a parameter: it moves with `.to`, it is in the
`state_dict`, and no optimiser of a model around it changes it by mistake. Gradients flow through
to the scores: fully for the identity and all scaling, while a table is piecewise constant, so
that only a weighted table's share of the model's own probabilities has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import IO, Any

import torch
from torch import Tensor, nn

from fedcal.calibrators import (
    BBQ,
    Calibrator,
    EntropyTemperature,
    HistogramBinning,
    Identity,
    MatrixScaling,
    OrderPreservingMLP,
    OrderPreservingVector,
    ScoreLogistic,
    ScoreMap,
    TemperatureScaling,
    TopLabelBinning,
    TopLabelLogistic,
    VectorScaling,
    WeightedBinning,
)
from fedcal.calibrators.entropy import MIDDLE
from fedcal.calibrators.order_preserving import LOWEST
from fedcal.calibrators.order_preserving_mlp import layers, moderate
from fedcal.calibrators.top_label import MARGIN, TINY, least_value
from fedcal.calibrators.top_label_logistic import LARGEST
from fedcal.core.errors import InputError
from fedcal.core.numerics import FLOOR, LOG_A_LIMIT
from fedcal.core.types import Floats
from fedcal.metrics.buckets import DIGITS


class CalibrationModule(nn.Module):
    """Scores (..., c) -> calibrated probabilities (..., c).

    Subclasses define `calibrated`, logits -> probabilities.

    Attributes
    ----------
    classes
        c
    input
        "logits" or "probs": what `forward` takes
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


class DenseLayers(nn.Module):
    """Inputs (n, d) -> logits (n, c) of a trained model, in float32: dense layers and ReLUs.

    `layers` are weights (out, in) and biases (out,); rows longer than `longest` are shortened.
    """

    def __init__(self, layers: Sequence[tuple[Floats, Floats]], longest: float) -> None:
        super().__init__()
        self.longest, self.count = longest, len(layers)
        for number, (weights, bias) in enumerate(layers):
            for name, value in (("weights", weights), ("bias", bias)):
                self.register_buffer(f"{name}{number}", torch.tensor(value, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = x.float()
        if math.isfinite(self.longest):
            norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            x = x * (self.longest / norms.clamp_min(self.longest))
        for number in range(self.count):
            x = x if number == 0 else torch.relu(x)
            weights = self.get_buffer(f"weights{number}")
            x = nn.functional.linear(x, weights, self.get_buffer(f"bias{number}"))
        return x


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


class TemperatureByEntropy(CalibrationModule):
    """softmax(a z) with log a = w_0 + w_1 (h - 0.1), h the entropy; the buffer is `w`, (2,)."""

    w: Tensor

    def __init__(self, w: Floats, classes: int) -> None:
        super().__init__(classes)
        self.register_buffer("w", torch.tensor(w, dtype=torch.float64))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        z = logits.double()
        z = z - z.amax(dim=-1, keepdim=True).detach()
        e = torch.exp(z)
        total = e.sum(dim=-1, keepdim=True)
        entropy = torch.log(total) - (e * z).sum(dim=-1, keepdim=True) / total
        h = (entropy / math.log(self.classes)).clamp(0.0, 1.0) - MIDDLE
        log_a = (self.w[0] + self.w[1] * h).clamp(-LOG_A_LIMIT, LOG_A_LIMIT)
        return torch.softmax(z * torch.exp(log_a), dim=-1)


class Linear(CalibrationModule):
    """softmax(a z + b); the buffers are `a`, (c,) for each class or (c, c), and `b`, (c,)."""

    a: Tensor
    b: Tensor

    def __init__(self, w: Floats, classes: int) -> None:
        super().__init__(classes)
        a = torch.tensor(w[:-classes], dtype=torch.float64)
        self.register_buffer("a", a if len(a) == classes else a.reshape(classes, classes))
        self.register_buffer("b", torch.tensor(w[-classes:], dtype=torch.float64))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        z, a = logits.double(), self.a.double()
        return torch.softmax((z @ a.T if a.ndim == 2 else z * a) + self.b, dim=-1)


class OrderPreserving(CalibrationModule):
    """The steps of `fedcal.calibrators.order_preserving`; subclasses define `slopes`."""

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        ranked, order = torch.sort(logits.double(), dim=-1, descending=True, stable=True)
        y = torch.log_softmax(ranked, dim=-1)
        m = self.slopes(y.clamp_min(LOWEST))[..., :-1]
        steps = y.diff(dim=-1) * torch.logaddexp(m, torch.zeros_like(m))
        f = torch.cat([torch.zeros_like(y[..., :1]), steps.cumsum(dim=-1)], dim=-1)
        probs = torch.zeros_like(f).scatter(-1, order, torch.softmax(f, dim=-1))
        return keep_top(probs.to(logits.dtype), logits)

    def slopes(self, y: Tensor) -> Tensor:
        """m of sorted log-probabilities, cut as m may see them, (..., c)."""
        raise NotImplementedError


class OrderPreservingLine(OrderPreserving):
    """m = a y + b; the buffers are `a` and `b`, (c,)."""

    a: Tensor
    b: Tensor

    def __init__(self, w: Floats, classes: int) -> None:
        super().__init__(classes)
        self.register_buffer("a", torch.tensor(w[:classes], dtype=torch.float64))
        self.register_buffer("b", torch.tensor(w[classes:], dtype=torch.float64))

    def slopes(self, y: Tensor) -> Tensor:
        """a y + b."""
        return y * self.a + self.b


class OrderPreservingNetwork(OrderPreserving):
    """m by two hidden layers; the buffers are `w1`, (c, h), `b1`, (h,), and so on to `b3`."""

    def __init__(self, layers: Sequence[Floats], classes: int) -> None:
        super().__init__(classes)
        for name, value in zip(("w1", "b1", "w2", "b2", "w3", "b3"), layers, strict=True):
            self.register_buffer(name, torch.tensor(value.squeeze(), dtype=torch.float64))

    def slopes(self, y: Tensor) -> Tensor:
        """W3 relu(W2 relu(W1 x + b1) + b2) + b3, x = y in units of the cut."""
        w1, b1, w2, b2, w3, b3 = (buffer.double() for buffer in self.buffers())
        x = torch.relu(y / -LOWEST @ w1 + b1)
        x = torch.relu(x @ w2 + b2)
        return x @ w3 + b3


def keep_top(probs: Tensor, logits: Tensor) -> Tensor:
    """The argmax of `probs` where that of `logits` is: what has come to tie with it gives way."""
    moved = probs.argmax(dim=-1, keepdim=True) != logits.argmax(dim=-1, keepdim=True)
    top = logits == logits.amax(dim=-1, keepdim=True)
    return torch.where(moved & top, probs * (1 + torch.finfo(probs.dtype).eps), probs)


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


class TopLabel(CalibrationModule):
    """A confidence for each bin of the model's own, the buffer `values`, (bins,)."""

    values: Tensor

    def __init__(self, values: Floats, classes: int) -> None:
        super().__init__(classes)
        self.register_buffer("values", torch.tensor(values, dtype=torch.float64))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        probs = torch.softmax(logits.double(), dim=-1)
        confidence = probs.amax(dim=-1, keepdim=True)
        lost, bins = confidence.isnan(), len(self.values)
        index = (confidence.masked_fill(lost, 0.0) * bins).long().clamp_max(bins - 1)
        v = torch.take(self.values, index).double().clamp_min(least_value(self.classes))
        v = torch.where(lost, confidence, v)
        return with_confidence(logits, probs, v)


class LogisticOfTopLabel(CalibrationModule):
    """A temperature and a sigmoid of the top log-odds; the buffer `w` is (T, offset, slope)."""

    w: Tensor

    def __init__(self, temperature: float, w: Floats, classes: int) -> None:
        super().__init__(classes)
        self.register_buffer("w", torch.tensor([temperature, *w], dtype=torch.float64))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        temperature, offset, slope = self.w.double()
        z = logits.double()
        z = (z - z.amax(dim=-1, keepdim=True).detach()) / temperature
        rest = torch.exp(z).sum(dim=-1, keepdim=True) - 1.0
        s = -torch.log(rest.clamp_min(TINY))
        inner = s.clamp(-LARGEST, LARGEST)
        v = torch.sigmoid(offset + slope * inner + (s - inner))
        v = v.clamp_min(least_value(self.classes))
        return with_confidence(logits, torch.softmax(z, dim=-1), v)


class OfScore(CalibrationModule):
    """One number of a row mapped: the probability of class 1 (`positive`), or the largest."""

    def __init__(self, score: str, classes: int) -> None:
        super().__init__(classes)
        self.positive = score == "positive"

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float32 or float64 logits."""
        probs = torch.softmax(logits.double(), dim=-1)
        s = probs[..., 1:] if self.positive else probs.amax(dim=-1, keepdim=True)
        v = torch.where(s.isnan(), s, self.value(s))
        if self.positive:
            return torch.cat([1.0 - v, v], dim=-1)
        return with_confidence(logits, probs, v.clamp_min(least_value(self.classes)))

    def value(self, s: Tensor) -> Tensor:
        """Calibrated scores, shape kept."""
        raise NotImplementedError


class BucketOfScore(OfScore):
    """A value for each bucket; the buffers are `edges`, (b - 1,) inner ones, and `values`, (b,)."""

    edges: Tensor
    values: Tensor

    def __init__(self, edges: Floats, values: Floats, score: str, classes: int) -> None:
        super().__init__(score, classes)
        self.register_buffer("edges", torch.tensor(edges[1:-1], dtype=torch.float64))
        self.register_buffer("values", torch.tensor(values, dtype=torch.float64))

    def value(self, s: Tensor) -> Tensor:
        """The bucket's value."""
        s = torch.round(s, decimals=DIGITS).contiguous()
        index = torch.bucketize(s, self.edges.double(), right=True)
        return torch.take(self.values, index.clamp_max(len(self.values) - 1)).double()


class LogisticOfScore(OfScore):
    """Sigmoid of a log s - b log(1 - s) + c; the buffers are `w`, (3,), and `limits` of s, (2,)."""

    w: Tensor
    limits: Tensor

    def __init__(self, w: Floats, limits: Floats, score: str, classes: int) -> None:
        super().__init__(score, classes)
        self.register_buffer("w", torch.tensor(w, dtype=torch.float64))
        self.register_buffer("limits", torch.tensor(limits, dtype=torch.float64))

    def value(self, s: Tensor) -> Tensor:
        """The curve at s."""
        (a, b, c), (low, high) = self.w.double(), self.limits.double()
        cut = s.clamp(low, high)
        return torch.sigmoid(a * torch.log(cut) - b * torch.log1p(-cut) + c)


def with_confidence(logits: Tensor, probs: Tensor, v: Tensor) -> Tensor:
    """The predicted class gets v, (..., 1), the others share the rest."""
    count = logits.shape[-1]
    classes = torch.arange(count, device=logits.device)
    predicted = classes == logits.argmax(dim=-1, keepdim=True)
    others = torch.where(predicted, 0.0, probs)
    rest = others.sum(dim=-1, keepdim=True)
    some, even = rest > 0, 1.0 / (count - 1)
    share = torch.where(some, others / torch.where(some, rest, 1.0), even)
    largest = torch.where(predicted, 0.0, share).amax(dim=-1, keepdim=True)
    excess = (1.0 - v) * largest - (1.0 - MARGIN) * v
    weight = (excess / ((1.0 - v) * (largest - even)).clamp_min(TINY)).clamp(0.0, 1.0)
    mixed = (1.0 - v) * (share + weight * (even - share))
    return torch.where(predicted, v, mixed)


def normalised(g: Tensor, probs: Tensor) -> Tensor:
    """Rows of g divided by their sum; a row that sums to 0 falls back to `probs`."""
    total = g.sum(dim=-1, keepdim=True)
    empty = total <= 0
    return torch.where(empty, probs, g / torch.where(empty, 1.0, total))


MODULES: dict[type[Calibrator], Callable[[Any], CalibrationModule]] = {
    Identity: lambda c: Softmax(c.classes),
    TemperatureScaling: lambda c: Temperature(c.temperature, c.classes),
    EntropyTemperature: lambda c: TemperatureByEntropy(c.w, c.classes),
    VectorScaling: lambda c: Linear(c.w, c.classes),
    MatrixScaling: lambda c: Linear(c.w, c.classes),
    OrderPreservingVector: lambda c: OrderPreservingLine(c.w, c.classes),
    OrderPreservingMLP: lambda c: OrderPreservingNetwork(
        layers(moderate(c.w), c.classes), c.classes
    ),
    HistogramBinning: lambda c: Binning(c.table, c.classes),
    BBQ: lambda c: Binning(c.table, c.classes),
    WeightedBinning: lambda c: WeightedTable(
        c.base.table, c.weights, c.rows == "changed", c.classes
    ),
    TopLabelBinning: lambda c: TopLabel(c.values, c.classes),
    TopLabelLogistic: lambda c: LogisticOfTopLabel(c.temperature, c.w, c.classes),
    ScoreMap: lambda c: BucketOfScore(c.edges, c.values, c.score, c.classes),
    ScoreLogistic: lambda c: LogisticOfScore(c.w, c.limits, c.score, c.classes),
}
"""Class of calibrator -> its module, for logits."""


def write_program(module: CalibrationModule, dtype: str, header: str, file: IO[bytes]) -> None:
    """Write a `torch.export` program of the module.

    Parameters
    ----------
    module
        in evaluation mode
    dtype
        "float32" or "float64", of the scores
    header
        JSON, kept as `fedcal.json` in the program
    file
        seekable
    """
    example = torch.full((2, module.classes), 1 / module.classes, dtype=getattr(torch, dtype))
    rows = torch.export.Dim("rows", min=0)
    program = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
    torch.export.save(program, file, extra_files={"fedcal.json": header})
