"""What a client computes: local SGD, and predictions. Needs torch at once, as the models do."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from fedcal.experiments.training.models import as_input, build
from fedcal.experiments.training.splits import ClientData

_BLOCK = 256  # rows predicted at once


class LocalTrainer:
    """A model and the rows of simulated clients, as tensors that are made once.

    One trainer serves all clients of a process, one after the other. Torch gets one thread: sums
    then have one order, and the same seed gives the same bits on machines of any size.
    """

    def __init__(self, model: str, federation: ClientData, seed: int) -> None:
        torch.set_num_threads(1)
        self.model = build(model, federation.shape, federation.classes, seed)
        self._federation = federation
        self._tensors: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    def rows(self, part: str, site: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of one part ("train", "calibration" or "test") of a client."""
        if (part, site) not in self._tensors:
            rows = self._federation.parts[part][site]
            self._tensors[part, site] = as_input(rows.x), torch.from_numpy(rows.y)
        return self._tensors[part, site]

    def predict(self, part: str) -> NDArray[np.float32]:
        """(n, classes) float32 logits of one part of all clients, client by client."""
        found = [
            logits_of(self.model, self.rows(part, site)[0]).numpy()
            for site in range(self._federation.clients)
            if len(self._federation.parts[part][site].y)
        ]
        return np.concatenate(found)


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


def logits_of(model: nn.Module, x: Tensor, block: int = _BLOCK) -> Tensor:
    """(n, classes) logits of rows, `block` at a time."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(rows) for rows in torch.split(x, block)])


def judge(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Mean cross-entropy and accuracy."""
    logits = logits_of(model, x)
    loss = nn.functional.cross_entropy(logits, y)
    return float(loss), float((logits.argmax(dim=1) == y).double().mean())
