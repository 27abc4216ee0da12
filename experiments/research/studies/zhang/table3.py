"""Table 3: test rows from elsewhere; corrupted images in place of the paper's other corpora."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedcal.core.errors import InputError
from fedcal.experiments.research.studies.claims import all_of
from fedcal.experiments.research.studies.spec import NO_DIFFERENCE, Record, Rows, RowsClaim, counted
from fedcal.experiments.research.studies.zhang.grid import (
    DP,
    GLOBAL,
    METHODS,
    OURS,
    PS,
    SGLD,
    TS,
    judged,
    made,
    place,
)
from fedcal.experiments.research.studies.zhang.scores import above, spread
from fedcal.experiments.research.studies.zhang.tables import in_paper
from fedcal.experiments.research.studies.zhang.tasks import IMAGES, tasks
from fedcal.strategies.server.outcome import Progress

EPSILON, SEEDS = 8.0, 3
HOME, ALL = "none", "all corruptions"
OTHERS = (GLOBAL, DP, SGLD)


def rows(
    data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
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
                "`fedcal features --corruption` makes"
            )
    for task, title in counted([(t, title) for t in chosen for title in METHODS], progress):
        shifts = {HOME: task.test_x}
        shifts |= {f"{name}, {severity}": x for (name, severity), x in task.shifted.items()}
        runs = {
            shift: [
                judged(made(task, title, EPSILON, seed), x, task.test_y[: len(x)])
                for seed in range(seeds)
            ]
            for shift, x in shifts.items()
        }
        away = [runs[shift] for shift in shifts if shift != HOME]
        runs[ALL] = [
            {key: fmean(of[seed][key] for of in away) for key in away[0][0]}
            for seed in range(seeds)
        ]
        found += (
            place(task, what="method", method=title, shift=shift) | spread(mine)
            for shift, mine in runs.items()
        )
    return found


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """What section 4.2 says, in the mean over all corruptions."""
    said: list[RowsClaim] = []
    for name in dict.fromkeys(r["data"] for r in found):
        away, home = (
            {r["method"]: r for r in found if r["data"] == name and r["shift"] == shift}
            for shift in (ALL, HOME)
        )
        shifts = [r["shift"] for r in found if r["data"] == name and r["method"] == DP]
        one = {
            (r["method"], r["shift"]): r["ece"]
            for r in found
            if r["data"] == name and r["shift"] not in (ALL, HOME)
        }
        apart = [s for s in shifts if s not in (ALL, HOME)]
        less = sum(max(one[t, s] for t in (PS, TS)) < one[DP, s] for s in apart)

        def ece(title: str, of: Mapping[str, Record] = away) -> float:
            return float(of[title]["ece"])

        order = " < ".join(sorted((PS, TS, OURS, GLOBAL, DP, SGLD), key=ece))
        shown = ", ".join(f"{t} {ece(t):.4f}" for t in (PS, TS, OURS, GLOBAL, DP, SGLD))
        taken = {where: 1 - ece(TS, of) / ece(DP, of) for where, of in ((ALL, away), (HOME, home))}
        said += [
            (
                f"{name}: DP-TS and DP-PS, fitted in-domain, lower the ECE out of domain, too",
                all_of(above(away[DP], away[t], "ece") for t in (PS, TS)),
                f"{shown}; on {less} of {len(apart)} corruptions",
                in_paper("table3", lambda p: max(p[PS][1], p[TS][1]) < p[DP][1]),
            ),
            (
                f"{name}: DP-TS and DP-PS have the lowest ECE of the paper's private methods there",
                all_of(above(away[b], away[a], "ece") for a in (PS, TS) for b in OTHERS),
                order,
                in_paper(
                    "table3", lambda p: all(p[a][1] < p[b][1] for a in (PS, TS) for b in OTHERS)
                ),
            ),
            (
                f"{name}: out of domain recalibration takes a smaller part of the ECE away than "
                "in-domain",
                NO_DIFFERENCE
                if above(home[DP], home[TS], "ece") is not True
                else taken[ALL] < taken[HOME],
                f"DP-TS {taken[ALL]:.2f} against {taken[HOME]:.2f}",
            ),
        ]
    return said
