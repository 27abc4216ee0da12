"""Training of a network by averages of local updates: FedAvg, and DP-FedAvg for whole users."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedcal.clients.questions import LocalUpdate, WeightedUpdate
from fedcal.core.checks import positive, whole
from fedcal.core.errors import InputError, RoundFailed
from fedcal.core.types import Floats, override
from fedcal.mechanisms import Gaussian
from fedcal.privacy.curator import Release
from fedcal.privacy.declared import SEED, Question, Range
from fedcal.privacy.federation import Federation
from fedcal.privacy.noise_plan import Plan, make_plan
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import Family
from fedcal.training.network import shape_of
from fedcal.training.networks import network_named
from fedcal.training.optimisers import SGD
from fedcal.training.trained_model import TrainedModel

CLIP_LR = 0.2
"""Step of the clip's logarithm, per share of updates that is too many (Andrew et al. 2021)."""


class _Averaging(FederatedStrategy):
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

    def __init__(
        self,
        federation: Federation,
        *,
        shape: str | None = None,
        network: str = "softmax",
        epochs: int = 1,
        batch: int = 32,
        lr: float = 0.1,
        server_lr: float = 1.0,
        **base: Any,
    ) -> None:
        self.network, self.classes = network, federation.classes
        self.shape = str(self.classes if shape is None else shape)  # --set may give a number
        self.epochs, self.batch = whole("epochs", epochs, 1), whole("batch", batch, 1)
        self.lr, self.server_lr = positive("lr", lr), positive("server_lr", server_lr)
        self.w = network_named(network).initial(shape_of(self.shape), self.classes, federation.seed)
        super().__init__(self._planned(federation), **base)

    @abstractmethod
    def _planned(self, federation: Federation) -> Plan: ...

    @property
    def _training(self) -> tuple[str, str, Floats, int, int, float]:
        """Arguments with which every training question begins."""
        return self.network, self.shape, self.w, self.epochs, self.batch, self.lr

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
        return shape_of(self.shape)

    @override
    def result(self) -> TrainedModel:
        return TrainedModel(self.network, shape_of(self.shape), self.classes, self.w)


class FedAvg(_Averaging):
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

    def __init__(self, federation: Federation, **training: Any) -> None:
        if federation.private:
            raise InputError(
                f"{self.name} has no privacy: use {DPFedAvg.name} or fedsgd, or epsilon inf where "
                "exact sums may be seen"
            )
        self.losses: list[float] = []
        self.judged: dict[int, tuple[float, float]] = {}
        self._seed = federation.seed
        super().__init__(federation, **training)

    def _planned(self, federation: Federation) -> Plan:
        bound = self.query(1).bound("client", (1.0, 1.0))
        return make_plan(federation, rounds=federation.rounds or 20, bound=bound, cohort=True)

    def query(self, round_number: int) -> WeightedUpdate:
        """Return the question for the local update at w, weighted by rows."""
        return WeightedUpdate(
            *self._training, seed=self._seed, round=round_number, classes=self.classes
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


class DPFedAvg(_Averaging):
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

    def __init__(
        self,
        federation: Federation,
        *,
        momentum: float = 0.0,
        clip: float = 1.0,
        unclipped: float | None = 0.5,
        **training: Any,
    ) -> None:
        self.clip, self.unclipped = positive("clip", clip), unclipped
        self._first_clip = self.clip
        if unclipped is not None and not 0 < unclipped < 1:
            raise InputError(f"unclipped must be in (0, 1), got {unclipped!r}")
        self.done = 0
        super().__init__(federation, **training)
        self.optimiser = SGD(self.w.size, momentum)

    def _planned(self, federation: Federation) -> Plan:
        bound = self.query(1).bound("client")
        return make_plan(
            federation, rounds=federation.rounds or 20, bound=bound, prefers=(Gaussian,)
        )

    def query(self, round_number: int) -> LocalUpdate:
        """Return the question for the local update at w, with a new seed for the order of rows."""
        return LocalUpdate(
            *self._training,
            self.clip,
            count=self.unclipped is not None,
            seed=round_number,
            classes=self.classes,
        )

    def questions(self) -> tuple[Question, ...]:
        """Return questions at any w, any order of rows and every clip that the rounds can reach."""
        moving = {"w": Range(), "seed": SEED}
        if self.unclipped is not None:
            factor = math.exp(CLIP_LR * self.plan.rounds)
            moving["clip"] = Range(self._first_clip / factor, self._first_clip * factor)
        return (Question.like(self.query(1), self._all_rounds, **moving),)

    def update(self, release: Release) -> None:
        """One step by the mean update, and one of the clip; the divisor q K is public.

        Raises RoundFailed if the weights leave what floats hold.
        """
        self.done += 1
        means = release.values / (self.plan.sampling_rate * self.plan.clients)
        mean = self.clip * means[: self.w.size]
        self._moved(self.optimiser.step(-mean, self.server_lr), release.round)
        if self.unclipped is not None:
            share = min(max(0.5 + float(means[-1]), 0.0), 1.0)
            self.clip *= math.exp(-CLIP_LR * (share - self.unclipped))

    def state(self) -> dict[str, Floats]:
        """All that later rounds depend on, by name; noisy with privacy, as the releases are."""
        numbers = np.array([float(self.done), self.clip])
        return {"w": self.w, "numbers": numbers, **self.optimiser.state()}

    def restore(self, run: str, state: Mapping[str, Floats]) -> None:
        """Go on with a run that another process began, after the releases that `state` has seen."""
        self.w = np.array(state["w"], np.float64)
        self.done, self.clip = int(state["numbers"][0]), float(state["numbers"][1])
        self.optimiser.restore(state)
        self.resume_after(run, self.done)
