"""Questions about scaling calibrators with a vector of parameters w."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedcal.calibrators import base, minimisers, scaling
from fedcal.calibrators import order_preserving as mlp
from fedcal.calibrators.parametric import LocalLosses, ParametricScaling, local_fits, rows_of
from fedcal.clients.questions import temperature
from fedcal.core import checks, fitting
from fedcal.core.numerics import Floats, Integers
from fedcal.core.options import Classes, NotNegative, Positive, Seed, Vector, within
from fedcal.core.shards import Shards
from fedcal.privacy.query import Order, Part, Query, Summed
from fedcal.units import Bound, bounded

ROW_CLIP = 10.0
"""Bound of one row's gradient for descent, in nats: one row in a hundred reaches it for a model
that was trained with small gradients (a CIFAR-10 probe by DP-SGD), and 1 would clip most errors."""

_VECTOR = np.array([1.25, 0.75, 1.0, -0.5, 0.0, 0.25])

_MATRIX = np.concatenate([np.eye(3).ravel() + np.linspace(-0.125, 0.125, 9), [0.25, 0.0, -0.25]])

_MLP = np.linspace(-0.25, 0.25, 129 * 3 + 4224)
"""Parameters of three classes, for the examples."""

_FIT = {"proximal": 0.0, "steps": 8, "count": False}


def form_of(kind: Any) -> type[ParametricScaling]:
    """Return the class of the scaling calibrator of this kind, or InputError."""
    forms = {k: form for k, form in base.kinds().items() if issubclass(form, ParametricScaling)}
    return forms[checks.one_of("form", kind, forms)]


Form = Annotated[str, lambda _, value: form_of(value).kind]


class _OfForm(Query):
    """Question at the parameters w of a scaling calibrator."""

    w: Vector
    form: str
    classes: int

    def _check_size(self, size: int) -> None:
        """Refuse a number of parameters that differs from that of the form."""
        checks.same(_parameters(self.form, self.classes), len(self.w), size)


@dataclass(frozen=True, eq=False)
class ScalingUpdate(_OfForm, temperature.Update):
    """Question for the difference of a client's own optimum from w (Maddock et al., Algorithm 2).

    The answer has as many numbers as w and, with `count`, a 1 if the client has rows. `bound` needs
    the clip of the update.

    Parameters
    ----------
    w
        (size,) global parameters
    form
        kind of calibrator
    proximal
        weight of the distance from w, >= 0
    steps
        maximum evaluations of a local fit
    count
        send also whether there are rows (without privacy, where the mean is over clients with rows)
    """

    kind = "scaling_update"
    learned = ("w",)
    examples = (
        {"form": "vector", "w": _VECTOR, **_FIT, "steps": 50, "count": True},
        {"form": "vector", "w": _VECTOR, **_FIT, "proximal": 1.0, "steps": 20},
        {"form": "matrix", "w": _MATRIX, **_FIT, "proximal": 0.5},
        {"form": "order-preserving-vector", "w": _VECTOR, **_FIT},
    )

    w: Vector
    form: Form
    proximal: NotNegative
    steps: Annotated[int, within(1, temperature.MOST_STEPS)]
    count: bool

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """u_k = w - w_k, how far the client's own optimum is from the global parameters w.

        (Maddock et al., Algorithm 2 and B.2.) A client without rows sends zeros. What is sent is
        one optimum for each client; the plan's bound clips it afterwards.

        Returns (clients, size) or, with `count`, (clients, size + 1).
        """
        form, w, shards = _form(shards, self), self.w, shards.ordered
        update = w - local_fits(form, shards, w, proximal=self.proximal, steps=self.steps)
        return self.counted(update, shards)


@dataclass(frozen=True, eq=False)
class MLPUpdate(_OfForm, temperature.Update):
    """Question for the change of w by SGD on a client's rows (Maddock et al.; Peng et al.).

    Numbers and bound are those of `ScalingUpdate`.

    Parameters
    ----------
    w
        (size,) global parameters
    epochs, batch, lr
        of SGD
    seed
        of the order of rows, which differs in each round
    count
        send also whether there are rows (without privacy, where the mean is over clients with rows)
    """

    kind = "mlp_update"
    learned = ("w",)
    examples = (
        {"w": _MLP, "epochs": 2, "batch": 64, "lr": 0.05, "seed": 7, "count": True},
        {"w": 0.5 * _MLP, "epochs": 1, "batch": 8, "lr": 0.05, "seed": 7, "count": False},
    )

    w: Vector
    epochs: Annotated[int, within(1, 10**4)]
    batch: Annotated[int, within(1, 2**31)]
    lr: Positive
    seed: Seed
    count: bool

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Return u_k = w - w_k, where w_k results from SGD on the client's rows from w.

        (Maddock et al., Algorithm 2 and B.2; Peng et al. 2024.) A client without rows sends zeros.
        The order of a client's rows is public and depends on `seed` and on how many rows the client
        has, so that its answer does not depend on who else is asked.

        Returns (clients, size) or, with `count`, (clients, size + 1).
        """
        w, batch, shards = self.w, self.batch, shards.ordered
        out = np.zeros((shards.clients, len(w)))
        y, rank = rows_of(mlp.OrderPreservingMLP, shards)
        sizes = np.unique(shards.rows[shards.rows > 0]).tolist()
        orders = {n: mlp.batches(n, self.epochs, batch, self.seed) for n in sizes}
        for ids in _groups(shards.rows, batch):
            trained = np.repeat(w[None], len(ids), axis=0)
            plans = [orders[n] for n in shards.rows[ids].tolist()]
            first = shards.offsets[ids, None]
            for t in range(len(plans[0][0])):
                going = [plan for plan in plans if t < len(plan[0])]
                k = len(going)  # those with more steps stand first
                rows = np.stack([order[t] for order, _ in going]) + first[:k]
                weights = np.stack([weight[t] for _, weight in going])
                mlp.sgd_step(trained[:k], y[rows], rank[rows], weights, self.lr)
            out[ids] = w - trained
        return self.counted(out, shards)


