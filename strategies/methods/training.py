"""Training of networks, and recalibration, by gradients of rows or updates of clients."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedcal.calibrators import TemperatureScaling, order_preserving, parametric
from fedcal.calibrators.scaling import VectorScaling
from fedcal.clients.questions import scaling, training
from fedcal.core.checks import InputError, RoundFailed, integer, interval, unused
from fedcal.core.fitting import LOG_A_LIMIT, softplus
from fedcal.core.numerics import Floats, override
from fedcal.mechanisms import Gaussian
from fedcal.privacy import SEED, Federation, Plan, Query, Range, Release, privacy
from fedcal.strategies import base, method
from fedcal.training import networks
from fedcal.units import UNITS

Momentum = Annotated[float, interval("[0, 1)")]
Schedule = Literal["constant", "linear"]


class GradientTraining(base.FederatedStrategy):
    """Steps of weights w from rows' gradients, or from clients' updates of w.

    Releases of a network's size are not kept: what later rounds depend on is its `state`.
    """

    keeps_releases = False
    w: Floats
    velocity: Floats
    momentum: float
    done = 0

    def step(self, gradient: Floats, lr: float) -> Floats:
        """Return the step -lr v with heavy-ball momentum, v = momentum v + gradient."""
        self.velocity = self.momentum * self.velocity + gradient
        return -lr * self.velocity

    def move(self, step: Floats, release: Release, mend: str) -> None:
        """Move the weights; RoundFailed if exact ones leave what floats hold.

        Noisy ones stay at the end of it: a round that fails is in no checkpoint, and when the run
        goes on its sum would be released again, with other noise and at no charge.
        """
        self.w = np.nan_to_num(self.w + step) if self.plan.private else self.w + step
        if not np.isfinite(self.w).all():
            raise RoundFailed(f"round {release.round}: the training diverged; lower {mend}")

    def state(self) -> dict[str, Floats] | None:
        """All that later rounds depend on, by name; noisy with privacy, as the releases are."""
        if self.keeps_releases:
            return None
        return {"w": self.w, "done": np.array([float(self.done)]), "velocity": self.velocity}

    def restore(self, run: str, state: Mapping[str, Floats]) -> None:
        """Go on with a run that another process began, after the releases that `state` has seen."""
        velocity = "moments" if "moments" in state else "velocity"  # Adam's name of before
        self.w, self.velocity = (np.array(state[k], np.float64) for k in ("w", velocity))
        self.done = int(state["done"][0])
        self.resume_after(run, self.done)


class _Network(GradientTraining):
    """Training of a network.

    Parameters
    ----------
    network, shape
        what is trained (`network_named`), on inputs of which shape ("512", "28x28"); None = on the
        logits of a model that is there already
    """

    family: ClassVar[method.Family] = "train"
    shape: base.Text | None = None
    network: str = "softmax"

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """Shape of a row of the data."""
        return networks.shape_of(self.asked[1])

    @property
    def asked(self) -> tuple[str, str]:
        """Network and shape, with which every question begins."""
        return self.network, self.shape or str(self.classes)

    def first_weights(self) -> Floats:
        """Return the weights of the first round."""
        network = networks.network_named(self.network)
        return network.initial(self.reads, self.classes, self.federation.seed)

    @override
    def result(self) -> networks.TrainedModel:
        return networks.TrainedModel(self.network, self.reads, self.classes, self.w)


class Descent(GradientTraining):
    """Steps against the mean of rows' gradients, released as noisy sums.

    In each round every row takes part with the same probability, batch / rows, by a coin at its
    client (Poisson sampling, on which the epsilon counts); the sum of the bounded gradients is
    released, and divided by `batch`. That is DP-SGD (Abadi et al. 2016) on the union of the
    clients' rows, wherever they lie. Public: `rows_per_client`, `batch`, and all else but the rows;
    how many rows there are, or take part, is in no denominator.

    Units "user" and "subject" clip a client's or a subject's sum as a whole. No amplification is
    claimed for them: all rows take part in each round (`batch` = None).

    Parameters
    ----------
    rows_per_client
        public nominal number of rows per client
    schedule
        how the step changes: "constant", or "linear" towards 0
    momentum
        of heavy balls
    weight_decay
        of the weights' half squared norm, added to the mean loss
    """

    rows_per_client: base.Positive | None = None
    schedule: Schedule
    weight_decay: float

    def descend(
        self, start: Floats, batch: float | None, epochs: float | None, lr: float, clip: float
    ) -> Plan:
        """Return the plan of the descent from `start`.

        Parameters
        ----------
        batch
            rows that are expected to take part in a round; None = all
        epochs
            rounds * batch / rows; not with rounds of the federation's own
        """
        rows = self.nominal_rows(self.name) * self.federation.clients
        self.batch_rows = rows if batch is None else min(batch, rows)
        self.w, self.velocity, self.step_size = start, np.zeros(start.size), lr
        steps = self.federation.rounds
        if epochs is not None:
            steps = math.ceil(epochs * rows / self.batch_rows)
            if self.federation.rounds not in (None, steps):
                unused("rounds are given, and these are others", epochs=epochs)
        steps = integer("rounds", steps, 1, privacy.MOST_ROUNDS)
        query, rate = self.query(1), self.batch_rows / rows
        more: dict[str, Any] = {"prefers": (Gaussian,), "row_rate": rate, "fine": query.fine}
        return self.plan_for(query, (clip,), steps, **more)

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Return True: rates and denominators are public."""
        return True

    @abstractmethod
    def query(self, round_number: int) -> Query:
        """Return the question for the gradient at w."""

    def moving(self) -> dict[str, Range]:
        """Return any w: steps are not bounded."""
        return {"w": Range()}

    def update(self, release: Release) -> None:
        """One step.

        Raises RoundFailed if exact weights leave what floats hold.
        """
        self.done += 1
        gradient = release.values / (self.batch_rows * self.plan.federation.sampling_rate)
        gradient = gradient + self.weight_decay * self.w
        left = (self.plan.rounds - self.done + 1) / self.plan.rounds
        lr = self.step_size * (1.0 if self.schedule == "constant" else left)
        self.move(self.step(gradient, lr), release, f"lr ({self.step_size})")


