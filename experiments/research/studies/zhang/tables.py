"""Tables 1, 2 and 7: all methods on test rows like those that were trained on; 3: on others.

Table 2 has Adult in place of the paper's texts, Table 3 corrupted images in place of its other
corpora; Tables 1 and 7 (epsilon = 8 and 3) are of images, on CIFAR-10 features by `--data`. Table 5
has regularisers without privacy beside DP-SGD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean

from fedcal.core.checks import InputError
from fedcal.experiments.research.studies.claims import all_of, larger
from fedcal.experiments.research.studies.claims import where as on_how_many
from fedcal.experiments.research.studies.registry import study as study_file
from fedcal.experiments.research.studies.rows import counted, grouped, of_each, where
from fedcal.experiments.research.studies.spec import (
    NO_DIFFERENCE,
    Record,
    Rows,
    RowsClaim,
    Study,
    Told,
)
from fedcal.experiments.research.studies.zhang.models import EPSILON, PLAIN, Training
from fedcal.experiments.research.studies.zhang.scores import (
    ALL_ROWS,
    DP,
    EXACT_TS,
    GLOBAL,
    MATTERS,
    METHODS,
    NON_PRIVATE,
    PS,
    SGLD,
    TS,
    above,
    judged,
    made,
    paired,
    spread,
    study,
)
from fedcal.experiments.research.studies.zhang.tasks import IMAGES, TABLE, tasks
from fedcal.strategies.server.outcome import Progress

ORDER = (PS, TS, GLOBAL, DP, SGLD)
"""Least ECE first, in the paper's Table 1 on CIFAR-10 at both epsilons."""

_NEIGHBOURS = tuple(pairwise(ORDER))

REDUCTION, WORTH = 0.58, 0.03
"""The paper's mean relative reduction of the ECE; and the least ECE that it is taken of."""

POINT = 0.01
AS_GOOD = 0.002
"""By how much a (debiased) ECE may be larger and still be called as good."""

Lines = Mapping[str, Sequence[float]]
"""Method -> (accuracy, ECE), as the paper prints them of one of its data."""


@cache
def printed(table: str) -> Mapping[str, Lines]:
    """Return a table of `zhang.toml`, by the paper's data."""
    found: Mapping[str, Lines] = study_file("zhang")["printed"][table]
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
    """Table 1, 2 or 7.

    Parameters
    ----------
    shipped
        data without `--data`
    beside
        the paper's table, all of whose data stand beside ours
    """

    def rows(
        data: Sequence[str] | None = None, seeds: int = 10, progress: Progress | None = None
    ) -> Rows:
        """All methods on all data: what = "method"; differences over seeds: what = "pair".

        Returns
        -------
        list of dict
            `data`, `method`, see `scores.spread`; or `data`, `better`, `worse`, see
            `scores.paired`: of the ECE; or see `printed_rows`
        """
        found: Rows = []
        todo = [(task, title) for task in tasks(data, (shipped,)) for title in METHODS]
        runs: dict[str, dict[str, list[dict[str, float]]]] = {}
        for task, title in counted(todo, progress):
            models = [made(task, title, epsilon, seed) for seed in range(seeds)]
            mine = [judged(model, task.test_x, task.test_y) for model in models]
            runs.setdefault(task.name, {})[title] = mine
            what = {"data": task.name, "what": "method", "epsilon": epsilon, "seeds": seeds}
            found.append({**what, "method": title, **spread(mine)})
        for name, of in runs.items():
            found += _pairs(name, of)
        return found + printed_rows(beside)

    def claims(found: Rows) -> Iterator[RowsClaim]:
        yield from of_each(lambda mine: _claims(mine, beside))(found)
        yield _reduction(where(found, what="method"), beside)

    return Study(rows, claims)


