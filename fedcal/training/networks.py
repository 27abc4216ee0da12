"""Networks by name: dense layers, and a `torch.nn.Module` of the user's own.

What is trained: a torch module whose weights are one flat vector.

Clients, server and tests share it. Torch and Opacus (extra `train`) are imported where rows are
read; a question, a plan and a model's file need neither.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import number_in, one_of, whole
from fedcal.core.errors import InputError
from fedcal.core.optional import absent, named
from fedcal.core.removed import check_kept
from fedcal.core.types import Floats, Integers, override

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedcal.training.row_gradients import RowGradients


Dense = tuple[Floats, Floats]
"""Weights (out, in) and bias (out,) of a dense layer."""

Rule = Literal["row", "global", "none"]
"""How a row's gradient g is bounded by the clip norm C; see `factors`."""

RULES: tuple[Rule, ...] = get_args(Rule)

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

    def __post_init__(self) -> None:
        one_of("clipping", self.rule, RULES)

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
        whether it reads rows of numbers, (n, d), as floats; else whatever the rows are
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

    def dense(self, w: Floats, shape: tuple[int, ...], classes: int) -> list[Dense] | None:
        """Return its dense layers, with ReLUs between them; None for any other network."""
        return None

    def initial(self, shape: tuple[int, ...], classes: int, seed: int) -> Floats:
        """Weights to begin with, (size,), as PyTorch draws them."""
        need_torch()
        from fedcal.training.local_sgd import weights_of

        return weights_of(self.module(shape, classes, seed))

    def tensor(self, inputs: NDArray[Any]) -> Tensor:
        """Rows as `module` takes them, in memory of their own; floats in float32."""
        import torch

        rows = torch.tensor(np.ascontiguousarray(inputs))
        return rows.float() if self.reads_features or rows.is_floating_point() else rows

    def logits(self, w: Floats, inputs: NDArray[Any], classes: int) -> Floats:
        """(n, ...) inputs -> (n, classes) float64; on one thread, so that machines agree."""
        need_torch()
        from fedcal.training.local_sgd import logits_of, one_thread, set_weights

        model = reused(self, inputs.shape[1:], classes)
        if not len(inputs):
            return np.zeros((0, classes))
        with one_thread():
            set_weights(model, w)
            logits = logits_of(model, self.tensor(inputs))
        return np.asarray(logits.numpy(), np.float64)

    def steps(
        self,
        w: Floats,
        inputs: NDArray[Any],
        labels: Integers,
        offsets: Integers,
        classes: int,
        clipping: Clipping,
        grid: float,
    ) -> Integers:
        """Return sums over each client's rows of bounded gradients, in whole steps of a grid.

        The gradient is that of the row's cross-entropy, in nats. Each row adds whole numbers to
        its client's sum, of norm C / grid at most. See `RowGradients.steps` for what holds.

        Parameters
        ----------
        w
            (size,)
        inputs, labels
            (n, ...), (n,) sorted by client
        offsets
            (clients + 1,) rows of client k are offsets[k]:offsets[k + 1]

        Returns
        -------
        Integers
            (clients, size)
        """
        if not len(labels):
            return np.zeros((len(offsets) - 1, w.size), np.int64)
        rows = row_gradients(self, inputs.shape[1:], classes)
        rows.check(inputs)
        return rows.steps(w, inputs, labels, offsets, clipping, grid)

    def check(self, inputs: NDArray[Any], classes: int, *, by_row: bool) -> None:
        """Refuse what cannot be trained on such rows, (n, ...); `by_row`: by gradients of each."""
        need_torch()
        if by_row:
            row_gradients(self, inputs.shape[1:], classes).check(inputs)
        else:
            self.module(inputs.shape[1:], classes, 0)

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
        need_torch()
        import torch

        from fedcal.training.local_sgd import descend, drawn_by, one_thread, set_weights, weights_of

        model = reused(self, inputs.shape[1:], classes)
        x, y = self.tensor(inputs), torch.from_numpy(np.array(labels))
        with one_thread(), drawn_by(int(deepcopy(rng).integers(2**62))):  # dropout
            set_weights(model, w)
            start = weights_of(model)
            loss = descend(model, x, y, epochs=sgd.epochs, batch_size=sgd.batch, lr=sgd.lr, rng=rng)
            return weights_of(model) - start, loss


@lru_cache(maxsize=4)
def reused(network: Network, shape: tuple[int, ...], classes: int) -> nn.Module:
    """One module for all calls of a process: each sets the weights before it uses it."""
    return network.module(shape, classes, 0)


@lru_cache(maxsize=4)
def row_gradients(network: Network, shape: tuple[int, ...], classes: int) -> RowGradients:
    """Return the gradients of rows of this shape; weights come with each call."""
    need_torch()
    from fedcal.training.row_gradients import RowGradients

    return RowGradients(network, shape, classes)


