"""Each calibrator as operators of an ONNX graph; imported only when one is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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
from fedcal.core.types import Floats
from fedcal.export.onnx_entropy import entropy_temperature
from fedcal.export.onnx_graph import Graph
from fedcal.export.onnx_scaling import (
    matrix,
    order_preserving_mlp,
    order_preserving_vector,
    vector,
)
from fedcal.export.onnx_score import of_score
from fedcal.export.onnx_top_label import top_label, top_label_logistic


def softmax(g: Graph, z: str, _: Identity) -> str:
    """softmax(z)."""
    return g.op("Softmax", z, axis=-1)


def temperature(g: Graph, z: str, calibrator: TemperatureScaling) -> str:
    """softmax(z / T), shifted first: a quotient of large logits would lose digits."""
    shifted = g.op("Sub", z, g.op("ReduceMax", z, axes=[-1], keepdims=1))
    quotient = g.op("Div", shifted, g.constant(calibrator.temperature, g.dtype))
    return g.op("Softmax", quotient, axis=-1)


def binning(g: Graph, z: str, calibrator: HistogramBinning | BBQ) -> str:
    """The table's entries, normalised."""
    probs = _probs(g, z)
    return g.cast(_normalised(g, _scores(g, probs, calibrator.table), probs), g.dtype)


def weighted(g: Graph, z: str, calibrator: WeightedBinning) -> str:
    """The table's entries mixed with the model's own probabilities, normalised."""
    probs = _probs(g, z)
    scores = _scores(g, probs, calibrator.base.table)
    theirs = g.op("Mul", scores, g.constant(calibrator.weights, np.float64))
    own = g.op("Mul", probs, g.constant(1.0 - calibrator.weights, np.float64))
    out = _normalised(g, g.op("Add", theirs, own), probs)
    if calibrator.rows == "changed":
        plain = _normalised(g, scores, probs)
        kept = g.op("Equal", *(g.op("ArgMax", p, axis=-1, keepdims=1) for p in (plain, probs)))
        out = g.op("Where", kept, plain, out)
    return g.cast(out, g.dtype)


def _probs(g: Graph, z: str) -> str:
    """softmax(z) in double."""
    return g.op("Softmax", g.cast(z, np.float64), axis=-1)


def _scores(g: Graph, probs: str, table: Floats) -> str:
    """The entry of a (tables, bins) table for each double probability, not normalised."""
    tables, bins = table.shape
    columns = probs
    if tables == 1:  # two classes: only class 1 has a table
        columns = g.op("Gather", probs, g.constant([1], np.int64), axis=1)
    lost = g.op("IsNaN", columns)  # no bin is theirs, and no cast to an integer is defined
    found = g.op("Where", lost, g.constant(0.0, np.float64), columns)
    index = g.cast(g.op("Mul", found, g.constant(bins, np.float64)), np.int64)
    index = g.op("Min", index, g.constant(bins - 1, np.int64))
    index = g.op("Add", index, g.constant(np.arange(tables) * bins, np.int64))
    entry = g.op("Gather", g.constant(table.ravel(), np.float64), index, axis=0)
    entry = g.op("Where", lost, columns, entry)
    if tables > 1:
        return entry
    other = g.op("Sub", g.constant(1.0, np.float64), entry)
    return g.op("Concat", other, entry, axis=1)


def _normalised(g: Graph, scores: str, probs: str) -> str:
    """Rows divided by their sum; a row that sums to 0 falls back to `probs`."""
    total = g.op("ReduceSum", scores, g.constant([-1], np.int64), keepdims=1)
    empty = g.op("LessOrEqual", total, g.constant(0.0, np.float64))
    divisor = g.op("Where", empty, g.constant(1.0, np.float64), total)
    return g.op("Where", empty, probs, g.op("Div", scores, divisor))


BUILDERS: dict[type[Calibrator], Callable[[Graph, str, Any], str]] = {
    Identity: softmax,
    TemperatureScaling: temperature,
    EntropyTemperature: entropy_temperature,
    VectorScaling: vector,
    MatrixScaling: matrix,
    OrderPreservingVector: order_preserving_vector,
    OrderPreservingMLP: order_preserving_mlp,
    HistogramBinning: binning,
    BBQ: binning,
    WeightedBinning: weighted,
    TopLabelBinning: top_label,
    TopLabelLogistic: top_label_logistic,
    ScoreMap: of_score,
    ScoreLogistic: of_score,
}
"""Class of calibrator -> what appends its operators: (graph, logits, calibrator) -> probs."""
