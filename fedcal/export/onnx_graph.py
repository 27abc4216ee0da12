"""Calibrators as ONNX graphs of plain operators; imported only when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

import fedcal
from fedcal.calibrators import (
    BBQ,
    Calibrator,
    EntropyTemperature,
    HistogramBinning,
    Identity,
    MatrixScaling,
    OrderPreservingMLP,
    OrderPreservingVector,
    TemperatureScaling,
    TopLabelBinning,
    VectorScaling,
    WeightedBinning,
)
from fedcal.export.onnx_entropy import entropy_temperature
from fedcal.export.onnx_scaling import (
    matrix,
    order_preserving_mlp,
    order_preserving_vector,
    vector,
)
from fedcal.export.onnx_top_label import top_label
from fedcal.numerics import FLOOR
from fedcal.types import Floats

OPSET, IR_VERSION = 17, 8
"""Old on purpose: they have every operator used here, and any ONNX Runtime >= 1.12 runs them."""

INPUT_NAMES = {"logits": "logits", "probs": "model_probs"}
"""What the graph takes -> name of its input; `probs` is the name of the output."""


class Graph:
    """A list of nodes that grows from the input to the output; values go by their names.

    Parameters
    ----------
    dtype : "float32" or "float64", of input and output
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append one operator with one output; its name."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def top_k(self, x: str, k: int) -> tuple[str, str]:
        """The names of the k largest entries of each row, falling, and of their columns."""
        values = self.op("TopK", x, self.constant([k], np.int64), axis=-1, largest=1, sorted=1)
        columns = f"{values}_columns"
        self.nodes[-1].output.append(columns)
        return values, columns

    def constant(self, value: ArrayLike, dtype: Any) -> str:
        """A constant array; its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def cast(self, x: str, dtype: Any) -> str:
        """`x` as another type."""
        return self.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def model_of(
    build: Callable[[Graph, str, Any], str],
    calibrator: Calibrator,
    input: str,
    dtype: str,
    metadata: Mapping[str, str],
) -> onnx.ModelProto:
    """A checked model around what `build` appends.

    Parameters
    ----------
    build : (graph, name of the logits, calibrator) -> name of the probabilities, both in `dtype`
    input : "logits" or "probs"
    dtype : "float32" or "float64", of input and output
    metadata : kept as the model's metadata
    """
    graph, source = Graph(dtype), INPUT_NAMES[input]
    x = source
    if input == "probs":
        x = graph.op("Log", graph.op("Max", x, graph.constant(FLOOR, dtype)))
    graph.op("Identity", build(graph, x, calibrator))
    graph.nodes[-1].output[0] = "probs"
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape: list[str | int | None] = ["rows", calibrator.classes]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            f"fedcal_{calibrator.kind.replace('-', '_')}",
            [helper.make_tensor_value_info(source, kind, shape)],
            [helper.make_tensor_value_info("probs", kind, shape)],
            graph.constants,
            doc_string=f"{input} -> calibrated probabilities, {calibrator.kind}",
        ),
        producer_name="fedcal",
        producer_version=fedcal.__version__,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    return model


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
}
"""Class of calibrator -> what appends its operators: (graph, logits, calibrator) -> probs."""
