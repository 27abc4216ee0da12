"""The gradient of each row's own loss: what DP-SGD clips (Abadi et al. 2016, Algorithm 1).

Imported only by who trains: it needs torch and Opacus at once.

A dense layer's gradient is the outer product of what flows back to it and what went in, so it stays
in these factors: their norms give its norm, and one matrix product the sum over rows
("book-keeping", Bu et al. 2023). Opacus's samplers give the gradients of all other layers.

Rows are computed in blocks of `BLOCK`, the last one filled up with zeros: so a row's gradient has
the same bits whatever rows are beside it, which is what a bound on its influence rests on. (The
kernels that a library chooses depend on the size of a batch, not on a row's place in it; tested.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule
from opacus.validators import ModuleValidator
from torch import Tensor, nn

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers
from fedcal.training.layer_gradients import Factors, Part, Whole
from fedcal.training.local_sgd import one_thread
from fedcal.training.torch_models import as_input, set_weights

BLOCK = 32
"""Rows at a time."""


class RowGradients:
    """A network whose gradients are computed row by row.

    Parameters
    ----------
    model
        of layers that treat each row by itself, and whose gradients Opacus knows

    Raises
    ------
    InputError
        If a layer mixes rows, as batch normalisation does, or its gradients are not known.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        order = [name for name, _ in model.named_parameters()]
        if any(isinstance(layer, nn.LSTM) for layer in model.modules()):
            model = ModuleValidator.fix(model)  # Opacus's LSTM, which shows each of its steps
        if errors := ModuleValidator.validate(model, strict=False):
            raise InputError(f"this network has no gradients of single rows: {_line(errors[0])}")
        # A renamed layer's state has the names, and in Opacus's LSTM the order is another one.
        state = model.state_dict(keep_vars=True)
        self._places: dict[Tensor, slice] = {}
        start = 0
        for name in order:
            parameter = state[name]
            self._places[parameter] = slice(start, start + parameter.numel())
            start += parameter.numel()
        self.size = start
        self._rows_model = model.train()
        self._calls: list[tuple[nn.Module, Tensor, Tensor]] = []
        for layer in model.modules():
            if not list(layer.children()) and any(True for _ in layer.parameters()):
                if type(layer) not in GradSampleModule.GRAD_SAMPLERS:
                    raise InputError(
                        f"gradients of the layer {type(layer).__name__} are not supported"
                    )
                layer.register_forward_hook(self._seen)

    def _seen(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self._calls.append((layer, inputs[0].detach(), output))

    def blocks(self, w: Floats, x: NDArray[Any], y: Integers) -> Iterator[tuple[slice, list[Part]]]:
        """Gradients of each row's cross-entropy at the parameters `w`.

        Torch gets one thread: the same bits on machines of any size.

        Parameters
        ----------
        w
            (size,)
        x, y
            (n, ...) rows as they lie in the data, (n,) their labels

        Yields
        ------
        slice, list of Part
            some of the rows, and their gradients, each parameter in one part
        """
        self._set(w)
        for start in range(0, len(y), BLOCK):
            some = slice(start, min(start + BLOCK, len(y)))
            with one_thread():
                parts = self._block(x[some], y[some])
            yield some, parts

    def _set(self, w: Floats) -> None:
        if w.shape != (self.size,):
            set_weights(self._model, w)  # says what is wrong
        values = torch.from_numpy(w.astype(np.float32))
        with torch.no_grad():
            for parameter, place in self._places.items():
                parameter.copy_(values[place].view_as(parameter))

    def _block(self, x: NDArray[Any], y: Integers) -> list[Part]:
        n = len(y)
        full = np.zeros((BLOCK, *x.shape[1:]), x.dtype)
        full[:n] = x
        labels = np.zeros(BLOCK, np.int64)
        labels[:n] = y
        self._calls.clear()
        losses = nn.functional.cross_entropy(
            self._rows_model(as_input(full)), torch.from_numpy(labels), reduction="none"
        )
        calls, outputs = list(self._calls), [output for _, _, output in self._calls]
        self._calls.clear()
        backs = torch.autograd.grad(losses[:n].sum(), outputs)
        seen: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}
        for (layer, rows, _), back in zip(calls, backs, strict=True):
            seen.setdefault(layer, []).append((rows[:n], back[:n]))
        return [part for layer, pairs in seen.items() for part in self._parts(layer, pairs)]

    def _parts(self, layer: nn.Module, pairs: list[tuple[Tensor, Tensor]]) -> Iterator[Part]:
        rows, back = pairs[0]
        if isinstance(layer, nn.Linear) and len(pairs) == 1 and rows.ndim == 2:
            bias = None if layer.bias is None else self._places[layer.bias]
            yield Factors.of(self._places[layer.weight], bias, _doubles(rows), _doubles(back))
            return
        if len(pairs) > 1:  # steps in time: one more axis, which the sampler adds up over
            rows, back = (torch.stack(tensors, dim=1) for tensors in zip(*pairs, strict=True))
        sampler = GradSampleModule.GRAD_SAMPLERS[type(layer)]
        for parameter, gradients in sampler(layer, [rows], back).items():
            yield Whole(self._places[parameter], _doubles(gradients.flatten(1)))


@lru_cache(maxsize=4)
def row_gradients(
    build: Callable[..., nn.Module], shape: tuple[int, ...], classes: int
) -> RowGradients:
    """Return a network for rows of this shape; its parameters come with each call."""
    return RowGradients(build(shape, classes, 0))


def _doubles(values: Tensor) -> Floats:
    return np.asarray(values.detach().numpy(), np.float64)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).partition(". ")[0]
