"""Figures 2 to 6: the level of the private quantile, images, bins, epsilon, a medical task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, product
from statistics import median, stdev

import numpy as np

from experiments.studies.angelopoulos import splits as common
from experiments.studies.angelopoulos.splits import ALPHA, EXACT, MEDICAL, PRIVATE, by_both
from experiments.studies.claims import ERRORS, between, larger, listed
from experiments.studies.rows import counted, grouped, one, rng_of, where
from experiments.studies.spec import Outcome, Record, Rows, RowsClaim, Study
from experiments.studies.zhang.models import PLAIN, SHIPPED, Task, Training, task, trained
from fedcal.conformal.levels import best_bins, binned, inflated_level, thresholds
from fedcal.strategies.server.outcome import Progress

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
        {"what": "level", "along": along, "n": n, **common.level_of(n, e)} for along, n, e in todo
    ]
    for n, epsilon in counted(SMALL, progress):
        rng, mine = rng_of("angelopoulos-figure2", 0, n, epsilon), common.level_of(n, epsilon)
        scores, m, q = rng.random((trials, n)), mine["bins"], mine["level"]
        printed = thresholds(m)[common.drawn_bins(scores, m, min(q, 1.0), epsilon, rng)]
        covered = common.private_thresholds(scores, m, epsilon, ALPHA, rng)
        found.append(
            {
                **{"what": "draw", "n": n, "epsilon": epsilon, "level": q},
                "coverage": float(covered.mean()),  # of uniform scores, it is the threshold
                "printed": float(printed.mean()),
                "authors": None if q >= 1 else spent_by_authors(epsilon, ALPHA, q),
            }
        )
    return found


def _levels_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims that the figure makes, and the one measured at min(q~, 1)."""
    for along, other in (("n", "epsilon"), ("epsilon", "n")):
        lines = grouped(where(found, what="level", along=along), other).values()
        up = max(b["level"] - a["level"] for line in lines for a, b in pairwise(line))
        text = f"q~ falls with {along} towards 1 - alpha, but for mild fluctuations of m*"
        ends = ", ".join(f"{line[-1]['level']:.4f}" for line in lines)
        yield text, up <= FLUCTUATION, f"largest rise {max(up, 0.0):.4f}; ends at {ends}"
    drawn = where(found, what="draw")
    small = [r for r in drawn if r["level"] >= 1]
    text = "At the level min(q~, 1), as printed, sets cover 90 % where q~ >= 1"
    yield between(text, small, "printed", "n", 1 - ALPHA - 1e-9, 1.0)
    text = "The authors' program spends the epsilon that it is given"
    holds = all(r["authors"] is not None and r["authors"] <= r["epsilon"] for r in drawn)
    yield text, holds, f"by n: {listed(drawn, 'authors', 'n')}; without bound where q~ >= 1"


figure2 = Study(_levels, _levels_claims)


# -- Figure 3: exact and private sets of networks on images --------------------------------------
# The paper's columns are a network trained without privacy and one trained with DP-SGD at the same
# epsilon. Here the second kind are linear heads on features, of `studies.zhang`, each trained
# `TRAININGS` times; a network on CIFAR-10 whose training is not ours stands beside them.

NETWORK = "resnet110-cifar10"
MOST, BUDGET = 5_000, 8.0
"""Rows to calibrate by, and to test on; epsilon."""
TRAININGS = 5
"""Number of heads; the splits are divided among them."""

PLAINLY, PRIVATELY = "non-private", "DP-SGD"
HEADS = {PLAINLY: PLAIN, PRIVATELY: Training(epsilon=BUDGET)}
"""Kind of head -> its training."""

MINUSCULE = 0.05
"""An increase of sets, relative, that we call so."""


