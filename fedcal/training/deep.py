"""Networks of several layers: gradients row by row, bounded and added up as whole numbers.

A dense layer's gradients are products of two factors (`parts.Factors`), and both are whole numbers
here: what goes into the layer in steps of 2^-18 of its size, what flows back, once it is bounded,
in those that the wanted grid leaves. Both are truncated toward zero, so that a row's norm never
grows, and one matrix product per client, exact in float64, adds up its rows. The gradients of other
layers are truncated onto the grid as they are.

Guarantee: a row adds whole numbers of norm C / grid at most, and what it adds does not depend on
the rows beside it (`row_gradients`): a row more or less changes a sum by exactly what it adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import whole
from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.core.types import Floats, Integers, override
from fedcal.training.layer_gradients import INPUT_BITS, Part
from fedcal.training.network import Clipping, Dense, LocalSGD, Network, Reads, text_of

if TYPE_CHECKING:
    from torch import Tensor, nn

_LANES = 16
_LEAST_BITS = INPUT_BITS + 6  # of a bounded gradient: fewer would lose too much of what flows back


class Deep(Network):
    """A network in PyTorch; its gradients of single rows by Opacus (extra `train`)."""

    in_torch: ClassVar[bool] = True
    hidden: tuple[int, ...] = ()

    def module(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Return the network in PyTorch, its weights drawn by `seed`."""
        need("torch", "train", f"the network {self.name}")
        from fedcal.training.torch_models import build

        return build(self.name, shape, classes, seed, self.hidden)

    @override
    def size(self, shape: tuple[int, ...], classes: int) -> int:
        return _size(self, shape, classes)

    def initial(self, shape: tuple[int, ...], classes: int, seed: int) -> Floats:
        """Return weights as PyTorch draws them, by `seed`."""
        model = self.module(shape, classes, seed)
        from fedcal.training.torch_models import weights_of

        return weights_of(model)

    def logits(self, w: Floats, inputs: NDArray[Any], classes: int) -> Floats:
        """In float32; on one thread, so that every machine adds up alike."""
        model = reused(self, inputs.shape[1:], classes)
        from fedcal.training.local_sgd import logits_of, one_thread
        from fedcal.training.torch_models import set_weights

        set_weights(model, w)
        if not len(inputs):
            return np.zeros((0, classes))
        with one_thread():
            logits = logits_of(model, self.tensor(inputs))
        return np.asarray(logits.numpy(), np.float64)

    def prepared(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the inputs unchanged; the network scales or embeds them."""
        return inputs

    def tensor(self, inputs: NDArray[Any]) -> Tensor:
        """Rows as `module` takes them."""
        from fedcal.training.torch_models import as_input

        return as_input(np.ascontiguousarray(inputs))

    def row_parts(
        self, w: Floats, x: NDArray[Any], y: Integers, classes: int
    ) -> Iterator[tuple[slice, list[Part]]]:
        """Gradients of each row's loss, some rows at a time (`RowGradients.blocks`)."""
        need("opacus", "train", f"training the network {self.name}")
        from fedcal.training.row_gradients import row_gradients

        return row_gradients(self.module, x.shape[1:], classes).blocks(w, x, y)

    def steps(
        self,
        w: Floats,
        prepared: NDArray[Any],
        labels: Integers,
        offsets: Integers,
        classes: int,
        clipping: Clipping,
        grid: float,
    ) -> Integers:
        """Return gradients by blocks of rows, those of several clients together.

        A row whose gradient is not finite adds zeros.
        """
        if clipping.rule != "none" and grid > clipping.norm * 2.0**-_LEAST_BITS:
            raise InputError(
                f"a grid of {grid:.3g} is too coarse for gradients of the network {self.name}: "
                "use a larger clip"
            )
        sums = np.zeros((len(offsets) - 1, w.size), np.int64)
        for rows, parts in self.row_parts(w, prepared, labels, classes):
            norms = np.sqrt(np.sum([part.squares() for part in parts], axis=0))
            good = np.isfinite(norms)
            factors = np.where(good, clipping.factors(np.where(good, norms, 0.0)), 0.0)
            cuts = np.clip(offsets, rows.start, rows.stop) - rows.start
            for part in parts:
                whole = part.whole(factors, grid)
                for k in np.flatnonzero(np.diff(cuts)).tolist():
                    whole.add(sums[k], slice(cuts[k], cuts[k + 1]))
        return sums

    def local_update(
        self,
        w: Floats,
        prepared: NDArray[Any],
        labels: Integers,
        classes: int,
        sgd: LocalSGD,
        rng: np.random.Generator,
    ) -> tuple[Floats, float]:
        """By PyTorch, in float32."""
        model = reused(self, prepared.shape[1:], classes)
        import torch

        from fedcal.training.local_sgd import descend, one_thread
        from fedcal.training.torch_models import drawn_by, set_weights, weights_of

        set_weights(model, w)
        start = weights_of(model)
        x, y = self.tensor(prepared), torch.from_numpy(np.array(labels))
        with one_thread(), drawn_by(int(deepcopy(rng).integers(2**62))):  # dropout, of own modules
            loss = descend(model, x, y, epochs=sgd.epochs, batch_size=sgd.batch, lr=sgd.lr, rng=rng)
        return weights_of(model) - start, loss


class CNN(Deep):
    """Two convolutions and two dense layers (McMahan et al. 2017, with fewer channels)."""

    name: ClassVar[str] = "cnn"
    reads: ClassVar[Reads] = "image"


class ResNet18(Deep):
    """ResNet-18 with GroupNorm, for small images."""

    name: ClassVar[str] = "resnet18"
    reads: ClassVar[Reads] = "image"


class LSTM(Deep):
    """Next character by two LSTM layers, as in LEAF."""

    name: ClassVar[str] = "lstm"
    reads: ClassVar[Reads] = "text"


class MLP(Deep):
    """Dense layers with ReLUs between them, on features; `hidden` are the widths, at most 8.

    Widths are whole blocks of `_LANES`: with others (7, 8 and 65 were tried) the kernels gave a row
    other last bits in another place of its block, and neighbours differ by more than one row.
    """

    name: ClassVar[str] = "mlp"
    reads: ClassVar[Reads] = "features"
    lr: ClassVar[float] = 2.0
    is_dense: ClassVar[bool] = True

    hidden: tuple[int, ...] = (128,)

    def of_widths(self, widths: tuple[int, ...]) -> MLP:
        """Return an MLP with these hidden widths."""
        if any(width % _LANES for width in widths):
            raise InputError(
                f"hidden widths must be multiples of {_LANES}, got {text_of(widths)}: with other "
                "widths the last bits of a row's gradient depend on the rows beside it"
            )
        network = MLP()
        network.hidden = widths[: whole("number of hidden layers", len(widths), 1, 8)]
        return network

    def dense(self, w: Floats, shape: tuple[int, ...], classes: int) -> list[Dense]:
        """Return its layers, in the order of `weights_of`."""
        layers = []
        for width, out in pairwise((*shape, *self.hidden, classes)):
            weight, bias, w = np.split(w, [out * width, out * (width + 1)])
            layers.append((weight.reshape(out, width), bias))
        return layers


@lru_cache(maxsize=32)
def _size(network: Deep, shape: tuple[int, ...], classes: int) -> int:
    need("torch", "train", f"the network {network.name}")
    import torch

    with torch.device("meta"):  # nothing is allocated: whoever asks may ask for too much
        return sum(p.numel() for p in network.module(shape, classes, 0).parameters())


@lru_cache(maxsize=4)
def reused(network: Deep, shape: tuple[int, ...], classes: int) -> nn.Module:
    """One module for all calls of a process: each sets the weights before it uses it."""
    return network.module(shape, classes, 0)