def _pairs(name: str, runs: Mapping[str, list[dict[str, float]]]) -> Rows:
    def pair(better: str, worse: str) -> Record:
        values = ([run["ece"] for run in runs[title]] for title in (better, worse))
        known = {"what": "pair", "data": name, "better": better, "worse": worse}
        return {**known, **paired(*values)}

    return [
        *(pair(a, b) for a, b in _NEIGHBOURS),
        pair(NON_PRIVATE, DP),
        pair(TS, EXACT_TS),
        pair(TS, ALL_ROWS),
    ]


def _claims(found: Rows, beside: str) -> Iterator[RowsClaim]:
    of = {r["method"]: r for r in where(found, what="method")}
    ece = {title: line["ece"] for title, line in of.items()}
    pairs = where(found, what="pair")

    def pair(better: str, worse: str) -> Record:
        return next(r for r in pairs if (r["better"], r["worse"]) == (better, worse))

    yield (
        f"ECE in the paper's order, {' < '.join(ORDER)}, where 2 standard errors tell neighbours "
        "apart",
        *_in_order(ece, [pair(*both) for both in _NEIGHBOURS]),
        on_how_many(orders(beside)),
    )
    yield (
        "training with DP-SGD makes the ECE larger than training without privacy",
        _lower(pair(NON_PRIVATE, DP)),
        f"{ece[DP]:.4f} against {ece[NON_PRIVATE]:.4f}",
        in_paper(beside, lambda p: p[DP][1] > p[NON_PRIVATE][1]),
    )
    yield (
        "the model trained with DP-SGD is over-confident",
        above(of[DP], {"gap": 0.0}, "gap"),
        f"mean confidence less accuracy {of[DP]['gap']:+.4f}; trained without privacy "
        f"{of[NON_PRIVATE]['gap']:+.4f}",
    )
    yield (
        "DP-TS and DP-PS have a lower ECE than global clipping and DP-SGLD",
        all_of(above(of[b], of[a], "ece") for a in (PS, TS) for b in (GLOBAL, SGLD)),
        ", ".join(f"{t} {ece[t]:.4f}" for t in (PS, TS, GLOBAL, SGLD)),
        in_paper(beside, lambda p: max(p[PS][1], p[TS][1]) < min(p[GLOBAL][1], p[SGLD][1])),
    )
    yield (
        "DP-TS has a lower ECE than global clipping with no row left out",
        _lower(pair(TS, ALL_ROWS)),
        f"{ece[TS]:.4f} against {ece[ALL_ROWS]:.4f}, with an accuracy of "
        f"{of[TS]['accuracy']:.4f} against {of[ALL_ROWS]['accuracy']:.4f}",
    )
    lost = {t: of[DP]["accuracy"] - of[t]["accuracy"] for t in (PS, TS)}
    yield (
        "recalibration with the split costs less than one point of accuracy",
        max(lost.values()) < POINT,
        ", ".join(f"{t} {100 * lost[t]:.2f} points" for t in lost),
        in_paper(beside, lambda p: _loss(p) < POINT)
        + f"; up to {100 * max(map(_loss, printed(beside).values())):.2f} points",
    )
    yield (
        f"DP-TS is within {AS_GOOD:g} of non-private temperature scaling",
        abs(pair(TS, EXACT_TS)["difference"]) <= AS_GOOD,
        f"{ece[TS]:.4f} against {ece[EXACT_TS]:.4f}",
        in_paper(beside, lambda p: abs(p[TS][1] - p[EXACT_TS][1]) <= AS_GOOD),
    )


def _lower(pair: Record) -> Told:
    """Test whether the first of a pair has the lower value, by two standard errors."""
    return larger(0.0, pair["difference"], max(MATTERS, 2 * (pair["error"] or 0.0)))


