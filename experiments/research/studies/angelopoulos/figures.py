"""Figures 2 to 6: the level of the private quantile, images, bins, epsilon, a medical task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from fedcal.experiments.report.figures.drawing import Panel, Sheet, curve
from fedcal.experiments.report.figures.style import LINES
from fedcal.experiments.research.studies.angelopoulos.algorithms import best_bins, thresholds
from fedcal.experiments.research.studies.angelopoulos.draws import drawn_bins, private_thresholds
from fedcal.experiments.research.studies.angelopoulos.splits import (
    ALPHA,
    AXES,
    BOTH,
    EXACT,
    MEDICAL,
    PRIVATE,
    Scored,
    SetEvaluation,
    Splits,
    by_both,
    by_number,
    by_sets,
    histograms,
    joined,
    level_of,
    scored,
    setting,
    split,
)
from fedcal.experiments.research.studies.claims import larger
from fedcal.experiments.research.studies.rows import counted, one, rng_of, span, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, Study
from fedcal.experiments.research.studies.zhang.models import PLAIN, Training, trained
from fedcal.experiments.research.studies.zhang.tasks import Task, tasks
from fedcal.strategies.server.outcome import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- Figure 2: the level q~ by n and epsilon; and what becomes of q~ >= 1 ------------------------

ROWS = tuple(int(n) for n in np.logspace(2, 4.5, 11).round())
EPSILONS = tuple(float(f"{e:.3g}") for e in np.logspace(-2, 2, 13))
SOME_ROWS, SOME_EPSILONS = (100, 1_000, 10_000), (0.1, 1.0, 10.0)
SMALL = ((20, 0.1), (50, 0.1), (100, 0.1), (100, 0.3), (100, 1.0), (300, 1.0), (1_000, 1.0))
"""n and epsilon of draws at the level as printed."""

FLUCTUATION = 0.002
"""By how much q~ may go up again, as m* is drawn."""


def spent_by_authors(epsilon: float, alpha: float, level: float) -> float:
    """Return the epsilon that the authors' program spends, at a level q~ >= 1/2.

    It multiplies w_j by min(alpha, 1 - alpha) where it must by min(q~, 1 - q~). It follows from the
    paper's own analysis: their `get_private_quantile` weighs by
    exp(-epsilon min(alpha, 1 - alpha) w_j / 2), and a row moves w_j by up to 1 / (1 - q~). (Read in
    their repository `private_prediction_sets`, 89a25ca. It caps q~ at 1 - 1e-12, so the epsilon has
    no bound where q~ >= 1.)
    """
    return epsilon * min(alpha, 1 - alpha) / (1 - level) if level < 1 else math.inf


def _levels(progress: Progress | None = None, *, trials: int = 2_000) -> Rows:
    """Levels along n and epsilon, and coverage of uniform scores where n epsilon is small.

    Returns
    -------
    list of dict
        what = "level": `along` ("n" or "epsilon"), `n`, `epsilon`, `bins` = m*, `gamma` = gamma*,
        `level` = q~; what = "draw": `n`, `epsilon`, `level`, `coverage` (all labels where
        q~ >= 1), `printed` (at min(q~, 1)), `authors` (the epsilon that their program spends;
        None = no bound)
    """
    todo = [("n", n, e) for e in SOME_EPSILONS for n in ROWS]
    todo += [("epsilon", n, e) for n in SOME_ROWS for e in EPSILONS]
    found: Rows = [
        {"what": "level", "along": along, "n": n, **level_of(n, e)} for along, n, e in todo
    ]
    for n, epsilon in counted(SMALL, progress):
        rng, mine = rng_of("angelopoulos-figure2", 0, n, epsilon), level_of(n, epsilon)
        scores, m, q = rng.random((trials, n)), mine["bins"], mine["level"]
        printed = thresholds(m)[drawn_bins(scores, m, min(q, 1.0), epsilon, rng)]
        covered = private_thresholds(scores, m, epsilon, ALPHA, rng)
        found.append(
            {
                **{"what": "draw", "n": n, "epsilon": epsilon, "level": q},
                "coverage": float(covered.mean()),  # of uniform scores, it is the threshold
                "printed": float(printed.mean()),
                "authors": None if q >= 1 else spent_by_authors(epsilon, ALPHA, q),
            }
        )
    return found


def _lines(found: Rows, along: str) -> dict[float, Rows]:
    """Map each fixed value to the levels along the other axis."""
    other, values = ("epsilon", SOME_EPSILONS) if along == "n" else ("n", SOME_ROWS)
    mine = where(found, what="level", along=along)
    return {float(v): where(mine, **{other: v}) for v in values}


def _levels_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims that the figure makes, and the one measured at min(q~, 1)."""
    for along in ("n", "epsilon"):
        levels = [[r["level"] for r in line] for line in _lines(found, along).values()]
        up = max(b - a for line in levels for a, b in pairwise(line))
        ends = ", ".join(f"{line[-1]:.4f}" for line in levels)
        text = f"q~ falls with {along} towards 1 - alpha, but for mild fluctuations of m*"
        yield text, up <= FLUCTUATION, f"largest rise {max(up, 0.0):.4f}; ends at {ends}"
    drawn = where(found, what="draw")
    small = [r["printed"] for r in drawn if r["level"] >= 1]
    yield (
        "At the level min(q~, 1), as printed, sets cover 90 % where q~ >= 1",
        100 * min(small) >= 100 * (1 - ALPHA),
        f"{span(small, '.0f', 100)} % of uniform scores",
    )
    yield (
        "The authors' program spends the epsilon that it is given",
        all(r["authors"] is not None and r["authors"] <= r["epsilon"] for r in drawn),
        "; ".join(
            f"{r['authors']:.2f} at n = {r['n']:,}, epsilon = {r['epsilon']:g}"
            for r in drawn
            if r["authors"] is not None
        )
        + "; without bound where q~ >= 1",
    )


