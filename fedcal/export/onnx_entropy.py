"""Operators of temperature scaling by entropy; all is computed in double."""

from __future__ import annotations

import math

import numpy as np

from fedcal.calibrators.entropy import MIDDLE, EntropyTemperature
from fedcal.core.numerics import LOG_A_LIMIT
from fedcal.export.onnx_graph import Graph


def entropy_temperature(g: Graph, z: str, calibrator: EntropyTemperature) -> str:
    """softmax(a z) with log a = w_0 + w_1 (h - 0.1), h the entropy of softmax(z) over log c."""

    def total(x: str) -> str:
        return g.op("ReduceSum", x, g.constant([-1], np.int64), keepdims=1)

    z = g.cast(z, np.float64)
    z = g.op("Sub", z, g.op("ReduceMax", z, axes=[-1], keepdims=1))
    e = g.op("Exp", z)
    norm = total(e)
    mean = g.op("Div", total(g.op("Mul", e, z)), norm)
    entropy = g.op("Sub", g.op("Log", norm), mean)
    h = g.op("Div", entropy, g.number(math.log(calibrator.classes)))
    h = g.op("Sub", g.op("Clip", h, g.number(0.0), g.number(1.0)), g.number(MIDDLE))
    first, slope = calibrator.w.tolist()
    log_a = g.op("Add", g.op("Mul", h, g.number(slope)), g.number(first))
    log_a = g.op("Clip", log_a, g.number(-LOG_A_LIMIT), g.number(LOG_A_LIMIT))
    scaled = g.op("Mul", z, g.op("Exp", log_a))
    return g.cast(g.op("Softmax", scaled, axis=-1), g.dtype)
