"""Scaling calibrators by averaged local fits (Maddock et al., Algorithm 2)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

from fedcal import calibrators
from fedcal.calibrators import TemperatureScaling, order_preserving_mlp
from fedcal.calibrators.parametric import LIMIT, ParametricScaling
from fedcal.core.errors import InputError, RoundFailed
from fedcal.core.types import Floats, override
from fedcal.mechanisms import Gaussian
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import Federation
from fedcal.privacy.noise_plan import EXACT_GRID, Plan, make_plan
from fedcal.queries import (
    LocalUpdate,
    MLPUpdate,
    Query,
    ScalingUpdate,
    TemperatureUpdate,
    WeightedUpdate,
)
from fedcal.queries.declared import SEED, Question, Range
from fedcal.queries.temperature import LIMIT as T_LIMIT
from fedcal.queries.temperature import Average, check_limit
from fedcal.storage.artifact import at_end
from fedcal.strategies.base import (
    Count,
    FederatedStrategy,
    NonNegative,
    Positive,
    Share,
    Text,
    integer,
)
from fedcal.strategies.method import Family, near_identity
from fedcal.training.network import shape_of
from fedcal.training.networks import network_named
from fedcal.training.optimisers import SGD
from fedcal.training.trained_model import TrainedModel

CLIP = 0.5
"""Bound of one client's update; Maddock et al., A.3.2."""

_LEAST_CLIP = 1024 * EXACT_GRID


class Averaging(FederatedStrategy):
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

    clip: Positive | None = None
    server_lr: Positive = 1.0

    def prepare(self, federation: Federation) -> Plan:
        """Return the plan; without privacy a `clip` bounds a client's influence all the same."""
        self.begin()
        bound = self.query(1).bound("client", (self.clip or CLIP,))
        if self.clip is not None and not federation.private:
            if self.clip < _LEAST_CLIP:
                raise InputError(
                    f"clip = {self.clip:g} is lost on the grid of exact sums: without privacy it "
                    f"must be at least {_LEAST_CLIP:g}"
                )
            self.norms = bound.norms
        return make_plan(federation, rounds=federation.rounds or 12, bound=bound)

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
    """

    name = "fedtemp"
    examples = ({}, {"average": "temperature"}, {"clip": 0.2, "server_lr": 0.5})
    average: Average = "inverse"
    limit: Annotated[float, check_limit] = T_LIMIT
    steps: Count | None = None

    @override
    def begin(self) -> None:
        self._log_w = 0.0

    @property
    def w(self) -> float:
        """The averaged parameter: 1/T or T."""
        return math.exp(self._log_w)

    @override
    def query(self, round_number: int) -> TemperatureUpdate:
        count = not self.federation.private
        return TemperatureUpdate(self.w, self.average, count, self.limit, self.steps)

    def moving(self) -> dict[str, Range]:
        """Any w within the limit."""
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
        """Any w that is near enough to the identity."""
        return {"w": near_identity(self.form, self.classes)}

    @override
    def move(self, step: Floats) -> None:
        self.w = np.clip(self.w - step, self._start - LIMIT, self._start + LIMIT)

    @override
    def result(self) -> ParametricScaling:
        return self.form(self.w, self.classes)


class FedVector(_Scaling):
    """Federated vector scaling: a slope and an offset for each class (Maddock et al., 4.2).

    Few labels on a client pull its offsets towards them: accuracy falls where classes are
    dealt unevenly, and does not come back with more rounds.

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
    on these data; fedvector and fedmatrix are bad with each of them where two classes are dealt
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
        weight of the way from w in each local fit, (proximal / 2) |w_k - w|^2 nats
        (FedProx, Li et al. 2020); >= 0
    steps
        most evaluations of a local fit, the start included: >= 2; the paper's is 50
    """

    name = "fedvector"
    form: ClassVar[type[ParametricScaling]] = calibrators.VectorScaling
    proximal: NonNegative = 10.0
    steps: Annotated[int, integer(2)] = 50

    @override
    def query(self, round_number: int) -> ScalingUpdate:
        count = not self.federation.private
        return ScalingUpdate(self.w, self.form.kind, self.proximal, self.steps, count)


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
    epochs: Count = order_preserving_mlp.EPOCHS
    batch: Count = order_preserving_mlp.BATCH
    lr: Positive = order_preserving_mlp.LR

    def query(self, round_number: int) -> MLPUpdate:
        """Return the question for an update by SGD, with a new seed for the order of rows."""
        sgd, count = (self.epochs, self.batch, self.lr), not self.federation.private
        return MLPUpdate(self.w, *sgd, seed=round_number, count=count)

    def moving(self) -> dict[str, Range]:
        """Any w that is near enough to the identity, with any order of rows."""
        return super().moving() | {"seed": SEED}


CLIP_LR = 0.2
"""Step of the clip's logarithm, per share of updates that is too many (Andrew et al. 2021)."""


