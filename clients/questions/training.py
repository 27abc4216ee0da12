"""Questions about a network that is being trained."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import ContributionRefused, same
from fedcal.core.numerics import Floats, Integers, Purpose, Words, stream
from fedcal.core.options import Classes, Positive, Seed, Vector, within
from fedcal.core.shards import Shards
from fedcal.privacy.query import Order, Part, Query
from fedcal.secure_aggregation import Ring
from fedcal.training import networks
from fedcal.units import Bound

FINE = 2.0**-36
"""Step of a row's gradient, in units of the clip rounded to a power of two."""

MOST_EPOCHS, MOST_BATCH, MOST_ROUNDS = 10**4, 2**31, 10**5

_SOFTMAX = {"network": "softmax", "shape": "3", "w": np.linspace(-0.5, 0.5, 12), "classes": 3}
"""Arguments of the examples, of three classes."""


@dataclass(frozen=True, eq=False)
class _OfNetwork(Query):
    """Question about a network on inputs of one shape, at its weights w."""

    facts = ("classes",)

    network: str
    shape: str
    w: Vector
    classes: Classes = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.architecture.size(self.reads, self.classes)
        what = f"{self.network} of {self.classes} classes on {self.shape}"
        same(f"number of weights of the network {what}", len(self.w), size)

    @property
    def architecture(self) -> networks.Network:
        """Network that is trained."""
        return networks.network_named(self.network)

    @property
    def reads(self) -> tuple[int, ...]:
        """Shape of one input of the network."""
        return networks.shape_of(self.shape)

    def inputs(self, shards: Shards) -> NDArray[Any]:
        """Return the rows' inputs, of the shape that the network reads.

        Rows without inputs of their own have the logits of a model that is there already.
        """
        inputs = shards.logits if shards.inputs is None else shards.inputs
        own = networks.text_of(shards.input_shape), shards.classes
        asked = networks.text_of(self.reads), self.classes
        same("inputs that the network reads, and its number of classes,", asked, own)
        return np.asarray(inputs)

    @property
    def key(self) -> str:
        """Digest with the bytes of w, which is long and is in thousands of questions."""
        return self._digest(self.w)

    def _digest(self, w: NDArray[Any]) -> str:
        rest = [value for name, value in self.params().items() if name != "w"]
        return hashlib.sha256(repr((self.kind, *rest)).encode() + w.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Gradients(_OfNetwork):
    """Sum of a client's row gradients of the cross-entropy at w, each bounded (DP-SGD).

    The answer has as many numbers as w. A row adds at most `clip`, bounded by the rule `clipping`;
    where clients or subjects are protected, the sum of each is clipped instead.

    Parameters
    ----------
    network
        architecture, see `network_named`
    shape
        of one input, as "512" or "28x28x1"
    w
        (size,) weights
    clip
        C, norm of what one row may add
    clipping
        "row", "global" or "none" (see `Clipping.factors`)
    reach
        Z of "global": gradients with a larger norm are left out
    classes
        of the model
    """

    kind = "gradients"
    optional = None
    fine = True
    examples = (
        {**_SOFTMAX, "clip": 0.5},
        {**_SOFTMAX, "clip": 0.25, "clipping": "global", "reach": 100.0},
    )

    clip: Positive
    clipping: networks.Rule = "row"
    reach: Positive = 1.0

    @property
    def noise_key(self) -> str:
        """Digest with w in single precision, in which the gradients are computed."""
        return self._digest(self.w.astype(np.float32))

    @property
    def grid(self) -> float:
        """Step of the grid of sums where the plan sets none."""
        return float(FINE * 2.0 ** math.floor(math.log2(self.clip)))

    def lengths(self) -> tuple[int, ...]:
        """Return one block with as many numbers as w."""
        return (len(self.w),)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound: `clip` for a row or a subject, the client's clip for a client.

        Both bound the L2 norm; the L1 bound is the largest L1 norm of a vector of that L2 norm.
        """
        norm = clips[0] if self.takes_clips(part, clips, 1) else self.clip
        if order == 1:
            norm *= math.sqrt(len(self.w))
        return Bound(self.lengths(), (norm,), order=order)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Sum over each client's rows of their bounded gradients, (clients, size), in nats."""
        rows, grid = networks.Clipping(self.clip, self.clipping, self.reach), self.grid
        return np.asarray(self._steps(shards, rows, grid) * grid)

    def _steps(
        self, shards: Shards, rows: networks.Clipping, grid: float, *, factored: bool = False
    ) -> Integers:
        shards, w = shards.ordered, self.w
        if not len(inputs := self.inputs(shards)):
            return np.zeros((shards.clients, len(w)), np.int64)
        of = networks.row_gradients(self.architecture, self.reads, self.classes)
        return of.steps(w, inputs, shards.labels, shards.offsets, rows, grid, factored=factored)

    def row_words(self, shards: Shards, bound: Bound, ring: Ring) -> Words | None:
        """Return the gradients in steps of the ring if rows are bounded, all rows together.

        Formal guarantee: each row adds whole numbers of norm `min(bound.norms)` at most
        (`RowGradients.steps`), and the sum is clamped to what the ring grants a client, which is
        1-Lipschitz. So a row more or less moves a client's answer by no more than the bound.

        Raises ContributionRefused if nothing is bounded (no privacy) and a sum does not fit the
        ring.

        Returns
        -------
        Words
            (clients, size) uint64
        """
        if bound.order != 2:
            return None  # rows are bounded in L2 here
        clip, rule = self.clip, self.clipping
        if bound.finite:  # the norm is the plan's
            clip, rule = min(bound.norms), "row" if rule == "none" else rule
        rows = networks.Clipping(clip, rule, self.reach)
        steps = self._steps(shards, rows, ring.grid, factored=bound.finite)
        if not bound.finite and (np.abs(steps) > ring.limit).any():
            why = f"a sum of gradients does not fit the ring of {ring.clients} clients"
            raise ContributionRefused(f"{why}: take fewer rows or features of a smaller norm")
        return np.clip(steps, -ring.limit, ring.limit).view(np.uint64)


@dataclass(frozen=True, eq=False)
class _OfLocalSGD(_OfNetwork):
    """Question for the result of SGD on a client's own rows, started at w."""

    row_sums = False

    epochs: Annotated[int, within(1, MOST_EPOCHS)]
    batch: Annotated[int, within(1, MOST_BATCH)]
    lr: Positive

    def trained(
        self, shards: Shards, rng: Callable[[int, int], np.random.Generator]
    ) -> Iterator[tuple[int, int, Floats, float]]:
        """Run SGD on the rows of each client that has some.

        `shards` are in order; `rng` is of a client's place and number of rows. Yields the client's
        place, its number of rows, what it adds to w, and the mean loss on the way.
        """
        inputs, sgd = self.inputs(shards), networks.LocalSGD(self.epochs, self.batch, self.lr)
        for k in np.flatnonzero(shards.rows).tolist():
            n, rows = int(shards.rows[k]), slice(int(shards.offsets[k]), int(shards.offsets[k + 1]))
            own = self.w, inputs[rows], shards.labels[rows], self.classes, sgd, rng(k, n)
            yield k, n, *self.architecture.local_update(*own)


@dataclass(frozen=True, eq=False)
class LocalUpdate(_OfLocalSGD):
    """Question for the change of w by SGD on a client's rows (DP-FedAvg, McMahan et al. 2018).

    The answer is (w_k - w) / clip, of norm 1 at most; zeros without rows.

    Parameters
    ----------
    network, shape, w, classes
        as in `Gradients`
    epochs, batch, lr
        of the client's SGD
    clip
        C, norm of the largest update
    seed
        of the order of rows, which differs in each round
    """

    kind = "local_update"
    examples = (
        {**_SOFTMAX, "epochs": 2, "batch": 8, "lr": 0.5, "clip": 0.25, "seed": 3},
        {**_SOFTMAX, "epochs": 1, "batch": 64, "lr": 0.1, "clip": 2.0, "seed": 3},
    )

    clip: Positive
    seed: Seed

    def lengths(self) -> tuple[int, ...]:
        """Return one block with as many numbers as w."""
        return (len(self.w),)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound: 1, for updates are in units of the clip."""
        self.takes_clips(part, clips, 0)
        return Bound(self.lengths(), (1.0,), order=order)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """w_k - w in units of the clip, of norm 1 at most, where w_k is what SGD makes of w.

        (McMahan et al. 2018, Algorithm 1.) The order of a client's rows is public and depends on
        `seed` and on how many rows the client has, so that its answer does not depend on who else
        is asked.

        Returns (clients, size); zeros without rows, and where SGD diverges.
        """
        shards = shards.ordered
        out = np.zeros((shards.clients, len(self.w)))

        def rng(k: int, n: int) -> np.random.Generator:
            return stream(self.seed, Purpose.SAMPLING, 0, f"{n} rows")

        for k, _, update, _ in self.trained(shards, rng):
            norm = float(np.linalg.norm(update)) / self.clip
            if np.isfinite(norm):
                out[k] = update / (self.clip * max(norm, 1.0))
        return out


FARTHEST = 2.0**10
"""Change of a weight by one client's SGD beyond which its training has diverged."""


@dataclass(frozen=True, eq=False)
class WeightedUpdate(_OfLocalSGD):
    """Question for the change of w by SGD on a client's rows, weighted by rows.

    FedAvg (McMahan et al. 2017). The answer is n (w_k - w) for n rows, and three numbers more:
    n times the mean training loss in nats, n, and the number of these rows if the client's training
    diverged; then it adds no update and no loss. All are zeros without rows.

    Parameters
    ----------
    network, shape, w, classes
        as in `Gradients`
    epochs, batch, lr
        of the client's SGD
    seed, round
        with the client's number they determine the order of its rows
    """

    kind = "weighted_update"
    by_site = True
    examples = ({**_SOFTMAX, "epochs": 2, "batch": 8, "lr": 0.5, "seed": 3, "round": 1},)

    seed: Seed
    round: Annotated[int, within(1, MOST_ROUNDS)]

    def lengths(self) -> tuple[int, ...]:
        """Return a block as long as w, and a block with the three sums."""
        return (len(self.w), 3)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the clips of the update and of the three sums."""
        self.takes_clips(part, clips, 2)
        return Bound(self.lengths(), tuple(clips), order=order)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """N (w_k - w) of each client's n rows, n times its mean loss, n, and n where SGD diverged.

        (McMahan et al. 2017, FederatedAveraging.)

        Parameters
        ----------
        sites
            (clients,) the number of each client's site, which the order of its rows follows from;
            None = 0 of all

        Returns
        -------
        Floats
            (clients, size + 3); zeros without rows
        """
        shards, size = shards.ordered, len(self.w)
        out = np.zeros((shards.clients, size + 3))

        def rng(k: int, n: int) -> np.random.Generator:
            site = 0 if sites is None else int(sites[k])
            return stream(self.seed, Purpose.SAMPLING, self.round, f"batches of {site}")

        for k, n, update, loss in self.trained(shards, rng):
            if np.abs(update).max() <= FARTHEST and abs(loss) <= FARTHEST:  # and both are finite
                out[k, :size] = n * update
                out[k, size:] = n * loss, n, 0
            else:
                out[k, size:] = 0, n, n
        return out
