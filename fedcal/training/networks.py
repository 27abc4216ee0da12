"""Networks by name, dense layers or a `torch.nn.Module` of the user's own, and trained models.

A network is a torch module whose weights are one flat vector.

Clients, server and tests share it. Torch and Opacus (extra `train`) are imported where rows are
read; a question, a plan and a model's file need neither.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.core import numerics, pages
from fedcal.core.checks import InputError, blamed, check_kept, integer, number_in, one_of, same
from fedcal.core.imports import absent, named
from fedcal.core.numerics import Floats, Integers, override
from fedcal.core.shards import text_of as text_of
from fedcal.metrics import summary
from fedcal.storage import artifact, atomic

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedcal.training.row_gradients import RowGradients


Rule = Literal["row", "global", "none"]
"""Rule that bounds a row's gradient by the clip norm C; see `Clipping.factors`."""

ROOM = 2.0**-24
"""Share of the clip norm that is left to a row, so that no rounding on the way leads above it."""

MOST_INPUTS = 2**24


@dataclass(frozen=True)
class Clipping:
    """Bound of each row's gradient.

    Attributes
    ----------
    norm
        C, the most that one row may add to a sum, > 0; without a bound 0
    rule
        see `factors`
    reach
        Z of the rule "global"
    """

    norm: float
    rule: Rule = "row"
    reach: float = 1.0

    def factors(self, norms: Floats) -> Floats:
        """Return the factor of each row's gradient from its norm, (n,) -> (n,).

        ``row``: min(1, C / norm), per-example clipping (Abadi et al. 2016).
        ``global``: C / Z if norm <= Z, else 0 (Bu et al. 2021, global clipping): directions of rows
        that count are kept in their proportion, and those beyond Z are left out.
        ``none``: 1.

        The factor of a norm that is not finite is 0.
        """
        ones, shorter = np.ones_like(norms), self.norm * (1.0 - ROOM)
        if self.rule == "row":
            over = norms > shorter
            ones = np.where(over, shorter / np.where(over, norms, 1.0), ones)
        elif self.rule == "global":
            ones = np.where(norms <= self.reach, shorter / self.reach, 0.0)
        return np.where(np.isfinite(norms), ones, 0.0)


@dataclass(frozen=True)
class LocalSGD:
    """Plain SGD at a client: passes over its rows, rows of a step, and the step's length."""

    epochs: int
    batch: int
    lr: float


