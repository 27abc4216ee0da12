"""What Tables 1, 2 and 7 share: all methods on test rows like those that were trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from fedcal.experiments.research.studies.claims import all_of, larger, where
from fedcal.experiments.research.studies.spec import (
    NO_DIFFERENCE,
    Record,
    Rows,
    RowsClaim,
    Told,
    counted,
)
from fedcal.experiments.research.studies.zhang.grid import (
    ALL_ROWS,
    DP,
    EXACT_TS,
    GLOBAL,
    METHODS,
    NON_PRIVATE,
    OURS,
    PS,
    SGLD,
    TS,
    judged,
    made,
    place,
)
from fedcal.experiments.research.studies.zhang.scores import MATTERS, above, paired, spread
from fedcal.experiments.research.studies.zhang.tasks import tasks
from fedcal.experiments.runs.config import read_toml
from fedcal.strategies.server.outcome import Progress

SEEDS = 10
ORDER = (PS, TS, GLOBAL, DP, SGLD)
"""Least ECE first, in the paper's Table 1 on CIFAR-10 at both epsilons."""

REDUCTION, WORTH = 0.58, 0.03
"""The paper's mean relative reduction of the ECE; and the least ECE that it is taken of."""

POINT = 0.01
AS_GOOD = 0.002
"""By how much a (debiased) ECE may be larger and still be called as good."""

Printed = Mapping[str, Mapping[str, Sequence[float]]]
"""Data of the paper -> method -> (accuracy, ECE)."""


@cache
def printed(table: str) -> Printed:
    """A table of `zhang.toml`."""
    path = Path(__file__).parents[1] / "zhang.toml"
    found: Printed = read_toml(path)["printed"][table]
    return found


def printed_rows(table: str) -> Rows:
    """A table of the paper: what = "paper", a row for each method, `DATA accuracy`, `DATA ece`."""
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


def table(epsilon: float, shipped: Sequence[str], beside: str) -> Callable[..., Rows]:
    """The function `rows` of a table.

    Parameters
    ----------
    shipped
        data without `--data`
    beside
        the paper's table, all of whose data stand beside ours
    """

    def rows(
        data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
    ) -> Rows:
        """All methods on all data: what = "method"; differences over seeds: what = "pair".

        Returns
        -------
        list of dict
            `data`, `method`, see `scores.spread`; or `data`, `better`, `worse`, see
            `scores.paired`: of accuracy (`of` = "accuracy") or ECE; or see `printed_rows`
        """
        found: Rows = []
        todo = [(task, title) for task in tasks(data, shipped) for title in METHODS]
        runs: dict[tuple[str, str], list[dict[str, float]]] = {}
        for task, title in counted(todo, progress):
            mine = [
                judged(made(task, title, epsilon, seed), task.test_x, task.test_y)
                for seed in range(seeds)
            ]
            runs[task.name, title] = mine
            what = {"what": "method", "epsilon": epsilon, "seeds": seeds, "method": title}
            found.append(place(task, **what, **spread(mine)))
        for name in dict.fromkeys(name for name, _ in runs):
            found += _pairs(name, {title: runs[name, title] for title in METHODS})
        return found + printed_rows(beside)

    return rows


def _pairs(name: str, runs: Mapping[str, list[dict[str, float]]]) -> Rows:
    def pair(of: str, better: str, worse: str) -> Record:
        values = ([run[of] for run in runs[title]] for title in (better, worse))
        return {
            **{"what": "pair", "data": name, "of": of, "better": better, "worse": worse},
            **paired(*values),
        }

    best = min((PS, TS), key=lambda title: fmean(run["ece_debiased"] for run in runs[title]))
    return [
        *(pair("ece", a, b) for a, b in pairwise(ORDER)),
        pair("ece", NON_PRIVATE, DP),
        pair("ece", TS, EXACT_TS),
        pair("ece", TS, ALL_ROWS),
        pair("ece_debiased", OURS, best),
        pair("accuracy", best, OURS),
        pair("accuracy", DP, OURS),
    ]


# -- claims --------------------------------------------------------------------------------------


