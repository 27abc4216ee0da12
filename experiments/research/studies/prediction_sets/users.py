"""Sets that protect whole clients, on the shipped networks. Our own study.

Clients by Dirichlet(0.1) labels, 50 rows each on average where there are so many. Each run deals
rows anew; coverage and set size are those on all test rows, beside the non-private rule of the same
rows. Other ways of protecting a client: `clipped counts`, the same draw with a clip that only a
client of more than the nominal rows reaches, and `one row`, the rule of Angelopoulos et al. with
one row of each client.

`cut` is what is proven to bound the coverage that clipping may cost: rows that it cuts off clients
with too many misses, over all rows, at the crossing or the drawn threshold, whichever is lower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product

import numpy as np

from fedcal import datasets
from fedcal.clients.questions.conformal import SetGaps
from fedcal.conformal import Conformity, PredictionSets
from fedcal.conformal.levels import OF_CLIENTS, Draw
from fedcal.core.numerics import Floats, Integers
from fedcal.core.shards import Shards
from fedcal.experiments.research.studies.angelopoulos.splits import exact_thresholds
from fedcal.experiments.research.studies.rows import (
    counted,
    dealt,
    grouped,
    rng_of,
    span,
    where,
)
from fedcal.experiments.research.studies.spec import Rows, RowsClaim
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.mechanisms import Exponential
from fedcal.mechanisms.choice import draw_index
from fedcal.metrics.conformity import spread
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies.methods.conformal import FedConformal
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Central

RUNS = 60
NETWORKS = ("resnet110-cifar10", "densenet-cifar100", "imdb-binary")
ROWS_PER_CLIENT, ALPHA = 50, 0.1
SETTINGS = ((100, 1.0), (1000, 1.0), (1000, 0.3))
MOST_COVERAGE = 0.02
MOST_SIZE = {(100, 1.0): 1.12, (1000, 1.0): 1.03, (1000, 0.3): 1.1}
_LAC = Conformity("lac")
CROSSING, CLIPPED, ONE_ROW = "crossing", "clipped counts", "one row"


@dataclass(frozen=True, eq=False)
class Network:
    """Fit and test rows, and the scores of the test rows' own and of all labels, sorted."""

    logits: Floats
    labels: Integers
    test_logits: Floats
    test_labels: Integers
    test: Floats
    every: Floats

    def judged(self, threshold: float) -> tuple[float, float]:
        """Share of test rows whose label is in its set, and mean number of labels in one."""
        each = (np.searchsorted(of, threshold, side="right") for of in (self.test, self.every))
        covered, size = (float(count / len(self.test)) for count in each)
        return covered, size


@cache
def network(name: str) -> Network:
    """Load the scores of a shipped data set."""
    data = datasets.load(name).split(0)
    if data.test_logits is None or data.test_labels is None:
        raise TypeError(f"{name} has no test rows")
    test, labels = data.test_logits, data.test_labels
    own, every = _LAC.of_labels(test, labels), _LAC.of_all(test).ravel()
    return Network(data.logits, data.labels, test, labels, np.sort(own), np.sort(every))


@dataclass(frozen=True)
class Cell:
    """Runs of one kind."""

    network: str
    clients: int
    epsilon: float


CELLS_RUN = tuple(Cell(name, *setting) for setting, name in product(SETTINGS, NETWORKS))


def rows(
    progress: Progress | None = None, *, runs: int = RUNS, cells: Sequence[Cell] = CELLS_RUN
) -> Rows:
    """Coverage and size of sets, by network, clients, epsilon and rule.

    Returns
    -------
    list of dict
        `network`, `clients`, `rows` (of all clients), `epsilon`, `rule`, mean `coverage` over test
        rows, its standard `error`, `size`, `exact` and `exact_size` of the non-private rule,
        `excess` and `ratio` over these, `cut`, `all_labels`
    """
    found: Rows = []
    for cell in counted(cells, progress):
        found += _of_rows(cell, runs)
    return found


