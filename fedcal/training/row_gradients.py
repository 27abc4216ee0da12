"""Torch modules as one flat vector of weights, SGD on a client's own rows, and row gradients.

Imported only where a model is trained: it needs torch and Opacus.

Sums of bounded gradients of single rows are in whole numbers: DP-SGD (Abadi et al. 2016). Opacus
gives the gradient of each row; here it is clipped, truncated toward zero onto a grid, checked, and
added up exactly.

Formal guarantee. Neighbours are zero-out: a row leaves an empty row in its slot, which adds
nothing. Rows are computed in chunks of `CHUNK` slots, of one client each and in a fixed order, the
last one filled up with zeros, on one thread. What a row adds has norm C / grid at most, checked
before it is added. That it does not depend on what is in the other slots of its chunk is a property
of the module and of the kernels of this machine: `RowGradients.check` tries it, and refuses the
module if replacing one row moves a single integer of another. Without that no norm would bound a
neighbour: a last bit of a hidden unit can switch a ReLU, and so move a row by 2C.

A row adds zeros if its gradient is 0 or not finite, if its slot is empty, and, with clipping
"global", if its norm is above Z.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule
from opacus.validators import ModuleValidator
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedcal.core.checks import ContributionRefused, InputError, blamed, interval
from fedcal.core.numerics import Floats, Integers, Purpose, stream
from fedcal.training.networks import Clipping, LocalSGD, Network, text_of

CHUNK = 64
"""Slots for rows that are computed together."""

LEAST_STEPS, MOST_STEPS = 2.0**20, 2.0**47
"""Steps of the grid in a clip norm: fewer lose too much, and more leave no exact sums."""

_TRIED = (0, CHUNK // 2 + 1, CHUNK - 1)
_WEIGHTS = 2**31  # below which the random weights of a digest are


_LOCK = threading.RLock()  # modules are shared by all threads of a process


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch adds up on one thread, for one caller: the same bits on machines of any size."""
    with _LOCK, warnings.catch_warnings():  # nobody needs the gradient of the rows
        warnings.filterwarnings("ignore", "Full backward hook is firing")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


@contextmanager
def drawn_by(seed: int) -> Iterator[None]:
    """Let torch draw by a seed, without changing other random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, Purpose.SAMPLING, 0, "weights").integers(2**62)))
        yield


def weights_of(model: nn.Module) -> Floats:
    """All parameters in one vector, (size,), in the order of `model.parameters()`."""
    flat = parameters_to_vector(model.parameters()).detach()
    return np.asarray(flat.numpy(), np.float64)


def set_weights(model: nn.Module, w: Floats) -> None:
    """Give a model the parameters that `weights_of` returned, rounded to its own precision."""
    vector_to_parameters(torch.from_numpy(w.astype(np.float32)), model.parameters())


def descend(
    model: nn.Module, x: Tensor, labels: Integers, sgd: LocalSGD, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Plain SGD on the cross-entropy, in batches of shuffled rows.

    Returns
    -------
    tuple[Floats, float]
        Floats
            What it adds to the weights, (size,).
        float
            The mean loss over all rows seen.
    """
    most = torch.finfo(torch.float32).max  # beyond it all diverges, too
    optimiser = torch.optim.SGD(model.parameters(), lr=min(sgd.lr, most))
    start, total, y = weights_of(model), 0.0, torch.from_numpy(np.array(labels))
    model.train()
    with drawn_by(int(deepcopy(rng).integers(2**62))):  # dropout
        for _ in range(sgd.epochs):
            for rows in torch.split(torch.from_numpy(rng.permutation(len(y))), sgd.batch):
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                total += float(loss.detach()) * len(rows)
    return weights_of(model) - start, total / (sgd.epochs * len(y))