def _levels_sheet(found: Rows) -> Sheet:
    """q~ along n and along epsilon."""
    looks = ("m0", "m1", "m2")
    panels = tuple(
        _levels_panel(along, dict(zip(looks, _lines(found, along).items(), strict=True)))
        for along in ("n", "epsilon")
    )
    legend = tuple(zip(looks, ("smallest", "middle", "largest"), strict=True))
    return Sheet("The level q~ of the private quantile", 2, panels, legend)


def _levels_panel(along: str, lines: dict[str, tuple[float, Rows]]) -> Panel:
    fixed = "ε" if along == "n" else "n"

    def plot(ax: Axes) -> None:
        ax.set(xlabel="rows n" if along == "n" else along, ylabel="q~", xscale="log")
        ax.axhline(1 - ALPHA, **LINES["reference"])
        for look, (_, line) in lines.items():
            curve(ax, look, [r[along] for r in line], [r["level"] for r in line])
        ax.set_ylim(0.88, 1.0)

    said = "; ".join(
        f"{fixed} {v:g}: " + ", ".join(f"{r[along]:g} {r['level']:.3f}" for r in line)
        for v, line in lines.values()
    )
    note = f"{fixed} = {', '.join(f'{v:g}' for v, _ in lines.values())}"
    return Panel(f"By {along}", plot, f"q~. {said}.", aspect=0.75, note=note)


figure2 = Study(_levels, _levels_claims, _levels_sheet)


def covers(row: Record) -> bool:
    """Return True if mean coverage over all splits is 90 %, within 3.5 standard errors."""
    return bool(row["coverage"] >= 1 - ALPHA - 3.5 * row["coverage_error"])


# -- Figure 3: exact and private sets of networks on images --------------------------------------
# The paper's columns are a network trained without privacy and one trained with DP-SGD at the same
# epsilon. Here the second kind are linear heads on features, of `studies.zhang`, each trained
# `TRAININGS` times; a network on CIFAR-10 whose training is not ours stands beside them.

NETWORK = "resnet110-cifar10"
MOST, BUDGET = 5_000, 8.0
"""Rows to calibrate by, and to test on; epsilon."""
TRAININGS = 5
"""Of each head; the splits are dealt to them."""

