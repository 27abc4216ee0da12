"""A PyTorch module for each calibrator, and for prediction sets.

Imported only when one is asked for, because torch is slow. Everything a module learns is a
*buffer*, not a parameter: it moves with `.to`, it is in the `state_dict`, and no optimiser of a
model around it changes it by mistake. Gradients flow through to the scores: fully for the identity
and all scaling, while a table is piecewise constant, so that only a weighted table's share of the
model's own probabilities has one.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from fedcal import calibrators
from fedcal.calibrators import Calibrator
from fedcal.calibrators.conformity import SPLIT
from fedcal.calibrators.histogram_binning import MARGIN, TINY, least_value
from fedcal.calibrators.order_preserving import LOWEST, layers, moderate
from fedcal.calibrators.scaling import MIDDLE
from fedcal.conformal import PredictionSets
from fedcal.core.checks import same
from fedcal.core.fitting import LOG_A_LIMIT
from fedcal.core.numerics import FLOOR, Kind
from fedcal.metrics.score_table import BELOW_HALF, DIGITS


class CalibrationModule(nn.Module):
    """Scores (..., c) -> calibrated probabilities (..., c).

    Attributes
    ----------
    classes
        c
    input
        "logits" or "probs": what `forward` takes
    single
        whether float32 logits are computed with in float32, too
    """

    single: ClassVar[bool] = False

    def __init__(
        self, calibrator: Calibrator | PredictionSets, input: Kind, **numbers: ArrayLike
    ) -> None:
        super().__init__()
        self.classes, self.input = calibrator.classes, input
        for name, value in numbers.items():  # copies
            array = np.ascontiguousarray(value)  # torch.export.save warns of others
            self.register_buffer(name, torch.tensor(array, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        """Return calibrated probabilities in the type of `scores`, at least float32."""
        scores = scores if scores.dtype == torch.float64 else scores.float()
        logits, bad = self._logits(scores)
        probs: Tensor = self.calibrated(logits).to(scores.dtype).masked_fill(bad, math.nan)
        return probs

    def calibrated(self, z: Tensor) -> Tensor:
        """Return probabilities of finite logits."""
        return z.softmax(dim=-1)

    def _number(self, name: str) -> Tensor:
        """Return a buffer in double precision, whatever the module was cast to."""
        return self.get_buffer(name).double()

    def _logits(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of scores, 0 in rows with a NaN, and which rows these are, (..., 1)."""
        same("number of classes of scores for this module", scores.shape[-1], self.classes)
        bad = scores.isnan().any(dim=-1, keepdim=True)
        z = scores.masked_fill(bad, 0.0)
        if self.input == "probs":
            return z.double().clamp_min(FLOOR).log(), bad
        return z if self.single else z.double(), bad

    def _probs(self, z: Tensor) -> Tensor:
        """Return the model's own probabilities."""
        return z.exp() if self.input == "probs" else z.softmax(dim=-1)


class _Identity(CalibrationModule):
    single = True


class _Temperature(CalibrationModule):
    single = True

    def __init__(self, calibrator: calibrators.TemperatureScaling, input: Kind) -> None:
        super().__init__(calibrator, input, temperature=calibrator.temperature)

    def calibrated(self, z: Tensor) -> Tensor:
        # shifted first: a quotient of large logits would lose digits
        temperature = self._number("temperature").to(z.dtype)
        return (_shifted(z) / temperature).softmax(dim=-1)


class _Entropy(CalibrationModule):
    def __init__(self, calibrator: calibrators.EntropyTemperature, input: Kind) -> None:
        super().__init__(calibrator, input, w=calibrator.w)

    def calibrated(self, z: Tensor) -> Tensor:
        z = _shifted(z)
        e = z.exp()
        total = _total(e)
        entropy = total.log() - _total(e * z) / total
        h = (entropy / math.log(self.classes)).clamp(0.0, 1.0) - MIDDLE
        w = self._number("w")
        log_a = (w[0] + w[1] * h).clamp(-LOG_A_LIMIT, LOG_A_LIMIT)
        return (z * log_a.exp()).softmax(dim=-1)


