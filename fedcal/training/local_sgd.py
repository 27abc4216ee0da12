"""What a client does with a network: SGD on its own rows, and predictions.

Imported only by who trains: it needs torch at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch adds up on one thread: the same bits on machines of any size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def descend(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    rng: np.random.Generator,
    one_cycle: bool = False,
) -> float:
    """SGD on the cross-entropy, in batches of shuffled rows; its mean over all rows seen.

    It is plain, at one learning rate. With `one_cycle` there is momentum, and the learning rate
    rises to `lr` and falls to 0 again.
    """
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9 if one_cycle else 0.0)
    steps = epochs * -(-len(y) // batch_size)
    cycle = OneCycleLR(optimiser, lr, total_steps=steps) if one_cycle else None
    model.train()
    total = 0.0
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for rows in torch.split(order, batch_size):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if cycle is not None:
                cycle.step()
            total += float(loss.detach()) * len(rows)
    return total / (epochs * len(y))


def logits_of(model: nn.Module, x: Tensor, block: int = 256) -> Tensor:
    """(n, classes) logits of rows, `block` at a time."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(rows) for rows in torch.split(x, block)])
