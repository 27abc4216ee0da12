"""Tables of Zhang et al.; and what is measured of models by the names that the paper has for them.

Tables 1, 2 and 7: all methods on test rows like those that were trained on; 3: on others. Table 2
has Adult in place of the paper's texts, Table 3 corrupted images in place of its other corpora;
Tables 1 and 7 (epsilon = 8 and 3) are of images. Table 5 has regularisers without privacy beside
DP-SGD.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise, product
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.studies import claims, spec
from experiments.studies.claims import all_of, larger, listed, ordered
from experiments.studies.claims import where as on_how_many
from experiments.studies.expected import read
from experiments.studies.rows import counted, grouped, of_each, standard_error, where
from experiments.studies.spec import Outcome, Record, Rows, RowsClaim, Study
from experiments.studies.zhang import models
from experiments.studies.zhang.models import EPSILON, SHIPPED, Task, task
from fedcal.calibrators import Calibrator
from fedcal.core.numerics import Floats, Integers, softmax
from fedcal.evaluation import Histogram
from fedcal.evaluation.estimators.calibration import Ece, simulate
from fedcal.metrics import summary
from fedcal.metrics.standard import BINS
from fedcal.strategies.server.outcome import Progress
from fedcal.training.networks import TrainedModel

MATTERS = 0.001
"""The least difference of accuracies or ECEs that is called one."""

_EDGES = np.linspace(0.0, 1.0, 32 * BINS + 1)
KEYS = ("accuracy", "ece", "ece_debiased", "nll", "gap")

DP, SGLD = "DP", "DP-SGLD"
GLOBAL, ALL_ROWS = "Global clipping", "Global clipping, no row left out"
PS, TS, EXACT_TS = "DP-PS", "DP-TS", "DP + non-private TS"
NON_PRIVATE, SPLIT = "Non-private", "DP on 90 %"

File = str | None
"""A file of features in place of the shipped ones."""

Made = tuple[TrainedModel, Calibrator | None]


METHODS: Mapping[str, Mapping[str, Any]] = spec.study_file("zhang")["shared"]["lines"]
"""The lines of Tables 1 to 3 and 7, see `models.training`; `fit` recalibrates by the rows left."""


@cache
def made(task: Task, title: str, epsilon: float, seed: int) -> Made:
    """Train a model and fit its recalibration."""
    line = METHODS[title]
    how = models.training(task, line, epsilon)
    fitted = models.recalibrated(line["fit"], task, how, seed) if "fit" in line else None
    return models.trained(task, how, seed), fitted


def probabilities(model: Made, x: NDArray[Any]) -> Floats:
    """Return the probabilities of some rows, (n, classes)."""
    head, calibrator = model
    z = head.predict(x)
    return softmax(z) if calibrator is None else calibrator.calibrated(z)


def scores(probs: Floats, y: Integers) -> dict[str, float]:
    """`KEYS`: ECE has 15 bins; `gap` is mean confidence minus accuracy, also of two classes."""
    found = summary(probs, y)
    found["gap"] = float(probs.max(axis=1).mean()) - found["accuracy"]
    found["ece_debiased"] = debiased(probs, y)
    return {key: found[key] for key in KEYS}


def debiased(probs: Floats, y: Integers) -> float:
    """Return the median-unbiased top-label ECE: of few rows, the one to compare models by."""
    top, right = probs.max(axis=1), probs.argmax(axis=1) == y
    counts = np.array([np.histogram(top[rows], _EDGES)[0] for rows in (~right, right)], np.float64)
    h, ece = Histogram.exact(_EDGES, counts), Ece()
    deviations = simulate(h, 0, "")[1] @ ece.gaps(h).T.astype(np.float32)
    return ece.inverted(h, deviations, 0.95).corrected


def scores_of(model: Made, x: NDArray[Any], y: Integers) -> dict[str, float]:
    """Return the `scores` of a model on some rows."""
    return scores(probabilities(model, x), y)


def spread(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each score over seeds, and `... std`."""
    found = {}
    for key in runs[0]:
        values = [run[key] for run in runs]
        found[key] = fmean(values)
        found[f"{key} std"] = stdev(values) if len(values) > 1 else 0.0
    return found


