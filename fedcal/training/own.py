"""A `torch.nn.Module` of the user's own as a network that is trained."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.optional import named, need
from fedcal.core.types import Floats, Integers, override
from fedcal.training.deep import Deep, reused
from fedcal.training.layer_gradients import Part, Whole
from fedcal.training.network import Reads, text_of
from fedcal.training.networks import OWN

if TYPE_CHECKING:
    from torch import Tensor, nn

_NUMBERS = 2**23  # of the gradients that are held at a time


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


class OwnModule(Deep):
    """Module that takes rows as they are in the data, (n, ...), and gives logits (n, classes).

    Formal guarantee: a row's gradient is computed of it alone, as a batch of one in memory of its
    own, by the weights as given and in evaluation mode. So it has the same bits whoever is beside
    it, whatever the module does with a batch, and weights may be shared or used in any way; as long
    as the module keeps nothing between calls, and draws nothing.
    """

    reads: ClassVar[Reads] = "any"

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self._make = name, make  # type: ignore[misc]  # of all others it is the class's

    def module(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Return a new module in float32, its weights drawn by `seed` unless it brings its own.

        InputError if the user's code fails, or does not give (n, classes) logits.
        """
        torch = need("torch", "train", f"the model {self.name}")
        from fedcal.training.torch_models import drawn_by

        with drawn_by(seed), self._blamed(shape), torch.no_grad():
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
        return module

    @override
    def size(self, shape: tuple[int, ...], classes: int) -> int:
        return sum(p.numel() for p in reused(self, shape, classes).parameters())

    def check(self, inputs: NDArray[Any], classes: int, *, by_row: bool) -> None:
        """Refuse frozen parameters, state beside parameters, and logits that depend on other rows.

        Tried on the first rows, so that a module that mixes rows now and then is not found; rows
        that it fails on are.
        """
        shape = inputs.shape[1:]
        module, x = self.module(shape, classes, 0), self.tensor(inputs[:8])
        if frozen := [n for n, p in module.named_parameters() if not p.requires_grad]:
            raise InputError(
                f"the model {self.name}: {frozen[0]} is frozen, but training would change all "
                "parameters; use features of the frozen part instead (fedcal features)"
            )
        before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        with self._blamed(shape):
            alone, together, again = (module(rows.clone())[:1] for rows in (x[:1], x, x[:1]))
            w, labels = self.initial(shape, classes, 0), np.zeros(3, np.int64)
            parts = self.row_parts(w, inputs[[0, -1, 0]], labels, classes)
            first, _, last = np.concatenate([part.squares() for _, (part,) in parts])
            self.logits(w, inputs, classes)
            module.train()(x)
        now = dict(module.named_buffers())
        if moved := [n for n, b in before.items() if n not in now or not b.equal(now[n])]:
            raise InputError(
                f"the model {self.name}: {moved[0]} changes with the rows of a batch, as batch "
                "normalisation's statistics do; use layers without such state, as GroupNorm"
            )
        same = all(alone.allclose(z, rtol=1e-3, atol=1e-4) for z in (together, again))
        if not same or not np.array_equal(first, last, equal_nan=True):
            raise InputError(
                f"the logits or gradients of a row by the model {self.name} depend on other "
                "rows: it mixes or keeps rows, or draws random numbers in evaluation mode"
            )
        if by_row and any("Dropout" in type(layer).__name__ for layer in module.modules()):
            warnings.warn(
                f"the model {self.name} is trained without its dropout: gradients of single rows "
                "are computed in evaluation mode",
                stacklevel=2,
            )

    def tensor(self, inputs: NDArray[Any]) -> Tensor:
        """Rows as they lie in the data, in memory that a module may write to; floats in float32."""
        import torch

        rows = torch.tensor(np.ascontiguousarray(inputs))
        return rows.float() if rows.is_floating_point() else rows

    def row_parts(
        self, w: Floats, x: NDArray[Any], y: Integers, classes: int
    ) -> Iterator[tuple[slice, list[Part]]]:
        """One row after the other, each alone."""
        import torch

        from fedcal.training.local_sgd import one_thread
        from fedcal.training.torch_models import set_weights

        module = reused(self, x.shape[1:], classes).eval()
        parameters, labels = list(module.parameters()), torch.from_numpy(np.array(y))
        every = max(1, _NUMBERS // w.size)

        def gradient(row: int) -> NDArray[np.float32]:
            set_weights(module, w)  # a module may write to them, as an embedding with max_norm
            logits = module(self.tensor(x[row : row + 1]))
            loss = torch.nn.functional.cross_entropy(logits, labels[row : row + 1])
            gradients = torch.autograd.grad(
                loss, parameters, allow_unused=True, materialize_grads=True
            )
            return torch.cat([one.reshape(-1) for one in gradients]).numpy()

        for start in range(0, len(y), every):
            some = slice(start, min(start + every, len(y)))
            with one_thread():
                gradients = np.array([gradient(row) for row in range(some.start, some.stop)])
            yield some, [Whole(slice(0, w.size), gradients.astype(np.float64))]

    @contextmanager
    def _blamed(self, shape: tuple[int, ...]) -> Iterator[None]:
        """Let what fails in the user's code be one line."""
        try:
            yield
        except InputError:
            raise
        except Exception as e:  # noqa: BLE001  it is the user's own code
            first = str(e).strip().partition("\n")[0]
            raise InputError(
                f"the model {self.name} fails on rows of shape {text_of(shape)}: "
                f"{type(e).__name__}: {first}"
            ) from None
