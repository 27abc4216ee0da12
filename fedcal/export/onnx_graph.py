"""An ONNX graph of plain operators that grows; imported only when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

import fedcal
from fedcal.calibrators import Calibrator
from fedcal.calibrators.operators import Operators
from fedcal.conformal import PredictionSets
from fedcal.core.numerics import FLOOR
from fedcal.core.types import override
from fedcal.export.expressions import sets_of_probs

OPSET, IR_VERSION = 17, 8
"""Old on purpose: they have every operator used here, and any ONNX Runtime >= 1.12 runs them."""

INPUT_NAMES = {"logits": "logits", "probs": "model_probs"}
"""What the graph takes -> name of its input; `probs` is the name of the output."""


Binary: TypeAlias = "Callable[[Value, Any], Value]"


def _operator(kind: str, dtype: type | None = None, *, swapped: bool = False) -> Binary:
    """Return a method of `Value` for an operator of Python; `dtype` is the result's type."""

    def apply(self: Value, operand: Any) -> Value:
        pair = (operand, self) if swapped else (self, operand)
        return self.graph.op(kind, *pair, dtype=dtype)

    return apply


class Value:
    """An array of a graph: its name there, and its type."""

    def __init__(self, graph: Graph, name: str, dtype: Any) -> None:
        self.graph, self.name, self.dtype = graph, name, np.dtype(dtype)

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)

    __add__, __radd__ = _operator("Add"), _operator("Add", swapped=True)
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", swapped=True)
    __mul__, __rmul__ = _operator("Mul"), _operator("Mul", swapped=True)
    __truediv__, __rtruediv__ = _operator("Div"), _operator("Div", swapped=True)
    __matmul__ = _operator("MatMul")
    __ge__, __le__ = _operator("GreaterOrEqual", bool), _operator("LessOrEqual", bool)
    __gt__ = _operator("Greater", bool)


class Graph(Operators):
    """A list of nodes that grows from the input to the output.

    Its operators are on values of type `Value`.

    Parameters
    ----------
    classes
        columns of what is sorted
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: Any, dtype: Any = None, **attributes: Any) -> Value:
        """Append one operator with one output, of the type of its last input that is a value.

        Numbers of Python become constants of the type of the values beside them.
        """
        own = [x.dtype for x in inputs if isinstance(x, Value)][-1]
        names = [x.name if isinstance(x, Value) else self.constant(x, own).name for x in inputs]
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [name], name, **attributes))
        return Value(self, name, own if dtype is None else dtype)

    def constant(self, value: ArrayLike, dtype: Any = np.float64) -> Value:
        """Return a constant array."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return Value(self, name, dtype)

    def _cast(self, x: Value, dtype: Any) -> Value:
        if x.dtype == np.dtype(dtype):
            return x
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.op("Cast", x, dtype=dtype, to=to)

    @override
    def double(self, x: Value) -> Value:
        return self._cast(x, np.float64)

    @override
    def like(self, x: Value, reference: Value) -> Value:
        return self._cast(x, reference.dtype)

    def eps(self, x: Value) -> float:
        """Return the machine epsilon of the type of x."""
        return float(np.finfo(x.dtype).eps)

    @override
    def rounded(self, x: Value, digits: int) -> Value:
        return self.op("Round", x * 10.0**digits) / 10.0**digits

    @override
    def places(self, count: int, like: Value) -> Value:
        return self.constant(np.arange(count), np.int64)

    @override
    def exp(self, x: Value) -> Value:
        return self.op("Exp", x)

    @override
    def log(self, x: Value) -> Value:
        return self.op("Log", x)

    @override
    def log1p(self, x: Value) -> Value:
        return self.log(1.0 + x)

    @override
    def relu(self, x: Value) -> Value:
        return self.op("Relu", x)

    @override
    def sigmoid(self, x: Value) -> Value:
        return self.op("Sigmoid", x)

    def softplus(self, x: Value) -> Value:
        """log(1 + exp(x)); the operator of this name is not there in double."""
        tail = self.exp(-self.op("Abs", x))
        return self.clip(x, low=0.0) + self.log(tail + 1.0)

    def softmax(self, x: Value) -> Value:
        """Probabilities of logits."""
        return self.op("Softmax", x, axis=-1)

    def log_softmax(self, x: Value) -> Value:
        """Logarithms of these; some runtimes take LogSoftmax literally, and log 0."""
        z = self.shifted(x)
        return z - self.log(self.total(self.exp(z)))

    @override
    def shifted(self, x: Value) -> Value:
        return x - self.op("ReduceMax", x, axes=[-1], keepdims=1)

    @override
    def clip(self, x: Value, low: float | None = None, high: float | None = None) -> Value:
        if high is None:
            return self.op("Max", x, low)
        return self.op("Min", x, high) if low is None else self.op("Clip", x, low, high)

    def where(self, condition: Value, yes: Any, no: Any) -> Value:
        """`yes` where the condition holds, else `no`."""
        own = yes if isinstance(yes, Value) else no
        yes, no = (x if isinstance(x, Value) else self.constant(x, own.dtype) for x in (yes, no))
        return self.op("Where", condition, yes, no)

    @override
    def equal(self, x: Value, right: Value) -> Value:
        return self.op("Equal", x, right, dtype=bool)

    @override
    def total(self, x: Value) -> Value:
        axes = self.constant([-1], np.int64)
        return self.op("ReduceSum", x, axes, dtype=x.dtype, keepdims=1)

    def largest(self, x: Value) -> Value:
        """Largest of each row: ONNX Runtime's ReduceMax of no rows has c columns."""
        return self._top(x, 1)[0]

    def argmax(self, x: Value) -> Value:
        """Column of the first largest of each row."""
        return self.op("ArgMax", x, dtype=np.int64, axis=-1, keepdims=1)

    def norm(self, x: Value) -> Value:
        """Euclidean norm of each row."""
        return self.op("ReduceL2", x, axes=[-1], keepdims=1)

    @override
    def column(self, x: Value, index: int) -> Value:
        return self._gather(x, self.constant([index], np.int64), -1)

    @override
    def join(self, *columns: Value) -> Value:
        return self.op("Concat", *columns, axis=-1)

    def gaps(self, x: Value) -> Value:
        """x_{k + 1} - x_k, and 0 at the end."""
        below = np.minimum(np.arange(self.classes) + 1, self.classes - 1)
        return self._gather(x, self.constant(below, np.int64), -1) - x

    def sums(self, x: Value, *, exclusive: bool = False) -> Value:
        """x_1 + ... + x_k, or with `exclusive` without x_k."""
        axis = self.constant(-1, np.int64)
        return self.op("CumSum", x, axis, dtype=x.dtype, exclusive=int(exclusive))

    def sort(self, x: Value) -> tuple[Value, Value]:
        """Each row falling, and the columns where its entries were; ties stay in order."""
        return self._top(x, self.classes)

    def unsort(self, x: Value, order: Value) -> Value:
        """Entries of sorted rows where they were."""
        return self.op("ScatterElements", x, order, x, axis=-1)

    def entry(self, constant: Value, index: int) -> Value:
        """One number of a constant vector."""
        return self._gather(constant, self.constant(index, np.int64), 0)

    @override
    def transposed(self, constant: Value) -> Value:
        return self.op("Transpose", constant)

    def take(self, constant: Value, index: Value) -> Value:
        """Entries of a constant array that is read row by row, in the shape of `index`."""
        flat = self.op("Reshape", constant, self.constant([-1], np.int64), dtype=constant.dtype)
        return self._gather(flat, index, 0)

    def bins(self, x: Value, count: int) -> Value:
        """Return the bin of equal width of each number in [0, 1]; 0 for NaN."""
        numbers = self.where(self.op("IsNaN", x, dtype=bool), 0.0, x)  # no cast of it is defined
        return self.clip(self._cast(numbers * count, np.int64), high=count - 1)

    def or_nan(self, x: Value, of: Value) -> Value:
        """x, and NaN where `of` is."""
        return self.where(self.op("IsNaN", of, dtype=bool), of, x)

    def bucket(self, x: Value, edges: Value) -> Value:
        """Return how many of the constant edges are not above x, (rows, 1), as whole numbers."""
        passed, one = self.double(x >= edges), self.constant([-1], np.int64)
        ones = self.op("Unsqueeze", edges * 0.0 + 1.0, one, dtype=np.float64)
        return self._cast(
            passed @ ones, np.int64
        )  # ONNX Runtime's ReduceSum of no rows has more columns

    def _gather(self, x: Value, index: Value, axis: int) -> Value:
        return self.op("Gather", x, index, dtype=x.dtype, axis=axis)

    def _top(self, x: Value, k: int) -> tuple[Value, Value]:
        """Return the k largest entries of each row, falling, and their columns."""
        values = self.op(
            "TopK", x, self.constant([k], np.int64), dtype=x.dtype, axis=-1, largest=1, sorted=1
        )
        columns = Value(self, f"{values.name}_columns", np.int64)
        self.nodes[-1].output.append(columns.name)
        return values, columns

    def output(self, x: Value, name: str) -> None:
        """Give a value the name of an output."""
        self.op("Identity", x)
        self.nodes[-1].output[0] = name