PLAINLY, PRIVATELY = "non-private", "DP-SGD"
HEADS = {PLAINLY: PLAIN, PRIVATELY: Training(epsilon=BUDGET)}
"""How a head is trained."""

MINUSCULE = 0.05
"""An increase of sets, relative, that we call so."""


def _networks(
    data: Sequence[str] | None = None, progress: Progress | None = None, *, splits: int = 1_000
) -> Rows:
    """Exact and private sets of the same random splits, for each network and head.

    Half of the test rows calibrates, up to `MOST`.

    Returns
    -------
    list of dict
        See `splits.setting` and `histograms`; `data`, `model`, `sets`, `n`, `tests`, `accuracy`,
        and `between`: the std of mean set sizes over trainings (one: None)
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
        rng = rng_of("angelopoulos-figure3", 0, name, *([model] if len(runs) > 1 else []))
        heads = [run() for run in runs[:splits]]
        n = min(MOST, len(heads[0].own) // 2)
        drawn = [split(of, n, n, splits // len(heads), rng) for of in heads]
        both = [by_both(one, BUDGET, rng) for one in drawn]
        accuracy = sum(of.accuracy for of in heads) / len(heads)
        for sets in (EXACT, PRIVATE):
            rule, each = both[0][sets][0], [one[sets][1] for one in both]
            place = {"data": name, "model": model, "sets": sets, "n": n, "tests": n}
            judged, facts = joined(each), {"accuracy": accuracy, "between": _between(each)}
            found.append(setting(place | facts, rule, judged))
            found += histograms(place, judged)
    return found


def _head(task: Task, how: Training, seed: int) -> Callable[[], Scored]:
    def run() -> Scored:
        logits = trained(task, how, seed).predict(task.test_x)
        return Scored.of(task.name, logits, task.test_y)

    return run


def _between(each: Sequence[SetEvaluation]) -> float | None:
    means = [float(one.mean_sizes.mean()) for one in each]
    middle = sum(means) / len(means)
    rest = len(means) - 1
    return math.sqrt(sum((m - middle) ** 2 for m in means) / rest) if rest else None


def _networks_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.1 for each data set."""
    lines = where(found, what="setting", sets=PRIVATE)
    for private in lines:
        name, model = private["data"], private["model"]
        exact = one(found, what="setting", data=name, model=model, sets=EXACT)
        more = private["set_size"] / exact["set_size"] - 1
        yield (
            f"{name}, {model}: private sets cover 90 % in the mean of all splits",
            covers(private),
            f"{100 * private['coverage']:.2f} % (non-private {100 * exact['coverage']:.2f} %)",
        )
        yield (
            f"{name}, {model}: the increase of sets by private calibration is minuscule: at most "
            f"{100 * MINUSCULE:.0f} %",
            more <= MINUSCULE,
            f"{100 * more:.2f} %, from {exact['set_size']:.4f} to {private['set_size']:.4f} labels",
        )
    for private in where(lines, model=PRIVATELY):
        plain = one(lines, data=private["data"], model=PLAINLY)
        error = math.hypot(private["between"], plain["between"]) / math.sqrt(TRAININGS)
        yield (
            f"{private['data']}: a privately trained network has larger sets",
            larger(private["set_size"], plain["set_size"], 2 * error),
            f"{private['set_size']:.3f} labels against {plain['set_size']:.3f}, accuracy "
            f"{100 * private['accuracy']:.1f} % against {100 * plain['accuracy']:.1f} %",
            "accuracy 67 % instead of 73 %",
        )


def _networks_sheet(found: Rows) -> Sheet:
    """Coverage and size, one row of panels for each network and head."""
    panels = []
    for line in where(found, what="setting", sets=EXACT):
        facts = {key: line[key] for key in ("data", "model")}
        titles = ("Coverage of a split", "Set sizes")
        panels += by_sets(where(found, **facts), ", ".join(facts.values()), titles)
    return Sheet("Private and non-private prediction sets", 2, tuple(panels), BOTH)


