"""Random divisions of a data set into sources and test rows; and methods, over many trials at once.

Sums over the sources in, test ECE out. The methods are those of Luo et al.:

* `none`: the model as it is;
* `one-source`: the temperature with the least negative log-likelihood on the rows of one source,
  without privacy: the optimum on a fine grid of temperatures in [0.5, 3]. (The paper does not say
  how it recalibrates here. Nothing is clipped: a clip serves privacy alone.)
* `histogram`: (correct, total) in 15 bins;
* `ece-t`, `nll-t`, `acc-t`: golden section search on the noisy objective.

Sensitivity, evaluations and noise are those of the strategy's own plan for so many clients of unit
`example`, under trust `local` (each source is the trusted curator of its rows, and adds its own
draw to every answer, as in the paper) or `central` (one draw on the exact sum; the same law where
the sources add shares of it). Instead of each source's draw that of their sum is drawn.

What a data set gives at every temperature that a search can reach is computed once: a search of six
evaluations can reach few. With the gap (correct - confidence), its bin and the loss of every row at
each of them, a trial is nothing but sums of table entries.

Entries are rounded to multiples of 2**-30, so that sums of up to millions of them are exact in
doubles: whatever the order of the terms, and so on any number of threads and in any engine, the
bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from experiments.studies.rows import draw_sum
from fedcal.calibrators.histogram_binning import least_value, values_of
from fedcal.core.checks import PrivacyError
from fedcal.core.fitting import label_entries, log_grid
from fedcal.core.numerics import Floats, Integers, Purpose, row_sum, shifted, stream
from fedcal.datasets import Dataset
from fedcal.mechanisms import Sum
from fedcal.metrics.binning import bin_index
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.privacy import Federation
from fedcal.strategies.methods.search import GoldenSection
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import Setting, lacks_rows
from fedcal.trust import Central, Local
from fedcal.units import Example

BINS = 15
LOW, HIGH = 0.5, 3.0
ITERATIONS = 5
"""Golden section shrinks five times and asks six times."""

GRID = 101
"""Temperatures, evenly spaced in log T, of what is no walk through few points. Neighbours differ by
1.8 %; the last interval of golden section is 0.22 wide."""

_EXACT = 2.0**30
_NUMBERS = 1 << 16  # of a block of rows that stays in the processor's cache


@dataclass(frozen=True)
class SweepPoint:
    """One setting of Appendix E.1: one of three factors varies, the others stay.

    Attributes
    ----------
    sweep
        "sources", "samples" or "epsilon": what varies
    sources, samples
        d private data sources, and m rows of each
    epsilon
        of all that a source releases; unit example, add/remove
    """

    sweep: str
    sources: int
    samples: int
    epsilon: float

    @property
    def fit_rows(self) -> int:
        """Number of rows of all sources."""
        return self.sources * self.samples

    @property
    def name(self) -> str:
        """Equal for equal settings, whatever the sweep."""
        return f"{self.sources} x {self.samples}, epsilon {self.epsilon:g}"


SETTINGS = (
    *(SweepPoint("sources", d, 10, 1.0) for d in range(10, 251, 10)),
    *(SweepPoint("samples", 50, m, 1.0) for m in range(5, 51, 5)),
    *(SweepPoint("epsilon", 50, 30, k / 5) for k in range(1, 11)),
)
"""The 45 settings of the paper for CIFAR."""


@dataclass(frozen=True)
class Tables:
    """All rows of a data set at t temperatures.

    Attributes
    ----------
    name, classes
        of the data
    temperatures
        (t,) that golden section can reach, a public grid, and 1
    grid
        (101,) where the public grid stands among them
    gaps
        (t, n) 1 or 0 for a right or wrong prediction, minus the confidence
    bins
        (t, n) of the confidence
    losses
        (t, n) negative log-likelihood of the labels, not clipped
    totals
        (t, 15) gaps of all rows, summed by bin
    """

    name: str
    classes: int
    temperatures: Floats
    grid: Integers = field(repr=False)
    gaps: Floats = field(repr=False)
    bins: NDArray[np.int8] = field(repr=False)
    losses: Floats = field(repr=False)
    totals: Floats = field(repr=False)

    @classmethod
    def of(cls, data: Dataset, iterations: Sequence[int] = (ITERATIONS,)) -> Tables:
        """Tabulate all rows of a data set for searches of so many iterations."""
        logits, labels = rows_of(data)
        grid = np.exp(log_grid(LOW, HIGH, GRID))
        temperatures = np.unique(np.concatenate([np.ones(1), grid, *map(reachable, iterations)]))
        gaps, bins, losses = tabulate(logits, labels, temperatures)
        flat = bins.astype(np.int64) + BINS * np.arange(len(bins))[:, None]
        sums = np.bincount(flat.ravel(), gaps.ravel(), BINS * len(bins)).reshape(-1, BINS)
        totals = np.asarray(sums, np.float64)
        at = np.searchsorted(temperatures, grid)
        return cls(data.name, logits.shape[1], temperatures, at, gaps, bins, losses, totals)

    @property
    def rows(self) -> int:
        """Number of rows N."""
        return int(self.gaps.shape[1])

    def at(self, temperatures: Floats) -> Integers:
        """Return the index of temperatures in the tables."""
        return np.searchsorted(self.temperatures, temperatures)

    def bin_gaps(self, at: Integers, rows: Integers) -> Floats:
        """Return sums of gaps by bin.

        Parameters
        ----------
        at
            (b,) index of each trial's temperature
        rows
            (b, k) rows of each trial

        Returns
        -------
        Floats
            (b, 15)
        """
        trials = len(at)
        index = rows + (at * self.rows)[:, None]
        bins = np.take(self.bins, index).astype(np.int64)
        bins += BINS * np.arange(trials)[:, None]
        sums = np.bincount(bins.ravel(), np.take(self.gaps, index).ravel(), BINS * trials)
        return np.asarray(sums.reshape(trials, BINS))

    def test_ece(self, at: Integers, fit: Integers) -> Floats:
        """Top-label ECE with 15 bins on all rows but the fit rows, (b,)."""
        rest = self.totals[at] - self.bin_gaps(at, fit)
        return np.asarray(np.abs(rest).sum(axis=1) / (self.rows - fit.shape[1]))


def reachable(iterations: int) -> Floats:
    """All temperatures that golden section can ask for or end at.

    The search decides by comparing a value with an earlier one. So of 2**evaluations searches side
    by side that hear values of growing size and each sequence of signs, one goes each possible way.
    """
    paths = np.arange(2 ** (iterations + 1))
    search = GoldenSection(LOW, HIGH, iterations, len(paths))
    asked: list[Floats] = []
    while (t := search.next()) is not None:
        sign = np.where(paths >> len(asked) & 1, 1.0, -1.0)
        search.tell(t, sign * 2.0 ** len(asked))
        asked.append(t)
    return np.unique([*asked, search.answer()])


def rows_of(data: Dataset) -> tuple[Floats, Integers]:
    """All labelled rows: those of the fit part, and of the test part where there is one.

    A trial divides them anew.
    """
    if data.test_logits is None or data.test_labels is None:
        return data.logits, data.labels
    return (
        np.concatenate([data.logits, data.test_logits]),
        np.concatenate([data.labels, data.test_labels]),
    )


def tabulate(
    logits: Floats, labels: Integers, temperatures: Floats
) -> tuple[Floats, NDArray[np.int8], Floats]:
    """Gaps, bins and losses of all rows at some temperatures, (t, n) each.

    Parameters
    ----------
    logits
        (n, c)
    labels
        (n,)
    temperatures
        (t,)
    """
    shape = len(temperatures), len(labels)
    gaps, bins, losses = np.empty(shape), np.empty(shape, np.int8), np.empty(shape)
    correct = (logits.argmax(axis=1) == labels).astype(np.float64)
    step = max(1, _NUMBERS // logits.shape[1])
    for i in range(0, len(labels), step):
        some = slice(i, i + step)
        z = shifted(logits[some])
        of_label = label_entries(z, labels[some])
        for k, temperature in enumerate(temperatures.tolist()):
            total = row_sum(np.exp(z / temperature))
            confidence = 1.0 / total
            gaps[k, some] = correct[some] - confidence
            bins[k, some] = bin_index(confidence, BINS)
            losses[k, some] = np.log(total) - of_label / temperature
    return _exact(gaps), bins, _exact(losses)


def _exact(values: Floats) -> Floats:
    return np.asarray(np.rint(values * _EXACT) / _EXACT)


# -- trials --------------------------------------------------------------------------------------


def divisions(tables: Tables, point: SweepPoint, trials: int, seed: int) -> Integers:
    """Fit rows of each trial, (trials, d m), drawn without replacement; m in a row are a source.

    All trials of a setting are drawn from one stream, in order.
    """
    rng = stream(seed, Purpose.SPLIT, what=f"luo {tables.name} {point.name}")
    drawn = np.empty((trials, point.fit_rows), np.int64)
    for k in range(trials):
        drawn[k] = rng.choice(tables.rows, point.fit_rows, replace=False)
    return drawn


@dataclass(frozen=True)
class Trials:
    """Some trials of a point of a sweep.

    Attributes
    ----------
    tables, point
        what is divided, and how
    fit
        (b, d m) rows of all sources
    """

    tables: Tables
    point: SweepPoint
    fit: Integers = field(repr=False)

    def __len__(self) -> int:
        return len(self.fit)

    @property
    def one_source(self) -> Integers:
        """(b, m) rows of the first source of each trial."""
        return self.fit[:, : self.point.samples]

    def gaps(self, at: Integers) -> Floats:
        """Sum over the sources of correct - confidence at each trial's temperature, (b,)."""
        return np.asarray(self._entries(self.tables.gaps, at).sum(axis=1))

    def losses(self, at: Integers, clip: float) -> Floats:
        """Sum over the sources of min(nll, clip) at each trial's temperature, (b,)."""
        losses = self._entries(self.tables.losses, at)
        return np.asarray(np.minimum(losses, clip).sum(axis=1))

    def bin_gaps(self, at: Integers) -> Floats:
        """`gaps` by bin of the confidence, (b, 15)."""
        return self.tables.bin_gaps(at, self.fit)

    def test_ece(self, at: Integers) -> Floats:
        """Test ECE of each trial at its temperature, (b,)."""
        return self.tables.test_ece(at, self.fit)

    def _entries(self, table: Floats, at: Integers) -> Floats:
        """(b, d m) of the fit rows."""
        return np.asarray(np.take(table, self.fit + (at * self.tables.rows)[:, None]))

    @cached_property
    def outcomes(self) -> tuple[Integers, Integers]:
        """Wrong and right predictions in each bin at T = 1: of fit and of test rows, (b, 15, 2)."""
        (one,) = self.tables.at(np.ones(1))
        cell = 2 * self.tables.bins[one].astype(np.int64) + (self.tables.gaps[one] >= 0)
        of_trial = cell[self.fit] + 2 * BINS * np.arange(len(self))[:, None]
        counts = np.bincount(of_trial.ravel(), minlength=2 * BINS * len(self))
        fit = counts.reshape(len(self), BINS, 2)
        return fit, np.bincount(cell, minlength=2 * BINS).reshape(BINS, 2) - fit