Seen = Callable[[Task, Record, Sequence[Floats]], Record]
"""Data, facts and the test rows' probabilities by seed -> more facts."""


def study(
    name: str,
    seeds: int,
    seen: Seen = lambda of, facts, probs_by_seed: {},
    data: Sequence[str] = SHIPPED,
) -> Callable[..., Rows]:
    """Return the function `rows` of an experiment: a row for each training, with its scores.

    Parameters
    ----------
    name
        of `trainings` in `zhang.toml`: `what` the rows are, and for each its facts and training;
        `told` are facts that settings are, None for inf
    seeds
        unless others are chosen
    seen
        what is told of the probabilities besides
    data
        shipped ones, unless `rows` gets a file of `features` to use in their place
    """

    def rows(seeds: int = seeds, features: File = None, progress: Progress | None = None) -> Rows:
        """All trainings on all data: facts, and scores on test and (`train ...`) training rows."""
        found: Rows = []
        tasks = map(task, [str(features)] if features else data)
        given = spec.study_file("zhang")["shared"]["trainings"][name]
        for of, line in counted(product(tasks, given["rows"]), progress):
            how = models.training(of, line)
            own = {fact: getattr(how, key) for fact, key in given.get("told", {}).items()}
            facts = {"what": given["what"], **line["facts"]}
            facts |= {k: v if math.isfinite(v) else None for k, v in own.items()}
            heads = [(models.trained(of, how, seed), None) for seed in range(seeds)]
            probs_by_seed = [probabilities(head, of.test_x) for head in heads]
            runs = []
            for head, probs in zip(heads, probs_by_seed, strict=True):
                on_rows = scores_of(head, of.x, of.y)
                train = {f"train {key}": value for key, value in on_rows.items()}
                runs.append(scores(probs, of.test_y) | train)
            more = seen(of, facts, probs_by_seed)
            found.append({"data": of.name, **facts, **more, **spread(runs)})
        return found

    return rows


# -- claims --------------------------------------------------------------------------------------


def above(a: Record, b: Record, key: str) -> Outcome:
    """Test whether the mean of a score over seeds is larger in a than in b, and matters."""
    return claims.above(a, b, key, MATTERS)


def paired(a: Sequence[float], b: Sequence[float]) -> dict[str, float | None]:
    """Return a - b over seeds: `difference` and its standard `error`."""
    each = [x - y for x, y in zip(a, b, strict=True)]
    error = standard_error(each) if len(each) > 1 else None
    return {"difference": fmean(each), "error": error}


# -- tables --------------------------------------------------------------------------------------

ORDER = (PS, TS, GLOBAL, DP, SGLD)
"""Least ECE first, in the paper's Table 1 on CIFAR-10 at both epsilons."""

_NEIGHBOURS = tuple(pairwise(ORDER))
PAIRS = (*_NEIGHBOURS, (NON_PRIVATE, DP), (TS, EXACT_TS), (TS, ALL_ROWS))

POINT = 0.01
AS_GOOD = 0.002
"""By how much a (debiased) ECE may be larger and still be called as good."""

Lines = Mapping[str, Sequence[float]]
"""Method -> (accuracy, ECE), as the paper prints them of one of its data."""


@cache
def printed(table: str) -> Mapping[str, Lines]:
    """Return a table of `zhang.toml`, by the paper's data."""
    found: Mapping[str, Lines] = spec.study_file("zhang")["printed"][table]
    return found


def printed_rows(table: str) -> Rows:
    """Return a table as printed: what = "paper", a row a method, `DATA accuracy` and `DATA ece`."""
    paper = printed(table)
    methods = dict.fromkeys(title for lines in paper.values() for title in lines)
    return [
        {"what": "paper", "method": title}
        | {
            f"{name} {key}": value
            for name, lines in paper.items()
            for key, value in zip(("accuracy", "ece"), lines[title], strict=True)
        }
        for title in methods
    ]


def in_paper(table: str, holds: Callable[[Lines], bool]) -> str:
    """On how many data of the paper's table a claim holds, and on which not."""
    return on_how_many({name: holds(lines) for name, lines in printed(table).items()})


