"""The networks of simulated clients, and what becomes of their rows.

Imported only by who trains: it needs torch at once.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedcal.experiments.training.splits import ClientData
from fedcal.training.local_sgd import logits_of
from fedcal.training.torch_models import as_input, build


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


def judge(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Mean cross-entropy and accuracy."""
    logits = logits_of(model, x)
    loss = nn.functional.cross_entropy(logits, y)
    return float(loss), float((logits.argmax(dim=1) == y).double().mean())