figure3 = Study(_networks, _networks_claims, _networks_sheet)

# -- Figure 4: coverage and set size by the number of bins ---------------------------------------

DATA = "densenet-cifar100"
N = 5_000
"""Rows to calibrate by, of Figures 4 and 5; as many are test rows."""
LIKES = {"the paper's epsilon": 5.0, "the paper's n epsilon": 30.0}
"""At its n = 30,000 the paper's epsilon = 5 is n epsilon = 150,000: ours at epsilon = 30."""

SHARES = (0.01, 0.05, 0.1, 1.0, 10.0)
"""Of n epsilon; the paper has them from .05 on."""
STAR = "m*"

CONSTANT = 0.005
"""By how much means of coverage may differ and still be called nearly constant."""
WELL = 0.02
"""By how much sets of m* may be larger than the smallest, relative."""


def _bins(progress: Progress | None = None, *, splits: int = 100) -> Rows:
    """Measure sets by the number of bins, on the same splits for all of them.

    Returns
    -------
    list of dict
        See `splits.setting`; `data`, `like`, `sets`, `times` (bins / n epsilon; of m* "m*"), `n`,
        `tests`
    """
    found: Rows = []
    drawn = split(scored(DATA), N, N, splits, rng_of("angelopoulos-figure4", 0))
    todo = [(like, e, share) for like, e in LIKES.items() for share in (*SHARES, STAR)]
    for like, epsilon, share in counted(todo, progress):
        many = best_bins(N, epsilon, ALPHA) if isinstance(share, str) else share * N * epsilon
        rng = rng_of("angelopoulos-figure4", 0, epsilon, share)
        for sets, rule in by_both(drawn, epsilon, rng, round(many)).items():
            if sets == PRIVATE or share == STAR:
                times = str(share) if sets == PRIVATE else "-"
                place = {"data": DATA, "like": like, "n": N, "tests": N}
                found.append(setting(place | {"sets": sets, "times": times}, *rule))
    return found


def _bins_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.2 and of the figure's caption."""
    for like, epsilon in LIKES.items():
        mine = where(found, what="setting", like=like, sets=PRIVATE)
        coverage, sizes = ([r[k] for r in mine] for k in ("coverage", "set_size"))
        over = 100 * (one(mine, times=STAR)["set_size"] / min(sizes) - 1)
        about = f"At epsilon = {epsilon:g} ({like}), "
        yield (
            f"{about}coverage is nearly constant over three orders of bin numbers: within "
            f"{100 * CONSTANT:.1f} points",
            100 * max(coverage) - 100 * min(coverage) <= 100 * CONSTANT,
            f"{span(coverage, '.2f', 100)} %",
        )
        yield (
            f"{about}m* of one seed works well: sets at most {100 * WELL:.0f} % over the smallest",
            over <= 100 * WELL,
            f"{over:.2f} % over",
        )


def _bins_sheet(found: Rows) -> Sheet:
    """Coverage and size by the number of bins, one row of panels for each epsilon."""
    panels = []
    for like, epsilon in LIKES.items():
        mine = where(found, what="setting", like=like)
        private, exact = where(mine, sets=PRIVATE), one(mine, sets=EXACT)
        lines = {
            "m0": [r for r in private if r["times"] != STAR],
            "m7": where(private, times=STAR),
        }
        note = f"{DATA}, ε = {epsilon:g}"
        panels += [by_number(y, note, "bins m", "bins", lines, exact) for y in AXES]
    legend = (("m0", "private"), ("m7", "private, m*"), ("b1", "non-private"))
    return Sheet("Prediction sets by the number of bins", 2, tuple(panels), legend)


figure4 = Study(_bins, _bins_claims, _bins_sheet)

# -- Figure 5: coverage and set size by epsilon --------------------------------------------------
# Algorithm 5 as printed takes the number of bins that had the luckiest single draw, out of 100 to a
# million; the authors' program tries none below 10,000. That matters where scores crowd near 1, as
# here (the 90 % quantile is .99): a few hundred bins of equal width hardly tell them apart. So both
# are run, and m* with several seeds of its draws.

