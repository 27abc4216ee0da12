"""The methods, each over many trials at once: sums over the sources in, test ECE out.

Those of Luo et al.:

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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from experiments.studies.luo.trials import (
    BINS,
    SweepPoint,
    Tables,
    Trials,
    divisions,
    golden,
)
from experiments.studies.rows import draw_sum
from fedcal.calibrators.histogram_binning import least_value, values_of
from fedcal.core.checks import PrivacyError
from fedcal.core.numerics import Floats, Integers, Purpose, stream
from fedcal.mechanisms import Sum
from fedcal.metrics.binning import bin_index
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.privacy import Federation
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import Setting, lacks_rows
from fedcal.trust import Central, Local
from fedcal.units import Example

NLL_CLIP = 10.0
NOISES = (Local.name, Central.name)


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


def _walk(objective: Objective) -> EceOf:
    """Return a golden section search, which only visits temperatures of the tables."""

    def run(trials: Trials, draws: Draws) -> Floats:
        search, noises = golden(searches=len(trials)), iter(np.moveaxis(draws.noise, 1, 0))
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


def _loss(trials: Trials, t: Floats, noise: Floats) -> Floats:
    """Sum of losses, each clipped."""
    return np.asarray(trials.losses(trials.tables.at(t), NLL_CLIP) + noise[:, 0])


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


BASELINES: Mapping[str, Callable[[Trials], Floats]] = {"none": none, "one-source": one_source}
PRIVATE: Mapping[str, Private] = {
    "histogram": Private(histogram, "dp-histogram", {"counts": "correct_total"}),
    "ece-t": Private(_walk(_bin_gap_sizes), "ecet"),
    "nll-t": Private(_walk(_loss), "nllt", {"nll_clip": NLL_CLIP}),
    "acc-t": Private(_walk(_gap_size), "acct"),
}
METHODS = (*BASELINES, *PRIVATE)
"""The methods, in the order of the paper's tables."""


@dataclass(frozen=True)
class Competitor:
    """A method under a trust model; "" for methods without noise."""

    method: str
    noise: str = ""

    @property
    def key(self) -> str:
        """The method's key in rows."""
        return f"{self.method}/{self.noise}" if self.noise else self.method


COLUMNS = (
    *(Competitor(name) for name in BASELINES),
    *(Competitor(name, noise) for noise in NOISES for name in PRIVATE),
)
"""Everything there is."""


_BLOCK = 50  # trials at a time; their sums are exact, so this changes no bit


def run_point(
    tables: Tables, point: SweepPoint, columns: Sequence[Competitor], trials: int, seed: int = 0
) -> Mapping[str, Floats]:
    """Test ECE of each trial, by key of the column.

    All columns see the same divisions; each has noise of its own. What a column gives does not
    depend on which others there are.
    """
    fit = divisions(tables, point, trials, seed)
    draws = {}
    for c in columns:
        if c.method in PRIVATE:
            plan = PRIVATE[c.method].plan(point, tables.classes, c.noise)
            what = f"luo {tables.name} {point.name} {c.key}"
            draws[c.key] = Draws.under(plan, trials, stream(seed, Purpose.NOISE, what=what))
    found = {c.key: np.empty(trials) for c in columns}
    for i in range(0, trials, _BLOCK):
        some = slice(i, i + _BLOCK)
        block = Trials(tables, point, fit[some])
        for c in columns:
            if c.method in BASELINES:
                found[c.key][some] = BASELINES[c.method](block)
            else:
                found[c.key][some] = PRIVATE[c.method].run(block, draws[c.key].some(some))
    return found
