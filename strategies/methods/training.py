"""Training of a network: DP-SGD on the union of the clients' rows."""

from __future__ import annotations

from typing import Any, ClassVar

from fedcal.clients.questions import Gradients
from fedcal.core.checks import one_of, positive, unused
from fedcal.core.errors import InputError
from fedcal.core.types import override
from fedcal.privacy.federation import Federation
from fedcal.strategies.method import Family
from fedcal.strategies.methods.steps.descent import Descent
from fedcal.training.network import RULES, Rule, shape_of
from fedcal.training.networks import network_named
from fedcal.training.optimisers import OPTIMISERS, Schedule
from fedcal.training.trained_model import TrainedModel
from fedcal.units import UNITS

BATCH = 256.0


class FedSGD(Descent):
    """Training by sums of bounded per-example gradients (DP-SGD, Abadi et al. 2016).

    With one client it is DP-SGD in one place; with more, DP-SGD on the union of their rows: the
    clients' sums are added up exactly, so the same rows take the same steps however they are dealt,
    but for who takes part in a round. Without privacy it is SGD with Poisson sampling, and `clip`
    bounds rows all the same; "none" does not.

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
    rows_per_client, epochs, schedule, optimiser, momentum, weight_decay
        as `Descent`
    batch
        rows that are expected to take part in a round; 256, or all where units are no rows
    clip, clipping, reach
        C (1); "row" (per example; the default with privacy), "global" (Bu et al. 2021: rows of
        norm up to Z = `reach` count with C / Z, others not at all), "none" (without privacy only,
        and the default there)
    """

    name = "fedsgd"
    family: ClassVar[Family] = "train"
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

    def __init__(
        self,
        federation: Federation,
        *,
        shape: str | None = None,
        network: str = "softmax",
        rows_per_client: float | None = None,
        batch: float | None = None,
        epochs: float | None = None,
        lr: float | None = None,
        schedule: Schedule = "constant",
        optimiser: str = "sgd",
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        clip: float | None = None,
        clipping: Rule | None = None,
        reach: float | None = None,
        **base: Any,
    ) -> None:
        if clipping is None:
            clipping = "row" if federation.private else "none"
        one_of("clipping", clipping, RULES)
        if clipping == "none":
            unused("clipping 'none'", clip=clip)
        if clipping != "global":
            unused(f"clipping '{clipping}' has no reach", reach=reach)
        if clipping == "none" and federation.private:
            raise InputError("clipping 'none' bounds nothing: it needs epsilon = inf")
        if federation.private and UNITS[federation.unit].per != "row":
            unused(f"all rows take part in each round for unit '{federation.unit}'", batch=batch)
        elif batch is None:
            batch = BATCH
        self.network, architecture = network, network_named(network)
        self.classes, self.clipping = federation.classes, clipping
        self.shape = str(self.classes if shape is None else shape)  # --set may give a number
        self.reach = 1.0 if reach is None else positive("reach", reach)
        if one_of("optimiser", optimiser, OPTIMISERS) and OPTIMISERS[optimiser].by_noise:
            unused(f"the optimiser {optimiser} takes its step from the noise", lr=lr)
        start = architecture.initial(shape_of(self.shape), self.classes, federation.seed)
        super().__init__(
            federation,
            start,
            rows_per_client=rows_per_client,
            batch=batch,
            epochs=epochs if epochs is not None or federation.rounds else 10.0,
            lr=architecture.lr if lr is None else lr,
            schedule=schedule,
            optimiser=optimiser,
            momentum=momentum,
            weight_decay=weight_decay,
            clip=1.0 if clip is None else clip,
            **base,
        )

    @override
    def query(self, round_number: int) -> Gradients:
        more = self.clip, self.clipping, self.reach
        return Gradients(self.network, self.shape, self.w, *more, classes=self.classes)

    @property
    @override
    def reads(self) -> tuple[int, ...]:
        return shape_of(self.shape)

    @override
    def result(self) -> TrainedModel:
        return TrainedModel(self.network, shape_of(self.shape), self.classes, self.w)