BATCH, EPOCHS, RECALIBRATION_EPOCHS = 256.0, 10.0, 100.0


class FedSGD(_Network, Descent):
    """Training by sums of bounded per-example gradients (DP-SGD, Abadi et al. 2016).

    With one client it is DP-SGD in one place; with more, DP-SGD on the union of their rows: the
    clients' sums are added up exactly, so the same rows take the same steps however they are
    spread, but for the rows that take part in a round. Without privacy it is SGD with Poisson
    sampling, and `clip` bounds rows all the same; "none" does not.

    Privacy: as the plan says, with Gaussian noise on the sum. Unit "example": each row takes part
    with probability batch / rows and adds a gradient of norm `clip` at most. Public: all
    parameters, and the nominal numbers of rows.

    Parameters
    ----------
    federation
        public facts and budget; rounds instead of `epochs`
    lr
        the network's own where it is not given
    network, shape
        what is trained (`network_named`), on inputs of which shape ("512", "28x28x1"); None = on
        the logits of a model that is there already
    rows_per_client, epochs, schedule, momentum, weight_decay
        as `Descent` and `Descent.descend`; 10 epochs
    optimiser
        "sgd"; "adam" (Kingma & Ba 2015, its usual constants); or "sgld", stochastic gradient
        Langevin dynamics (DP-SGLD, Knolle et al. 2021): SGD at the lr at which the noise that
        privacy needs is that of a sampler of the posterior
    batch
        rows that are expected to take part in a round; 256, or all where units are no rows
    clip, clipping, reach
        C (1); "row" (per example; the default with privacy), "global" (Bu et al. 2021: rows of
        norm up to Z = `reach` count with C / Z, others not at all), "none" (without privacy only,
        and the default there)
    """

    name = "fedsgd"
    one_place = True
    examples = (
        {"batch": 8.0, "rows_per_client": 10.0, "momentum": 0.5, "schedule": "linear"},
        {
            "rows_per_client": 10.0,
            "clipping": "global",
            "reach": 2.0,
            "optimiser": "adam",
            "lr": 0.5,
            "weight_decay": 0.25,
        },
    )

    batch: base.Positive | None = None
    epochs: base.Positive | None = None
    lr: base.Positive | None = None
    schedule: Schedule = "constant"
    optimiser: Literal["sgd", "adam", "sgld"] = "sgd"
    momentum: Momentum = 0.0
    weight_decay: base.NotNegative = 0.0
    clip: base.Positive | None = None
    clipping: networks.Rule | None = None
    reach: base.Positive | None = None

    def prepare(self) -> Plan:
        """Return the plan of the descent, from the network's first weights."""
        batch, lr, f = self.batch, self.lr, self.federation
        private = f.private
        self._clipping: networks.Rule = self.clipping or ("row" if private else "none")
        if self._clipping == "none":
            self.unused("clipping 'none'", "clip")
        if self._clipping == "none" and private:
            raise InputError("clipping 'none' bounds nothing: it needs epsilon = inf")
        if self._clipping != "global":
            self.unused(f"clipping '{self._clipping}' has no reach", "reach")
        if private and UNITS[f.unit].per != "row":
            self.unused(f"all rows take part in each round for unit '{f.unit}'", "batch")
        elif batch is None:
            batch = BATCH
        if self.optimiser != "sgd":
            self.unused(f"the optimiser '{self.optimiser}' has none", "momentum")
        langevin = self.optimiser == "sgld"
        if langevin:
            self.unused("the optimiser 'sgld' takes its step from the noise", "lr")
        if langevin and not private:
            raise InputError("the optimiser 'sgld' takes its step from the noise: it needs epsilon")
        self._clip = self.clip or 1.0
        plan = self.descend(
            self.first_weights(),
            batch=batch,
            epochs=self.epochs or (None if f.rounds else EPOCHS),
            lr=lr or networks.network_named(self.network).lr,
            clip=self._clip,
        )
        if langevin and plan.noise_std is not None:
            # -h (rows / batch) sum + N(0, 2 h) (Welling & Teh 2011), h = lr / rows
            rows = self.nominal_rows(self.name) * f.clients
            noise = plan.noise_std[0] / (self.batch_rows * plan.federation.sampling_rate)
            self.step_size = 2.0 / (rows * noise**2)
        return plan

    @override
    def step(self, gradient: Floats, lr: float) -> Floats:
        if self.optimiser != "adam":
            return super().step(gradient, lr)
        betas = np.array([[0.9], [0.999]])
        self.velocity = betas * self.velocity + (1 - betas) * np.stack([gradient, gradient**2])
        mean, square = self.velocity / (1 - betas**self.done)
        return np.asarray(-lr * mean / (np.sqrt(square) + 1e-8))

    @override
    def query(self, round_number: int) -> training.Gradients:
        how: Any = (self._clip, self._clipping, self.reach or 1.0)
        return training.Gradients(*self.asked, self.w, *how, classes=self.classes)


