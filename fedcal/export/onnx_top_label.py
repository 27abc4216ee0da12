"""Operators of histogram binning of the confidence; all is computed in double."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators.top_label import MARGIN, TINY, TopLabelBinning, least_value
from fedcal.calibrators.top_label_logistic import LARGEST, TopLabelLogistic
from fedcal.export.onnx_graph import Graph


def top_label(g: Graph, z: str, calibrator: TopLabelBinning) -> str:
    """The predicted class gets its bin's value, the others share the rest."""
    c, bins = calibrator.classes, len(calibrator.values)
    probs = g.op("Softmax", g.cast(z, np.float64), axis=-1)
    confidence = g.op("ReduceMax", probs, axes=[-1], keepdims=1)
    lost = g.op("IsNaN", confidence)  # no bin is theirs, and no cast to an integer is defined
    found = g.op("Where", lost, g.number(0.0), confidence)
    index = g.cast(g.op("Mul", found, g.number(bins)), np.int64)
    index = g.op("Min", index, g.constant(bins - 1, np.int64))
    values = np.maximum(calibrator.values, least_value(c))
    v = g.op("Gather", g.constant(values, np.float64), index, axis=0)
    v = g.op("Where", lost, confidence, v)
    return g.cast(with_confidence(g, z, probs, v, c), g.dtype)


def top_label_logistic(g: Graph, z: str, calibrator: TopLabelLogistic) -> str:
    """softmax(z / T), the predicted class by a sigmoid of its log-odds."""
    double = g.cast(z, np.float64)
    double = g.op("Sub", double, g.op("ReduceMax", double, axes=[-1], keepdims=1))
    scaled = g.op("Div", double, g.number(calibrator.temperature))
    total = g.op("ReduceSum", g.op("Exp", scaled), g.constant([-1], np.int64), keepdims=1)
    rest = g.op("Max", g.op("Sub", total, g.number(1.0)), g.number(TINY))
    s = g.op("Neg", g.op("Log", rest))
    inner = g.op("Clip", s, g.number(-LARGEST), g.number(LARGEST))
    offset, slope = (g.number(float(x)) for x in calibrator.w)
    line = g.op("Add", offset, g.op("Mul", slope, inner))
    v = g.op("Sigmoid", g.op("Add", line, g.op("Sub", s, inner)))
    v = g.op("Max", v, g.number(least_value(calibrator.classes)))
    v = g.op("Where", g.op("IsNaN", total), total, v)
    probs = g.op("Softmax", scaled, axis=-1)
    return g.cast(with_confidence(g, z, probs, v, calibrator.classes), g.dtype)


def with_confidence(g: Graph, z: str, probs: str, v: str, c: int) -> str:
    """The predicted class gets v, (rows, 1), the others share the rest."""
    first = g.op("ArgMax", z, axis=-1, keepdims=1)
    predicted = g.op("Equal", g.constant(np.arange(c), np.int64), first)
    others = g.op("Where", predicted, g.number(0.0), probs)
    rest = g.op("ReduceSum", others, g.constant([-1], np.int64), keepdims=1)
    some, even = g.op("Greater", rest, g.number(0.0)), g.number(1.0 / (c - 1))
    share = g.op("Div", others, g.op("Where", some, rest, g.number(1.0)))
    share = g.op("Where", some, share, even)
    largest = g.op(
        "ReduceMax", g.op("Where", predicted, g.number(0.0), share), axes=[-1], keepdims=1
    )

    left = g.op("Sub", g.number(1.0), v)
    excess = g.op("Sub", g.op("Mul", left, largest), g.op("Mul", g.number(1.0 - MARGIN), v))
    room = g.op("Mul", left, g.op("Sub", largest, even))
    weight = g.op("Div", excess, g.op("Max", room, g.number(TINY)))
    weight = g.op("Clip", weight, g.number(0.0), g.number(1.0))
    mixed = g.op("Add", share, g.op("Mul", weight, g.op("Sub", even, share)))
    return g.op("Where", predicted, v, g.op("Mul", left, mixed))
