"""Recalibration of models trained with DP-SGD, by DP-SGD (Zhang et al.)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from fedcal.calibrators import TemperatureScaling, VectorScaling
from fedcal.calibrators.order_preserving import UNIT
from fedcal.calibrators.parametric import LIMIT
from fedcal.core.numerics import LOG_A_LIMIT, softplus
from fedcal.core.types import Floats, override
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import Federation
from fedcal.queries import ScalingGradients
from fedcal.queries.scaling import ROW_CLIP
from fedcal.strategies.method import Family, nominal_rows
from fedcal.strategies.methods.steps.descent import Descent
from fedcal.strategies.methods.temperature import gradient_clip
from fedcal.units import UNITS

EPOCHS = 100


class _Recalibration(Descent):
    """Gradient descent on calibration rows; every row takes part in every round."""

    family: ClassVar[Family] = "calibrate"
    form: ClassVar[str]
    keeps_releases = True
    wider: ClassVar[float]
    """A client's clip over that of its gradient in log(1/T)."""
    examples = ({"rows_per_client": 20.0}, {"rows_per_client": 20.0, "clip": 1.0, "lr": 0.1})

    def __init__(
        self,
        federation: Federation,
        *,
        rows_per_client: float | None = None,
        lr: float = 0.5,
        clip: float | None = None,
        **base: Any,
    ) -> None:
        rows = nominal_rows(self.name, rows_per_client)
        self.classes = federation.classes
        whole = federation.private and UNITS[federation.unit].whole_client
        if clip is None and whole:
            clip = self.wider * gradient_clip(self.name, federation, rows_per_client)
        self._row_clip = None if whole else clip
        super().__init__(
            federation,
            self.first_w(federation.classes),
            rows_per_client=rows,
            batch=rows * federation.clients,
            epochs=None if federation.rounds else float(EPOCHS),
            lr=lr,
            schedule="linear",
            optimiser="sgd",
            momentum=0.0,
            weight_decay=0.0,
            clip=ROW_CLIP if clip is None else clip,  # not used without privacy
            **base,
        )

    @staticmethod
    @abstractmethod
    def first_w(classes: int) -> Floats:
        """Return the parameters of the first round."""

    def query(self, round_number: int) -> ScalingGradients:
        """Return the question for the sum of the gradients at w."""
        return ScalingGradients(self.form, self.w, self.classes, self._row_clip)


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
    """

    name, form = "dp-ts", TemperatureScaling.kind
    wider = 1.0

    @staticmethod
    @override
    def first_w(classes: int) -> Floats:
        return np.array([UNIT])

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
    rows_per_client, lr, clip
        as DPTS's, but a first step of 1 if none is given
    """

    name, form = "dp-platt", VectorScaling.kind
    wider = 5.0

    def __init__(self, federation: Federation, *, lr: float = 1.0, **options: Any) -> None:
        super().__init__(federation, lr=lr, **options)

    @staticmethod
    @override
    def first_w(classes: int) -> Floats:
        return VectorScaling.identity(classes)

    def update(self, release: Release) -> None:
        """One step; no parameter leaves its identity by more than 20."""
        super().update(release)
        identity = self.first_w(self.classes)
        self.w = np.clip(self.w, identity - LIMIT, identity + LIMIT)

    @override
    def result(self) -> VectorScaling:
        return VectorScaling(self.w, self.classes)