# -- methods -------------------------------------------------------------------------------------

NLL_CLIP = 10.0
NOISES = (Local.name, Central.name)
EXACT = "exact"
"""In the place of a trust model: no noise, so that the objective and the search remain."""


@dataclass(frozen=True)
class Draws:
    """The random part of the releases of some trials.

    Attributes
    ----------
    plan
        of one run
    of
        the sum of all sources' answers under it
    noise
        (b, rounds, length) on each answer
    """

    plan: Plan
    of: Sum = field(repr=False)
    noise: Floats = field(repr=False)

    @classmethod
    def under(cls, plan: Plan, trials: int, rng: np.random.Generator) -> Draws:
        """Draw the noise of all trials at once from the mechanism."""
        if plan.bound is None:
            raise PrivacyError("a plan without privacy has no noise")
        of = plan.sum_of(plan.bound, plan.clients)
        many = replace(of, std=np.tile(of.std, trials * plan.rounds))
        words = draw_sum(plan, np.zeros(len(many.std), np.uint64), many, rng)
        return cls(plan, of, plan.ring.decode(words).reshape(trials, plan.rounds, -1))

    def some(self, trials: slice) -> Draws:
        """Return the draws of some trials."""
        return replace(self, noise=self.noise[trials])


def none(trials: Trials) -> Floats:
    """Return the test ECE at T = 1."""
    return trials.test_ece(trials.tables.at(np.ones(len(trials))))


