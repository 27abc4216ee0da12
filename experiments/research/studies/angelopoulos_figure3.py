"""Figure 3 of Angelopoulos et al.: exact and private sets of networks on images.

The paper's columns are a network trained without privacy and one trained with DP-SGD at the same
epsilon. Here the second kind are linear heads on features, of `studies.zhang`, each trained
`TRAININGS` times; a network on CIFAR-10 whose training is not ours stands beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedcal.conformal import Conformity
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.research.studies.claims import larger
from fedcal.experiments.research.studies.rows import counted
from fedcal.experiments.research.studies.set_trials import (
    ALPHA,
    BARS,
    EXACT,
    PRIVATE,
    Judged,
    Scored,
    by_both,
    histogram,
    histograms,
    joined,
    rng_of,
    row_of,
    scored,
    setting,
    split,
    where,
)
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.research.studies.zhang.models import PLAIN, Training, trained
from fedcal.experiments.research.studies.zhang.tasks import Task, tasks
from fedcal.strategies.server.outcome import Progress

NETWORK = "resnet110-cifar10"
N, TESTS, EPSILON, SPLITS = 5_000, 5_000, 8.0, 1_000
TRAININGS = 5
"""Of each head; the splits are dealt to them."""

PLAINLY, PRIVATELY = "non-private", "DP-SGD"
HEADS = {PLAINLY: PLAIN, PRIVATELY: Training(epsilon=EPSILON)}
"""How a head is trained."""

MINUSCULE = 0.05
"""An increase of sets, relative, that we call so."""


def rows(
    data: Sequence[str] | None = None, progress: Progress | None = None, *, splits: int = SPLITS
) -> Rows:
    """Exact and private sets of the same random splits, for each network and head.

    Half of the test rows calibrates, up to `N`.

    Returns
    -------
    list of dict
        See `set_trials.row_of` and `histograms`; `data`, `model`, `sets`, `n`, `tests`,
        `accuracy`, and `between`: the std of mean set sizes over trainings (one: None)
    """
    todo: list[tuple[str, str, list[Callable[[], Scored]]]] = []
    if not data:
        todo.append((NETWORK, PLAINLY, [lambda: scored(NETWORK)]))
    for task in tasks(data):
        for model, how in HEADS.items():
            runs = [_head(task, how, seed) for seed in range(TRAININGS)]
            todo.append((task.name, model, runs))
    found: Rows = []
    for name, model, runs in counted(todo, progress):
        rng = rng_of("angelopoulos-figure3", name, *([model] if len(runs) > 1 else []))
        heads = [run() for run in runs[:splits]]
        n = min(N, len(heads[0].own) // 2)
        drawn = [split(of, n, min(TESTS, n), splits // len(heads), rng) for of in heads]
        both = [by_both(one, EPSILON, rng) for one in drawn]
        for sets in (EXACT, PRIVATE):
            rule, each = both[0][sets][0], [one[sets][1] for one in both]
            place = {"data": name, "model": model, "sets": sets, "n": n, "tests": min(TESTS, n)}
            accuracy = sum(of.accuracy for of in heads) / len(heads)
            facts = {"accuracy": accuracy, "between": _between(each)}
            judged = joined(each)
            found.append(row_of(place | facts, rule, judged))
            found += histograms(place, judged)
    return found


def _head(task: Task, how: Training, seed: int) -> Callable[[], Scored]:
    def run() -> Scored:
        logits, y = trained(task, how, seed).predict(task.test_x), task.test_y
        lac = Conformity("lac")
        accuracy = float((logits.argmax(axis=1) == y).mean())
        return Scored(task.name, lac.of_all(logits), lac.of_labels(logits, y), accuracy)

    return run


def _between(each: Sequence[Judged]) -> float | None:
    means = [float(one.mean_sizes.mean()) for one in each]
    middle = sum(means) / len(means)
    rest = len(means) - 1
    return math.sqrt(sum((m - middle) ** 2 for m in means) / rest) if rest else None


def claims(found: Rows) -> list[RowsClaim]:
    """What section 4.1 says, of each of the data."""
    said: list[RowsClaim] = []
    lines = where(found, what="setting", sets=PRIVATE)
    for private in lines:
        name, model = private["data"], private["model"]
        exact = setting(found, data=name, model=model, sets=EXACT)
        more = private["set_size"] / exact["set_size"] - 1
        about = f"{name}, {model}: "
        said += [
            (
                f"{about}private sets cover 90 % in the mean of all splits",
                private["coverage"] >= 1 - ALPHA - 3.5 * private["coverage_error"],
                f"{100 * private['coverage']:.2f} % (non-private {100 * exact['coverage']:.2f} %)",
            ),
            (
                f"{about}the increase of sets by private calibration is minuscule: at most "
                f"{100 * MINUSCULE:.0f} %",
                more <= MINUSCULE,
                f"{100 * more:.2f} %, from {exact['set_size']:.4f} to "
                f"{private['set_size']:.4f} labels",
            ),
        ]
    for line in where(lines, model=PRIVATELY):
        said.append(_larger_sets(line, setting(lines, data=line["data"], model=PLAINLY)))
    return said


def _larger_sets(private: Record, plain: Record) -> RowsClaim:
    error = math.hypot(private["between"], plain["between"]) / math.sqrt(TRAININGS)
    return (
        f"{private['data']}: a privately trained network has larger sets",
        larger(private["set_size"], plain["set_size"], 2 * error),
        f"{private['set_size']:.3f} labels against {plain['set_size']:.3f}, accuracy "
        f"{100 * private['accuracy']:.1f} % against {100 * plain['accuracy']:.1f} %",
        "accuracy 67 % instead of 73 %",
    )


def sheet(found: Rows) -> Sheet | None:
    """Coverage and size, one row of panels for each network and head."""
    panels = []
    for line in where(found, what="setting", sets=EXACT):
        facts = {key: line[key] for key in ("data", "model")}
        mine = {
            look: where(found, sets=sets, **facts)
            for look, sets in zip(BARS, (EXACT, PRIVATE), strict=True)
        }
        note = ", ".join(facts.values())
        panels += [
            histogram("Coverage of a split", note, "coverage", mine),
            histogram("Set sizes", note, "size", mine),
        ]
    legend = tuple(zip(BARS, (f"{EXACT} sets", f"{PRIVATE} sets"), strict=True))
    return Sheet("Private and non-private prediction sets", 2, tuple(panels), legend)
