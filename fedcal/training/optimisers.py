"""Server-side optimisers of noisy mean gradients: post-processing of what was released."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal, get_args

import numpy as np

from fedcal.core.checks import fraction
from fedcal.core.registry import registry
from fedcal.core.types import Floats, override

Schedule = Literal["constant", "linear"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


class Optimiser(ABC):
    """Steps from mean gradients.

    Parameters
    ----------
    size
        number of weights
    momentum
        of those that have one, in [0, 1)
    """

    name: ClassVar[str]
    has_momentum: ClassVar[bool]
    by_noise: ClassVar[bool] = False
    """Whether the learning rate follows from the noise (`langevin_lr`)."""

    def __init__(self, size: int, momentum: float = 0.0) -> None:
        self.momentum = fraction("momentum", momentum, "[)")
        self._size = size

    @abstractmethod
    def step(self, gradient: Floats, lr: float) -> Floats:
        """Return the change of the weights, (size,)."""

    @abstractmethod
    def state(self) -> dict[str, Floats]:
        """Return its state, by name."""

    @abstractmethod
    def restore(self, state: Mapping[str, Floats]) -> None:
        """Take up what `state` told."""


class SGD(Optimiser):
    """Gradient descent with heavy-ball momentum: v = momentum v + g, step -lr v."""

    name: ClassVar[str] = "sgd"
    has_momentum: ClassVar[bool] = True

    def __init__(self, size: int, momentum: float = 0.0) -> None:
        super().__init__(size, momentum)
        self._velocity = np.zeros(size)

    @override
    def step(self, gradient: Floats, lr: float) -> Floats:
        self._velocity = self.momentum * self._velocity + gradient
        return np.asarray(-lr * self._velocity)

    @override
    def state(self) -> dict[str, Floats]:
        return {"velocity": self._velocity}

    @override
    def restore(self, state: Mapping[str, Floats]) -> None:
        self._velocity = np.array(state["velocity"], np.float64)


class SGLD(SGD):
    """Stochastic gradient Langevin dynamics (DP-SGLD, Knolle et al. 2021): SGD at `langevin_lr`.

    The noise that privacy needs is that of a sampler of the posterior, which the step is fitted to.
    """

    name: ClassVar[str] = "sgld"
    has_momentum: ClassVar[bool] = False
    by_noise: ClassVar[bool] = True


class Adam(Optimiser):
    """Adam (Kingma & Ba 2015) with its usual constants; with noisy gradients DP-Adam."""

    name: ClassVar[str] = "adam"
    has_momentum: ClassVar[bool] = False
    betas: ClassVar[tuple[float, float]] = (0.9, 0.999)
    least: ClassVar[float] = 1e-8

    def __init__(self, size: int, momentum: float = 0.0) -> None:
        super().__init__(size, momentum)
        self._moments = np.zeros((2, size))
        self._steps = 0

    def step(self, gradient: Floats, lr: float) -> Floats:
        """-lr m / (sqrt(v) + 1e-8), both without their bias."""
        self._steps += 1
        pairs = zip(self._moments, self.betas, (gradient, gradient**2), strict=True)
        # anew: `state` may still be written elsewhere
        self._moments = np.stack([beta * old + (1 - beta) * value for old, beta, value in pairs])
        mean, square = (
            m / (1 - b**self._steps) for m, b in zip(self._moments, self.betas, strict=True)
        )
        return np.asarray(-lr * mean / (np.sqrt(square) + self.least))

    def state(self) -> dict[str, Floats]:
        """Both moments, and the number of steps."""
        return {"moments": self._moments, "steps": np.array([float(self._steps)])}

    def restore(self, state: Mapping[str, Floats]) -> None:
        """Both moments, and the number of steps."""
        self._moments = np.array(state["moments"], np.float64)
        self._steps = int(state["steps"][0])


OPTIMISERS: dict[str, type[Optimiser]] = registry(SGD, Adam, SGLD)
"""Name on the command line -> optimiser."""


def scheduled(schedule: Schedule, step: int, steps: int) -> float:
    """Share of the learning rate in step 1, 2, ..., `steps`: 1, or falling from 1 towards 0."""
    return 1.0 if schedule == "constant" else (steps - step + 1) / steps


def langevin_lr(batch: float, rows: float, noise: float) -> float:
    """Learning rate of mean gradients with which noisy steps are Langevin dynamics.

    Stochastic gradient Langevin dynamics on the sum of the rows' losses takes the step
    -h (rows / batch) G + N(0, 2 h) (Welling & Teh 2011). Where the sum G over a batch has noise of
    std `noise` the two agree for h = 2 batch^2 / (rows noise)^2 (DP-SGLD, Knolle et al. 2021), that
    is for the rate h rows of the mean gradient.
    """
    return 2.0 * batch**2 / (rows * noise**2) if noise > 0 else math.inf
