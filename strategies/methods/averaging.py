"""Scaling calibrators by averaged local fits (Maddock et al., Algorithm 2)."""

import math
from abc import abstractmethod
from typing import Annotated, Any, ClassVar

import numpy as np

from fedcal import calibrators
from fedcal.calibrators import TemperatureScaling, order_preserving
from fedcal.calibrators.parametric import LIMIT, ParametricScaling
from fedcal.clients.questions import scaling, temperature
from fedcal.core.checks import interval
from fedcal.core.numerics import Floats, override
from fedcal.privacy import SEED, Plan, Query, Range, Release, agreed_plan
from fedcal.storage.artifact import at_end
from fedcal.strategies import base

CLIP = 0.5
"""Bound of one client's update; Maddock et al., A.3.2."""

_LEAST_CLIP = 1024 * agreed_plan.EXACT_GRID


class Averaging(base.FederatedStrategy):
    """Each client trains from w and sends u_k = w - w_k; the server steps by the mean.

    Without privacy the mean is over the repliers that have rows; with privacy each u_k is clipped
    to norm `clip` and the sum is divided by the public q K (B.2). The first w is the identity:
    before anything is learned nothing is changed.

    Privacy: as the plan says. A client's update is clipped to norm `clip`; one row may move it from
    one end to the other, so unit "example" costs twice as much noise as unit "user". The same
    noise falls on every parameter: the more there are, the more it moves. (Laplace noise limits
    the L1 norm, which leaves less of an update with many parameters.)

    Parameters
    ----------
    federation
        public facts and budget; default 12 rounds
    clip
        bound of one client's update, in units of the parameters; None = 0.5 with privacy, none
        without (A.3.5 measures what one does there)
    server_lr
        step of the server
    """

    clip: base.Positive | None = None
    server_lr: base.Positive = 1.0

    def prepare(self) -> Plan:
        """Return the plan; without privacy a `clip` bounds a client's influence all the same."""
        self.begin()
        bound = self.query(1).bound("client", (self.clip or CLIP,))
        if self.clip is not None and not self.federation.private:
            seen = f"at least {_LEAST_CLIP:g} without privacy, or the grid of exact sums hides it"
            interval(f"[{_LEAST_CLIP}, inf)", seen)("clip", self.clip)
            self.norms = bound.norms
        return self.plan_with(12, bound)

    @abstractmethod
    def begin(self) -> None:
        """Set the parameters to the identity."""

    @abstractmethod
    def query(self, round_number: int) -> Query:
        """Return the question for the step from w that training on a client's own rows takes.

        Without privacy it also asks whether the client has rows.
        """

    def update(self, release: Release) -> None:
        """Step by the mean update; the divisor is public under privacy."""
        if divisor := self.divisor(release):  # else nobody with rows was asked
            numbers = release.values if self.plan.private else release.values[:-1]
            self.move(self.server_lr * numbers / divisor)

    @abstractmethod
    def move(self, step: Floats) -> None:
        """Take a step, to w - `step`, within the limits of the parameters."""


