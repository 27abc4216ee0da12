"""Server-side optimisers of noisy mean gradients: post-processing of what was released."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from fedcal.core.checks import fraction
from fedcal.core.imports import registry
from fedcal.core.numerics import Floats

Schedule = Literal["constant", "linear"]


class Optimiser(ABC):
    """Steps from mean gradients.

    Parameters
    ----------
    size
        number of weights
    momentum
        of those that have one, in [0, 1)

    Attributes
    ----------
    memory
        what later steps depend on, by name
    """

    name: ClassVar[str]
    has_momentum: ClassVar[bool] = False
    by_noise: ClassVar[bool] = False
    """The learning rate follows from the noise (`langevin_lr`)."""

    def __init__(self, size: int, momentum: float = 0.0) -> None:
        self.momentum, self.memory = fraction("momentum", momentum, "[)"), self._begin(size)

    @abstractmethod
    def _begin(self, size: int) -> dict[str, Floats]:
        """Return the memory before the first step."""

    @abstractmethod
    def step(self, gradient: Floats, lr: float) -> Floats:
        """Return the change of the weights, (size,)."""

    def restore(self, state: Mapping[str, Floats]) -> None:
        """Take up an earlier `memory`."""
        self.memory = {name: np.array(state[name], np.float64) for name in self.memory}


class SGD(Optimiser):
    """Gradient descent with heavy-ball momentum: v = momentum v + g, step -lr v."""

    name = "sgd"
    has_momentum = True

    def _begin(self, size: int) -> dict[str, Floats]:
        return {"velocity": np.zeros(size)}

    def step(self, gradient: Floats, lr: float) -> Floats:
        """Add the gradient to the velocity; -lr times that."""
        velocity = self.momentum * self.memory["velocity"] + gradient
        self.memory = {"velocity": velocity}
        return np.asarray(-lr * velocity)


class SGLD(SGD):
    """Stochastic gradient Langevin dynamics (DP-SGLD, Knolle et al. 2021): SGD at `langevin_lr`.

    The noise that privacy needs is that of a sampler of the posterior, which the step is fitted to.
    """

    name = "sgld"
    has_momentum = False
    by_noise = True


class Adam(Optimiser):
    """Adam (Kingma & Ba 2015) with its usual constants; with noisy gradients DP-Adam."""

    name = "adam"
    betas: ClassVar[tuple[float, float]] = (0.9, 0.999)
    least: ClassVar[float] = 1e-8

    def _begin(self, size: int) -> dict[str, Floats]:
        return {"moments": np.zeros((2, size)), "steps": np.zeros(1)}

    def step(self, gradient: Floats, lr: float) -> Floats:
        """-lr m / (sqrt(v) + 1e-8), both without their bias."""
        steps, moments, unbiased = self.memory["steps"] + 1, [], []
        for old, beta, value in zip(
            self.memory["moments"], self.betas, (gradient, gradient**2), strict=True
        ):
            moments.append(beta * old + (1 - beta) * value)
            unbiased.append(moments[-1] / (1 - beta ** float(steps[0])))
        self.memory = {"moments": np.stack(moments), "steps": steps}
        return np.asarray(-lr * unbiased[0] / (np.sqrt(unbiased[1]) + self.least))


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