class _Training(FederatedStrategy):
    """Rounds of local SGD from the global weights w, averaged by the server.

    Parameters
    ----------
    federation
        public facts and budget; default 20 rounds
    network, shape
        what is trained (`network_named`), on inputs of which shape ("512", "28x28"; the logits of a
        model that is there already)
    epochs, batch, lr
        of a client's SGD
    server_lr
        step of the server
    """

    family: ClassVar[Family] = "train"
    keeps_releases = False
    shape: Text | None = None
    network: str = "softmax"
    epochs: Count = 1
    batch: Count = 32
    lr: Positive = 0.1
    server_lr: Positive = 1.0

    def prepare(self, federation: Federation) -> Plan:
        """Return the plan, for the length of the network's weights."""
        self._shape = self.shape or str(self.classes)
        network = network_named(self.network)
        self.w = network.initial(shape_of(self._shape), self.classes, federation.seed)
        return self._planned(federation)

    @abstractmethod
    def _planned(self, federation: Federation) -> Plan: ...

    @property
    def _training(self) -> tuple[str, str, Floats, int, int, float]:
        """Arguments with which every training question begins."""
        return self.network, self._shape, self.w, self.epochs, self.batch, self.lr

    def _moved(self, step: Floats, round_number: int) -> None:
        """Move the weights; RoundFailed if they leave what floats hold."""
        self.w = self.w + step
        if not np.isfinite(self.w).all():
            raise RoundFailed(
                f"round {round_number}: the training diverged; lower server_lr ({self.server_lr})"
            )

    @property
    def reads(self) -> tuple[int, ...]:
        """Shape of a row of the data."""
        return shape_of(self._shape)

    @override
    def result(self) -> TrainedModel:
        return TrainedModel(self.network, shape_of(self._shape), self.classes, self.w)


class FedAvg(_Training):
    """Federated averaging (McMahan et al. 2017) with a server learning rate.

    In each round a fixed number of clients, drawn by seed, run SGD on their own rows; the server
    takes w + server_lr (average of the clients' w_k - w), weighted by rows.

    Privacy: none, a budget is refused. The released sums are exact.

    Parameters
    ----------
    federation, network, shape, epochs, batch, lr, server_lr
        as for all averaged training

    Attributes
    ----------
    losses
        of each round: mean cross-entropy on the way of the clients' SGD, over all rows seen
    judged
        round -> loss and accuracy of its weights on test rows, as the caller notes them
    """

    name = "fedavg"
    exact_only = True
    examples = ({"batch": 8}, {"batch": 8, "epochs": 2})

    def _planned(self, federation: Federation) -> Plan:
        if federation.private:
            raise InputError(
                f"{self.name} has no privacy: use {DPFedAvg.name} or fedsgd, or epsilon inf where "
                "exact sums may be seen"
            )
        self.losses: list[float] = []
        self.judged: dict[int, tuple[float, float]] = {}
        bound = self.query(1).bound("client", (1.0, 1.0))
        return make_plan(federation, rounds=federation.rounds or 20, bound=bound, cohort=True)

    def query(self, round_number: int) -> WeightedUpdate:
        """Return the question for the local update at w, weighted by rows."""
        return WeightedUpdate(
            *self._training, seed=self.federation.seed, round=round_number, classes=self.classes
        )

    def questions(self) -> tuple[Question, ...]:
        """Return questions at any w, with a different order of rows in each round."""
        rounds = Range(1, self.plan.rounds, whole=True)
        return (Question.like(self.query(1), self._all_rounds, w=Range(), round=rounds),)

    def update(self, release: Release) -> None:
        """One step by the clients' average.

        Raises RoundFailed if a client's SGD, or the weights, left what floats hold.
        """
        loss, rows, diverged = release.values[-3:].tolist()
        if diverged:
            raise RoundFailed(
                f"round {release.round}: the training diverged (at clients with {diverged:g} of "
                f"{rows:g} rows); lower --lr (it is {self.lr})"
            )
        self.losses.append(loss / rows if rows else math.nan)
        if rows:
            self._moved(self.server_lr * release.values[:-3] / rows, release.round)

    def round_record(self, round_number: int) -> dict[str, Any]:
        """Return the number of clients that trained, their mean loss, and metrics on the test rows.

        The number is left out where each client decides by its own coin; the loss is None if no
        client with rows answered.
        """
        record: dict[str, Any] = {}
        if not self.plan.asks_everyone:
            record["clients"] = len(self.plan.sample(round_number))
        loss = self.losses[round_number - 1]
        record["train_loss"] = None if math.isnan(loss) else loss
        judged = self.judged.get(round_number, ())
        return record | dict(zip(("test_loss", "test_accuracy"), judged, strict=False))

    def state(self) -> dict[str, Floats]:
        """All that later rounds depend on, and what was told of the earlier ones."""
        judged = [(number, *of) for number, of in self.judged.items()]
        return {"w": self.w, "losses": np.array(self.losses), "judged": np.array(judged)}

    def restore(self, run: str, state: Mapping[str, Floats]) -> None:
        """Go on with a run that another process began, after the releases that `state` has seen."""
        self.w = np.array(state["w"], np.float64)
        self.losses = state["losses"].tolist()
        self.judged = {
            int(number): (loss, accuracy) for number, loss, accuracy in state["judged"].tolist()
        }
        self.resume_after(run, len(self.losses))