def _in_order(ece: Mapping[str, float], pairs: Sequence[Record]) -> tuple[Told, str]:
    """Test that no neighbours are reversed and some are in the expected order."""
    said, told = [f"{t} {ece[t]:.4f}" for t in ORDER], [_lower(pair) for pair in pairs]
    for pair, lower in zip(pairs, told, strict=True):
        if lower is False:
            said.append(f"{pair['worse']} before {pair['better']}")
        elif lower == NO_DIFFERENCE:
            said.append(f"{pair['better']} and {pair['worse']} not told apart")
    holds = False if False in told else True if True in told else NO_DIFFERENCE
    return holds, ", ".join(said)


def orders(table: str) -> dict[str, bool]:
    """Map data of one of the paper's tables to whether `ORDER` holds there."""
    return {
        name: all(lines[a][1] <= lines[b][1] for a, b in _NEIGHBOURS)
        for name, lines in printed(table).items()
    }


def _loss(lines: Lines) -> float:
    """Accuracy that the split costs on the paper's data, of DP-PS and DP-TS the most."""
    return max(lines[DP][0] - lines[t][0] for t in (PS, TS))


def _reduced(ece: Mapping[str, float]) -> list[float]:
    """Relative reduction of the DP model's ECE by DP-TS and DP-PS, from method -> ECE."""
    return [1 - ece[title] / ece[DP] for title in (TS, PS)]


def _reduction(found: Rows, beside: str) -> RowsClaim:
    ece = {n: {r["method"]: r["ece"] for r in of} for (n,), of in grouped(found, "data").items()}
    each = {name: fmean(_reduced(of)) for name, of in ece.items() if of[DP] >= WORTH}
    paper = ({t: v[1] for t, v in lines.items()} for lines in printed(beside).values())
    shown = ", ".join(f"{name} {value:.2f}" for name, value in each.items())
    left = [f"{name}'s is {of[DP]:.4f}" for name, of in ece.items() if name not in each]
    return (
        f"Recalibration takes {REDUCTION:g} of the ECE away, in the mean over DP-TS, DP-PS and "
        f"all data where the DP model's is at least {WORTH:g}",
        fmean(each.values()) >= REDUCTION if each else None,
        "; ".join(filter(None, [shown, *left])),
        f"{fmean(r for lines in paper for r in _reduced(lines)):.2f}",
    )


table1 = table(EPSILON, IMAGES, "table1")
table2 = table(EPSILON, TABLE, "table2")
table7 = table(3.0, IMAGES, "table7")

# -- Table 3: test rows from elsewhere -----------------------------------------------------------

HOME, ALL = "none", "all corruptions"
OTHERS = (GLOBAL, DP, SGLD)


def _shifted(
    data: Sequence[str] | None = None, seeds: int = 3, progress: Progress | None = None
) -> Rows:
    """All methods on the test rows and on each corruption of them.

    Returns
    -------
    list of dict
        what = "method": `data`, `method`, `shift` (`HOME`, `ALL`: the mean over them, or the
        corruption and its severity), `number` of shifts, see `scores.spread`

    Raises
    ------
    InputError
        Data without corrupted rows.
    """
    found: Rows = []
    chosen = tasks(data, (IMAGES,))
    for task in chosen:
        if not task.shifted:
            raise InputError(
                f"{task.name}: has no corrupted test rows (test_CORRUPTION_SEVERITY), which "
                "`fedcal.experiments.research.shipped.image_features` makes"
            )
    for task, title in counted([(t, title) for t in chosen for title in METHODS], progress):
        shifts = {HOME: task.test_x}
        shifts |= {f"{name}, {severity}": x for (name, severity), x in task.shifted.items()}
        models = [made(task, title, EPSILON, seed) for seed in range(seeds)]
        runs = {
            shift: [judged(model, x, task.test_y[: len(x)]) for model in models]
            for shift, x in shifts.items()
        }
        away = [runs[shift] for shift in shifts if shift != HOME]
        runs[ALL] = [
            {key: fmean(of[seed][key] for of in away) for key in away[0][0]}
            for seed in range(seeds)
        ]
        known = {"data": task.name, "what": "method", "method": title}
        found += ({**known, "shift": shift} | spread(mine) for shift, mine in runs.items())
    return found


