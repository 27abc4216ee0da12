"""What Tables 1, 2 and 7 share: all methods on test rows like those that were trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from fedcal.experiments.config import read_toml
from fedcal.experiments.studies.spec import Record, Rows, RowsClaim, counted
from fedcal.experiments.studies.zhang.grid import (
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
from fedcal.experiments.studies.zhang.scores import paired, spread
from fedcal.experiments.studies.zhang.tasks import tasks
from fedcal.strategies.outcome import Progress

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


def table(epsilon: float, shipped: Sequence[str], beside: str, theirs: str) -> Callable[..., Rows]:
    """The function `rows` of a table.

    Parameters
    ----------
    shipped
        data without `--data`
    beside, theirs
        the paper's table, and which of its data stand beside ours
    """

    def rows(
        data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
    ) -> Rows:
        """All methods on all data: what = "method"; differences over seeds: what = "pair".

        Returns
        -------
        list of dict
            `data`, `method`, the paper's `paper accuracy` and `paper ece`, see `scores.spread`; or
            `data`, `better`, `worse`, see `scores.paired`: of accuracy (`of` = "accuracy") or ECE
        """
        found: Rows = []
        paper = printed(beside)[theirs]
        todo = [(task, title) for task in tasks(data, shipped) for title in METHODS]
        runs: dict[tuple[str, str], list[dict[str, float]]] = {}
        for task, title in counted(todo, progress):
            mine = [
                judged(made(task, title, epsilon, seed), task.test_x, task.test_y)
                for seed in range(seeds)
            ]
            runs[task.name, title] = mine
            accuracy, ece = paper.get(title, (None, None))
            what = {"what": "method", "epsilon": epsilon, "seeds": seeds, "method": title}
            line = place(task, **what, **spread(mine))
            found.append(line | {"paper accuracy": accuracy, "paper ece": ece})
        for name in dict.fromkeys(name for name, _ in runs):
            found += _pairs(name, {title: runs[name, title] for title in METHODS})
        return found

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
    return next(r for r in found if r.get("method") == title and r["data"] == data)


def pair_of(found: Sequence[Record], data: str, **facts: str) -> Record:
    """The line of a pair."""
    wanted = {"what": "pair", "data": data, **facts}
    return next(r for r in found if all(r.get(k) == v for k, v in wanted.items()))


def claims(found: Sequence[Record], beside: str, theirs: str) -> list[RowsClaim]:
    """Of each of the data; and the mean reduction over all of them."""
    names = list(dict.fromkeys(r["data"] for r in found))
    paper = printed(beside)[theirs]
    said: list[RowsClaim] = []
    for name in names:
        said += _claims(found, name, paper)
    said.append(_reduction(found, names, beside))
    return said


def _claims(
    found: Sequence[Record], data: str, paper: Mapping[str, Sequence[float]]
) -> list[RowsClaim]:
    of = {title: method_of(found, data, title) for title in METHODS}
    ece = {title: line["ece"] for title, line in of.items()}
    wrong = [
        f"{a} before {b}"
        for b, a in pairwise(ORDER)
        if _clearly(pair_of(found, data, of="ece", better=b, worse=a))
    ]
    theirs = [f"{a} before {b}" for b, a in pairwise(ORDER) if paper[b][1] > paper[a][1]]
    lost = {t: of[DP]["accuracy"] - of[t]["accuracy"] for t in (PS, TS)}
    their_loss = max(paper[DP][0] - paper[t][0] for t in (PS, TS))
    others = min((GLOBAL, SGLD), key=ece.__getitem__)
    exact = pair_of(found, data, better=TS, worse=EXACT_TS)
    whole = pair_of(found, data, better=TS, worse=ALL_ROWS)
    mine = pair_of(found, data, of="ece_debiased", better=OURS)
    kept = pair_of(found, data, of="accuracy", better=DP, worse=OURS)
    gained = -pair_of(found, data, of="accuracy", worse=OURS)["difference"]
    return [
        (
            f"{data}: ECE in the paper's order, {' < '.join(ORDER)}, up to 2 standard errors",
            not wrong,
            ", ".join(f"{t} {ece[t]:.4f}" for t in ORDER) + _but(wrong),
            "holds" if not theirs else "does not hold" + _but(theirs),
        ),
        (
            f"{data}: training with DP-SGD makes the ECE larger than training without privacy",
            ece[NON_PRIVATE] < ece[DP]
            and not _clearly(pair_of(found, data, better=NON_PRIVATE, worse=DP)),
            f"{ece[DP]:.4f} against {ece[NON_PRIVATE]:.4f}",
            f"{paper[DP][1]:.4f} against {paper[NON_PRIVATE][1]:.4f}",
        ),
        (
            f"{data}: the model trained with DP-SGD is over-confident",
            of[DP]["gap"] > 0,
            f"mean confidence less accuracy {of[DP]['gap']:+.4f}; trained without privacy "
            f"{of[NON_PRIVATE]['gap']:+.4f}",
        ),
        (
            f"{data}: DP-TS and DP-PS have an ECE no larger than global clipping's and DP-SGLD's",
            max(ece[PS], ece[TS]) <= ece[others],
            f"DP-PS {ece[PS]:.4f}, DP-TS {ece[TS]:.4f}, {others} {ece[others]:.4f}",
            _holds(max(paper[PS][1], paper[TS][1]) <= min(paper[GLOBAL][1], paper[SGLD][1])),
        ),
        (
            f"{data}: DP-TS's ECE is at most that of global clipping with no row left out, up to 2 "
            "standard errors",
            not _clearly(whole),
            f"{ece[TS]:.4f} against {ece[ALL_ROWS]:.4f}, with an accuracy of "
            f"{of[ALL_ROWS]['accuracy']:.4f} instead of {of[TS]['accuracy']:.4f}",
        ),
        (
            f"{data}: recalibration with the split costs less than one point of accuracy",
            max(lost.values()) < POINT,
            ", ".join(f"{t} {100 * lost[t]:.2f} points" for t in lost),
            f"up to {100 * their_loss:.2f} points",
        ),
        (
            f"{data}: DP-TS is within {AS_GOOD:g} of non-private temperature scaling",
            abs(exact["difference"]) <= AS_GOOD,
            f"{ece[TS]:.4f} against {ece[EXACT_TS]:.4f}",
            f"{paper[TS][1]:.4f} against {paper[EXACT_TS][1]:.4f}",
        ),
        (
            f"{data}: ours without a split is as good as the better of DP-TS and DP-PS: the upper "
            f"95 % limit of the difference of debiased ECEs, paired over seeds, is at most "
            f"{AS_GOOD:g}",
            None if mine["upper"] is None else mine["upper"] <= AS_GOOD,
            f"ours {of[OURS]['ece_debiased']:.4f}, {mine['worse']} "
            f"{of[mine['worse']]['ece_debiased']:.4f}; difference {mine['difference']:+.4f}"
            + ("" if mine["upper"] is None else f", limit {mine['upper']:+.4f}"),
        ),
        (
            f"{data}: ours loses no accuracy, up to 2 standard errors",
            kept["difference"] <= 2 * (kept["error"] or 0.0),
            f"{100 * kept['difference']:+.2f} points lost of the DP model's; "
            f"{100 * gained:+.2f} points more than {mine['worse']}",
        ),
    ]


def _clearly(pair: Record) -> bool:
    """Whether the ECE that should be the lower one is the higher one by two standard errors."""
    return bool(pair["difference"] > 2 * (pair["error"] or 0.0))


def _but(wrong: Sequence[str]) -> str:
    return f"; {', '.join(wrong)}" if wrong else ""


def _holds(found: bool) -> str:
    return "holds" if found else "does not hold"


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


def module(epsilon: float, shipped: Sequence[str], beside: str, theirs: str) -> tuple[Any, Any]:
    """The functions `rows` and `claims` of a table."""
    return (
        table(epsilon, shipped, beside, theirs),
        lambda found: claims(found, beside, theirs),
    )
