"""Trials of Luo et al., ours beside a plain loop.

The suite is that of CIFAR-10-C: 15 perturbations of 10,000 rows and 10 classes, 45 settings, 500
trials, and the paper's five methods (besides no recalibration, which costs nothing). Some settings
of one perturbation are run as `fedcal reproduce` runs them, and what the whole suite takes is
extrapolated; the plain loop does one trial and one method at a time, with the project's own
searches and metrics on arrays. What counts are seconds of the processor, so that other work on the
machine does not.
"""

from __future__ import annotations

import time

import numpy as np

from fedcal import datasets
from fedcal.calibrators import TopLabelBinning
from fedcal.core.numerics import Floats, Integers, softmax
from fedcal.datasets import Dataset
from fedcal.experiments.research.benchmarks.pooled import DATA, real_rows
from fedcal.experiments.research.benchmarks.timing import Case, Contestant, Inside
from fedcal.experiments.research.studies.luo.methods import (
    BASELINES,
    NLL_CLIP,
    PAPER,
    Competitor,
)
from fedcal.experiments.research.studies.luo.settings import SUITES, SweepPoint, fitting
from fedcal.experiments.research.studies.luo.suite import run_point
from fedcal.experiments.research.studies.luo.trials import (
    BINS,
    EVALUATIONS,
    HIGH,
    ITERATIONS,
    LOW,
    Tables,
)
from fedcal.metrics import bin_index, ece
from fedcal.metrics.binning import outcome_cells
from fedcal.strategies.methods.search import GoldenSection
from fedcal.trust import Local

PERTURBATIONS, TRIALS, CORES = 15, 500, 2
TARGET = 20 * 60.0
"""Seconds that the whole suite should stay below, on so many cores."""

METHODS = tuple(m for m in PAPER if m != "none")
COLUMNS = tuple(Competitor(m, "" if m in BASELINES else Local.name) for m in METHODS)
SEARCHES = {"one-source": (1, 0.0), "acc-t": (1, 1.0), "nll-t": (1, NLL_CLIP), "ece-t": (BINS, 1.0)}
"""Method -> numbers in an answer, and their sensitivity; 0 = without privacy."""


def suite(quick: bool, every: int = 9, trials: int = TRIALS, plain: int = 4) -> Case:
    """Time the whole suite.

    Parameters
    ----------
    every
        every k-th of the 45 settings is run
    trials
        of ours, for each setting
    plain
        of the plain loop, for each setting and method
    """
    logits, labels = real_rows(quick)
    data = datasets.from_arrays(logits=logits, labels=labels, name=DATA)
    settings = fitting(SUITES["cifar"][every - 1 :: every], len(labels), DATA)

    def extrapolated(tables: float, seconds: float, ran: int, found: dict[str, float]) -> Inside:
        each = seconds / (ran * len(settings))
        whole = PERTURBATIONS * (tables + len(SUITES["cifar"]) * TRIALS * each) / CORES
        told = {"trial and method, us": 1e6 * each / len(METHODS), "tables, s": tables}
        return Inside(whole, told | found)

    def ours() -> Inside:
        start = time.process_time()
        tables = Tables.of(data)
        made = time.process_time()
        found = [run_point(tables, s, COLUMNS, trials, seed=0) for s in settings]
        seconds = time.process_time() - made
        means = {c.method: float(np.mean([f[c.key] for f in found])) for c in COLUMNS}
        return extrapolated(made - start, seconds, trials, means)

    def loop() -> Inside:
        rng, start = np.random.default_rng(0), time.process_time()
        every_trial = [s for s in settings for _ in range(plain)]
        means = {
            m: float(np.mean([plain_trial(m, data, s, rng) for s in every_trial])) for m in METHODS
        }
        return extrapolated(0.0, time.process_time() - start, plain, means)

    return Case(
        f"Luo's suite: {PERTURBATIONS} perturbations x {len(SUITES['cifar'])} settings x {TRIALS} "
        f"trials x {len(METHODS)} methods on {CORES} cores, extrapolated from {len(settings)} "
        "settings",
        TARGET,
        [
            Contestant("fedcal", lambda: ours, dict),
            Contestant("a plain loop", lambda: loop, dict),
        ],
    )


def plain_trial(method: str, data: Dataset, setting: SweepPoint, rng: np.random.Generator) -> float:
    """Test ECE of one trial of one method, without tables."""
    order = rng.permutation(len(data.labels))
    fit, rest = order[: setting.fit_rows], order[setting.fit_rows :]
    z, y = data.logits[fit], data.labels[fit]

    def draw(scale: float, numbers: int) -> Floats:
        """Draw sums of all sources' noise, (numbers,)."""
        return np.asarray(rng.laplace(0.0, scale, (setting.sources, numbers)).sum(axis=0))

    if method == "histogram":
        counts = np.bincount(outcome_cells(softmax(z), y, BINS), minlength=2 * BINS)
        correct, wrong = counts.reshape(2, BINS)
        hits = correct + draw(2 / setting.epsilon, BINS)
        total = correct + wrong + draw(2 / setting.epsilon, BINS)
        binning = TopLabelBinning.from_counts(hits, total, z.shape[1], "correct_total")
        return ece(binning.calibrated(data.logits[rest]), data.labels[rest])
    numbers, sensitivity = SEARCHES[method]
    if not sensitivity:
        z, y = z[: setting.samples], y[: setting.samples]
    search = GoldenSection(LOW, HIGH, ITERATIONS if sensitivity else 20)
    scale = EVALUATIONS * sensitivity / setting.epsilon
    while (t := search.next()) is not None:
        noise = draw(scale, numbers)
        if method in ("one-source", "nll-t"):
            p = softmax(z / t[0])[np.arange(len(y)), y]
            losses = np.minimum(-np.log(np.maximum(p, 1e-300)), sensitivity or np.inf)
            value = losses.sum() + noise[0]
        else:
            value = np.abs(_gaps(z / t[0], y, numbers) + noise).sum()
        search.tell(t, float(value))
    return ece(softmax(data.logits[rest] / search.answer()[0]), data.labels[rest])


def _gaps(z: Floats, y: Integers, bins: int) -> Floats:
    """Sum of correct - confidence in each bin, (bins,)."""
    confidence = softmax(z).max(axis=1)
    correct = z.argmax(axis=1) == y
    return np.asarray(np.bincount(bin_index(confidence, bins), correct - confidence, bins), float)


CASES = {"luo": suite}
