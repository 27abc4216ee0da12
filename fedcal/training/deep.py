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

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.core.types import Floats, Integers
from fedcal.training.layer_gradients import INPUT_BITS
from fedcal.training.network import Clipping, Dense, LocalSGD, Network, Reads

if TYPE_CHECKING:
    from torch import nn

_LEAST_BITS = INPUT_BITS + 6  # of a bounded gradient: fewer would lose too much of what flows back


class Deep(Network):
    """A network in PyTorch; its gradients of single rows by Opacus (extra `train`)."""

    in_torch: ClassVar[bool] = True

    def size(self, shape: tuple[int, ...], classes: int) -> int:
        """Parameters in all."""
        return _size(self.name, shape, classes)

    def initial(self, shape: tuple[int, ...], classes: int, seed: int) -> Floats:
        """As PyTorch draws them, by `seed`."""
        model = _built(self.name, shape, classes, seed)
        from fedcal.training.torch_models import weights_of

        return weights_of(model)

    def logits(self, w: Floats, inputs: NDArray[Any], classes: int) -> Floats:
        """In float32; on one thread, so that every machine adds up alike."""
        model = _reused(self.name, inputs.shape[1:], classes)
        from fedcal.training.local_sgd import logits_of, one_thread
        from fedcal.training.torch_models import as_input, set_weights

        set_weights(model, w)
        if not len(inputs):
            return np.zeros((0, classes))
        with one_thread():
            found = logits_of(model, as_input(np.ascontiguousarray(inputs)))
        return np.asarray(found.numpy(), np.float64)

    def prepared(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """As they lie in the data; the network scales or embeds them."""
        return inputs

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
        """A block of rows at a time, those of several clients together.

        A row whose gradient is not finite adds zeros.
        """
        need("opacus", "train", f"training the network {self.name}")
        from fedcal.training.row_gradients import row_gradients

        if clipping.rule != "none" and grid > clipping.norm * 2.0**-_LEAST_BITS:
            raise InputError(
                f"a grid of {grid:.3g} is too coarse for gradients of the network {self.name}: "
                "take a larger clip"
            )
        sums = np.zeros((len(offsets) - 1, w.size), np.int64)
        network = row_gradients(self.name, prepared.shape[1:], classes)
        for rows, parts in network.blocks(w, prepared, labels):
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
        model = _reused(self.name, prepared.shape[1:], classes)
        import torch

        from fedcal.training.local_sgd import descend, one_thread
        from fedcal.training.torch_models import as_input, set_weights, weights_of

        set_weights(model, w)
        start = weights_of(model)
        x, y = as_input(np.ascontiguousarray(prepared)), torch.from_numpy(np.array(labels))
        with one_thread():
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
    """One hidden layer on features."""

    name: ClassVar[str] = "mlp"
    reads: ClassVar[Reads] = "features"
    is_dense: ClassVar[bool] = True

    def dense(self, w: Floats, shape: tuple[int, ...], classes: int) -> list[Dense]:
        """Two layers, in the order of `weights_of`."""
        hidden = (w.size - classes) // (shape[0] + 1 + classes)
        cuts = np.cumsum([hidden * shape[0], hidden, classes * hidden])
        first, bias, second, last = np.split(w, cuts)
        return [(first.reshape(hidden, -1), bias), (second.reshape(classes, hidden), last)]


@lru_cache(maxsize=32)
def _size(network: str, shape: tuple[int, ...], classes: int) -> int:
    return sum(p.numel() for p in _built(network, shape, classes, 0).parameters())


@lru_cache(maxsize=4)
def _reused(network: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """One module for all calls of a process: each sets the weights before it uses it."""
    return _built(network, shape, classes, 0)


def _built(network: str, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    need("torch", "train", f"the network {network}")
    from fedcal.training.torch_models import build

    return build(network, shape, classes, seed)