class _Local(_Network):
    """Rounds of local SGD from the global weights w, averaged by the server.

    Parameters
    ----------
    epochs, batch, lr
        of a client's SGD
    server_lr
        step of the server
    """

    epochs: base.Count = 1
    batch: base.Count = 32
    lr: base.Positive = 0.1
    server_lr: base.Positive = 1.0

    @property
    def local_sgd(self) -> tuple[str, str, Floats, int, int, float]:
        """Arguments with which every question begins."""
        return *self.asked, self.w, self.epochs, self.batch, self.lr


class FedAvg(_Local):
    """Federated averaging (McMahan et al. 2017) with a server learning rate.

    In each round a fixed number of clients, drawn by seed, run SGD on their own rows; the server
    takes w + server_lr (average of the clients' w_k - w), weighted by rows.

    Privacy: none, a budget is refused. The released sums are exact.

    Parameters
    ----------
    federation, network, shape, epochs, batch, lr, server_lr
        as for all averaged training; 100 rounds unless given (Maddock et al. 2025, A.3.1)

    Attributes
    ----------
    losses
        mean cross-entropy of each round during the clients' SGD, over all rows seen
    """

    name = "fedavg"
    exact_only, instead = True, "fedsgd or another method of training"
    examples = ({"batch": 8}, {"batch": 8, "epochs": 2})

    def prepare(self) -> Plan:
        """Return the plan of exact sums over a fixed number of clients."""
        self.w, self.losses = self.first_weights(), list[float]()
        return self.plan_with(100, self.query(1).bound("client", (1.0, 1.0)), cohort=True)

    def query(self, round_number: int) -> training.WeightedUpdate:
        """Return the question for the local update at w, weighted by rows."""
        return training.WeightedUpdate(
            *self.local_sgd, seed=self.federation.seed, round=round_number, classes=self.classes
        )

    def moving(self) -> dict[str, Range]:
        """Return any w, with a different order of rows in each round."""
        return {"w": Range(), "round": Range(1, self.plan.rounds, whole=True)}

    def update(self, release: Release) -> None:
        """One step by the clients' average.

        Raises RoundFailed if a client's SGD, or the weights, left what floats hold.
        """
        loss, rows, diverged = release.values[-3:].tolist()
        if diverged:
            where = f"(at clients with {diverged:g} of {rows:g} rows); lower --lr (it is {self.lr})"
            raise RoundFailed(f"round {release.round}: the training diverged {where}")
        self.losses.append(loss / rows if rows else math.nan)
        if rows:
            step = self.server_lr * release.values[:-3] / rows
            self.move(step, release, f"server_lr ({self.server_lr})")

    def round_record(self, round_number: int) -> dict[str, Any]:
        """Return the clients' mean loss; None if no client with rows answered."""
        loss = self.losses[round_number - 1]
        return {"train_loss": None if math.isnan(loss) else loss}

    @override
    def state(self) -> dict[str, Floats]:
        return {"w": self.w, "losses": np.array(self.losses)}

    @override
    def restore(self, run: str, state: Mapping[str, Floats]) -> None:
        self.w, self.losses = np.array(state["w"], np.float64), state["losses"].tolist()
        self.resume_after(run, len(self.losses))