def table(epsilon: float, shipped: str, beside: str) -> Study:
    """Table 1, 2 or 7: its data, and the paper's table, whose data stand beside."""

    def rows(seeds: int = 10, features: File = None, progress: Progress | None = None) -> Rows:
        """All methods: what = "method"; differences over seeds: what = "pair".

        Returns
        -------
        list of dict
            `data`, `method`, see `spread`; or `data`, `better`, `worse`, see
            `paired`: of the ECE; or see `printed_rows`
        """
        found: Rows = []
        of, runs = task(str(features or shipped)), dict[str, list[dict[str, float]]]()
        for title in counted(METHODS, progress):
            heads = [made(of, title, epsilon, seed) for seed in range(seeds)]
            runs[title] = [scores_of(model, of.test_x, of.test_y) for model in heads]
            what = {"data": of.name, "what": "method", "epsilon": epsilon, "seeds": seeds}
            found.append({**what, "method": title, **spread(runs[title])})
        for better, worse in PAIRS:
            values = ([run["ece"] for run in runs[title]] for title in (better, worse))
            known = {"what": "pair", "data": of.name, "better": better, "worse": worse}
            found.append({**known, **paired(*values)})
        return found + printed_rows(beside)

    return Study(rows, of_each(lambda mine: _claims(mine, beside)))


def _claims(found: Rows, beside: str) -> Iterator[RowsClaim]:
    of = {r["method"]: r for r in where(found, what="method")}
    pairs = {(r["better"], r["worse"]): r for r in where(found, what="pair")}
    probs_by_seed = [_lower(pairs[both]) for both in _NEIGHBOURS]
    text = f"ECE in the paper's order, {' < '.join(ORDER)}, where 2 standard errors tell neighbours"
    yield (
        f"{text} apart",
        False if False in probs_by_seed else True if True in probs_by_seed else spec.NO_DIFFERENCE,
        listed([of[t] for t in ORDER], "ece", "method"),
        in_paper(beside, lambda p: all(p[a][1] <= p[b][1] for a, b in _NEIGHBOURS)),
    )

    def pair(text: str, better: str, worse: str, printed: str = "") -> RowsClaim:
        shown = listed([of[better], of[worse]], "ece", "method")
        return text, _lower(pairs[better, worse]), shown, printed

    yield pair(
        "training with DP-SGD makes the ECE larger than training without privacy",
        *(NON_PRIVATE, DP),
        in_paper(beside, lambda p: p[DP][1] > p[NON_PRIVATE][1]),
    )
    yield (
        "the model trained with DP-SGD is over-confident",
        above(of[DP], {"gap": 0.0}, "gap"),
        f"mean confidence less accuracy: {listed([of[DP], of[NON_PRIVATE]], 'gap', 'method')}",
    )
    yield ordered(
        "DP-TS and DP-PS have a lower ECE than global clipping and DP-SGLD",
        *([of[GLOBAL], of[SGLD]], [of[PS], of[TS]], "ece", "method"),
        least=MATTERS,
        printed=in_paper(beside, lambda p: max(p[PS][1], p[TS][1]) < min(p[GLOBAL][1], p[SGLD][1])),
    )
    yield pair("DP-TS has a lower ECE than global clipping with no row left out", TS, ALL_ROWS)
    yield (
        "recalibration with the split costs less than one point of accuracy",
        of[DP]["accuracy"] - min(of[PS]["accuracy"], of[TS]["accuracy"]) < POINT,
        listed([of[DP], of[PS], of[TS]], "accuracy", "method"),
        in_paper(beside, lambda p: p[DP][0] - min(p[PS][0], p[TS][0]) < POINT),
    )
    yield (
        f"DP-TS is within {AS_GOOD:g} of non-private temperature scaling",
        abs(pairs[TS, EXACT_TS]["difference"]) <= AS_GOOD,
        listed([of[TS], of[EXACT_TS]], "ece", "method"),
        in_paper(beside, lambda p: abs(p[TS][1] - p[EXACT_TS][1]) <= AS_GOOD),
    )


def _lower(pair: Record) -> Outcome:
    """Test whether the first of a pair has the lower value, by two standard errors."""
    return larger(0.0, pair["difference"], max(MATTERS, 2 * (pair["error"] or 0.0)))


