"""From how many clients on does binning pay, next to one temperature? Our own study.

A temperature is one number and is learned from few users under any noise. Histograms can learn
what no temperature can say, but their noise is spread over many bins. So there is a number of
clients from which on FedBBQ calibrates better than FedNewton, if there is one at all.

`rows` measures; `crossover` reads that number off. The shipped data sets have 5,000 to 12,500 fit
rows, too few for thousands of clients, so here every client gets 50 rows on average, *drawn from
the fit rows with replacement* and dealt with Dirichlet(0.1) label skew. Privacy noise sees as many
users as there would be; what can be learned stays bounded by the distinct fit rows. All metrics
are those of the untouched test rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, takewhile
from operator import itemgetter
from statistics import fmean, pstdev
from typing import Any

from fedcal import datasets
from fedcal.calibrators import Calibrator, calibrator_of
from fedcal.calibrators.fits.noisy_counts import Negatives
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.datasets import Dataset
from fedcal.experiments.research.studies.rows import counted, dealt, grouped, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.metrics import summary
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies import FedBBQ, FedNewton
from fedcal.strategies.server.outcome import Progress

DATA = ("resnet110-cifar10", "imdb-binary", "densenet-cifar100", "mnist-cnn")
CLIENTS = (100, 300, 1000, 3000, 10000)
EPSILONS = (0.5, 1.0, 3.0, 8.0, math.inf)
SEEDS = 3
ROWS_PER_CLIENT = 50
MOST_NUMBERS = 5_000_000
"""Logits of a population beyond which it is left out: memory and minutes."""

BASELINE = "fednewton"
BINNING: dict[str, dict[str, Any]] = {
    "fedbbq[tables=pooled]": {"tables": "pooled"},
    "fedbbq[tables=per_class]": {"tables": "per_class"},
    "fedbbq[tables=per_class,clipping=per_class]": {"tables": "per_class", "clipping": "per_class"},
}
"""Variants of FedBBQ; the last one clips as the paper does."""

NEGATIVES: tuple[Negatives, ...] = ("cut", "merged", "norm-sub")
NEGATIVES_OF = tuple(BINNING)[:2]
NEGATIVES_AT = (1.0, 3.0)
"""Variants and budgets at which every way to treat negative counts is judged."""

METRICS = ("classwise_ece", "ece", "nll", "accuracy")
MOST_ACCURACY_LOST = 0.01
"""What Maddock et al. (Tables 2 and 3) allow a calibrator to lose."""


def rows(
    quick: bool = False,
    progress: Progress | None = None,
    *,
    data: Sequence[str] = DATA,
    seeds: int = SEEDS,
) -> Rows:
    """Metrics of each method on each population and budget, means over seeds.

    Parameters
    ----------
    quick
        100 and 300 clients, epsilon = 1, one seed
    progress
        called after each population
    data
        shipped names or files
    seeds
        populations of each size; a seed also splits data without a test part

    Returns
    -------
    list of dict
        `data`, `clients`, `rows_per_client`, `epsilon` ("inf": no privacy), `method`,
        `negatives` (None: the method's default), `seeds`; means over seeds of `classwise_ece`,
        `ece`, `nll` and `accuracy`, and `classwise_ece_std`, all to six digits. The method "none"
        is the uncalibrated model.
    """
    sizes, budgets = ((100, 300), (1.0,)) if quick else (CLIENTS, EPSILONS)
    seeds = 1 if quick else seeds
    parts = [
        (name, clients)
        for name, clients in product(data, sizes)
        if clients * ROWS_PER_CLIENT * _loaded(name).logits.shape[1] <= MOST_NUMBERS
    ]
    found: Rows = []
    for name, clients in counted(parts, progress):
        found += population_rows(name, clients, budgets, seeds)
    return found


def population_rows(name: str, clients: int, budgets: Sequence[float], seeds: int = SEEDS) -> Rows:
    """`rows` of one data set and number of clients."""
    measured: dict[tuple[float, str, str | None], list[dict[str, float]]] = {}
    for seed in range(seeds):
        whole = _loaded(name).split(seed)
        shards = population(whole, clients, seed)
        for epsilon in budgets:
            federation = Federation(clients, shards.classes, epsilon=epsilon, seed=seed)
            for method, negatives, calibrator in _fits(federation, shards):
                scores = _judged(calibrator, whole)
                measured.setdefault((epsilon, method, negatives), []).append(scores)
    return [
        {
            "data": name,
            "clients": clients,
            "rows_per_client": ROWS_PER_CLIENT,
            "epsilon": epsilon if math.isfinite(epsilon) else "inf",
            "method": method,
            "negatives": negatives,
            "seeds": seeds,
            **{metric: _six(fmean(s[metric] for s in scores)) for metric in METRICS},
            "classwise_ece_std": _six(pstdev([s["classwise_ece"] for s in scores])),
        }
        for (epsilon, method, negatives), scores in measured.items()
    ]


def population(data: Dataset, clients: int, seed: int) -> Shards:
    """Fit rows drawn with replacement, 50 for each client, dealt with Dirichlet(0.1) skew."""
    rng = stream(seed, Purpose.PARTITION, what=f"binning pays {clients}")
    drawn = rng.integers(0, len(data.labels), clients * ROWS_PER_CLIENT)
    return dealt(data.logits, data.labels, drawn, clients, rng)


def crossover(found: Rows) -> Rows:
    """Find the number of clients from which the best binning variant beats FedNewton.

    A variant counts where it loses at most 1 % accuracy (as in Maddock et al.) and its ECE is not
    above the uncalibrated model's: probabilities shrunk to 1/c would have a small classwise ECE
    and say nothing. The best of the variants is chosen by the same test rows, in its favour.

    Parameters
    ----------
    found
        what `rows` returned

    Returns
    -------
    list of dict
        For each data set and epsilon: `clients`, the least measured number from which on, at
        every larger measured number too, the mean classwise ECE is below FedNewton's (None: not
        within what was measured), the `method` that is best there (None), and `most_clients`, the
        largest number measured.
    """
    out: Rows = []
    for (name, epsilon), mine in grouped(found, "data", "epsilon").items():
        sizes = {
            clients: {row["method"]: row for row in rows}
            for (clients,), rows in grouped(where(mine, negatives=None), "clients").items()
        }
        winners = ((clients, _winner(sizes[clients])) for clients in sorted(sizes, reverse=True))
        least, best = [(None, None), *takewhile(itemgetter(1), winners)][-1]
        known = {"data": name, "epsilon": epsilon, "clients": least, "method": best}
        out.append(known | {"most_clients": max(sizes)})
    return out


def claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield where binning pays: the claim, its verdict and the measured number of clients."""
    for row in crossover(found):
        epsilon = "no privacy" if row["epsilon"] == "inf" else f"epsilon = {row['epsilon']:g}"
        what = "binning beats one temperature from some number of users on"
        place = f"not up to {row['most_clients']:,} clients"
        if row["clients"] is not None:
            place = f"from {row['clients']:,} clients on, by {row['method']}"
        yield f"{row['data']}, {epsilon}: {what}", row["clients"] is not None, place