class DPFedAvg(_Local):
    """Federated averaging with bounded updates (McMahan et al. 2018).

    In each round sampled clients run SGD on their own rows and send w_k - w, bounded to norm C; the
    sum is released, and the server steps by its share of the expected clients, q K. Updates are
    sent in units of C, so that the plan does not depend on it. Without privacy they are bounded all
    the same.

    Privacy: as the plan says. A client's answer is bounded as a whole; one row may move it from one
    end to the other, so unit "example" costs twice as much noise as unit "user". Public: all
    parameters.

    Parameters
    ----------
    federation, network, shape, epochs, batch, lr, server_lr
        as for all averaged training; 20 rounds unless given
    momentum
        of the server
    clip
        C
    """

    name = "dp-fedavg"
    examples = ({"batch": 8, "clip": 0.3}, {"batch": 8, "momentum": 0.5})

    momentum: Momentum = 0.0
    clip: base.Positive = 1.0

    def prepare(self) -> Plan:
        """Return the plan, in units of the clip."""
        self.w = self.first_weights()
        self.velocity = np.zeros(self.w.size)
        return self.plan_with(20, self.query(1).bound("client"), prefers=(Gaussian,))

    def query(self, round_number: int) -> training.LocalUpdate:
        """Return the question for the local update at w, with a new seed for the order of rows."""
        return training.LocalUpdate(
            *self.local_sgd, self.clip, seed=round_number, classes=self.classes
        )

    def moving(self) -> dict[str, Range]:
        """Return any w and any order of rows."""
        return {"w": Range(), "seed": SEED}

    def update(self, release: Release) -> None:
        """One step by the mean update; the divisor q K is public.

        Raises RoundFailed if exact weights leave what floats hold.
        """
        self.done += 1
        mean = self.clip * (
            release.values / (self.plan.federation.sampling_rate * self.plan.clients)
        )
        self.move(self.step(-mean, self.server_lr), release, f"server_lr ({self.server_lr})")