table1 = table(EPSILON, models.IMAGES, "table1")
table2 = table(EPSILON, models.TABLE, "table2")
table7 = table(3.0, models.IMAGES, "table7")

# -- Figure 2 and the mean reduction of the ECE: all data ----------------------------------------

FOLD, WORTH = 3.06, 0.03
"""Mean factor by which recalibration lowers the ECE, over cells with at least so large an ECE."""
LOSS, TIMES = 0.07, 4.0
"""Accuracy that privacy costs at most, and how many times larger an ECE may be."""


def _overall() -> Rows:
    """Read DP-SGD, training without privacy, and recalibration from the tables that ship."""
    names = ("zhang-table1", "zhang-table1-cifar10", "zhang-table2")
    found = [r for name in names for r in where(read(name)["results"], what="method")]
    return [r for r in found if r["method"] in (DP, NON_PRIVATE, TS, PS)]


def _overall_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of the abstract and section 4.1 on all data."""
    here: dict[str, Lines] = {
        name: {r["method"]: (r["accuracy"], r["ece"]) for r in mine}
        for (name,), mine in grouped(found, "data").items()
    }
    both = here, {**printed("table1"), **printed("table2")}

    def places(holds: Callable[[Lines], bool]) -> tuple[dict[str, bool], ...]:
        return tuple({name: holds(lines) for name, lines in data.items()} for data in both)

    ours, paper = places(lambda p: p[NON_PRIVATE][0] - p[DP][0] < LOSS)
    text = f"on all data DP-SGD costs less than {100 * LOSS:g} points of accuracy"
    yield text, all(ours.values()), on_how_many(ours), on_how_many(paper)
    ours, paper = places(lambda p: p[DP][1] > p[NON_PRIVATE][1])
    text = "on all data DP-SGD makes the ECE larger"
    yield text, all(ours.values()), on_how_many(ours), on_how_many(paper)
    ours, paper = places(lambda p: p[DP][1] > TIMES * p[NON_PRIVATE][1])
    text = f"on some data it makes the ECE more than {TIMES:g} times as large"
    yield text, any(ours.values()), on_how_many(ours), on_how_many(paper)
    folds = [
        {name: fmean(p[DP][1] / p[t][1] for t in (TS, PS)) for name, p in data.items()}
        for data in ({n: p for n, p in here.items() if p[DP][1] >= WORTH}, both[1])
    ]
    shown = [", ".join(f"{name} {value:.1f}" for name, value in each.items()) for each in folds]
    yield (
        f"recalibration divides the ECE by {FOLD:g} in the mean over DP-TS, DP-PS and all data "
        f"where the DP model's is at least {WORTH:g}",
        fmean(folds[0].values()) >= FOLD if folds[0] else None,
        shown[0],
        shown[1],
    )


figure2 = Study(_overall, _overall_claims)

# -- Figure 3: accuracy and share of the rows by confidence, before and after recalibration ------

FEW, AGREE = 0.01, 0.05
"""Share of the rows below which a bin does not count; and difference of accuracy and confidence
up to which they nearly agree."""


def _bins(seeds: int = 3, features: File = None, progress: Progress | None = None) -> Rows:
    """Reliability diagrams of DP and DP-TS: what = "bin", of the rows of all seeds together."""
    of, found = task(str(features or models.TABLE)), Rows()
    for title in counted((DP, TS), progress):
        heads = [made(of, title, EPSILON, seed) for seed in range(seeds)]
        probs = np.concatenate([probabilities(model, of.test_x) for model in heads])
        top, right = probs.max(axis=1), probs.argmax(axis=1) == np.tile(of.test_y, seeds)
        for k in range(BINS):
            mine = np.minimum((BINS * top).astype(int), BINS - 1) == k
            if mine.any():
                facts = {"data": of.name, "what": "bin", "method": title, "bin": f"{k / BINS:.2f}"}
                means = {"share": mine, "confidence": top[mine], "accuracy": right[mine]}
                found.append(facts | {key: float(v.mean()) for key, v in means.items()})
    return found


@of_each
def _bins_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.1, "Qualitative analysis"."""
    private, scaled = (where(found, method=title) for title in (DP, TS))
    last = private[-1:], scaled[-1:]
    text = "most confidences of the private model are in the last bin"
    yield text, last[0][0]["share"] > 0.5, listed(last[0], "share", "method")
    yield ordered("after DP-TS fewer are", *last, "share", "method", least=MATTERS)
    off = [abs(r["accuracy"] - r["confidence"]) for r in scaled if r["share"] >= FEW]
    text = f"after DP-TS, accuracy and mean confidence agree within {AGREE:g} in every bin with "
    yield f"{text}{100 * FEW:g} % of the rows", max(off) <= AGREE, f"at most {max(off):.3f}"