PAPER, MORE = (0.5, 1.0, 5.0, 10.0), (3.0, 6.0, 30.0, 60.0)
"""The paper's epsilons; and those that make n epsilon what it is there, with n = 30,000."""

SPREAD = "spread"
BINS = {STAR: None, "10,000": 10_000}
"""By Algorithm 5, 100 and more; and the least of the authors' program."""

SEEDS = 20
"""Of the draws of m*."""

LITTLE = 0.05
"""By how much set sizes may differ, relative, and still be called hardly sensitive."""


def _budgets(progress: Progress | None = None, *, splits: int = 100) -> Rows:
    """Measure sets by epsilon, on the same splits for all of them.

    Returns
    -------
    list of dict
        See `splits.setting`; `data`, `sets`, `chosen` (of `BINS`), `n`, `tests`. What = "spread":
        of m* over `SEEDS` seeds, least, median and most of `bins`, mean set size (`size_...`) and
        mean coverage
    """
    found: Rows = []
    drawn = split(scored(DATA), N, N, splits, rng_of("angelopoulos-figure5", 0))
    place = {"data": DATA, "n": N, "tests": N}
    for chosen, epsilon in counted(product((*BINS, SPREAD), sorted({*PAPER, *MORE})), progress):
        if chosen == SPREAD:
            found.append(_spread(drawn, epsilon))
            continue
        both = by_both(drawn, epsilon, rng_of("angelopoulos-figure5", 0, epsilon), BINS[chosen])
        if not found:
            found.append(setting(place | {"sets": EXACT, "chosen": ""}, *both[EXACT]))
        found.append(setting(place | {"sets": PRIVATE, "chosen": chosen}, *both[PRIVATE]))
    return found


def _spread(drawn: Splits, epsilon: float) -> Record:
    """Measure the results of m* over seeds of its draws."""
    runs = []
    for seed in range(SEEDS):
        m = best_bins(N, epsilon, ALPHA, seed)
        rng = rng_of("angelopoulos-figure5", 0, epsilon, seed)
        judged = by_both(drawn, epsilon, rng, m)[PRIVATE][1].record
        runs.append((m, judged["set_size"], judged["coverage"]))
    bins, sizes, coverage = zip(*runs, strict=True)
    return {
        **{"what": SPREAD, "epsilon": epsilon, "seeds": SEEDS},
        **{"bins_low": min(bins), "bins_median": median(bins), "bins_high": max(bins)},
        **{"size_low": min(sizes), "size_median": median(sizes), "size_high": max(sizes)},
        **{"coverage_least": min(coverage), "coverage_most": max(coverage)},
    }


def _budgets_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3 and the figure's caption, and the luck in m*."""
    for r in where(found, what=SPREAD):
        yield (
            f"m = m*, epsilon = {r['epsilon']:g}: over {r['seeds']} seeds of its draws sets are "
            f"within {100 * LITTLE:.0f} %",
            r["size_high"] <= (1 + LITTLE) * r["size_low"],
            f"{r['size_low']:.2f} to {r['size_high']:.2f} labels, with m* from "
            f"{r['bins_low']:,} to {r['bins_high']:,}",
        )
    likes = {"the paper's epsilons": PAPER, "the paper's n epsilon": MORE}
    for chosen, (like, epsilons) in product(BINS, likes.items()):
        private = where(found, what="setting", sets=PRIVATE, chosen=chosen)
        mine = [one(private, epsilon=e) for e in epsilons]
        coverage, sizes, errors = (
            [r[k] for r in mine] for k in ("coverage", "set_size", "coverage_error")
        )
        ends = larger(coverage[0], coverage[-1], 2 * math.hypot(errors[0], errors[-1]))
        steps = zip(pairwise(coverage), pairwise(errors), strict=True)
        rises = any(larger(b, a, 2 * math.hypot(*of)) is True for (a, b), of in steps)
        more = 100 * (max(sizes) / min(sizes) - 1)
        of = f"{chosen} of one seed" if BINS[chosen] is None else chosen
        about = f"m = {of}, {like} ({', '.join(f'{e:g}' for e in epsilons)}): "
        yield (
            f"{about}the rule becomes less conservative as epsilon grows",
            False if rises else ends,
            f"coverage {', '.join(f'{100 * c:.2f}' for c in coverage)} %",
        )
        yield (
            f"{about}there is little sensitivity to epsilon, sets are within {100 * LITTLE:.0f} %",
            more <= 100 * LITTLE,
            f"the largest are {more:.1f} % over the smallest",
        )