@dataclass(frozen=True, eq=False)
class ScalingNewton(_OfForm, temperature.Newton):
    """Gradient and Gauss-Newton curvature of the negative log-likelihood at w, in nats.

    The curvature is its upper triangle, row by row. `bound` needs the clip of a client's gradient;
    all numbers are clipped together.

    Parameters
    ----------
    form
        kind of calibrator
    w
        (size,) parameters
    classes
        of the model
    """

    kind = "scaling_newton"
    examples = (
        {"form": "entropy-temperature", "w": np.array([0.25, -0.5]), "classes": 3},
        {"form": "entropy-temperature", "w": np.array([2.0, -9.0]), "classes": 3},
        {"form": "vector", "w": _VECTOR, "classes": 3},
    )

    form: Form
    w: Vector
    classes: Classes

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_size(form_of(self.form).size(self.classes))

    def lengths(self) -> tuple[int, ...]:
        """Return blocks G, H."""
        size = len(self.w)
        return (size, size * (size + 1) // 2)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Gradient and Gauss-Newton curvature, at w, of the client's negative log-likelihood.

        Ours: sums, not optima, so that the federation's sum is that of the pooled rows, however
        they are dealt.

        Returns (clients, size + size (size + 1) / 2) in nats.
        """
        form, w, shards = _form(shards, self), self.w, shards.ordered
        out = np.zeros((shards.clients, sum(self.lengths())))
        rows_of(form, shards)  # computed once, carried along by `take`
        ids = np.flatnonzero(shards.rows)
        part = shards.take(ids)
        losses = LocalLosses(form, *rows_of(form, part), part.rows, w)
        at = np.tile(w, (len(ids), 1))
        out[ids, : len(w)] = losses.value(at)[1]
        out[ids, len(w) :] = losses.triangle(at)
        return out


@dataclass(frozen=True, eq=False)
class ScalingGradients(_OfForm, Summed):
    """Gradient of the negative log-likelihood at w, in nats, summed over rows (DP-SGD).

    The answer has as many numbers as w. `bound` needs the clip of a client's sum.

    Parameters
    ----------
    form
        kind of calibrator. A "temperature" has one number u, 1/T = log(1 + exp(u)), so that
        T > 0 wherever steps lead (as in the code that Zhang et al. published)
    w
        (size,) parameters
    classes
        of the model
    clip
        C, norm that each row's gradient is clipped to; None = as in `bound`
    """

    kind = "scaling_gradients"
    facts = ("classes",)
    examples = (
        {"form": "temperature", "w": np.array([0.5]), "classes": 3, "clip": 2.0},
        {"form": "temperature", "w": np.array([-0.25]), "classes": 3},
        {"form": "vector", "w": _VECTOR, "classes": 3, "clip": 0.5},
    )

    form: str
    w: Vector
    classes: Classes
    clip: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one = self.form == scaling.TemperatureScaling.kind
        self._check_size(1 if one else form_of(self.form).size(self.classes))

    def lengths(self) -> tuple[int, ...]:
        """Return one block with as many numbers as w."""
        return (len(self.w),)

    def added(self, part: Part, order: Order) -> float:
        """Return `clip`, or 10 nats, for a row or a subject."""
        return self.clip or ROW_CLIP

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Gradient at w of the negative log-likelihood, summed over each client's rows.

        With `clip` each row's gradient is clipped to that norm before (DP-SGD, Abadi et al. 2016).

        Returns (clients, size) in nats.
        """
        of_rows = _gradients(shards, self)
        size = of_rows.shape[1]
        if self.clip is not None:
            of_rows = bounded(of_rows, Bound((size,), (self.clip,)))
        return np.stack([shards.sum_rows(of_rows[:, j]) for j in range(size)], axis=1)


def _gradients(shards: Shards, query: ScalingGradients) -> Floats:
    """Return the gradient of each row, (n, size)."""
    if query.form == scaling.TemperatureScaling.kind:
        a, slope = fitting.softplus(query.w)[0], fitting.sigmoid(query.w)[0]
        mean, _ = fitting.tempered_moments(temperature.shifted_logits(shards), a)
        return np.asarray(slope * (mean - temperature.label_logits(shards)))[:, None]
    form = _form(shards, query)
    x, columns = rows_of(form, shards)
    return form.pull_back(x, query.w, minimisers.residuals(form.scores(x, query.w), columns)[1])


def _form(
    shards: Shards, query: ScalingUpdate | ScalingNewton | ScalingGradients
) -> type[ParametricScaling]:
    """Return the form of scaling; InputError if its parameters do not fit such rows."""
    form = form_of(query.form)
    checks.same(_parameters(form.kind, shards.classes), query.w.size, form.size(shards.classes))
    return form


def _parameters(form: str, classes: int) -> str:
    return f"number of parameters of {form} scaling of {classes} classes"


_TOGETHER = 8  # clients trained at once: their parameters and mlp.batches stay in the cache


def _groups(rows: Integers, batch: int) -> list[Integers]:
    """Clients with rows, a few at a time: of one batch width, those with more steps first."""
    some = np.flatnonzero(rows)
    shapes = [mlp.batch_shape(n, batch) for n in rows[some].tolist()]
    widths = np.array([width for _, _, width in shapes], np.int64)
    steps = np.array([per_epoch for per_epoch, _, _ in shapes], np.int64)
    groups = []
    for width in np.unique(widths).tolist():
        alike = np.flatnonzero(widths == width)
        ids = some[alike[np.argsort(-steps[alike], kind="stable")]]
        groups += [ids[i : i + _TOGETHER] for i in range(0, len(ids), _TOGETHER)]
    return groups