def _networks(progress: Progress | None = None, *, splits: int = 1_000) -> Rows:
    """Exact and private sets of the same random splits, for each network and head.

    Half of the test rows calibrates, up to `MOST`.

    Returns
    -------
    list of dict
        See `splits.setting`; `data`, `model`, `sets`, `n`, `tests`, `accuracy`,
        and `between`: the std of mean set sizes over trainings (one: None)
    """
    todo: list[tuple[str, str, list[Callable[[], common.Scored]]]] = [
        (NETWORK, PLAINLY, [partial(common.scored, NETWORK)])
    ]
    for of, (model, how) in product(map(task, SHIPPED), HEADS.items()):
        todo.append((of.name, model, [partial(_head, of, how, s) for s in range(TRAININGS)]))
    found: Rows = []
    for name, model, runs in counted(todo, progress):
        rng = rng_of("angelopoulos-figure3", 0, name, *([model] if len(runs) > 1 else []))
        heads = [run() for run in runs[:splits]]
        n = min(MOST, len(heads[0].own) // 2)
        drawn = [common.split(of, n, n, splits // len(heads), rng) for of in heads]
        both = [by_both(one, BUDGET, rng) for one in drawn]
        accuracy = sum(of.accuracy for of in heads) / len(heads)
        for sets in (EXACT, PRIVATE):
            rule, each = both[0][sets][0], [one[sets][1] for one in both]
            place = {"data": name, "model": model, "sets": sets, "n": n, "tests": n}
            evaluation = common.joined(each)
            facts = {"accuracy": accuracy, "between": _between(each)}
            found.append(common.setting(place | facts, rule, evaluation))
    return found


def _head(of: Task, how: Training, seed: int) -> common.Scored:
    return common.Scored.of(trained(of, how, seed).predict(of.test_x), of.test_y)


def _between(each: Sequence[common.SetEvaluation]) -> float | None:
    means = [float(one.mean_sizes.mean()) for one in each]
    return stdev(means) if len(means) > 1 else None


def _networks_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.1 for each data set."""
    lines = where(found, what="setting", sets=PRIVATE)
    for private in lines:
        name, model = private["data"], private["model"]
        exact = one(found, what="setting", data=name, model=model, sets=EXACT)
        yield _covers(f"{name}, {model}: private sets", private)
        more = private["set_size"] / exact["set_size"] - 1
        yield (
            f"{name}, {model}: the increase of sets by private calibration is minuscule: at most "
            f"{100 * MINUSCULE:.0f} %",
            more <= MINUSCULE,
            f"{100 * more:.2f} %; {listed([exact, private], 'set_size', 'sets')} labels",
        )
    for private in where(lines, model=PRIVATELY):
        plain = one(lines, data=private["data"], model=PLAINLY)
        error = math.hypot(private["between"], plain["between"]) / math.sqrt(TRAININGS)
        text, both = f"{private['data']}: a privately trained network", [private, plain]
        shown = f"{listed(both, 'set_size', 'model')}; accuracy {listed(both, 'accuracy', 'model')}"
        outcome = larger(private["set_size"], plain["set_size"], 2 * error)
        yield f"{text} has larger sets", outcome, shown, "accuracy 67 % instead of 73 %"


def _covers(about: str, row: Record) -> RowsClaim:
    text = f"{about} cover 90 % in the mean of all splits"
    return between(text, [row], "coverage", "data", 1 - ALPHA, 1.0, "coverage_error")


figure3 = Study(_networks, _networks_claims)

# -- Figure 4: coverage and set size by the number of bins ---------------------------------------

DATA = "densenet-cifar100"
N = 5_000
"""Rows to calibrate by, of Figures 4 and 5; as many are test rows."""
LIKES = {"the paper's epsilon": 5.0, "the paper's n epsilon": 30.0}
"""At its n = 30,000 the paper's epsilon = 5 is n epsilon = 150,000: ours at epsilon = 30."""

SHARES = (0.01, 0.05, 0.1, 1.0, 10.0)
"""Grid of n epsilon; the paper has them from .05 on."""
STAR = "m*"

CONSTANT = 0.005
"""By how much means of coverage may differ and still be called nearly constant."""
WELL = 0.02
"""By how much sets of m* may be larger than the smallest, relative."""


GROWING = ((1_000, 1.0), (1_000, 10.0), (10_000, 1.0), (10_000, 10.0), (30_000, 5.0))
"""n and epsilon of Corollary 1; the last is the figure's."""


def bounded(found: Record, most: float) -> Record:
    """Add the upper bound of Theorem 3 to a row, where the fullest bin has the probability `most`.

    `room`: what the bound is above coverage.
    """
    q, gamma, bound = found["level"], found["gamma"], 1.0
    if q < 1:
        log = math.log(found["bins"] / (gamma * ALPHA))
        slack = 2 * (1 + max(q / (1 - q), 1)) * log / ((found["n"] + 1) * found["epsilon"])
        bound = min(1.0, 1 - (1 - gamma) * ALPHA + (1 - gamma * ALPHA) * (2 * most + slack))
    return found | {"most": most, "bound": bound, "room": bound - found["coverage"]}


def _growth(n: int, epsilon: float, trials: int) -> Record:
    """Measure how much the private rule of Corollary 1 covers of uniform scores.

    Their coverage is the threshold: what it is above the exact one is measured, and added to what
    the exact one covers in the mean.
    """
    m = round(n * epsilon)
    rng, gamma = rng_of("angelopoulos-figure4", 0, "uniform", n, epsilon), 1 / m
    scores = rng.random((trials, n))
    over = common.private_thresholds(scores, m, epsilon, ALPHA, rng, gamma)
    over -= common.exact_thresholds(scores, ALPHA)
    error, rate = float(over.std()) / math.sqrt(trials), math.log(m / ALPHA) / m
    coverage = float(over.mean()) + math.ceil(round((n + 1) * (1 - ALPHA), 9)) / (n + 1)
    level = inflated_level(n, m, epsilon, ALPHA, gamma)
    found = {
        **{"what": "growth", "size": m, "n": n, "epsilon": epsilon, "bins": m, "gamma": gamma},
        **{"level": level, "coverage": coverage, "coverage_error": error},
        **{"times_log": (coverage - (1 - ALPHA)) / rate, "times_log_error": error / rate},
    }
    return bounded(found, 1 / m)


def _bins(progress: Progress | None = None, *, splits: int = 100) -> Rows:
    """Measure sets by the number of bins, on the same splits for all of them.

    Returns
    -------
    list of dict
        See `splits.setting`; `data`, `like`, `sets`, `times` (bins / n epsilon; of m* "m*"), `n`,
        `tests`, and of private sets what `bounded` adds (`most`: share of all scores). What =
        "growth": coverage of uniform scores by `size` = n epsilon, and `times_log`: what it is over
        90 %, in units of log(size / alpha) / size
    """
    found: Rows = [_growth(n, epsilon, 4 * splits) for n, epsilon in GROWING]
    of = common.scored(DATA)
    drawn = common.split(of, N, N, splits, rng_of("angelopoulos-figure4", 0))
    todo = [(like, e, share) for like, e in LIKES.items() for share in (*SHARES, STAR)]
    for like, epsilon, share in counted(todo, progress):
        many = best_bins(N, epsilon, ALPHA) if isinstance(share, str) else share * N * epsilon
        rng = rng_of("angelopoulos-figure4", 0, epsilon, share)
        for sets, rule in by_both(drawn, epsilon, rng, round(many)).items():
            if sets == PRIVATE or share == STAR:
                times = str(share) if sets == PRIVATE else "-"
                place = {"data": DATA, "like": like, "n": N, "tests": N, "sets": sets}
                found.append(common.setting(place | {"times": times}, *rule))
            if sets == PRIVATE:
                most = np.bincount(binned(of.own, round(many))).max() / len(of.own)
                found[-1] = bounded(found[-1], float(most))
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
            max(coverage) - min(coverage) <= CONSTANT,
            listed(mine, "coverage", "times"),
        )
        text = (
            f"{about}m* of one seed works well: sets at most {100 * WELL:.0f} % over the smallest"
        )
        yield text, over <= 100 * WELL, f"{over:.2f} % over"
        about = f"Theorem 3, epsilon = {epsilon:g} ({like}): "
        text = f"{about}the bound is not below coverage"
        yield between(text, mine, "room", "times", 0.0, 1.0, "coverage_error")
        text = f"{about}the bound is below 100 %"
        yield between(text, mine, "bound", "times", 0.0, 1.0 - 1e-9)
    growth = where(found, what="growth")
    about = "Uniform scores, m = n epsilon, gamma = 1 / m: "
    text = f"{about}the bound of Theorem 3 is not below coverage"
    yield between(text, growth, "room", "size", 0.0, 1.0, "coverage_error")
    text = f"{about}what coverage is over 90 % falls at least as log(n epsilon / alpha) / "
    text += "(n epsilon) (Corollary 1)"
    first, *others = growth
    most = first["times_log"] + ERRORS * first["times_log_error"]
    yield between(text, others, "times_log", "size", 0.0, most, "times_log_error")


figure4 = Study(_bins, _bins_claims)

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
"""Number of seeds of the draws of m*."""

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
    drawn = common.split(common.scored(DATA), N, N, splits, rng_of("angelopoulos-figure5", 0))
    place = {"data": DATA, "n": N, "tests": N}
    for chosen, epsilon in counted(product((*BINS, SPREAD), sorted({*PAPER, *MORE})), progress):
        if chosen == SPREAD:
            found.append(_spread(drawn, epsilon))
            continue
        both = by_both(drawn, epsilon, rng_of("angelopoulos-figure5", 0, epsilon), BINS[chosen])
        if not found:
            found.append(common.setting(place | {"sets": EXACT, "chosen": ""}, *both[EXACT]))
        found.append(common.setting(place | {"sets": PRIVATE, "chosen": chosen}, *both[PRIVATE]))
    return found


def _spread(drawn: common.Splits, epsilon: float) -> Record:
    """Measure the results of m* over seeds of its draws."""
    runs = []
    for seed in range(SEEDS):
        m = best_bins(N, epsilon, ALPHA, seed)
        rng = rng_of("angelopoulos-figure5", 0, epsilon, seed)
        evaluation = by_both(drawn, epsilon, rng, m)[PRIVATE][1].record
        runs.append((m, evaluation["set_size"], evaluation["coverage"]))
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

        def falls(a: Record, b: Record) -> Outcome:
            error = math.hypot(a["coverage_error"], b["coverage_error"])
            return larger(a["coverage"], b["coverage"], 2 * error)

        rises = any(falls(b, a) is True for a, b in pairwise(mine))
        sizes = [r["set_size"] for r in mine]
        of = f"{chosen} of one seed" if BINS[chosen] is None else chosen
        about = f"m = {of}, {like} ({', '.join(f'{e:g}' for e in epsilons)}): "
        text = f"{about}the rule becomes less conservative as epsilon grows"
        shown = listed(mine, "coverage", "epsilon")
        yield text, False if rises else falls(mine[0], mine[-1]), shown
        yield (
            f"{about}there is little sensitivity to epsilon, sets are within {100 * LITTLE:.0f} %",
            max(sizes) <= (1 + LITTLE) * min(sizes),
            listed(mine, "set_size", "epsilon"),
        )


figure5 = Study(_budgets, _budgets_claims)

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
        See `splits.setting`; `data`, `sets`, `n`, `tests`, `budget` (epsilon of
        the private sets), `accuracy`
    """
    found: Rows = []
    for name, n, epsilon in counted(SETTINGS, progress):
        data, rng = common.scored(name), rng_of("angelopoulos-figure6", 0, name, epsilon)
        tests = len(data.own) - n
        both = by_both(common.split(data, n, tests, splits, rng), epsilon, rng)
        for sets, (rule, evaluation) in both.items():
            place = {"data": name, "sets": sets, "n": n, "tests": tests, "budget": epsilon}
            found.append(common.setting(place | {"accuracy": data.accuracy}, rule, evaluation))
    return found


def _patients_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.4."""
    for name, n, epsilon in SETTINGS:
        mine = one(found, what="setting", data=name, budget=epsilon, sets=PRIVATE)
        about = f"{name}, n = {n:,}, epsilon = {epsilon:g}: "
        yield _covers(f"{about}sets", mine)
        text = f"{about}median coverage within a point of the paper's {100 * MEDIAN:.1f} %"
        near = abs(mine["coverage_median"] - MEDIAN) <= CLOSE
        yield text, near, f"{100 * mine['coverage_median']:.2f} %", f"{100 * MEDIAN:.1f} %"


figure6 = Study(_patients, _patients_claims)