@of_each
def _shifted_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.2, in the mean over all corruptions."""
    away, home = ({r["method"]: r for r in where(found, shift=shift)} for shift in (ALL, HOME))
    apart = [of for (shift,), of in grouped(found, "shift").items() if shift not in (ALL, HOME)]
    ece = [{r["method"]: r["ece"] for r in of} for of in apart]
    less = sum(max(of[PS], of[TS]) < of[DP] for of in ece)
    means = {t: float(away[t]["ece"]) for t in (PS, TS, *OTHERS)}
    shown = ", ".join(f"{t} {mean:.4f}" for t, mean in means.items())
    taken = [1 - float(of[TS]["ece"]) / float(of[DP]["ece"]) for of in (away, home)]
    yield (
        "DP-TS and DP-PS, fitted in-domain, lower the ECE out of domain, too",
        all_of(above(away[DP], away[t], "ece") for t in (PS, TS)),
        f"{shown}; on {less} of {len(apart)} corruptions",
        in_paper("table3", lambda p: max(p[PS][1], p[TS][1]) < p[DP][1]),
    )
    yield (
        "DP-TS and DP-PS have the lowest ECE of the paper's private methods there",
        all_of(above(away[b], away[a], "ece") for a in (PS, TS) for b in OTHERS),
        " < ".join(sorted(means, key=means.__getitem__)),
        in_paper("table3", lambda p: all(p[a][1] < p[b][1] for a in (PS, TS) for b in OTHERS)),
    )
    lowers = above(home[DP], home[TS], "ece") is True
    yield (
        "out of domain recalibration takes a smaller part of the ECE away than in-domain",
        taken[0] < taken[1] if lowers else NO_DIFFERENCE,
        f"DP-TS {taken[0]:.2f} against {taken[1]:.2f}",
    )


table3 = Study(_shifted, _shifted_claims)

# -- Table 5: weight decay and early stopping ----------------------------------------------------

DECAYS, STOPS = (1e-4, 1e-3, 1e-2, 1e-1), (2.0, 4.0, 6.0, 8.0)
"""The paper's values."""

REGULAR = {
    **{f"weight decay {decay:g}": replace(PLAIN, weight_decay=decay) for decay in DECAYS},
    **{f"early stopping ({stop:g} epochs)": replace(PLAIN, epochs=stop) for stop in STOPS},
}
TRAININGS = {DP: Training(EPSILON), NON_PRIVATE: PLAIN, **REGULAR}


@of_each
def _regular_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3."""
    of = {r["method"]: r for r in found}
    private = of[DP]
    worse = [t for t in REGULAR if above(private, of[t], "ece") is False]
    sure = above(private, {"gap": 0.0}, "gap") is True
    most = max(REGULAR, key=lambda t: of[t]["gap"])
    shown = ", ".join(f"{t} {of[t]['ece']:.4f}" for t in worse)
    yield (
        "every regulariser has a smaller ECE than DP-SGD",
        all_of(above(private, of[t], "ece") for t in REGULAR),
        f"DP-SGD {private['ece']:.4f}; "
        + (shown or f"largest {max(of[t]['ece'] for t in REGULAR):.4f}"),
        "not for weight decay .1, dropout .1 and 8 epochs, one model: .1874 against .166",
    )
    yield (
        "no regulariser makes the model as over-confident as DP-SGD does",
        all_of(above(private, of[t], "gap") for t in REGULAR) if sure else None,
        ("" if sure else "DP-SGD's is not over-confident; ")
        + f"mean confidence less accuracy: DP-SGD {private['gap']:+.4f}, {most} "
        f"{of[most]['gap']:+.4f}",
    )


table5 = Study(
    study(lambda of: (({"what": "method", "method": t}, how) for t, how in TRAININGS.items()), 3),
    _regular_claims,
)
