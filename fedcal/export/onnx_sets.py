"""Prediction sets as operators of an ONNX graph; all is computed in double."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedcal.calibrators import Identity
from fedcal.conformal import Conformity, PredictionSets
from fedcal.conformal.scores import APS, LAC, RAPS, Margin, Score
from fedcal.conformal.scores.base import SPLIT
from fedcal.export.onnx_builders import BUILDERS
from fedcal.export.onnx_graph import Graph
from fedcal.metrics.buckets import DIGITS


def prediction_sets(g: Graph, z: str, sets: PredictionSets) -> str:
    """Whether each label's rounded score is at most its threshold; of double logits."""
    calibrator = sets.conformity.read_calibrator() or Identity(sets.classes)
    probs = BUILDERS[type(calibrator)](g, z, calibrator)
    scaled = g.op("Mul", probs, g.number(SPLIT))
    probs = g.op("Sub", scaled, g.op("Sub", scaled, probs))  # as `scores.settled`
    score = SCORES[sets.conformity.score](g, probs, sets.conformity, sets.classes)
    return g.op("LessOrEqual", _rounded(g, score), g.constant(sets.thresholds, np.float64))


def _rounded(g: Graph, x: str) -> str:
    scale = g.number(10.0**DIGITS)
    return g.op("Div", g.op("Round", g.op("Mul", x, scale)), scale)


def _lac(g: Graph, probs: str, of: Conformity, c: int) -> str:
    return g.op("Sub", g.number(1.0), probs)


def _aps(g: Graph, probs: str, of: Conformity, c: int) -> str:
    return _by_rank(g, probs, c, 0.0, 0)


def _raps(g: Graph, probs: str, of: Conformity, c: int) -> str:
    return _by_rank(g, probs, c, *of.regularisation)


def _by_rank(g: Graph, probs: str, c: int, penalty: float, free: int) -> str:
    """Mass of the classes up to each one, with the penalties of RAPS."""
    ranked, order = g.top_k(probs, c)  # of equal entries the first column comes first
    excess = penalty * np.maximum(0.0, np.arange(1, c + 1) - free)
    mass = g.op("CumSum", ranked, g.constant(1, np.int64))
    mass = g.op("Max", mass, g.constant(np.arange(c) == c - 1, np.float64))  # all are 1
    total = g.op("Add", mass, g.constant(excess, np.float64))
    found = g.op("Min", g.op("Div", total, g.number(1.0 + excess[-1])), g.number(1.0))
    return g.op("ScatterElements", probs, order, found, axis=1)


def _margin(g: Graph, probs: str, of: Conformity, c: int) -> str:
    top, columns = g.top_k(probs, 2)
    best, second = (g.op("Gather", top, g.constant([k], np.int64), axis=1) for k in (0, 1))
    first = g.op("Gather", columns, g.constant([0], np.int64), axis=1)
    predicted = g.op("Equal", g.constant(np.arange(c), np.int64), first)
    other = g.op("Where", predicted, second, best)
    total = g.op("Add", g.number(1.0), g.op("Sub", other, probs))
    return g.op("Div", total, g.number(2.0))


SCORES: dict[type[Score], Callable[[Graph, str, Conformity, int], str]] = {
    LAC: _lac,
    APS: _aps,
    RAPS: _raps,
    Margin: _margin,
}
"""Class of score -> what appends its operators, without randomness."""