class DPFedAvg(_Training):
    """Federated averaging with bounded updates (McMahan et al. 2018), the clip adapted to them.

    In each round sampled clients run SGD on their own rows and send w_k - w, bounded to norm C; the
    sum is released, and the server steps by its share of the expected clients, q K. With
    `unclipped` each client tells, too, whether its update was within C: 1/2 or -1/2, in the same
    noisy sum, and C follows the wanted share (Andrew et al. 2021). This takes half a percent of the
    update's noise. Updates are sent in units of C, so that the plan does not depend on it. Without
    privacy they are bounded all the same.

    Privacy: as the plan says. A client's answer is bounded as a whole; one row may move it from one
    end to the other, so unit "example" costs twice as much noise as unit "user". Public: all
    parameters; the clip of each round follows from what was released.

    Parameters
    ----------
    federation, network, shape, epochs, batch, lr, server_lr
        as for all averaged training
    momentum
        of the server
    clip
        C: of all rounds, or of the first one
    unclipped
        share of updates that should be within the clip; None = C stays what it is
    """

    name = "dp-fedavg"
    examples = ({"batch": 8, "clip": 0.3}, {"batch": 8, "momentum": 0.5, "unclipped": 0.8})

    momentum: NonNegative = 0.0
    clip: Positive = 1.0
    unclipped: Share | None = 0.5

    def _planned(self, federation: Federation) -> Plan:
        self.done, self.current_clip = 0, self.clip
        self.optimiser = SGD(self.w.size, self.momentum)
        bound = self.query(1).bound("client")
        return make_plan(
            federation, rounds=federation.rounds or 20, bound=bound, prefers=(Gaussian,)
        )

    def query(self, round_number: int) -> LocalUpdate:
        """Return the question for the local update at w, with a new seed for the order of rows."""
        return LocalUpdate(
            *self._training,
            self.current_clip,
            count=self.unclipped is not None,
            seed=round_number,
            classes=self.classes,
        )

    def questions(self) -> tuple[Question, ...]:
        """Return questions at any w, any order of rows and every clip that the rounds can reach."""
        moving = {"w": Range(), "seed": SEED}
        if self.unclipped is not None:
            factor = math.exp(CLIP_LR * self.plan.rounds)
            moving["clip"] = Range(self.clip / factor, self.clip * factor)
        return (Question.like(self.query(1), self._all_rounds, **moving),)

    def update(self, release: Release) -> None:
        """One step by the mean update, and one of the clip; the divisor q K is public.

        Raises RoundFailed if the weights leave what floats hold.
        """
        self.done += 1
        means = release.values / (self.plan.sampling_rate * self.plan.clients)
        mean = self.current_clip * means[: self.w.size]
        self._moved(self.optimiser.step(-mean, self.server_lr), release.round)
        if self.unclipped is not None:
            share = min(max(0.5 + float(means[-1]), 0.0), 1.0)
            self.current_clip *= math.exp(-CLIP_LR * (share - self.unclipped))

    def state(self) -> dict[str, Floats]:
        """All that later rounds depend on, by name; noisy with privacy, as the releases are."""
        numbers = np.array([float(self.done), self.current_clip])
        return {"w": self.w, "numbers": numbers, **self.optimiser.state()}

    def restore(self, run: str, state: Mapping[str, Floats]) -> None:
        """Go on with a run that another process began, after the releases that `state` has seen."""
        self.w = np.array(state["w"], np.float64)
        self.done, self.current_clip = int(state["numbers"][0]), float(state["numbers"][1])
        self.optimiser.restore(state)
        self.resume_after(run, self.done)
