"""Torch modules as one flat vector of weights, SGD on a client's own rows, and row gradients.

Imported only where a model is trained: it needs torch and Opacus.

Sums of bounded gradients of single rows are in whole numbers: DP-SGD (Abadi et al. 2016). Opacus
gives the gradient of each row; here it is clipped, truncated toward zero onto a grid, checked, and
added up exactly. Of a dense layer, whose gradient is the product of what goes in and what comes
back, the two factors may be truncated instead: the products of their integers are the row's whole
numbers, the product of their norms is its norm, and one exact product of matrices adds up all rows.

Formal guarantee. Neighbours are zero-out: a row leaves an empty row in its slot, which adds
nothing. Rows are computed in chunks of `CHUNK` or `WIDE` slots, of one client each, in fixed
order, the last one filled up with zeros, on one thread. What a row adds has norm C / grid at most,
checked before it is added. That it does not depend on what is in the other slots of its chunk is a
property of the module and of the kernels of this machine: `RowGradients.check` tries it, and
refuses the module if replacing one row moves a single bit of another's gradient. Without that no
norm would bound a neighbour: a last bit of a hidden unit can switch a ReLU, and move a row by 2C.

A row adds zeros if its gradient is 0 or not finite, if its slot is empty, and, with clipping
"global", if its norm is above Z.
"""

import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from itertools import pairwise, product, starmap
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

WIDE, FEW_WEIGHTS = 5 * CHUNK, 2**14
"""Slots where a network has few weights and its gradients are factors: a batch of 256 fits."""

LEAST_FACTORED, MOST_FACTORED = 2.0**32, 2.0**40
"""Steps of the grid in a clip norm between which factors are precise, and `WIDE` rows exact."""

LEAST_STEPS, MOST_STEPS = 2.0**20, 2.0**47
"""Steps of the grid in a clip norm: fewer lose too much, and more leave no exact sums."""