def need_torch() -> None:
    """Raise InputError, one line that says what to install, without torch or Opacus."""
    for package in ("torch", "opacus"):
        if find_spec(package) is None:
            raise absent(package, "train", "training a model")


def shape_of(text: str) -> tuple[int, ...]:
    """Shape of one input from text such as "512" or "28x28x1", or InputError."""
    try:
        shape = tuple(number_in(part, int) for part in text.split("x"))
    except (ValueError, AttributeError):
        raise InputError(f"shape must be like 512 or 28x28x1, got {text!r:.40}") from None
    for number in (*shape, math.prod(shape)):
        whole(f"a side, and the product, of the shape {text:.40}", number, 1, MOST_INPUTS)
    return shape


def text_of(shape: tuple[int, ...]) -> str:
    """Return the text that `shape_of` reads."""
    return "x".join(map(str, shape))


MOST_HIDDEN = 8


class DenseLayers(Network):
    """Dense layers with ReLUs between them, on rows of features of about unit size.

    Without hidden layers it is softmax regression, which begins at 0.
    """

    reads_features = True

    def __init__(self, name: str, hidden: tuple[int, ...], lr: float) -> None:
        self.name, self.lr = name, lr
        self.hidden = hidden[: whole("number of hidden layers", len(hidden), 0, MOST_HIDDEN)]

    def _widths(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        if len(shape) != 1:
            raise InputError(
                f"the network {self.name} reads rows of features, not of shape {text_of(shape)}: "
                "name a torch module of your own (module:Class)"
            )
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

        from fedcal.training.local_sgd import drawn_by

        with drawn_by(seed):
            first, *others = (nn.Linear(*of) for of in self._widths(shape, classes))
        return nn.Sequential(first, *(part for one in others for part in (nn.ReLU(), one)))

    @override
    def dense(self, w: Floats, shape: tuple[int, ...], classes: int) -> list[Dense]:
        layers = []
        for width, out in self._widths(shape, classes):
            weight, bias, w = np.split(w, [out * width, out * (width + 1)])
            layers.append((weight.reshape(out, width), bias))
        return layers


class OwnModule(Network):
    """Module that takes rows as they are in the data, (n, ...), and gives logits (n, classes)."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self._make = name, make

    def module(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Return a new module in float32, its weights drawn by `seed` unless it brings its own.

        InputError if the user's code fails, does not give (n, classes) logits, has frozen
        parameters, or state beside its parameters that changes with the rows.
        """
        need_torch()
        import torch

        from fedcal.training.local_sgd import drawn_by

        with drawn_by(seed), blamed(self.name, shape), torch.no_grad():
            made = deepcopy(self._make())  # each has weights of its own
            if not isinstance(made, torch.nn.Module):
                raise InputError(
                    f"{self.name} makes a {type(made).__name__}, not a torch.nn.Module"
                )
            module: nn.Module = made.to("cpu", torch.float32).eval()
            logits = module(torch.zeros(2, *shape))  # lazy layers learn their shapes, too
            shape_of_logits = tuple(getattr(logits, "shape", ()))
            if shape_of_logits != (2, classes):
                raise InputError(
                    f"the model {self.name} must return logits (n, {classes}) for rows (n, "
                    f"{', '.join(map(str, shape))}); for 2 rows it returns {shape_of_logits}"
                )
            copy = deepcopy(module).train()
            copy(torch.ones(2, *shape))
        moved = [
            n
            for (n, b), now in zip(module.named_buffers(), copy.buffers(), strict=True)
            if not torch.equal(b, now)
        ]
        if moved:
            raise InputError(
                f"the model {self.name}: {moved[0]} changes with the rows of a batch, as batch "
                "normalisation's statistics do; use layers without such state, as GroupNorm"
            )
        if frozen := [n for n, p in module.named_parameters() if not p.requires_grad]:
            raise InputError(
                f"the model {self.name}: {frozen[0]} is frozen, but training would change all "
                "parameters; train on features of the frozen part instead"
            )
        return module

    @override
    def size(self, shape: tuple[int, ...], classes: int) -> int:
        return sum(p.numel() for p in reused(self, shape, classes).parameters())


@contextmanager
def blamed(name: str, shape: tuple[int, ...]) -> Iterator[None]:
    """Let what fails in the user's code be one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as e:  # noqa: BLE001  it is the user's own code
        first = str(e).strip().partition("\n")[0]
        raise InputError(
            f"the model {name} fails on rows of shape {text_of(shape)}: {type(e).__name__}: {first}"
        ) from None


NETWORKS: dict[str, Network] = {
    "softmax": DenseLayers("softmax", (), 8.0),
    "mlp": DenseLayers("mlp", (128,), 2.0),
}
"""Name on the command line -> network."""

OWN: dict[str, Network] = {}
"""Name, "module:Class", -> a module of the user's own that this process was given (`enlist`)."""


def enlist(model: Any) -> str:
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