def _of_rows(cell: Cell, runs: int) -> Rows:
    net = network(cell.network)
    size = min(cell.clients * ROWS_PER_CLIENT, len(net.labels))
    told: dict[str, list[tuple[float, ...]]] = {rule: [] for rule in RULES}
    exact = []
    for run in range(runs):
        rng = rng_of("prediction sets users", run, *vars(cell).values())
        picked = rng.permutation(len(net.labels))[:size]
        shards = dealt(net.logits, net.labels, picked, cell.clients, rng)
        scores = _LAC.of_labels(shards.logits, shards.labels)
        exact.append(net.judged(float(exact_thresholds(scores[None], ALPHA)[0])))
        for rule, each in told.items():
            found, cut = RULES[rule](shards, cell.epsilon, run)
            each.append((*net.judged(found), cut, float(found >= 1.0)))
    covered, sized = np.mean(exact, axis=0).tolist()
    rows: Rows = []
    for rule, each in told.items():
        coverage, mean_size, cut, all_labels = np.mean(each, axis=0).tolist()
        over = [mine[0] - plain[0] for mine, plain in zip(each, exact, strict=True)]
        rows.append(
            {
                **{"network": cell.network, "clients": cell.clients, "rows": size},
                **{"epsilon": cell.epsilon, "rule": rule},
                **{"coverage": coverage, "error": float(np.std(over)) / math.sqrt(runs)},
                **{"size": mean_size, "exact": covered, "exact_size": sized},
                **{"excess": coverage - covered, "ratio": mean_size / sized},
                **{"cut": cut, "all_labels": all_labels},
            }
        )
    return rows


# -- ways of protecting a client, each from shards, epsilon and seed to a threshold and `cut` ------


def _sets(
    shards: Shards, epsilon: float, seed: int, quantile: str = CROSSING
) -> tuple[float, float]:
    nominal = None if quantile == Exponential.name else len(shards.labels) / shards.clients
    strategy = FedConformal(
        Federation(shards.clients, shards.classes, epsilon=epsilon, seed=seed, trust=Central.name),
        alpha=ALPHA,
        quantile=quantile,
        rows_per_client=nominal,
        secure_aggregation="none",  # the same bits, sooner
    )
    sets = run_inline(strategy, shards)
    if not isinstance(sets, PredictionSets):
        raise TypeError(f"a run of prediction sets gave {sets!r}")
    found, query = float(sets.thresholds[0]), strategy.query(1)
    if type(query) is not SetGaps or strategy.plan.bound is None:
        return found, 0.0
    return found, _cut(query.sums(shards), query, max(strategy.plan.bound.norms), found)


def _cut(gaps: Floats, query: SetGaps, clip: float, found: float) -> float:
    """Return the share of (clients, m) centred counts far below 0 that a clip removes."""
    crossing = int(np.argmax(np.append(gaps.clip(-clip, clip).sum(axis=0)[:-1] >= query.level, 1)))
    at = min(crossing, int(np.searchsorted(query.thresholds, found)))
    rows = gaps[:, -1].sum() / ALPHA
    return float(np.maximum(-gaps[:, at] - clip, 0.0).sum() / rows)


def _clipped(shards: Shards, epsilon: float, seed: int) -> tuple[float, float]:
    """Draw the crossing with a clip of (1 - alpha) nominal rows."""
    n = len(shards.labels)
    clip = max(1.0, (1.0 - ALPHA) * n / shards.clients)
    scale = 2.0 * clip / epsilon
    draw = Draw.of(ALPHA * n, scale, OF_CLIENTS)
    slack = draw.slack(scale)
    grid = spread(draw.candidates)
    query = SetGaps(
        shards.classes,
        grid,
        need=1.0 - ALPHA,
        level=slack + 1.0 - ALPHA,
        tilt=draw.tilt * scale,
    )
    gaps = query.sums(shards)
    costs = query.costs(gaps.clip(-clip, clip).sum(axis=0))
    found = float(grid[draw_index(costs, epsilon, clip, rng_of("clipped", seed))])
    return (found if slack <= ALPHA * (n + 1) else 1.0), _cut(gaps, query, clip, found)


RULES: dict[str, Callable[[Shards, float, int], tuple[float, float]]] = {
    CROSSING: _sets,
    CLIPPED: _clipped,
    ONE_ROW: partial(_sets, quantile=Exponential.name),
}


def claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the aims, by clients and epsilon."""
    crossing = where(found, rule=CROSSING)
    for key, mine in grouped(crossing, "clients", "epsilon").items():
        about = f"{key[0]:,} clients, epsilon = {key[1]:g}: "
        text = f"{about}coverage is at most .02 above the non-private rule's"
        yield text, *_below(mine, "excess", MOST_COVERAGE, ".4f")
        text = f"{about}sets are at most {MOST_SIZE[key]:g} times as large"
        yield text, *_below(mine, "ratio", MOST_SIZE[key], ".3f")
        yield (
            f"{about}sets cover no less than the non-private rule's",
            all(r["coverage"] >= r["exact"] - 3.5 * r["error"] for r in mine),
            f"cut {100 * max(r['cut'] for r in mine):.2f} % of rows at most",
        )


def _below(found: Rows, key: str, most: float, form: str) -> tuple[bool, str]:
    high = [r["network"] for r in found if r[key] > most]
    shown = span((r[key] for r in found), form)
    return not high, shown + (f"; more: {', '.join(high)}" if high else "")