def one_source(trials: Trials) -> Floats:
    """Fit the temperature by the likelihood of one source alone."""
    tables = trials.tables
    losses = tables.losses[tables.grid]
    best = np.array([losses[:, rows].sum(axis=1).argmin() for rows in trials.one_source])
    return trials.test_ece(tables.grid[best])


Objective = Callable[[Trials, Floats, Floats], Floats]
"""(trials, temperature of each, noise on each answer (b, length)) -> the search's value, (b,)."""


def _walk(objective: Objective, iterations: int = ITERATIONS) -> EceOf:
    """Return a golden section search, which only visits temperatures of the tables."""

    def run(trials: Trials, draws: Draws) -> Floats:
        search = GoldenSection(LOW, HIGH, iterations, len(trials))
        noises = iter(np.moveaxis(draws.noise, 1, 0))
        while (t := search.next()) is not None:
            search.tell(t, objective(trials, t, next(noises)), float(draws.of.std[0]))
        return trials.test_ece(trials.tables.at(search.answer()))

    return run


def _gap_size(trials: Trials, t: Floats, noise: Floats) -> Floats:
    """|sum of correct - confidence|."""
    return np.abs(trials.gaps(trials.tables.at(t)) + noise[:, 0])


def _bin_gap_sizes(trials: Trials, t: Floats, noise: Floats) -> Floats:
    """Sum over bins of |sum of correct - confidence|."""
    return np.asarray(np.abs(trials.bin_gaps(trials.tables.at(t)) + noise).sum(axis=1))