class FedTemp(Averaging):
    """Federated temperature scaling by averaged local optima (Maddock et al., Algorithm 2).

    Each client solves for its own optimum and sends how far it is from the global parameter;
    the server steps by the mean. Averaging local optima is biased where clients are small and the
    model accurate: a shard without errors has its optimum at T = 0. FedNewton does not have that
    weakness.

    Privacy: as the plan says. A client's update is clipped to `clip`. One row may move it from one
    end to the other, so unit "example" costs twice as much noise as unit "user".

    Parameters
    ----------
    federation, clip, server_lr
        as for all averaged scaling; default 12 rounds
    average
        what is averaged, "inverse" (1/T, as in Algorithm 2) or "temperature" (T, A.6)
    limit
        the largest 1/T and T of a client and of the server, in (1, 1e6]; ours, the paper names
        none. It decides what a shard without errors answers, and where there are many, the result
    steps
        most steps of a client's own optimisation, >= 1; the paper stops at 50 (A.6) of a
        solver that it does not name, here Newton's; None = to the optimum, or to `limit`
    preset
        "paper" = where none is given, 50 steps and a limit of 1000, which is hardly one
    """

    name = "fedtemp"
    examples = ({}, {"average": "temperature"}, {"clip": 0.2, "server_lr": 0.5})
    average: temperature.Average = "inverse"
    limit: Annotated[float, temperature.check_limit] = temperature.LIMIT
    steps: base.Count | None = None
    preset: base.Preset = None

    @override
    def paper(self) -> dict[str, Any]:
        return {"limit": 1000.0, "steps": 50}

    @override
    def begin(self) -> None:
        self._log_w = 0.0

    @property
    def w(self) -> float:
        """The averaged parameter: 1/T or T."""
        return math.exp(self._log_w)

    @override
    def query(self, round_number: int) -> temperature.TemperatureUpdate:
        count = not self.federation.private
        return temperature.TemperatureUpdate(self.w, self.average, count, self.limit, self.steps)

    def moving(self) -> dict[str, Range]:
        """Return any w within the limit."""
        return {"w": Range(1 / self.limit, self.limit)}

    @override
    def move(self, step: Floats) -> None:
        limit = math.exp(math.log(self.limit))  # as clients bound it
        self._log_w = math.log(min(max(self.w - float(step[0]), 1 / limit), limit))

    def at_limits(self) -> list[str]:
        """Say that T is at its limit."""
        t = self.result().temperature
        return at_end("The temperature", t, t, (1 / self.limit, self.limit))

    @override
    def result(self) -> TemperatureScaling:
        log_a = self._log_w if self.average == "inverse" else -self._log_w
        return TemperatureScaling(math.exp(-log_a), self.classes)


class _Scaling(Averaging):
    """Averaging of a form with many parameters, none of which leaves its identity by over 20."""

    form: ClassVar[type[ParametricScaling]]

    @override
    def begin(self) -> None:
        self._start = self.form.identity(self.classes)
        self.w = self._start.copy()

    def moving(self) -> dict[str, Range]:
        """Return any w that is near enough to the identity."""
        return {"w": base.near_identity(self.form, self.classes)}

    @override
    def move(self, step: Floats) -> None:
        self.w = np.clip(self.w - step, self._start - LIMIT, self._start + LIMIT)

    @override
    def result(self) -> ParametricScaling:
        return self.form(self.w, self.classes)


