"""Trials of Luo et al., ours beside a plain loop.

The whole suite that is spoken of is that of CIFAR-10-C: 15 perturbations of 10,000 rows and 10
classes, 45 settings, 500 trials, and the paper's five methods (besides no recalibration, which
costs nothing). One perturbation is run as `fedcal reproduce` runs it, with all its settings or
every k-th one; the plain loop does one trial and one method at a time, with the project's own
searches and metrics on arrays. Both run in turns, setting by setting; what counts are seconds of
the processor, so that other work on the machine does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedcal import datasets
from fedcal.calibrators import TopLabelBinning
from fedcal.calibrators.top_label import outcome_cells
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.experiments.benchmarks.harness import Benchmark
from fedcal.experiments.engines.processes import usable_cores
from fedcal.experiments.luo.cell import run_point
from fedcal.experiments.luo.methods import BASELINES, NLL_CLIP, PAPER, Competitor
from fedcal.experiments.luo.settings import SUITES, SweepPoint
from fedcal.experiments.luo.tables import BINS, EVALUATIONS, HIGH, ITERATIONS, LOW, Tables
from fedcal.experiments.runs import Row
from fedcal.metrics import bin_index, ece
from fedcal.numerics import softmax
from fedcal.search import GoldenSection
from fedcal.trust import Local
from fedcal.types import Floats, Integers

DATA = "resnet110-cifar10"
PERTURBATIONS, TRIALS = 15, 500
TARGET, CORES = 20 * 60.0, 2
"""Seconds that the whole suite should stay below, on so many cores."""

METHODS = tuple(m for m in PAPER if m != "none")
COLUMNS = tuple(Competitor(m, "" if m in BASELINES else Local.name) for m in METHODS)


def test_rows() -> Dataset:
    """Test logits of ResNet-110 on CIFAR-10, (10000, 10)."""
    data = datasets.load(DATA)
    if data.test_scores is None or data.test_labels is None:
        raise InputError(f"{DATA} has no test rows")
    return replace(
        data, scores=data.test_scores, labels=data.test_labels, test_scores=None, test_labels=None
    )


# -- the plain loop -------------------------------------------------------------------------------


def plain_trial(method: str, data: Dataset, setting: SweepPoint, rng: np.random.Generator) -> float:
    """Test ECE of one trial of one method, without tables."""
    order = rng.permutation(len(data.labels))
    fit, rest = order[: setting.fit_rows], order[setting.fit_rows :]
    z, y = data.logits[fit], data.labels[fit]
    if method == "histogram":
        counts = np.bincount(outcome_cells(z, y, BINS), minlength=2 * BINS).astype(np.float64)
        counts[BINS:] += counts[:BINS]
        counts += rng.laplace(scale=2 / setting.epsilon, size=(setting.sources, 2 * BINS)).sum(0)
        binning = TopLabelBinning.from_counts(
            counts[:BINS], counts[BINS:], z.shape[1], "correct_total"
        )
        return ece(binning.calibrated(data.logits[rest]), data.labels[rest])
    objective = OBJECTIVES[method]
    if method == "one-source":
        z, y = z[: setting.samples], y[: setting.samples]
        search = GoldenSection(LOW, HIGH, 20)
        scale, numbers = 0.0, 1
    else:
        search = GoldenSection(LOW, HIGH, ITERATIONS)
        scale = EVALUATIONS * (NLL_CLIP if method == "nll-t" else 1.0) / setting.epsilon
        numbers = BINS if method == "ece-t" else 1
    while (t := search.next()) is not None:
        noise = rng.laplace(scale=scale, size=(setting.sources, numbers)).sum(0) if scale else 0.0
        values = objective(z / t[0], y) + noise
        value = values[0] if method in ("nll-t", "one-source") else np.abs(values).sum()
        search.tell(t, float(value))
    return ece(softmax(data.logits[rest] / search.answer()[0]), data.labels[rest])


def _loss(z: Floats, y: Integers) -> Floats:
    p = softmax(z)[np.arange(len(y)), y]
    return np.array([-np.log(np.maximum(p, 1e-300)).sum()])


def _clipped_loss(z: Floats, y: Integers) -> Floats:
    p = softmax(z)[np.arange(len(y)), y]
    return np.array([np.minimum(-np.log(np.maximum(p, 1e-300)), NLL_CLIP).sum()])


def _gap(z: Floats, y: Integers) -> Floats:
    return np.array([((z.argmax(axis=1) == y) - softmax(z).max(axis=1)).sum()])


def _gaps(z: Floats, y: Integers) -> Floats:
    confidence = softmax(z).max(axis=1)
    correct = z.argmax(axis=1) == y
    return np.asarray(np.bincount(bin_index(confidence, BINS), correct - confidence, BINS), float)


OBJECTIVES: dict[str, Callable[[Floats, Integers], Floats]] = {
    "one-source": _loss,
    "acc-t": _gap,
    "nll-t": _clipped_loss,
    "ece-t": _gaps,
}


# -- the clock ------------------------------------------------------------------------------------


def measure(every: int, trials: int, plain: int) -> Row:
    """Time both in turns on one perturbation, on one core.

    Parameters
    ----------
    every : every k-th of the 45 settings
    trials : of ours, for each setting
    plain : of the plain loop, for each setting and method
    """
    data, settings = test_rows(), SUITES["cifar"][every - 1 :: every]
    start = time.process_time()
    tables_of = Tables.of(data)
    tables = time.process_time() - start
    ours, loop = 0.0, dict.fromkeys(METHODS, 0.0)
    found: dict[str, list[list[float]]] = {m: [[], []] for m in METHODS}
    rng = np.random.default_rng(0)
    for setting in settings:
        start = time.process_time()
        got = run_point(tables_of, setting, COLUMNS, trials, seed=0)
        ours += time.process_time() - start
        for c in COLUMNS:
            found[c.method][0] += got[c.key].tolist()
            start = time.process_time()
            values = [plain_trial(c.method, data, setting, rng) for _ in range(plain)]
            loop[c.method] += time.process_time() - start
            found[c.method][1] += values
    all_settings = len(SUITES["cifar"])
    each = ours / (trials * len(settings))
    plain_each = {m: seconds / (plain * len(settings)) for m, seconds in loop.items()}
    whole = PERTURBATIONS * (tables + all_settings * TRIALS * each)
    whole_plain = PERTURBATIONS * all_settings * TRIALS * sum(plain_each.values())
    return {
        "settings": len(settings),
        "trials": trials,
        "plain_trials": plain,
        "tables_seconds": tables,
        "trial_seconds": each,
        "trial_and_method_seconds": each / len(METHODS),
        "plain_trial_and_method_seconds": plain_each,
        "whole_seconds_one_core": whole,
        "whole_seconds": whole / CORES,
        "plain_whole_seconds": whole_plain / CORES,
        "ratio": whole_plain / whole,
        "target": TARGET,
        "met": whole / CORES <= TARGET,
        "ece": {m: [float(np.mean(v)) for v in pair] for m, pair in found.items()},
        "cores_here": usable_cores(),
    }


def rows(every: int = 3, trials: int = TRIALS, plain: int = 4) -> Iterator[Row]:
    """What `measure` finds: one row."""
    yield measure(every, trials, plain)


def lines(row: Row) -> list[Row]:
    """One for each method."""
    each = row["plain_trial_and_method_seconds"]
    return [
        {"method": m, "plain loop, us": 1e6 * each[m], "mean ECE": mine, "plain loop's": theirs}
        for m, (mine, theirs) in row["ece"].items()
    ]


def notes(found: Sequence[Row]) -> list[str]:
    """What ours takes, and the whole suite."""
    (row,) = found
    verdict = "met" if row["met"] else "missed"
    return [
        f"ours: {1e6 * row['trial_and_method_seconds']:.0f} us for a trial and method; tables of a "
        f"perturbation, once: {row['tables_seconds']:.2f} s",
        f"whole suite ({PERTURBATIONS} perturbations x {len(SUITES['cifar'])} settings x {TRIALS} "
        f"trials x {len(METHODS)} methods), extrapolated from {row['settings']} settings, on "
        f"{CORES} cores: {row['whole_seconds']:.0f} s (target {TARGET:.0f} s: {verdict}); plain "
        f"loop {row['plain_whole_seconds'] / 3600:.1f} h; ratio {row['ratio']:.1f}",
    ]


BENCHMARK = Benchmark("trials of Luo et al., beside a plain loop", rows, lines, notes)