def _budgets_sheet(found: Rows) -> Sheet:
    """Coverage and size by epsilon."""
    looks = dict(zip(("m0", "m1"), BINS, strict=True))
    lines = {look: where(found, sets=PRIVATE, chosen=chosen) for look, chosen in looks.items()}
    exact = one(found, what="setting", sets=EXACT)
    panels = tuple(by_number(y, DATA, "epsilon", "epsilon", lines, exact) for y in AXES)
    legend = [(look, f"private, m = {chosen}") for look, chosen in looks.items()]
    legend.append(("b1", "non-private"))
    return Sheet("Prediction sets by epsilon", 2, panels, tuple(legend))


figure5 = Study(_budgets, _budgets_claims, _budgets_sheet)

# -- Figure 6: sets for a medical task -----------------------------------------------------------
# The paper has 1,000 chest X-rays with three diagnoses to calibrate by. Shipped are patients with
# suspected heart disease (769 in all, two outcomes, so n is 500), and questions of life sciences
# that a language model answered (1,254, four answers each), which are medical by subject only.

SETTINGS = (("heart-disease", 500, 10.0), ("heart-disease", 500, 20.0), (MEDICAL, 1_000, 10.0))
"""Data, n, epsilon. The paper's n epsilon is 10,000."""

MEDIAN, CLOSE = 0.904, 0.01
"""The paper's median coverage; how near is near."""


def _patients(progress: Progress | None = None, *, splits: int = 1_000) -> Rows:
    """Exact and private sets of random splits; all rows that are left are test rows.

    Returns
    -------
    list of dict
        See `splits.setting` and `histograms`; `data`, `sets`, `n`, `tests`, `budget` (epsilon of
        the private sets), `accuracy`
    """
    found: Rows = []
    for name, n, epsilon in counted(SETTINGS, progress):
        data, rng = scored(name), rng_of("angelopoulos-figure6", 0, name, epsilon)
        tests = len(data.own) - n
        both = by_both(split(data, n, tests, splits, rng), epsilon, rng)
        for sets, (rule, judged) in both.items():
            place = {"data": name, "sets": sets, "n": n, "tests": tests, "budget": epsilon}
            found.append(setting(place | {"accuracy": data.accuracy}, rule, judged))
            found += histograms(place, judged)
    return found


def _patients_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.4."""
    for name, n, epsilon in SETTINGS:
        mine = one(found, what="setting", data=name, budget=epsilon, sets=PRIVATE)
        about = f"{name}, n = {n:,}, epsilon = {epsilon:g}: "
        yield (
            f"{about}sets cover 90 % in the mean of all splits",
            covers(mine),
            f"{100 * mine['coverage']:.2f} %",
        )
        yield (
            f"{about}median coverage within a point of the paper's {100 * MEDIAN:.1f} %",
            abs(mine["coverage_median"] - MEDIAN) <= CLOSE,
            f"{100 * mine['coverage_median']:.2f} %",
            f"{100 * MEDIAN:.1f} %",
        )


def _patients_sheet(found: Rows) -> Sheet:
    """Coverage and size, one row of panels for each setting."""
    panels = []
    for name, n, epsilon in SETTINGS:
        title = "heart disease" if name != MEDICAL else "life sciences"
        titles, note = (f"{title}: coverage", f"{title}: set sizes"), f"n = {n:,}, ε = {epsilon:g}"
        panels += by_sets(where(found, data=name, budget=epsilon), note, titles)
    return Sheet("Medical prediction sets", 2, tuple(panels), BOTH)


figure6 = Study(_patients, _patients_claims, _patients_sheet)