class _Recalibration(Descent):
    """Descent on calibration rows; every row takes part in every round."""

    form: ClassVar[str]
    keeps_releases = True
    schedule, momentum, weight_decay = "linear", 0.0, 0.0
    wider: ClassVar[float]
    """A client's clip over that of its gradient in log(1/T)."""
    examples = ({"rows_per_client": 20.0}, {"rows_per_client": 20.0, "clip": 1.0, "lr": 0.1})
    lr: base.Positive = 0.5
    clip: base.Positive | None = None
    preset: base.Preset = None

    @override
    def paper(self) -> dict[str, Any]:
        return {"lr": 0.1} | ({"clip": 1.0} if self.federation.private else {})

    def prepare(self) -> Plan:
        """Return the plan of the descent from the identity."""
        clip = self.clip
        if clip is None and self.hides_clients:
            rows = self.nominal_rows(f"{self.name} with unit 'user' and no clip")
            clip = self.wider * max(0.2 * rows, 3.0)
        self._row_clip = None if self.hides_clients else clip
        return self.descend(
            self.first_w(),
            batch=None,
            epochs=None if self.federation.rounds else RECALIBRATION_EPOCHS,
            lr=self.lr,
            clip=scaling.ROW_CLIP if clip is None else clip,  # not used without privacy
        )

    def first_w(self) -> Floats:
        """Return the parameters of the first round; of a temperature softplus(u) = 1/T = 1."""
        one = self.form == TemperatureScaling.kind
        return np.array([order_preserving.UNIT]) if one else VectorScaling.identity(self.classes)

    def query(self, round_number: int) -> scaling.ScalingGradients:
        """Return the question for the sum of the gradients at w."""
        return scaling.ScalingGradients(self.form, self.w, self.classes, self._row_clip)


class DPTS(_Recalibration):
    """Temperature scaling by DP-SGD, DP-TS (Zhang et al., Algorithm 1 and B.2).

    The paper's: T = 1 at the start, 100 epochs of DP-SGD, a step that falls linearly. From the
    code that its authors published: full batches, so an epoch is a round, and 1/T = log(1 +
    exp(u)), descent in u. Ours: C = 10 and lr 0.5. With their C = 1, which cuts one row in ten to
    less than half, the ECE of a CIFAR-10 probe at epsilon = 8 stays at .052; with their lr 0.1, 100
    steps do not reach the optimum everywhere (.026; on Adult .053; here .019 and .012); with both
    it is .071 (three seeds).

    FedNewton needs four rounds for the same.

    Privacy: as the plan says. Unit "example" (and "subject"): the gradient of a row (and the sum of
    a subject) is clipped to norm C. Unit "user": a client's sum, to max(0.2 m, 3) nats by default.
    Rates and denominators are public: every row takes part in each round, and sums are divided by
    the nominal number of rows.

    Parameters
    ----------
    federation
        public facts and budget; default 100 rounds
    rows_per_client
        m, the public nominal number of rows per client
    lr
        first step
    clip
        C, in nats; without privacy None = no clipping
    preset
        "paper" = lr 0.1 and with privacy C = 1, of the authors' code, where none is given
    """

    name, form = "dp-ts", TemperatureScaling.kind
    wider = 1.0

    def result(self) -> TemperatureScaling:
        """Temperature scaling by T, kept in [1/20, 20]."""
        log_a = math.log(max(float(softplus(self.w)[0]), 1e-300))
        log_a = max(-LOG_A_LIMIT, min(LOG_A_LIMIT, log_a))
        return TemperatureScaling(math.exp(-log_a), self.classes)


class DPPlatt(_Recalibration):
    """Vector scaling by DP-SGD, DP-PS (Zhang et al., B.2; Platt scaling of several classes).

    A slope and an offset for each class, from the identity, by the paper's DP-SGD as in `DPTS`;
    with two classes Platt scaling follows. Ours: C = 10 and lr 1 (with the C = 1 of the authors'
    code the ECE of a CIFAR-10 probe at epsilon = 8 stays at .10; here .020). Predictions may
    change.

    For unit "example": with whole users protected, 2c numbers in 100 rounds drown in noise at all
    but large budgets, and accuracy with them.

    Privacy: as DPTS's; unit "user" clips a client's sum to 5 max(0.2 m, 3) by default.

    Parameters
    ----------
    federation
        public facts and budget; default 100 rounds
    rows_per_client, lr, clip, preset
        as DPTS's, but a first step of 1 if none is given
    """

    name, form = "dp-platt", VectorScaling.kind
    wider = 5.0
    lr: base.Positive = 1.0

    def update(self, release: Release) -> None:
        """One step; no parameter leaves its identity by more than 20."""
        super().update(release)
        identity = self.first_w()
        self.w = np.clip(self.w, identity - parametric.LIMIT, identity + parametric.LIMIT)

    @override
    def result(self) -> VectorScaling:
        return VectorScaling(self.w, self.classes)