figure3 = Study(_bins, _bins_claims)

# -- Table 3: test rows from elsewhere -----------------------------------------------------------

HOME, ALL = "none", "all corruptions"


def _shifted(seeds: int = 3, features: File = None, progress: Progress | None = None) -> Rows:
    """All methods on the test rows and on each corruption of them.

    Returns
    -------
    list of dict
        what = "method": `data`, `method`, `shift` (`HOME`, `ALL`: the mean over them, or the
        corruption and its severity), `number` of shifts, see `spread`
    """
    found, of = Rows(), task(str(features or models.IMAGES))
    shifts = {HOME: of.test_x}
    shifts |= {f"{name}, {severity}": x for (name, severity), x in of.shifted.items()}
    for title in counted(METHODS, progress):
        heads = [made(of, title, EPSILON, seed) for seed in range(seeds)]
        runs = {
            shift: [scores_of(model, x, of.test_y[: len(x)]) for model in heads]
            for shift, x in shifts.items()
        }
        away = [runs[shift] for shift in shifts if shift != HOME]
        runs[ALL] = [
            {key: fmean(run[seed][key] for run in away) for key in away[0][0]}
            for seed in range(seeds)
        ]
        known = {"data": of.name, "what": "method", "method": title}
        found += ({**known, "shift": shift} | spread(mine) for shift, mine in runs.items())
    return found


@of_each
def _shifted_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.2, in the mean over all corruptions."""
    away, home = ({r["method"]: r for r in where(found, shift=shift)} for shift in (ALL, HOME))
    ours, others = [away[PS], away[TS]], [away[t] for t in (GLOBAL, DP, SGLD)]
    yield ordered(
        "DP-TS and DP-PS, fitted in-domain, lower the ECE out of domain, too",
        *([away[DP]], ours, "ece", "method"),
        least=MATTERS,
        printed=in_paper("table3", lambda p: max(p[PS][1], p[TS][1]) < p[DP][1]),
    )
    yield ordered(
        "DP-TS and DP-PS have the lowest ECE of the paper's private methods there",
        *(others, ours, "ece", "method"),
        least=MATTERS,
        printed=in_paper(
            "table3", lambda p: max(p[PS][1], p[TS][1]) < min(p[t][1] for t in (GLOBAL, DP, SGLD))
        ),
    )
    taken = [1 - float(of[TS]["ece"]) / float(of[DP]["ece"]) for of in (away, home)]
    lowers = above(home[DP], home[TS], "ece") is True
    yield (
        "out of domain recalibration takes a smaller part of the ECE away than in-domain",
        taken[0] < taken[1] if lowers else spec.NO_DIFFERENCE,
        f"DP-TS {taken[0]:.2f} against {taken[1]:.2f}",
    )


table3 = Study(_shifted, _shifted_claims)

# -- Table 5: weight decay, dropout and early stopping -------------------------------------------


@of_each
def _regular_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3."""
    private, _, *regular = found
    printed = "not for weight decay .1, dropout .1 and 8 epochs, one model: .1874 against .166"
    text = "every regulariser has a smaller ECE than DP-SGD"
    yield ordered(text, [private], regular, "ece", "method", least=MATTERS, printed=printed)
    sure = above(private, {"gap": 0.0}, "gap") is True
    most = max(regular, key=lambda r: float(r["gap"]))
    yield (
        "no regulariser makes the model as over-confident as DP-SGD does",
        all_of(above(private, r, "gap") for r in regular) if sure else None,
        f"mean confidence less accuracy: {listed([private, most], 'gap', 'method')}",
    )


table5 = Study(study("table5", 3), _regular_claims)
