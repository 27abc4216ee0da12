"""The methods, each over many trials at once: sums over the sources in, test ECE out.

Those of Luo et al., and four of ours:

* `none`: the model as it is;
* `one-source`: the temperature with the least negative log-likelihood on the rows of one source,
  without privacy: the optimum on a fine grid of temperatures in [0.5, 3]. (The paper does not say
  how it recalibrates here. Nothing is clipped: a clip serves privacy alone.)
* `histogram`: (correct, total) in 15 bins; `histogram-wrong`, ours: (correct, wrong), which one
  row changes by 1 and not by 2;
* `ece-t`, `nll-t`, `acc-t`: golden section search on the noisy objective;
* `acc-t-bisection`, `acc-t-posterior`: other searches for the same root, as often asked;
  `acc-t-posterior-3` asks three times, and so has half the noise;
* `acc-t-exponential`: one draw from the grid with probability ~ exp(-epsilon |sum| / 2). It needs
  somebody who sees the exact sums: central trust alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedcal.calibrators.top_label import Counts
from fedcal.experiments.luo import histogram as binning
from fedcal.experiments.luo.noise import NOISES, draws, laplace_std, noise_scale
from fedcal.experiments.luo.paths import EVALUATIONS, HIGH, LOW, bisection
from fedcal.experiments.luo.settings import Setting
from fedcal.experiments.luo.tables import BINS, NLL_CLIP
from fedcal.experiments.luo.trials import Trials
from fedcal.mechanisms.laplace import laplace_sum
from fedcal.search import PosteriorBisection
from fedcal.strategies.golden_section import STEEP
from fedcal.trust import Central
from fedcal.types import Floats, Integers


@dataclass(frozen=True)
class Released:
    """Noise on what the sources release.

    Attributes
    ----------
    noise : (b, evaluations, ...) on each answer
    std : of each of its numbers
    gaussian : whether it is a sum of many draws
    """

    noise: Floats
    std: float
    gaussian: bool


@dataclass(frozen=True)
class Private:
    """A method that adds Laplace noise.

    Attributes
    ----------
    run : test ECE of each trial
    evaluations : how many answers share epsilon
    sensitivity : L1, of one answer, to one row
    numbers : in one answer
    """

    run: Callable[[Trials, Released], Floats]
    evaluations: int = EVALUATIONS
    sensitivity: float = 1.0
    numbers: int = 1


@dataclass(frozen=True)
class Column:
    """A method under a noise model; "" for methods without noise."""

    method: str
    noise: str = ""

    @property
    def key(self) -> str:
        """In rows."""
        return f"{self.method}/{self.noise}" if self.noise else self.method


def none(trials: Trials) -> Floats:
    """T = 1."""
    return trials.bench.plain.test_ece(np.zeros(len(trials), np.int64), trials.fit)


def one_source(trials: Trials) -> Floats:
    """The optimum of one source's likelihood."""
    losses = trials.bench.losses
    best = np.array([losses[rows].sum(axis=0).argmin() for rows in trials.one_source])
    return trials.bench.grid.test_ece(best, trials.fit)


def acc_t(trials: Trials, released: Released) -> Floats:
    """Golden section on |sum of correct - confidence|."""
    sums = trials.golden_gaps

    def ask(at: Integers, k: int) -> Floats:
        return np.abs(sums[trials.all, at] + released.noise[:, k, 0])

    return _after_golden(trials, ask)


def nll_t(trials: Trials, released: Released) -> Floats:
    """Golden section on the sum of losses, each clipped at 10."""
    sums = trials.golden_losses

    def ask(at: Integers, k: int) -> Floats:
        return np.asarray(sums[trials.all, at] + released.noise[:, k, 0])

    return _after_golden(trials, ask)


def ece_t(trials: Trials, released: Released) -> Floats:
    """Golden section on the sum over bins of |sum of correct - confidence|."""

    def ask(at: Integers, k: int) -> Floats:
        sums = trials.bench.golden.bin_gaps(at, trials.fit) + released.noise[:, k]
        return np.asarray(np.abs(sums).sum(axis=1))

    return _after_golden(trials, ask)


def _after_golden(trials: Trials, ask: Callable[[Integers, int], Floats]) -> Floats:
    bench = trials.bench
    way = bench.tree.walk(ask, len(trials))
    return bench.golden_answers.test_ece(way, trials.fit)