def _winner(methods: Mapping[str, Record]) -> str | None:
    """Return the binning variant that beats FedNewton by most, or None."""
    none, fit = methods["none"], [methods[BASELINE]]
    for row in map(methods.__getitem__, BINNING):
        if row["accuracy"] >= none["accuracy"] - MOST_ACCURACY_LOST and row["ece"] <= none["ece"]:
            fit.append(row)
    best = min(fit, key=itemgetter("classwise_ece"))
    return None if best is fit[0] else str(best["method"])


def _fits(
    federation: Federation, shards: Shards
) -> Iterator[tuple[str, Negatives | None, Calibrator | None]]:
    """Yield (method, negatives, calibrator); all negatives share one release."""
    yield "none", None, None
    nominal = float(ROWS_PER_CLIENT) if federation.private else None
    plain: dict[str, Any] = {"secure_aggregation": "none"}
    newton = FedNewton(federation, rows_per_client=nominal, **plain)
    yield BASELINE, None, calibrator_of(run_inline(newton, shards))
    for method, settings in BINNING.items():
        if not federation.private:  # nothing is clipped
            settings = {k: v for k, v in settings.items() if k != "clipping"}
        strategy = FedBBQ(federation, **settings, **plain)
        yield method, None, calibrator_of(run_inline(strategy, shards))
        if method not in NEGATIVES_OF or federation.epsilon not in NEGATIVES_AT:
            continue
        for negatives in NEGATIVES:
            other = FedBBQ(federation, negatives=negatives, **settings, **plain)
            for release in strategy.releases:
                other.update(release)
            yield method, negatives, other.result()


def _judged(calibrator: Calibrator | None, data: Dataset) -> dict[str, float]:
    if data.test_logits is None or data.test_probs is None or data.test_labels is None:
        raise ValueError(f"{data.name} was not split")
    after = data.test_probs if calibrator is None else calibrator.calibrated(data.test_logits)
    return summary(after, data.test_labels)


def _six(value: float) -> float:
    return float(f"{value:.6g}")


_loaded = functools.cache(datasets.load)