def method_of(found: Sequence[Record], data: str, title: str) -> Record:
    """The line of a method."""
    return next(r for r in found if r.get("method") == title and r.get("data") == data)


def pair_of(found: Sequence[Record], data: str, **facts: str) -> Record:
    """The line of a pair."""
    wanted = {"what": "pair", "data": data, **facts}
    return next(r for r in found if all(r.get(k) == v for k, v in wanted.items()))


def claims(found: Sequence[Record], beside: str) -> list[RowsClaim]:
    """Of each of the data; and the mean reduction over all of them."""
    names = list(dict.fromkeys(r["data"] for r in found if "data" in r))
    said: list[RowsClaim] = []
    for name in names:
        said += _claims(found, name, beside)
    said.append(_reduction(found, names, beside))
    return said


def _claims(found: Sequence[Record], data: str, beside: str) -> list[RowsClaim]:
    of = {title: method_of(found, data, title) for title in METHODS}
    ece = {title: line["ece"] for title, line in of.items()}
    lost = {t: of[DP]["accuracy"] - of[t]["accuracy"] for t in (PS, TS)}
    exact = pair_of(found, data, better=TS, worse=EXACT_TS)
    mine = pair_of(found, data, of="ece_debiased", better=OURS)
    kept = pair_of(found, data, of="accuracy", better=DP, worse=OURS)
    gained = -pair_of(found, data, of="accuracy", worse=OURS)["difference"]
    return [
        (
            f"{data}: ECE in the paper's order, {' < '.join(ORDER)}, where 2 standard errors tell "
            "neighbours apart",
            *_in_order(ece, [pair_of(found, data, better=b, worse=a) for b, a in _NEIGHBOURS]),
            where(orders(beside)),
        ),
        (
            f"{data}: training with DP-SGD makes the ECE larger than training without privacy",
            _lower(pair_of(found, data, better=NON_PRIVATE, worse=DP)),
            f"{ece[DP]:.4f} against {ece[NON_PRIVATE]:.4f}",
            in_paper(beside, lambda p: p[DP][1] > p[NON_PRIVATE][1]),
        ),
        (
            f"{data}: the model trained with DP-SGD is over-confident",
            above(of[DP], {"gap": 0.0}, "gap"),
            f"mean confidence less accuracy {of[DP]['gap']:+.4f}; trained without privacy "
            f"{of[NON_PRIVATE]['gap']:+.4f}",
        ),
        (
            f"{data}: DP-TS and DP-PS have a lower ECE than global clipping and DP-SGLD",
            all_of(above(of[b], of[a], "ece") for a in (PS, TS) for b in (GLOBAL, SGLD)),
            ", ".join(f"{t} {ece[t]:.4f}" for t in (PS, TS, GLOBAL, SGLD)),
            in_paper(beside, lambda p: max(p[PS][1], p[TS][1]) < min(p[GLOBAL][1], p[SGLD][1])),
        ),
        (
            f"{data}: DP-TS has a lower ECE than global clipping with no row left out",
            _lower(pair_of(found, data, better=TS, worse=ALL_ROWS)),
            f"{ece[TS]:.4f} against {ece[ALL_ROWS]:.4f}, with an accuracy of "
            f"{of[TS]['accuracy']:.4f} against {of[ALL_ROWS]['accuracy']:.4f}",
        ),
        (
            f"{data}: recalibration with the split costs less than one point of accuracy",
            max(lost.values()) < POINT,
            ", ".join(f"{t} {100 * lost[t]:.2f} points" for t in lost),
            in_paper(beside, lambda p: _loss(p) < POINT)
            + f"; up to {100 * max(map(_loss, printed(beside).values())):.2f} points",
        ),
        (
            f"{data}: DP-TS is within {AS_GOOD:g} of non-private temperature scaling",
            abs(exact["difference"]) <= AS_GOOD,
            f"{ece[TS]:.4f} against {ece[EXACT_TS]:.4f}",
            in_paper(beside, lambda p: abs(p[TS][1] - p[EXACT_TS][1]) <= AS_GOOD),
        ),
        (
            f"{data}: ours without a split is as good as the better of DP-TS and DP-PS: the upper "
            f"95 % limit of the difference of debiased ECEs, paired over seeds, is at most "
            f"{AS_GOOD:g}",
            None if mine["upper"] is None else mine["upper"] <= AS_GOOD,
            f"ours {of[OURS]['ece_debiased']:.4f}, {mine['worse']} "
            f"{of[mine['worse']]['ece_debiased']:.4f}; difference {mine['difference']:+.4f}"
            + _limit(mine, 1.0, 4),
        ),
        (
            f"{data}: ours costs at most {100 * AS_GOOD:g} points of the DP model's accuracy, by "
            "the upper 95 % limit",
            None if kept["upper"] is None else kept["upper"] <= AS_GOOD,
            f"{100 * kept['difference']:+.2f} points lost{_limit(kept, 100.0, 2)}; "
            f"{100 * gained:+.2f} points more than {mine['worse']}",
        ),
    ]