class Network(ABC):
    """One architecture.

    Attributes
    ----------
    name
        on the command line and in files
    reads_features
        True if it reads rows of numbers, (n, d), as floats; else it takes rows of any kind
    lr
        learning rate of gradient descent that suits a clip norm of 1
    """

    name: str
    reads_features: bool = False
    lr: float = 0.5

    @abstractmethod
    def module(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Return a new module in float32 for rows of this shape, its weights drawn by `seed`."""

    @abstractmethod
    def size(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the number of weights; InputError if inputs of this shape do not suit it."""

    def initial(self, shape: tuple[int, ...], classes: int, seed: int) -> Floats:
        """Weights to begin with, (size,), as PyTorch draws them."""
        w: Floats = torch_functions().weights_of(self.module(shape, classes, seed))
        return w

    def tensor(self, inputs: NDArray[Any]) -> Tensor:
        """Rows as `module` takes them, in memory of their own; floats in float32."""
        import torch

        rows = torch.tensor(np.ascontiguousarray(inputs))
        return rows.float() if self.reads_features or rows.is_floating_point() else rows

    def logits(self, w: Floats, inputs: NDArray[Any], classes: int) -> Floats:
        """(n, ...) inputs -> (n, classes) float64; on one thread, so that machines agree."""
        on_torch = torch_functions()
        model = reused(self, inputs.shape[1:], classes)
        if not len(inputs):
            return np.zeros((0, classes))
        with on_torch.one_thread():
            on_torch.set_weights(model, w)
            logits = on_torch.logits_of(model, self.tensor(inputs))
        return np.asarray(logits.numpy(), np.float64)

    def local_update(
        self,
        w: Floats,
        inputs: NDArray[Any],
        labels: Integers,
        classes: int,
        sgd: LocalSGD,
        rng: np.random.Generator,
    ) -> tuple[Floats, float]:
        """Train by plain SGD on some rows, at least one, in float32.

        Returns
        -------
        tuple[Floats, float]
            Floats
                w_k - w, (size,), where w_k is what SGD makes of w.
            float
                Mean cross-entropy in nats of all rows seen on the way, before each step.
        """
        on_torch = torch_functions()
        with on_torch.one_thread():
            model = reused(self, inputs.shape[1:], classes)
            on_torch.set_weights(model, w)
            found: tuple[Floats, float]
            found = on_torch.descend(model, self.tensor(inputs), labels, sgd, rng)
        return found


@lru_cache(maxsize=4)
def reused(network: Network, shape: tuple[int, ...], classes: int) -> nn.Module:
    """One module for all calls of a process: each sets the weights before it uses it."""
    return network.module(shape, classes, 0)


@lru_cache(maxsize=4)
def row_gradients(network: Network, shape: tuple[int, ...], classes: int) -> RowGradients:
    """Return the gradients of rows of this shape; weights come with each call."""
    made: RowGradients = torch_functions().RowGradients(network, shape, classes)
    return made


def need_torch() -> None:
    """Raise InputError, one line that says what to install, without torch or Opacus."""
    for package in ("torch", "opacus"):
        if find_spec(package) is None:
            raise absent(package, "train", "training a model")


def torch_functions() -> Any:
    """Return the module `row_gradients`, which imports torch and Opacus."""
    need_torch()
    from fedcal.training import row_gradients

    return row_gradients


def shape_of(text: str) -> tuple[int, ...]:
    """Shape of one input from text such as "512" or "28x28x1", or InputError."""
    try:
        shape = tuple(number_in(part, int) for part in text.split("x"))
    except (ValueError, AttributeError):
        raise InputError(f"shape must be like 512 or 28x28x1, got {text!r:.40}") from None
    for number in (*shape, math.prod(shape)):
        integer(f"a side, and the product, of the shape {text:.40}", number, 1, MOST_INPUTS)
    return shape


MOST_HIDDEN = 8


class DenseLayers(Network):
    """Dense layers with ReLUs between them, on rows of features of about unit size.

    Without hidden layers it is softmax regression, which begins at 0.
    """

    reads_features = True

    def __init__(self, name: str, hidden: tuple[int, ...], lr: float) -> None:
        self.name, self.lr = name, lr
        self.hidden = hidden[: integer("number of hidden layers", len(hidden), 0, MOST_HIDDEN)]

    def _widths(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        of_features = f"dimensions of a row for {self.name} (else name your own module:Class)"
        same(of_features, len(shape), 1)
        return list(pairwise((*shape, *self.hidden, classes)))

    @override
    def size(self, shape: tuple[int, ...], classes: int) -> int:
        return sum((width + 1) * out for width, out in self._widths(shape, classes))

    @override
    def initial(self, shape: tuple[int, ...], classes: int, seed: int) -> Floats:
        if not self.hidden:
            return np.zeros(self.size(shape, classes))
        return super().initial(shape, classes, seed)

    @override
    def module(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        from torch import nn

        with torch_functions().drawn_by(seed):
            first, *others = (nn.Linear(*of) for of in self._widths(shape, classes))
        return nn.Sequential(first, *(part for one in others for part in (nn.ReLU(), one)))


class OwnModule(Network):
    """Module that takes rows as they are in the data, (n, ...), and gives logits (n, classes)."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self._make = name, make

    def module(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Return a new module in float32, its weights drawn by `seed` unless it brings its own.

        InputError if the user's code fails, does not give (n, classes) logits, has frozen
        parameters, or state beside its parameters that changes with the rows.
        """
        on_torch = torch_functions()
        import torch

        rows = f"the model {self.name}, on rows of shape {text_of(shape)},"
        with on_torch.drawn_by(seed), blamed(rows), torch.no_grad():
            # each has weights of its own
            module: nn.Module = deepcopy(self._make()).to("cpu", torch.float32).eval()
            logits = module(torch.zeros(2, *shape))  # lazy layers learn their shapes, too
            there = tuple(getattr(logits, "shape", ()))
            same(f"shape of logits of two rows by {rows}", there, (2, classes))
            copy = deepcopy(module).train()
            copy(torch.ones(2, *shape))
        buffers = zip(module.named_buffers(), copy.buffers(), strict=True)
        unfit = [name for (name, before), now in buffers if not torch.equal(before, now)]
        if unfit or (unfit := [n for n, p in module.named_parameters() if not p.requires_grad]):
            raise InputError(
                f"the model {self.name}: {unfit[0]} is frozen, or changes with the rows of a batch "
                "as batch normalisation's statistics do; all parameters are trained, and nothing "
                "else may change (use GroupNorm, or features of the frozen part)"
            )
        return module

    @override
    def size(self, shape: tuple[int, ...], classes: int) -> int:
        return sum(p.numel() for p in reused(self, shape, classes).parameters())


NETWORKS: dict[str, Network] = {
    "softmax": DenseLayers("softmax", (), 8.0),
    "mlp": DenseLayers("mlp", (128,), 2.0),
}
"""Name on the command line -> network."""

OWN: dict[str, Network] = {}
"""Name, "module:Class", -> a module of the user's own, as `register_network` was given it."""


def register_network(model: Any) -> str:
    """Let a module of the user's own be named wherever a network is.

    Raises InputError if it cannot be imported, or called.

    Parameters
    ----------
    model
        a module, whose weights are where training begins; its class, or a function without
        arguments that makes one; or the `module:name` of any of these, in the working folder or
        installed. The name of a network that fedcal has stays as it is

    Returns
    -------
    str
        its name, `module:Class`
    """
    text = model if isinstance(model, str) else ""
    if text and (text in OWN or text.partition(":")[2][:1] in ("", *"0123456789")):
        return text
    network = named("--model", text) if text else model
    if not callable(network):
        raise InputError(
            f"{network!r:.80} is not a model: a torch.nn.Module, its class or its maker"
        )
    is_module = hasattr(network, "state_dict") and not isinstance(network, type)
    own = network if hasattr(network, "__qualname__") else type(network)
    name = text or f"{own.__module__}:{own.__qualname__}"
    OWN[name] = OwnModule(name, (lambda: network) if is_module else network)
    return name


def network_named(text: str, what: str = "network") -> Network:
    """Return the network of this name: of `NETWORKS`, with widths as "mlp:64x32", or of `OWN`.

    Nothing is imported here: the name may be a server's, or a file's.

    Raises InputError if there is none; `what` it is called.
    """
    if text in OWN:
        return OWN[text]
    name, _, widths = str(text).partition(":")
    if name == "mlp" and widths[:1].isdigit():
        return _wide(widths)
    if widths:
        raise InputError(
            f"{what} {text[:80]!r} is a user's own module, and its name alone imports no code: "
            "pass the module itself (--model of fedcal train and fedcal apply; "
            "load_model(path, model=...))"
        )
    check_kept(f"--model {text}")
    return NETWORKS[one_of(what, text, NETWORKS)]


@lru_cache(maxsize=32)
def _wide(widths: str) -> Network:
    """One object for each text: what was built for it is found again."""
    hidden = tuple(shape_of(one)[0] for one in widths.split("x"))
    return DenseLayers(f"mlp:{widths}", hidden, NETWORKS["mlp"].lr)


class TrainedModel(artifact.Artifact):
    """Trained model, as saved in `model.npz`.

    Parameters
    ----------
    network
        its name, see `network_named`
    shape
        of one input
    classes
        of the model
    w
        (size,) weights
    """

    form: ClassVar[str] = "model"
    noun: ClassVar[str] = "model"

    def __init__(self, network: str, shape: tuple[int, ...], classes: int, w: Floats) -> None:
        self.network, self.shape, self.classes = network, shape, classes
        self.w = np.array(w, np.float64)
        self.architecture = network_named(network)
        size = self.architecture.size(shape, classes)
        same(f"shape of the weights of {network}", self.w.shape, (size,))

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Network, shape, classes and weights."""
        return {
            "network": np.array(self.network),
            "shape": np.array(self.shape),
            "classes": np.array(self.classes),
            "w": self.w,
        }

    @classmethod
    @override
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        shape = tuple(int(side) for side in np.atleast_1d(arrays["shape"]))
        return cls(str(arrays["network"]), shape, int(arrays["classes"]), arrays["w"])

    def predict(self, inputs: NDArray[Any]) -> Floats:
        """(n, ...) inputs -> (n, classes) logits.

        Raises InputError if they are not of the shape that the model was trained on.
        """
        same("shape of the model's inputs", inputs.shape[1:], self.shape)
        return self.architecture.logits(self.w, inputs, self.classes)

    def write_state_dict(self, path: Path) -> None:
        """Write the weights as the state dict of the module, in float32, for `torch.load`."""
        import torch

        module = self.architecture.module(self.shape, self.classes, 0)
        torch_functions().set_weights(module, self.w)
        torch.save(module.state_dict(), path)

    @override
    def results(self) -> dict[str, Any]:
        return {
            "model": {
                "network": self.network,
                "shape": list(self.shape),
                "classes": self.classes,
                "weights": int(self.w.size),
            }
        }

    @override
    def page(self) -> list[pages.Part]:
        facts = (
            ("network", self.network),
            ("reads inputs of shape", text_of(self.shape)),
            ("classes", f"{self.classes:,}"),
            ("weights", f"{self.w.size:,}"),
        )
        return [pages.Table("Network", ("", ""), facts)]

    def judge(self, test: artifact.Holdout) -> dict[str, Any]:
        """Metrics on test rows that it reads, from inputs or from logits: `after`, as fractions."""
        inputs = test.logits if test.inputs is None else test.inputs
        if inputs.shape[1:] != self.shape:
            return {}
        return {"after": summary(numerics.softmax(self.predict(inputs)), test.labels)}


def load_model(path: str | Path, model: Any = None) -> TrainedModel:
    """Load the model in a file that a run left (`model.npz`).

    Parameters
    ----------
    model
        the module of the user's own that was trained (`fedcal.train`), or its `module:Class`:
        the file has its weights and its name, and a name alone imports nothing

    Raises
    ------
    InputError
        If the file cannot be read, holds something else, is of a later version, or holds arrays
        that do not fit together.
    """
    named = {} if model is None else {"network": np.array(register_network(model))}
    return TrainedModel.load(atomic.path_of(path), **named)