class _Vector(CalibrationModule):
    def __init__(self, calibrator: calibrators.VectorScaling, input: Kind) -> None:
        a, b = np.split(calibrator.w, 2)
        super().__init__(calibrator, input, a=a, b=b)

    def calibrated(self, z: Tensor) -> Tensor:
        return (z * self._number("a") + self._number("b")).softmax(dim=-1)


class _Matrix(CalibrationModule):
    def __init__(self, calibrator: calibrators.MatrixScaling, input: Kind) -> None:
        c, w = calibrator.classes, calibrator.w
        super().__init__(calibrator, input, a=w[: c * c].reshape(c, c).T, b=w[c * c :])

    def calibrated(self, z: Tensor) -> Tensor:
        return (z @ self._number("a") + self._number("b")).softmax(dim=-1)


class _OrderPreserving(CalibrationModule):
    def forward(self, scores: Tensor) -> Tensor:
        """Break ties at the top in favour of the model's prediction, in the type of the scores."""
        probs = super().forward(scores)
        z = scores.to(probs.dtype)
        # not a product with 1 + eps: ONNX Runtime's optimiser takes that for 1 and drops it
        raised = probs + probs * torch.finfo(probs.dtype).eps
        raised = torch.where(z == z.amax(dim=-1, keepdim=True), raised, probs)
        return torch.where(_first_largest(probs) == _first_largest(z), probs, raised)

    def calibrated(self, z: Tensor) -> Tensor:
        ranked, order = _falling(z)
        y = ranked - ranked[..., :1]
        y = y - _total(y.exp()).log()
        m = self.slopes(y.clamp_min(LOWEST))[..., :-1]
        # ONNX Runtime has no softplus in double
        steps = (y[..., 1:] - y[..., :-1]) * (m.clamp_min(0.0) + torch.log1p((-m.abs()).exp()))
        f = torch.cat([torch.zeros_like(y[..., :1]), steps.cumsum(dim=-1)], dim=-1)
        return _unsorted(f.softmax(dim=-1), order)

    def slopes(self, y: Tensor) -> Tensor:
        """Return m of sorted log-probabilities that are clipped at `LOWEST`."""
        return y * self._number("a") + self._number("b")


class _OrderPreservingVector(_OrderPreserving, _Vector):
    """The slopes a y + b of `_OrderPreserving`, by the numbers that `_Vector` keeps."""


class _OrderPreservingMLP(_OrderPreserving):
    def __init__(self, calibrator: calibrators.OrderPreservingMLP, input: Kind) -> None:
        w1, b1, w2, b2, w3, b3 = layers(moderate(calibrator.w), calibrator.classes)
        # ONNX Runtime takes a factor beside a matrix product in single precision
        own = {"w1": w1 / -LOWEST, "w2": w2, "w3": w3, "b1": b1[0], "b2": b2[0], "b3": b3[0]}
        super().__init__(calibrator, input, **own)

    def slopes(self, y: Tensor) -> Tensor:
        y = (y @ self._number("w1") + self._number("b1")).relu()
        y = (y @ self._number("w2") + self._number("b2")).relu()
        return y @ self._number("w3") + self._number("b3")


Tabled = calibrators.HistogramBinning | calibrators.BBQ