_NEIGHBOURS = tuple(pairwise(ORDER))


def _lower(pair: Record) -> Told:
    """Whether the first of a pair has the lower value, by two standard errors."""
    return larger(0.0, pair["difference"], max(MATTERS, 2 * (pair["error"] or 0.0)))


def _in_order(ece: Mapping[str, float], pairs: Sequence[Record]) -> tuple[Told, str]:
    """Whether no neighbours stand the other way round and some stand as they should."""
    said, told = [f"{t} {ece[t]:.4f}" for t in ORDER], [_lower(pair) for pair in pairs]
    for pair, one in zip(pairs, told, strict=True):
        if one is False:
            said.append(f"{pair['worse']} before {pair['better']}")
        elif one == NO_DIFFERENCE:
            said.append(f"{pair['better']} and {pair['worse']} not told apart")
    holds = False if False in told else True if True in told else NO_DIFFERENCE
    return holds, ", ".join(said)


def _limit(pair: Record, factor: float, digits: int) -> str:
    return "" if pair["upper"] is None else f", limit {factor * pair['upper']:+.{digits}f}"


def orders(table: str) -> dict[str, bool]:
    """Data of one of the paper's tables -> whether `ORDER` holds there."""
    return {
        name: all(lines[a][1] <= lines[b][1] for a, b in _NEIGHBOURS)
        for name, lines in printed(table).items()
    }


def _loss(lines: Mapping[str, Sequence[float]]) -> float:
    """Accuracy that the split costs on the paper's data, of DP-PS and DP-TS the most."""
    return max(lines[DP][0] - lines[t][0] for t in (PS, TS))


def in_paper(table: str, holds: Callable[[Mapping[str, Sequence[float]]], bool]) -> str:
    """On how many data of the paper's table a claim holds, and on which not."""
    return where({name: holds(lines) for name, lines in printed(table).items()})


def reductions(lines: Mapping[str, float]) -> list[float]:
    """Relative reduction of the DP model's ECE by DP-TS and DP-PS, from method -> ECE."""
    return [1 - lines[title] / lines[DP] for title in (TS, PS)]


def _reduction(found: Sequence[Record], names: Sequence[str], beside: str) -> RowsClaim:
    ece = {n: {t: method_of(found, n, t)["ece"] for t in METHODS} for n in names}
    worth = [n for n in names if ece[n][DP] >= WORTH]
    text = (
        f"Recalibration takes {REDUCTION:g} of the ECE away, in the mean over DP-TS, DP-PS and "
        f"all data where the DP model's is at least {WORTH:g}"
    )
    each = {n: fmean(reductions(ece[n])) for n in worth}
    paper = ({t: v[1] for t, v in lines.items()} for lines in printed(beside).values())
    own = fmean(r for lines in paper for r in reductions(lines))
    shown = ", ".join(f"{n} {value:.2f}" for n, value in each.items())
    left = [f"{n}'s is {ece[n][DP]:.4f}" for n in names if n not in worth]
    holds = fmean(each.values()) >= REDUCTION if each else None
    return text, holds, "; ".join(filter(None, [shown, *left])), f"{own:.2f}"


def module(epsilon: float, shipped: Sequence[str], beside: str) -> tuple[Any, Any]:
    """The functions `rows` and `claims` of a table."""
    return table(epsilon, shipped, beside), lambda found: claims(found, beside)
