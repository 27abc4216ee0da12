"""Torch modules as one flat vector of weights, their logits, and SGD on a client's own rows.

Imported only by who trains: it needs torch at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats

_LOCK = threading.RLock()  # modules are shared by all threads of a process


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch adds up on one thread, for one caller: the same bits on machines of any size."""
    with _LOCK:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


@contextmanager
def drawn_by(seed: int) -> Iterator[None]:
    """Let torch draw by a seed, without changing other random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, Purpose.SAMPLING, 0, "weights").integers(2**62)))
        yield


def weights_of(model: nn.Module) -> Floats:
    """All parameters in one vector, (size,), in the order of `model.parameters()`."""
    flat = parameters_to_vector(model.parameters()).detach()
    return np.asarray(flat.numpy(), np.float64)


def set_weights(model: nn.Module, w: Floats) -> None:
    """Give a model the parameters that `weights_of` told, rounded to its own precision."""
    vector_to_parameters(torch.from_numpy(w.astype(np.float32)), model.parameters())


def descend(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    rng: np.random.Generator,
) -> float:
    """Plain SGD on the cross-entropy, in batches of shuffled rows; its mean over all rows seen."""
    most = torch.finfo(torch.float32).max  # beyond it all diverges, too
    optimiser = torch.optim.SGD(model.parameters(), lr=min(lr, most))
    model.train()
    total = 0.0
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for rows in torch.split(order, batch_size):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += float(loss.detach()) * len(rows)
    return total / (epochs * len(y))


def logits_of(model: nn.Module, x: Tensor, block: int = 256) -> Tensor:
    """(n, classes) logits of rows, `block` at a time."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(rows) for rows in torch.split(x, block)])