_Parts = list[tuple[slice, torch.Size, Tensor]]
"""Place of a parameter, and its row gradients, (n, numbers); or its shape, and the gradients of n
rows as two factors side by side, (n, outputs + inputs)."""


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
            self._model = _GradSamples(module, loss_reduction="sum")
        except (NotImplementedError, ValueError) as e:
            line = " ".join(str(e).split()).partition(". ")[0]
            raise InputError(f"the model {network.name} has no gradients of rows: {line}") from None
        self._module, self._network = module, network
        self._shape, self._classes = shape, classes
        self._parameters: list[Any] = list(module.parameters())
        self._size = sum(p.numel() for p in self._parameters)
        self._checked = set[int]()

    def steps(
        self,
        w: Floats,
        x: NDArray[Any],
        y: Integers,
        offsets: Integers,
        clipping: Clipping,
        grid: float,
        *,
        factored: bool = False,
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
        factored
            truncate the two factors of a dense layer's gradient, each to about (C / grid)^(1/2)
            steps, and multiply them as integers: quick, and off by about 1e-4 of the row's norm

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
        factored = factored and LEAST_FACTORED <= clipping.norm / grid <= MOST_FACTORED
        slots = WIDE if factored and self._size <= FEW_WEIGHTS else CHUNK
        self.check(x, slots)
        if clipping.rule != "none":
            allowed = interval(f"[{LEAST_STEPS}, {MOST_STEPS}]")
            allowed("the clip norm, in steps of the grid,", clipping.norm / grid)
        sums = np.zeros((len(offsets) - 1, self._size), np.int64)
        inputs, labels = self._network.tensor(x), torch.from_numpy(np.asarray(y, np.int64))
        with one_thread():
            set_weights(self._module, w)
            for k, (first, end) in enumerate(pairwise(offsets.tolist())):
                for start in range(first, end, slots):
                    some = slice(start, min(start + slots, end))
                    parts = self._gradients(inputs[some], labels[some], slots)
                    if not factored:
                        parts = list(starmap(_expanded, parts))
                    total = self._sum(self._rows(parts, len(labels[some]), clipping, grid))
                    if clipping.rule == "none" and float(total.abs().max()) > 2.0**61:
                        raise ContributionRefused(
                            "a gradient without a bound is too large: scale the features"
                        )
                    sums[k] += total.long().numpy()
        return sums

    def _rows(self, gradients: _Parts, n: int, clipping: Clipping, grid: float) -> _Parts:
        """Return what each of n rows adds, as numbers or as factors."""
        parts = [(place, shape, part[:n].double()) for place, shape, part in gradients]
        factors = clipping.factors(_lengths(parts).numpy()) / grid
        for _, shape, part in parts:
            numbers = part.mul_(_scales(part, shape, torch.from_numpy(factors)[:, None])).numpy()
            np.trunc(numbers, out=numbers)  # torch's takes twenty times as long
            numbers[factors == 0.0] = 0.0  # they may be infinite
        if clipping.rule != "none":
            over = ~(_lengths(parts).numpy() <= clipping.norm / grid * (1.0 - 2.0**-25))
            for *_, part in parts:
                part.numpy()[over] = 0.0
        return parts

    def _sum(self, parts: _Parts) -> Tensor:
        """Return the sum over rows, (size,), exact for whole numbers below 2^53."""
        total = torch.zeros(self._size, dtype=torch.float64)
        for place, shape, part in parts:
            one, *other = _sides(part, shape)
            total[place] = (one.T @ other[0]).ravel() if other else one.sum(0)
        return total

    def _gradients(self, x: Tensor, y: Tensor, slots: int = CHUNK) -> _Parts:
        """Return place and shape of each parameter that is used, and its gradients or factors."""
        n = len(y)
        full = torch.zeros((slots, *x.shape[1:]), dtype=x.dtype)  # a model may write to it
        full[:n] = x
        for parameter in self._parameters:
            parameter.grad = parameter.grad_sample = None
        with blamed(f"the model {self._network.name}, on rows of shape {text_of(self._shape)},"):
            labels = nn.functional.pad(y, (0, slots - n))
            loss = nn.functional.cross_entropy(self._model(full), labels, reduction="sum")
            loss.backward()  # type: ignore[no-untyped-call]
        start, parts = 0, []
        for parameter in self._parameters:
            place, shape = slice(start, start + parameter.numel()), parameter.shape
            start = place.stop
            if (part := parameter.grad_sample) is not None:
                numbers, factors = part.detach().flatten(1), part.dim() == len(shape)
                parts.append((place, shape if factors else numbers.shape[1:], numbers))
        return parts

    def check(self, x: NDArray[Any], slots: int = CHUNK) -> None:
        """Try once whether a row's gradient depends on its neighbours.

        One row of a full chunk is replaced by zeros and by extremes, in several slots; all others
        must keep all bits of theirs, and the first chunk again after all of them. The rows
        are drawn, in the type of `x` (n, ...), so that a refusal tells of no real row.

        Raises InputError if they do not, if the module's state changes, or if Opacus's gradients
        are not those of PyTorch.
        """
        if slots in self._checked:
            return
        rng = np.random.default_rng(0)
        drawn = rng.normal(size=(slots, *self._shape))
        if x.dtype.kind != "f":
            drawn = np.round(np.abs(drawn) % 1.0)  # codes that every embedding has
        rows = self._network.tensor(drawn.astype(x.dtype))
        labels = torch.from_numpy(rng.integers(0, self._classes, slots))
        w = rng.normal(0, 0.3, self._size)
        weights = rng.integers(-(2**31), 2**31, 2 * self._size)
        most = torch.finfo(torch.float32).max
        extremes = (0.0, 1e4, most, -most) if rows.is_floating_point() else (0, 1)  # maybe codes

        def digests(chunk: Tensor) -> Integers:
            """Return a hash of the bits of each row's gradient, (slots,)."""
            parts = self._gradients(chunk, labels, slots)
            numbers = torch.cat([part for *_, part in parts], 1) + 0.0  # -0 is 0
            found: Integers = numbers.view(torch.int32).numpy() @ weights[: numbers.shape[1]]
            return found

        with one_thread():
            set_weights(self._module, w)
            before = {name: value.clone() for name, value in self._module.state_dict().items()}
            first = digests(rows)
            self._compare_with_autograd(self._gradients(rows, labels, slots))
            same = True
            for slot, value in product((0, slots // 2 + 1, slots - 1), extremes):
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
        self._checked.add(slots)

    def _compare_with_autograd(self, parts: _Parts) -> None:
        """Refuse a module whose weights are used where Opacus does not see it."""
        sums = torch.split(self._sum(parts), [p.numel() for p in self._parameters])
        for ours, p in zip(sums, self._parameters, strict=True):
            theirs = torch.zeros(len(ours)) if p.grad is None else p.grad.ravel()
            if not (ours - theirs).norm() <= 1e-3 * theirs.norm() + 1e-5:
                raise InputError(
                    f"Opacus has no gradients of rows for the model {self._network.name}: a weight "
                    "is used outside of its layer"
                )


_norms = partial(torch.linalg.vector_norm, dim=1)
_sides = partial(torch.split_with_sizes, dim=1)


def _dense(layer: Any, activations: list[Tensor], backprops: Tensor) -> dict[Any, Tensor]:
    """Return a dense layer's row gradients by their factors (n, outputs + inputs), if it has two.

    As einsum does, their product rounds once, and that can wait until few rows are in the cache.
    """
    (inputs,), w = activations, layer.weight
    made: dict[Any, Tensor] = {} if layer.bias is None else {layer.bias: backprops}
    if inputs.dim() > 2 or w._forward_counter > 1 or hasattr(w, "_current_grad_sample"):
        made = GradSampleModule.GRAD_SAMPLERS[nn.Linear](layer, activations, backprops)
    else:
        made[w] = torch.cat([backprops, inputs], 1)
    return made


class _GradSamples(GradSampleModule):  # type: ignore[misc]
    GRAD_SAMPLERS = dict(GradSampleModule.GRAD_SAMPLERS) | {nn.Linear: _dense}


def _expanded(place: slice, shape: torch.Size, part: Tensor) -> tuple[slice, torch.Size, Tensor]:
    if len(shape) == 2:
        part = (part[:, : shape[0], None] * part[:, None, shape[0] :]).flatten(1)
    return place, part.shape[1:], part


def _scales(part: Tensor, shape: torch.Size, factors: Tensor) -> Tensor:
    """Return what a row's numbers are multiplied by, (n, 1) or (n, numbers)."""
    if len(shape) < 2:
        return factors
    left, right = (_norms(one)[:, None] for one in _sides(part, shape))
    right = right.clamp(min=torch.finfo(torch.float32).tiny)
    half = (left * right * factors).sqrt().clamp(min=1.0)  # norm of either factor, in steps
    both = [(factors * right / half).expand(-1, shape[0]), (half / right).expand(-1, shape[1])]
    return torch.cat(both, 1)


def _lengths(parts: _Parts) -> Tensor:
    """Return the norm of each row over all parameters, (n,)."""
    one = torch.ones(1)
    norms = [math.prod(map(_norms, _sides(part, shape)), start=one) for _, shape, part in parts]
    # twice side by side: torch adds up a single column in another order
    lengths: Tensor = torch.stack(norms).repeat(1, 2).norm(dim=0)[: len(norms[0])]
    return lengths
