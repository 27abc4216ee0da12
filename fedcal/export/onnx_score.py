"""Operators of the calibrators that look at one number of a row; all is computed in double."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators import ScoreLogistic, ScoreMap
from fedcal.calibrators.top_label import least_value
from fedcal.export.onnx_graph import Graph
from fedcal.export.onnx_top_label import with_confidence
from fedcal.metrics.buckets import DIGITS


def of_score(g: Graph, z: str, calibrator: ScoreMap | ScoreLogistic) -> str:
    """The calibrated probability of class 1, or confidence."""
    probs = g.op("Softmax", g.cast(z, np.float64), axis=-1)
    positive = calibrator.score == "positive"
    if positive:
        s = g.op("Gather", probs, g.constant([1], np.int64), axis=1)
    else:
        s, _ = g.top_k(probs, 1)  # ONNX Runtime's ReduceMax of no rows has c columns
    found = (
        _bucket(g, s, calibrator) if isinstance(calibrator, ScoreMap) else _curve(g, s, calibrator)
    )
    v = g.op("Where", g.op("IsNaN", s), s, found)
    if positive:
        out = g.op("Concat", g.op("Sub", g.number(1.0), v), v, axis=1)
    else:
        least = g.number(least_value(calibrator.classes))
        out = with_confidence(g, z, probs, g.op("Max", v, least), calibrator.classes)
    return g.cast(out, g.dtype)


def _bucket(g: Graph, s: str, calibrator: ScoreMap) -> str:
    """The value of the bucket: how many edges are not above the score says which."""
    scale = g.number(10.0**DIGITS)
    s = g.op("Div", g.op("Round", g.op("Mul", s, scale)), scale)
    edges = np.append(calibrator.edges[1:-1], 2.0)  # never none
    passed = g.cast(g.op("GreaterOrEqual", s, g.constant(edges, np.float64)), np.float64)
    ones = g.constant(np.ones((len(edges), 1)), np.float64)
    count = g.cast(g.op("MatMul", passed, ones), np.int64)
    return g.op("Gather", g.constant(calibrator.values, np.float64), count, axis=0)


def _curve(g: Graph, s: str, calibrator: ScoreLogistic) -> str:
    """Sigmoid of a log s - b log(1 - s) + c."""
    a, b, c = (g.number(float(x)) for x in calibrator.w)
    cut = g.op("Clip", s, *(g.number(float(x)) for x in calibrator.limits))
    up = g.op("Mul", a, g.op("Log", cut))
    down = g.op("Mul", b, g.op("Log", g.op("Sub", g.number(1.0), cut)))
    return g.op("Sigmoid", g.op("Add", g.op("Sub", up, down), c))
