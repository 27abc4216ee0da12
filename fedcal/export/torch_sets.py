"""Prediction sets as a PyTorch module; imported only when one is asked for."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedcal.conformal import Conformity, PredictionSets
from fedcal.conformal.scores import APS, LAC, RAPS, Margin, Score
from fedcal.conformal.scores.base import SPLIT
from fedcal.core.errors import InputError
from fedcal.core.numerics import FLOOR
from fedcal.export.torch_modules import MODULES, CalibrationModule, Softmax
from fedcal.metrics.buckets import DIGITS


class SetModule(CalibrationModule):
    """Scores of a model (..., c) -> which labels are in each row's set, bool (..., c).

    All is computed in float64. The buffer `thresholds` has one entry or c.

    Attributes
    ----------
    model
        from logits to the probabilities that sets are made of
    score
        from these to conformity scores
    """

    thresholds: Tensor

    def __init__(
        self, sets: PredictionSets, model: CalibrationModule, score: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__(sets.classes)
        self.model, self.score = model, score
        self.register_buffer("thresholds", torch.tensor(sets.thresholds, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        """Which labels are in the sets."""
        if scores.shape[-1] != self.classes:
            raise InputError(
                f"these sets are for {self.classes} classes, the scores have {scores.shape[-1]}"
            )
        z = scores.double()
        logits = torch.log(z.clamp_min(FLOOR)) if self.input == "probs" else z
        probs = self.calibrated(logits)
        probs = probs * SPLIT - (probs * SPLIT - probs)  # as `scores.settled`
        return torch.round(self.score(probs), decimals=DIGITS) <= self.thresholds

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of float64 logits."""
        return self.model.calibrated(logits)


def _by_rank(probs: Tensor, penalty: float, free: int) -> Tensor:
    """Mass of the classes up to each one, with the penalties of RAPS; (..., c)."""
    ranked, order = torch.sort(probs, dim=-1, descending=True, stable=True)
    rank = torch.arange(1, probs.shape[-1] + 1, device=probs.device, dtype=probs.dtype)
    excess = penalty * (rank - free).clamp_min(0.0)
    mass = torch.cat([ranked[..., :-1].cumsum(dim=-1), torch.ones_like(ranked[..., -1:])], dim=-1)
    found = ((mass + excess) / (1.0 + excess[-1])).clamp_max(1.0)
    return torch.zeros_like(probs).scatter(-1, order, found)


def _margin(probs: Tensor) -> Tensor:
    top = probs.topk(2, dim=-1).values
    first = probs.argmax(dim=-1, keepdim=True)
    classes = torch.arange(probs.shape[-1], device=probs.device)
    best = torch.where(classes == first, top[..., 1:], top[..., :1])
    return (1.0 + (best - probs)) / 2.0


SCORES: dict[type[Score], Callable[[Conformity], Callable[[Tensor], Tensor]]] = {
    LAC: lambda c: lambda p: 1.0 - p,
    APS: lambda c: lambda p: _by_rank(p, 0.0, 0),
    RAPS: lambda c: lambda p: _by_rank(p, *c.regularisation),
    Margin: lambda c: _margin,
}
"""Class of score -> its function of probabilities, without randomness."""


def set_module(sets: PredictionSets) -> SetModule:
    """The module of sets that have one."""
    calibrator = sets.conformity.read_calibrator()
    model = Softmax(sets.classes) if calibrator is None else MODULES[type(calibrator)](calibrator)
    return SetModule(sets, model, SCORES[sets.conformity.score](sets.conformity))