def model_of(
    fitted: Calibrator | PredictionSets, input: str, dtype: str, metadata: Mapping[str, str]
) -> onnx.ModelProto:
    """Return a checked model of a calibrator or of prediction sets.

    Parameters
    ----------
    input
        "logits" or "probs"
    dtype
        "float32" or "float64", of input and output
    metadata
        kept as the model's metadata
    """
    graph, source, kind = Graph(fitted.classes), INPUT_NAMES[input], metadata["kind"]
    z = Value(graph, source, dtype)
    if isinstance(fitted, PredictionSets):
        z = graph.double(z)
    if input == "probs":
        graph.given, z = True, graph.log(graph.clip(z, low=FLOOR))
    if isinstance(fitted, PredictionSets):
        calibrator = fitted.conformity.read_calibrator()
        probs = graph.probs(z) if calibrator is None else _probs(graph, z, calibrator)
        thresholds = graph.constant(fitted.thresholds)
        graph.output(sets_of_probs(graph, probs, fitted, thresholds), "sets")
        output, about = {"sets": ("bool", fitted.classes)}, "which labels are in each set"
    else:
        graph.output(_probs(graph, z, fitted), "probs")
        output, about = {"probs": (dtype, fitted.classes)}, f"calibrated probabilities, {kind}"
    name, taken = f"fedcal_{kind.replace('-', '_')}", {source: (dtype, fitted.classes)}
    return checked(graph, name, f"{input} -> {about}", taken, output, metadata)


def _probs(graph: Graph, z: Value, calibrator: Calibrator) -> Value:
    """Calibrated probabilities in the type of the logits."""
    constants = {name: graph.constant(x) for name, x in calibrator.constants().items()}
    return graph.like(calibrator.expression(graph, z, constants), z)


def checked(
    graph: Graph,
    name: str,
    about: str,
    inputs: Mapping[str, tuple[str, int]],
    outputs: Mapping[str, tuple[str, int]],
    metadata: Mapping[str, str],
) -> onnx.ModelProto:
    """Return a checked model of the nodes of a graph.

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