class FedVector(_Scaling):
    """Federated vector scaling: a slope and an offset for each class (Maddock et al., 4.2).

    Few labels on a client pull its offsets towards them: accuracy falls where classes are
    spread unevenly, and does not come back with more rounds.

    Local training is a fit of the client's own rows, held near w by `proximal`.
    `proximal` = 0 is the paper's method. A shard that lacks a class, or has no error, then has
    its optimum far away, and the mean of such optima is no calibrator. Measured (100 clients,
    Dirichlet 0.1, 12 rounds, q = 0.1, no privacy; cwECE in %, accuracy change in points):

    ===========  =================  ===========  ===========  ===========  ===========
    method       data               0            1            10           100
    ===========  =================  ===========  ===========  ===========  ===========
    fedvector    resnet110-cifar10  3.14  -10.5  1.04   -1.5  0.75   -0.7  0.96   -0.2
    fedvector    densenet-cifar100  0.46   -0.8  0.34   +0.2  0.31    0.0
    fedvector    imdb-binary        9.81   -1.1  18.7   -8.4  13.2   -3.7
    fedmatrix    resnet110-cifar10  4.05  -14.0  0.99   -0.7  0.90   -0.5
    fedmatrix    imdb-binary        10.5   -0.7  22.8  -12.0  15.5   -4.2
    fedopvector  resnet110-cifar10  1.18      0  0.50      0  0.45      0  0.75      0
    fedopvector  imdb-binary        2.66      0  1.18      0  1.23      0  1.33      0
    ===========  =================  ===========  ===========  ===========  ===========

    The model itself has 0.98, 0.37 and about 4.1 %. The default of 10 was chosen by this table, so
    on these data; fedvector and fedmatrix are bad with each of them where two classes are spread
    unevenly. Mean of the seeds 0 and 1
    (densenet: 0) of `fedcal simulate --data DATA --method METHOD --sampling-rate 0.1
    --set proximal=NUMBER --seed SEED`.

    Privacy: as the plan says; each update is clipped to norm `clip`. Public: the federation and all
    parameters.

    Parameters
    ----------
    federation, clip, server_lr
        as for all averaged scaling; default 12 rounds
    proximal
        weight of the way from w in each local fit, `(proximal / 2) |w_k - w|^2` nats
        (FedProx, Li et al. 2020); >= 0
    steps
        most evaluations of a local fit, the start included: >= 2; the paper's is 50
    preset
        "paper" = where none is given, proximal 0
    """

    name = "fedvector"
    form: ClassVar[type[ParametricScaling]] = calibrators.VectorScaling
    proximal: base.NotNegative = 10.0
    steps: Annotated[int, base.integer(2)] = 50
    preset: base.Preset = None

    @override
    def paper(self) -> dict[str, Any]:
        return {"proximal": 0.0}

    @override
    def query(self, round_number: int) -> scaling.ScalingUpdate:
        count = not self.federation.private
        return scaling.ScalingUpdate(self.w, self.form.kind, self.proximal, self.steps, count)


class FedMatrix(FedVector):
    """Federated matrix scaling, c^2 + c parameters (Maddock et al., 4.2).

    As FedVector, with more parameters to overfit with, and to add noise to.

    Privacy: as the plan says; each update is clipped to norm `clip`. Public: the federation and all
    parameters.
    """

    name, form = "fedmatrix", calibrators.MatrixScaling


class FedOPVector(FedVector):
    """Federated order-preserving vector scaling: no prediction changes (Maddock et al., 4.2).

    With privacy classwise ECE stays low (0.42 % at epsilon = 1 on resnet110-cifar10, where the
    pooled temperature has 0.44 %), but the noise on the slopes of deep ranks makes rare rows very
    sure of the wrong class: the negative log-likelihood is 0.24, and 0.21 by temperature.

    Privacy: as the plan says; each update is clipped to norm `clip`. Public: the federation and all
    parameters.
    """

    name, form = "fedopvector", calibrators.OrderPreservingVector
    examples = ({}, {"proximal": 0.0})


class FedCal(_Scaling):
    """An order-preserving MLP by local SGD (Peng et al. 2024; Maddock et al., 4.2 and B.6).

    Thousands of parameters: with privacy the noise ruins it (Maddock et al., Figure 3; cwECE
    2.4 +- 3.7 % at epsilon = 1 on resnet110-cifar10, 0.5 % without privacy; the model has 1.0;
    sampling rate 0.1, 5 seeds).

    Privacy: as the plan says; each update is clipped to norm `clip`. Public: the federation and all
    parameters.

    Parameters
    ----------
    federation, clip, server_lr
        as for the other averaged methods
    epochs, batch, lr
        of a client's SGD; the papers tell the first only
    """

    name, form = "fedcal", calibrators.OrderPreservingMLP
    examples = ({"epochs": 1, "batch": 8},)
    epochs: base.Count = order_preserving.EPOCHS
    batch: base.Count = order_preserving.BATCH
    lr: base.Positive = order_preserving.LR

    def query(self, round_number: int) -> scaling.MLPUpdate:
        """Return the question for an update, with a new seed for the order of rows."""
        sgd, count = (self.epochs, self.batch, self.lr), not self.federation.private
        return scaling.MLPUpdate(self.w, *sgd, seed=round_number, count=count)

    def moving(self) -> dict[str, Range]:
        """Return any w that is near enough to the identity, with any order of rows."""
        return super().moving() | {"seed": SEED}
