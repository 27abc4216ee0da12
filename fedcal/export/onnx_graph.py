"""An ONNX graph of plain operators that grows; imported only when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

import fedcal
from fedcal.calibrators import Calibrator
from fedcal.conformal import PredictionSets
from fedcal.core.numerics import FLOOR

OPSET, IR_VERSION = 17, 8
"""Old on purpose: they have every operator used here, and any ONNX Runtime >= 1.12 runs them."""

INPUT_NAMES = {"logits": "logits", "probs": "model_probs"}
"""What the graph takes -> name of its input; `probs` is the name of the output."""


class Graph:
    """A list of nodes that grows from the input to the output; values go by their names.

    Parameters
    ----------
    dtype
        "float32" or "float64", of input and output
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

    def number(self, value: float) -> str:
        """A constant in double; its name."""
        return self.constant(value, np.float64)

    def cast(self, x: str, dtype: Any) -> str:
        """`x` as another type."""
        return self.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def model_of(
    build: Callable[[Graph, str, Any], str],
    fitted: Calibrator | PredictionSets,
    input: str,
    dtype: str,
    metadata: Mapping[str, str],
) -> onnx.ModelProto:
    """A checked model around what `build` appends.

    Parameters
    ----------
    build
        (graph, name of the logits, calibrator) -> name of the probabilities, both in `dtype`; of
        sets (graph, name of double logits, sets) -> name of the sets
    input
        "logits" or "probs"
    dtype
        "float32" or "float64", of input and output
    metadata
        kept as the model's metadata
    """
    inner, output, outer = dtype, "probs", dtype
    name, about = (
        metadata["kind"].replace("-", "_"),
        f"calibrated probabilities, {metadata['kind']}",
    )
    if isinstance(fitted, PredictionSets):
        inner, output, outer, about = "float64", "sets", "bool", "which labels are in each set"
    graph, source = Graph(inner), INPUT_NAMES[input]
    x = source if inner == dtype else graph.cast(source, inner)
    if input == "probs":
        x = graph.op("Log", graph.op("Max", x, graph.constant(FLOOR, inner)))
    graph.op("Identity", build(graph, x, fitted))
    graph.nodes[-1].output[0] = output
    return checked(
        graph,
        f"fedcal_{name}",
        f"{input} -> {about}",
        {source: (dtype, fitted.classes)},
        {output: (outer, fitted.classes)},
        metadata,
    )


def checked(
    graph: Graph,
    name: str,
    about: str,
    inputs: Mapping[str, tuple[str, int]],
    outputs: Mapping[str, tuple[str, int]],
    metadata: Mapping[str, str],
) -> onnx.ModelProto:
    """A checked model of the nodes of a graph.

    Parameters
    ----------
    inputs, outputs
        name -> type, and length of a row
    metadata
        kept as the model's metadata
    """

    def ends(values: Mapping[str, tuple[str, int]]) -> list[onnx.ValueInfoProto]:
        types = {k: helper.np_dtype_to_tensor_dtype(np.dtype(v[0])) for k, v in values.items()}
        return [
            helper.make_tensor_value_info(k, types[k], ["rows", v[1]]) for k, v in values.items()
        ]

    model = helper.make_model(
        helper.make_graph(
            graph.nodes, name, ends(inputs), ends(outputs), graph.constants, doc_string=about
        ),
        producer_name="fedcal",
        producer_version=fedcal.__version__,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    return model