def acc_t_bisection(trials: Trials, released: Released) -> Floats:
    """Bisection on the sign of the sum."""
    bench, sums = trials.bench, trials.bisection_gaps

    def ask(at: Integers, k: int) -> Floats:
        return np.asarray(sums[trials.all, at] + released.noise[:, k, 0])

    way = bisection(bench.halves, ask, len(trials))
    return bench.bisection_answers.test_ece(way, trials.fit)


def acc_t_posterior(trials: Trials, released: Released) -> Floats:
    """Bisection by a posterior over T, one trial after the other.

    Sums at temperatures between those of the grid are interpolated, and the answer is judged at
    the nearest one.
    """
    logs = np.log(trials.bench.grid.temperatures)
    rows = trials.setting.fit_rows
    slope = (STEEP[0] * rows, STEEP[1] * rows)
    answers = np.empty(len(trials))
    for b, sums in enumerate(trials.grid_gaps):
        search = PosteriorBisection(
            LOW, HIGH, released.noise.shape[1], slope, not released.gaussian
        )
        for noise in released.noise[b, :, 0].tolist():
            t = search.next()
            if t is None:
                break
            search.tell(t, float(np.interp(np.log(t), logs, sums)) + noise, released.std)
        answers[b] = search.answer()
    at = np.rint(np.interp(np.log(answers), logs, np.arange(len(logs)))).astype(np.int64)
    return trials.bench.grid.test_ece(at, trials.fit)


def acc_t_exponential(trials: Trials, gumbel: Floats) -> Floats:
    """The exponential mechanism on |sum|, by Gumbel noise on its scores.

    |sum| changes by at most 1 with a row, so that exp(-epsilon |sum| / 2) is epsilon-DP.
    """
    scores = -trials.setting.epsilon * np.abs(trials.grid_gaps) / 2.0 + gumbel
    return trials.bench.grid.test_ece(scores.argmax(axis=1), trials.fit)


def histogram(trials: Trials, released: Released) -> Floats:
    """(correct, total) of each bin."""
    return _after_binning(trials, released.noise[:, 0], "correct_total")


def histogram_wrong(trials: Trials, released: Released) -> Floats:
    """(correct, wrong) of each bin."""
    return _after_binning(trials, released.noise[:, 0], "correct_wrong")


def _after_binning(trials: Trials, noise: Floats, counts: Counts) -> Floats:
    everything = binning.counts(trials.bench.plain)
    fit = binning.counts(trials.bench.plain, trials.fit)
    correct = fit[:, :, 1] + noise[:, :BINS]
    other = (fit.sum(axis=2) if counts == "correct_total" else fit[:, :, 0]) + noise[:, BINS:]
    values = binning.bin_values(correct, other, counts, trials.bench.classes)
    return binning.test_ece(values, everything - fit)


BASELINES: Mapping[str, Callable[[Trials], Floats]] = {"none": none, "one-source": one_source}
PRIVATE: Mapping[str, Private] = {
    "histogram": Private(histogram, 1, 2.0, 2 * BINS),
    "ece-t": Private(ece_t, numbers=BINS),
    "nll-t": Private(nll_t, sensitivity=NLL_CLIP),
    "acc-t": Private(acc_t),
    "histogram-wrong": Private(histogram_wrong, 1, 1.0, 2 * BINS),
    "acc-t-bisection": Private(acc_t_bisection),
    "acc-t-posterior": Private(acc_t_posterior),
    "acc-t-posterior-3": Private(acc_t_posterior, 3),
}
EXPONENTIAL = "acc-t-exponential"
PAPER = (*BASELINES, "histogram", "ece-t", "nll-t", "acc-t")
"""The methods of the paper, in the order of its tables."""

COLUMNS = (
    *(Column(name) for name in BASELINES),
    *(Column(name, noise) for noise in NOISES for name in PRIVATE),
    Column(EXPONENTIAL, Central.name),
)
"""Everything there is."""


def column(key: str) -> Column:
    """The column of that key."""
    return next(c for c in COLUMNS if c.key == key)


Drawn = Released | Floats | None


def drawn(c: Column, setting: Setting, grid: int, trials: int, rng: np.random.Generator) -> Drawn:
    """The noise of all trials of a column."""
    if c.method == EXPONENTIAL:
        return rng.gumbel(size=(trials, grid))
    if c.method in BASELINES:
        return None
    method = PRIVATE[c.method]
    scale = noise_scale(method.sensitivity, setting.epsilon, method.evaluations)
    many = draws(c.noise, setting.sources)
    noise = laplace_sum(rng, scale, many, (trials, method.evaluations, method.numbers))
    return Released(noise, laplace_std(scale, many), many > 1)
