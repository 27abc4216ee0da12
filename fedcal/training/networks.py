"""Networks by name: dense layers, and a `torch.nn.Module` of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.core.checks import one_of, whole
from fedcal.core.errors import InputError
from fedcal.core.optional import named
from fedcal.core.removed import check_kept
from fedcal.core.types import Floats, override
from fedcal.training.network import Dense, Network, need_torch, reused, shape_of, text_of

if TYPE_CHECKING:
    from torch import nn

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