def _loss(clip: float, trials: Trials, t: Floats, noise: Floats) -> Floats:
    """Sum of losses, each clipped."""
    return np.asarray(trials.losses(trials.tables.at(t), clip) + noise[:, 0])


def histogram(trials: Trials, draws: Draws) -> Floats:
    """Histogram binning of the confidence, as `TopLabelBinning` does it."""
    fit, rest = trials.outcomes
    correct = fit[:, :, 1] + draws.noise[:, 0, :BINS]
    total = fit.sum(axis=2) + draws.noise[:, 0, BINS:]
    values = values_of(correct, total, "correct_total")
    return binned_ece(np.maximum(values, least_value(trials.tables.classes)), rest)


def binned_ece(values: Floats, rest: Integers) -> Floats:
    """ECE of rows that have their bin's value for a confidence, (b,).

    Parameters
    ----------
    values
        (b, 15) new confidences
    rest
        (b, 15, 2) wrong and right predictions among the test rows
    """
    trials, total = len(values), rest.sum(axis=2)
    gaps = rest[:, :, 1] - total * values
    place = bin_index(values, BINS) + BINS * np.arange(trials)[:, None]
    sums = np.bincount(place.ravel(), gaps.ravel(), BINS * trials).reshape(trials, BINS)
    return np.asarray(np.abs(sums).sum(axis=1) / total.sum(axis=1))


EceOf = Callable[[Trials, Draws], Floats]
"""Test ECE of each trial, (b,)."""


@dataclass(frozen=True)
class Private:
    """A method with privacy: the strategy whose plan it follows, and what it does in a trial."""

    run: EceOf
    strategy: str
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def plan(self, point: SweepPoint, classes: int, trust: str) -> Plan:
        """Return the strategy's plan for the sources of a point."""
        federation = Federation(
            point.sources, classes, epsilon=point.epsilon, unit=Example.name, trust=trust
        )
        settings = dict(self.settings)
        if lacks_rows(self.strategy, federation, settings):
            settings["rows_per_client"] = point.samples
        return Job(self.strategy, federation, settings).plan


def _clipped(clip: float) -> Private:
    """Return NLL-T whose losses are clipped at this."""
    return Private(_walk(partial(_loss, clip)), "nllt", {"nll_clip": clip})


BASELINES: Mapping[str, Callable[[Trials], Floats]] = {"none": none, "one-source": one_source}
PRIVATE = {
    "histogram": Private(histogram, "dp-histogram", {"counts": "correct_total"}),
    "ece-t": Private(_walk(_bin_gap_sizes), "ecet"),
    "nll-t": _clipped(NLL_CLIP),
    "acc-t": Private(_walk(_gap_size), "acct"),
}
CLIPPED = {f"nll-t, clip {clip:g}": _clipped(clip) for clip in (1.0, 2.0, 5.0, 10.0, 20.0)}
TRIED = (2, 5, 8)
SEARCHED = {
    f"acc-t, {k} iterations": Private(_walk(_gap_size, k), "acct", {"iterations": k}) for k in TRIED
}
"""NLL-T at several clips, and Acc-T with several numbers of iterations."""

METHODS = (*BASELINES, *PRIVATE)
"""The methods, in the order of the paper's tables."""


COLUMNS = (*BASELINES, *(f"{name}/{noise}" for noise in NOISES for name in PRIVATE))
"""Methods, and after a stroke the trust model of those with noise."""

_BLOCK = 50  # trials at a time; their sums are exact, so this changes no bit


def run_point(
    tables: Tables, point: SweepPoint, columns: Sequence[str], trials: int, seed: int = 0
) -> Mapping[str, Floats]:
    """Test ECE of each trial, by column.

    All columns see the same divisions; each has noise of its own. What a column gives does not
    depend on which others there are.
    """
    fit = divisions(tables, point, trials, seed)
    draws, private = {}, PRIVATE | CLIPPED | SEARCHED
    for column in columns:
        name, _, noise = column.partition("/")
        if noise:
            trust = Local.name if noise == EXACT else noise
            plan = private[name].plan(point, tables.classes, trust)
            what = f"luo {tables.name} {point.name} {column}"
            draws[column] = Draws.under(plan, trials, stream(seed, Purpose.NOISE, what=what))
            if noise == EXACT:
                draws[column].noise[:] = 0
    found = {column: np.empty(trials) for column in columns}
    for i in range(0, trials, _BLOCK):
        some = slice(i, i + _BLOCK)
        block = Trials(tables, point, fit[some])
        for column in columns:
            name, _, noise = column.partition("/")
            if noise:
                found[column][some] = private[name].run(block, draws[column].some(some))
            else:
                found[column][some] = BASELINES[name](block)
    return found