def logits_of(model: nn.Module, x: Tensor, block: int = 256) -> Tensor:
    """(n, classes) logits of rows, `block` at a time."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(rows) for rows in torch.split(x, block)])


class RowGradients:
    """A network whose gradients are computed row by row.

    Raises InputError if a layer mixes rows, as batch normalisation does, or Opacus has no gradients
    of its rows.
    """

    def __init__(self, network: Network, shape: tuple[int, ...], classes: int) -> None:
        module = network.module(shape, classes, 0)
        try:
            if errors := ModuleValidator.validate(module.train(), strict=False):
                raise ValueError(errors[0])
            for layer in module.modules():
                if "Dropout" in type(layer).__name__:
                    layer.eval()
            self._model = GradSampleModule(module, loss_reduction="sum")
        except (NotImplementedError, ValueError) as e:
            line = " ".join(str(e).split()).partition(". ")[0]
            raise InputError(f"the model {network.name} has no gradients of rows: {line}") from None
        self._module, self._network = module, network
        self._shape, self._classes = shape, classes
        self._parameters: list[Any] = list(module.parameters())
        self._size = sum(p.numel() for p in self._parameters)
        self._checked = False

    def steps(
        self,
        w: Floats,
        x: NDArray[Any],
        y: Integers,
        offsets: Integers,
        clipping: Clipping,
        grid: float,
    ) -> Integers:
        """Return sums over each client's rows of bounded gradients, in whole steps of a grid.

        The gradient is that of the row's cross-entropy, in nats. Each row adds whole numbers to
        its client's sum, of norm C / grid at most.

        Parameters
        ----------
        w
            (size,)
        x, y
            inputs (n, ...) and labels (n,), sorted by client
        offsets
            (clients + 1,) rows of client k are offsets[k]:offsets[k + 1]

        Returns
        -------
        Integers
            (clients, size)

        Raises
        ------
        InputError
            If the grid is too coarse, or too fine, for the clip norm.
        ContributionRefused
            If nothing bounds the rows and a sum leaves 63 bits.
        """
        self.check(x)
        if clipping.rule != "none":
            allowed = interval(f"[{LEAST_STEPS}, {MOST_STEPS}]")
            allowed("the clip norm, in steps of the grid,", clipping.norm / grid)
        sums = np.zeros((len(offsets) - 1, self._size), np.int64)
        inputs, labels = self._network.tensor(x), torch.from_numpy(np.asarray(y, np.int64))
        with one_thread():
            set_weights(self._module, w)
            for k, (first, end) in enumerate(pairwise(offsets.tolist())):
                for start in range(first, end, CHUNK):
                    some = slice(start, min(start + CHUNK, end))
                    for place, integers in self._rows(inputs[some], labels[some], clipping, grid):
                        total = integers.sum(0)  # exact below 2^53, which a bound grants
                        if clipping.rule == "none" and float(total.abs().max()) > 2.0**61:
                            raise ContributionRefused(
                                "a gradient without a bound is too large: scale the features"
                            )
                        sums[k, place] += total.long().numpy()
        return sums

    def _rows(
        self, x: Tensor, y: Tensor, clipping: Clipping, grid: float
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield the place of some parameters, and what each row adds there, (CHUNK, numbers)."""
        n = len(y)
        parts = list(self._gradients(x, y))
        norms = torch.stack([_norms(part) for _, part in parts]).norm(dim=0).numpy()
        factors = np.where(np.arange(CHUNK) < n, clipping.factors(norms), 0.0) / grid
        used = torch.from_numpy(factors > 0.0)
        scale = torch.from_numpy(factors)[:, None]
        integers = []
        for place, part in parts:
            steps = (part * scale).trunc_()
            if not used.all():
                steps[~used] = 0.0  # their numbers may be infinite
            integers.append((place, steps))
        if clipping.rule != "none":
            lengths = torch.stack([_norms(steps) for _, steps in integers]).norm(dim=0)
            over = ~(lengths <= clipping.norm / grid * (1.0 - 2.0**-25))
            if over.any():
                for _, steps in integers:
                    steps[over] = 0.0
        yield from integers

    def _gradients(self, x: Tensor, y: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield the place of each parameter that is used, and the gradients of CHUNK slots."""
        n = len(y)
        if n < CHUNK:
            full = torch.zeros((CHUNK, *x.shape[1:]), dtype=x.dtype)
            full[:n] = x
            x, y = full, nn.functional.pad(y, (0, CHUNK - n))
        for parameter in self._parameters:
            parameter.grad = parameter.grad_sample = None
        with blamed(f"the model {self._network.name}, on rows of shape {text_of(self._shape)},"):
            logits = self._model(x.clone() if n == CHUNK else x)
            loss = nn.functional.cross_entropy(logits, y, reduction="sum")
            loss.backward()  # type: ignore[no-untyped-call]
        start = 0
        for parameter in self._parameters:
            place = slice(start, start + parameter.numel())
            start = place.stop
            if parameter.grad_sample is not None:
                yield place, parameter.grad_sample.detach().reshape(CHUNK, -1).double()

    def check(self, x: NDArray[Any]) -> None:
        """Try once whether a row's integers depend on its neighbours.

        One row of a full chunk is replaced by zeros and by extremes, in several slots; all others
        must add the same integers, and the first chunk again the same after all of them. The rows
        are drawn, in the type of `x` (n, ...), so that a refusal tells of no real row.

        Raises InputError if they do not, if the module's state changes, or if Opacus's gradients
        are not those of PyTorch.
        """
        if self._checked:
            return
        rng = np.random.default_rng(0)
        drawn = rng.normal(size=(CHUNK, *self._shape))
        if x.dtype.kind != "f":
            drawn = np.round(np.abs(drawn) % 1.0)  # codes that every embedding has
        rows = self._network.tensor(drawn.astype(x.dtype))
        labels = torch.from_numpy(rng.integers(0, self._classes, CHUNK))
        w = rng.normal(0, 0.3, self._size)
        weights = rng.integers(-_WEIGHTS, _WEIGHTS, self._size)
        clipping, most = Clipping(1.0), torch.finfo(torch.float32).max
        extremes = (0.0, 1e4, most, -most) if rows.is_floating_point() else (0, 1)  # maybe codes

        def digests(chunk: Tensor) -> Integers:
            """Return a hash of each row's integers, (CHUNK,)."""
            total = np.zeros(CHUNK, np.int64)
            for place, integers in self._rows(chunk, labels, clipping, 2.0**-36):
                total += integers.long().numpy() @ weights[place]
            return total

        with one_thread():
            set_weights(self._module, w)
            before = {name: value.clone() for name, value in self._module.state_dict().items()}
            first = digests(rows)
            self._compare_with_autograd()
            same = True
            for slot in _TRIED:
                for value in extremes:
                    changed = rows.clone()
                    changed[slot] = value
                    moved = digests(changed) != first
                    moved[slot] = False
                    same = same and not moved.any()
            same = same and np.array_equal(digests(rows), first)
            after = self._module.state_dict()
        if not same or not all(torch.equal(x, after[name]) for name, x in before.items()):
            raise InputError(
                f"the gradient of a row by the model {self._network.name} depends on other rows on "
                "this machine: it mixes or keeps rows, changes its own state, or draws random "
                "numbers"
            )
        self._checked = True

    def _compare_with_autograd(self) -> None:
        """Refuse a module whose weights are used where Opacus does not see it."""
        for parameter in self._parameters:
            rows = parameter.grad_sample
            ours = torch.zeros_like(parameter) if rows is None else rows.sum(0)
            theirs = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            if not (ours - theirs).norm() <= 1e-3 * theirs.norm() + 1e-5:
                raise InputError(
                    f"Opacus has no gradients of rows for the model {self._network.name}: a weight "
                    "is used outside of its layer"
                )


def _norms(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norms
