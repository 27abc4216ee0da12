"""Operators of the scaling calibrators with many parameters; all is computed in double."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedcal.calibrators import (
    MatrixScaling,
    OrderPreservingMLP,
    OrderPreservingVector,
    VectorScaling,
)
from fedcal.calibrators.order_preserving import LOWEST
from fedcal.calibrators.order_preserving_mlp import layers, moderate
from fedcal.export.onnx_graph import Graph


def vector(g: Graph, z: str, calibrator: VectorScaling) -> str:
    """softmax(a z + b)."""
    a, b = (g.constant(x, np.float64) for x in np.split(calibrator.w, 2))
    scores = g.op("Add", g.op("Mul", g.cast(z, np.float64), a), b)
    return g.cast(g.op("Softmax", scores, axis=-1), g.dtype)


def matrix(g: Graph, z: str, calibrator: MatrixScaling) -> str:
    """softmax(A z + b)."""
    c = calibrator.classes
    a = calibrator.w[: c * c].reshape(c, c)
    product = g.op("MatMul", g.cast(z, np.float64), g.constant(a.T, np.float64))
    scores = g.op("Add", product, g.constant(calibrator.w[c * c :], np.float64))
    return g.cast(g.op("Softmax", scores, axis=-1), g.dtype)


def order_preserving_vector(g: Graph, z: str, calibrator: OrderPreservingVector) -> str:
    """m = a y + b for sorted log-probabilities y."""
    a, b = (g.constant(x, np.float64) for x in np.split(calibrator.w, 2))
    return _order_preserving(g, z, calibrator.classes, lambda y: g.op("Add", g.op("Mul", y, a), b))


def order_preserving_mlp(g: Graph, z: str, calibrator: OrderPreservingMLP) -> str:
    """m by a network with two hidden layers of sorted log-probabilities."""
    first, *others = layers(moderate(calibrator.w), calibrator.classes)
    # y's unit is in w1: ONNX Runtime takes a factor beside a matrix product in single precision
    constants = (g.constant(x, np.float64) for x in (first / -LOWEST, *others))
    w1, b1, w2, b2, w3, b3 = constants

    def slopes(y: str) -> str:
        x = g.op("Relu", g.op("Add", g.op("MatMul", y, w1), b1))
        x = g.op("Relu", g.op("Add", g.op("MatMul", x, w2), b2))
        return g.op("Add", g.op("MatMul", x, w3), b3)

    return _order_preserving(g, z, calibrator.classes, slopes)


def _order_preserving(g: Graph, z: str, classes: int, slopes: Callable[[str], str]) -> str:
    """The steps of `fedcal.calibrators.order_preserving`.

    slopes : name of y, cut as m may see it -> name of m
    """
    ranked, order = g.top_k(g.cast(z, np.float64), classes)
    y = _log_softmax(g, ranked)
    below = np.minimum(np.arange(classes) + 1, classes - 1)
    gaps = g.op("Sub", g.op("Gather", y, g.constant(below, np.int64), axis=-1), y)
    m = slopes(g.op("Max", y, g.constant(LOWEST, np.float64)))
    steps = g.op("Mul", gaps, _softplus(g, m))
    f = g.op("CumSum", steps, g.constant(-1, np.int64), exclusive=1)
    ranked_probs = g.op("Softmax", f, axis=-1)
    probs = g.op("ScatterElements", ranked_probs, order, ranked_probs, axis=-1)
    return _keep_top(g, g.cast(probs, g.dtype), z)


def _log_softmax(g: Graph, z: str) -> str:
    """log softmax(z); some runtimes take the operator of this name literally, and log 0."""
    shifted = g.op("Sub", z, g.op("ReduceMax", z, axes=[-1], keepdims=1))
    total = g.op("ReduceSum", g.op("Exp", shifted), g.constant([-1], np.int64), keepdims=1)
    return g.op("Sub", shifted, g.op("Log", total))


def _softplus(g: Graph, x: str) -> str:
    """log(1 + exp(x)) without overflow; the operator of this name is not there in double."""
    tail = g.op("Exp", g.op("Neg", g.op("Abs", x)))
    log = g.op("Log", g.op("Add", tail, g.constant(1.0, np.float64)))
    return g.op("Add", g.op("Max", x, g.constant(0.0, np.float64)), log)


def _keep_top(g: Graph, probs: str, z: str) -> str:
    """The argmax of `probs` where that of `z` is: what has come to tie with it gives way."""
    first = [g.op("ArgMax", x, axis=-1, keepdims=1) for x in (probs, z)]
    top = g.op("Equal", z, g.op("ReduceMax", z, axes=[-1], keepdims=1))
    raise_it = g.op("And", g.op("Not", g.op("Equal", *first)), top)
    # not a product with 1 + eps: ONNX Runtime's optimiser takes that for 1 and drops it
    raised = g.op("Add", probs, g.op("Mul", probs, g.constant(np.finfo(g.dtype).eps, g.dtype)))
    return g.op("Where", raise_it, raised, probs)