class _BinningModule(CalibrationModule):
    def __init__(self, calibrator: Tabled, input: Kind, **numbers: ArrayLike) -> None:
        super().__init__(calibrator, input, table=calibrator.table, **numbers)
        self.bins = calibrator.table.shape[1]

    def calibrated(self, z: Tensor) -> Tensor:
        probs = self._probs(z)
        return self.normalised(self.entries(probs), probs)

    def entries(self, probs: Tensor) -> Tensor:
        """Return the table's entry for each predicted probability."""
        entry = self.looked_up("table", probs)
        return torch.cat([1.0 - entry, entry], dim=-1) if self.classes == 2 else entry

    def looked_up(self, name: str, probs: Tensor) -> Tensor:
        """Return what a (tables, bins) array has for each predicted probability."""
        columns, table = probs[..., 1:] if self.classes == 2 else probs, self._number(name)
        index = _bin_index(columns, self.bins) + _places(table.shape[0], columns) * self.bins
        return table.flatten()[index]

    def normalised(self, g: Tensor, probs: Tensor) -> Tensor:
        """Divide rows of g by their sum; in place of a row that sums to 0 that of `probs`."""
        total = _total(g)
        empty = total <= 0.0
        return torch.where(empty, probs / _total(probs), g / torch.where(empty, 1.0, total))


class _WeightedBinning(_BinningModule):
    def __init__(self, calibrator: calibrators.WeightedBinning, input: Kind) -> None:
        super().__init__(calibrator.base, input, weights=calibrator.weights)
        self.all_rows, self.by_bin = calibrator.rows == "all", calibrator.weights.ndim == 2

    def calibrated(self, z: Tensor) -> Tensor:
        probs = self._probs(z)
        weights = self.looked_up("weights", probs) if self.by_bin else self._number("weights")
        g = self.entries(probs)
        mixed = self.normalised(weights * g + (1.0 - weights) * probs, probs)
        if self.all_rows:
            return mixed
        plain = self.normalised(g, probs)
        return torch.where(_first_largest(plain) == _first_largest(probs), plain, mixed)


class _OfConfidence(CalibrationModule):
    """The predicted class gets a value of its confidence: see `with_confidence`."""

    def calibrated(self, z: Tensor) -> Tensor:
        probs = self._probs(z)
        v = self.value(probs.topk(1, dim=-1).values).clamp_min(least_value(self.classes))
        even = 1.0 / (self.classes - 1)
        predicted = _places(self.classes, z) == _first_largest(z)
        others = probs.masked_fill(predicted, 0.0)
        rest = _total(others)
        share = torch.where(rest > 0.0, others / torch.where(rest > 0.0, rest, 1.0), even)
        largest = share.masked_fill(predicted, 0.0).amax(dim=-1, keepdim=True)
        excess = (1.0 - v) * largest - (1.0 - MARGIN) * v
        weight = (excess / ((1.0 - v) * (largest - even)).clamp_min(TINY)).clamp(0.0, 1.0)
        return torch.where(predicted, v, (1.0 - v) * (share + weight * (even - share)))

    def value(self, s: Tensor) -> Tensor:
        """Return the calibrated score, shape kept."""
        raise NotImplementedError


class _TopLabelBinning(_OfConfidence):
    def __init__(self, calibrator: calibrators.TopLabelBinning, input: Kind) -> None:
        super().__init__(calibrator, input, values=calibrator.values)
        self.bins = len(calibrator.values)

    def value(self, s: Tensor) -> Tensor:
        return self._number("values")[_bin_index(s, self.bins)]


class _ScoreLogistic(_OfConfidence):
    def __init__(self, calibrator: calibrators.ScoreLogistic, input: Kind) -> None:
        super().__init__(calibrator, input, w=calibrator.w)
        self.low, self.high = calibrator.limits.tolist()
        self.positive = calibrator.score == "positive"

    def calibrated(self, z: Tensor) -> Tensor:
        if not self.positive:
            return super().calibrated(z)
        s = self._probs(z)[..., 1:]
        v = self.value(torch.where(_rounded(s) <= 0.5, s.clamp_max(BELOW_HALF), s))
        return torch.cat([1.0 - v, v], dim=-1)

    def value(self, s: Tensor) -> Tensor:
        w, s = self._number("w"), s.clamp(self.low, self.high)
        return (w[0] * s.log() - w[1] * torch.log1p(-s) + w[2]).sigmoid()


MODULES: dict[type[Calibrator], Callable[[Any, Kind], CalibrationModule]] = {
    calibrators.Identity: _Identity,
    calibrators.TemperatureScaling: _Temperature,
    calibrators.EntropyTemperature: _Entropy,
    calibrators.VectorScaling: _Vector,
    calibrators.MatrixScaling: _Matrix,
    calibrators.OrderPreservingVector: _OrderPreservingVector,
    calibrators.OrderPreservingMLP: _OrderPreservingMLP,
    calibrators.HistogramBinning: _BinningModule,
    calibrators.BBQ: _BinningModule,
    calibrators.WeightedBinning: _WeightedBinning,
    calibrators.TopLabelBinning: _TopLabelBinning,
    calibrators.ScoreLogistic: _ScoreLogistic,
}
"""Class of calibrator -> its module."""


class SetModule(CalibrationModule):
    """Scores of a model (..., c) -> which labels are in each row's set, bool (..., c).

    All is computed in float64. A row with a NaN has an empty set.
    """

    def __init__(self, sets: PredictionSets, model: CalibrationModule | None, input: Kind) -> None:
        super().__init__(sets, input, thresholds=sets.thresholds)
        self.conformity, self.model = sets.conformity, model

    def forward(self, scores: Tensor) -> Tensor:
        """Return which labels are in the sets."""
        logits, bad = self._logits(scores.double())
        probs = self._probs(logits) if self.model is None else self.model(scores.double())
        scaled = probs * SPLIT
        settled = scaled - (scaled - probs)  # as `conformity.settled`
        score = 1.0 - settled
        if self.conformity.ranked:
            score = _by_rank(settled, *self.conformity.regularisation)
        inside: Tensor = (_rounded(score) <= self._number("thresholds")) & ~bad
        return inside


def _by_rank(probs: Tensor, penalty: float, free: int) -> Tensor:
    """Return the mass of the classes up to each one, with the penalties of RAPS."""
    c = probs.shape[-1]
    falling, order = _falling(probs)
    place = _places(c, probs)
    mass = torch.where(place == c - 1, 1.0, falling.cumsum(dim=-1))
    excess = penalty * (place + (1 - free)).clamp_min(0).double()
    score = (mass + excess) / (1.0 + penalty * max(0.0, float(c - free)))
    return _unsorted(score.clamp_max(1.0), order)


def _total(x: Tensor) -> Tensor:
    return x.sum(dim=-1, keepdim=True)


def _shifted(x: Tensor) -> Tensor:
    return x - x.amax(dim=-1, keepdim=True).detach()


def _first_largest(x: Tensor) -> Tensor:
    """Return the column of the first largest entry of each row, (..., 1)."""
    return x.argmax(dim=-1, keepdim=True)


def _places(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device)


def _rounded(x: Tensor) -> Tensor:
    """Round to `DIGITS` decimals, as `numpy.round`."""
    rounded: Tensor = (x * 10.0**DIGITS).round() / 10.0**DIGITS
    return rounded


def _bin_index(x: Tensor, bins: int) -> Tensor:
    """Return `fedcal.metrics.binning.bin_index`: numbers and edges are compared in float32."""
    x = x.float().double()
    below = (x * bins).floor()
    on_edge = ((below + 1.0) / bins).float().double() <= x  # an edge that rounds down to x
    return (below.long() + on_edge.long()).clamp_max(bins - 1)


def _falling(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sort each row, falling, and return the original columns; ties stay in order."""
    if torch.onnx.is_in_onnx_export():  # its TopK keeps ties in order, and a stable sort has none
        values, order = torch.sort(x, dim=-1, descending=True)
    else:
        values, order = torch.sort(x, dim=-1, descending=True, stable=True)
    return values, order


def _unsorted(x: Tensor, order: Tensor) -> Tensor:
    """Return entries of sorted rows to their original columns."""
    return torch.zeros_like(x).scatter(-1, order, x)
