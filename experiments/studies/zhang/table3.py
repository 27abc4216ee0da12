"""Table 3: test rows from elsewhere; corrupted images in place of the paper's other corpora."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fedcal.errors import InputError
from fedcal.experiments.studies.spec import Record, Rows, RowsClaim, counted
from fedcal.experiments.studies.zhang.grid import (
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
from fedcal.experiments.studies.zhang.scores import spread
from fedcal.experiments.studies.zhang.tables import printed
from fedcal.experiments.studies.zhang.tasks import IMAGES, tasks
from fedcal.strategies.outcome import Progress

EPSILON, SEEDS = 8.0, 3
IN_DOMAIN, ALL = "none", "all corruptions"


def rows(
    data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
) -> Rows:
    """All methods on the test rows and on each corruption of them.

    Returns
    -------
    list of dict
        what = "method": `data`, `method`, `shift` (`IN_DOMAIN`, `ALL`: the mean over them, or the
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
        shifts = {IN_DOMAIN: task.test_x}
        shifts |= {f"{name}, {severity}": x for (name, severity), x in task.shifted.items()}
        runs = {
            shift: [
                judged(made(task, title, EPSILON, seed), x, task.test_y[: len(x)])
                for seed in range(seeds)
            ]
            for shift, x in shifts.items()
        }
        away = [runs[shift] for shift in shifts if shift != IN_DOMAIN]
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
    paper = printed("table3")
    for name in dict.fromkeys(r["data"] for r in found):
        away, home = (
            {r["method"]: r["ece"] for r in found if r["data"] == name and r["shift"] == shift}
            for shift in (ALL, IN_DOMAIN)
        )
        shifts = [r["shift"] for r in found if r["data"] == name and r["method"] == DP]
        one = {
            (r["method"], r["shift"]): r["ece"]
            for r in found
            if r["data"] == name and r["shift"] not in (ALL, IN_DOMAIN)
        }
        apart = [s for s in shifts if s not in (ALL, IN_DOMAIN)]
        less = sum(max(one[t, s] for t in (PS, TS)) < one[DP, s] for s in apart)
        order = " < ".join(sorted((PS, TS, OURS, GLOBAL, DP, SGLD), key=away.__getitem__))
        shown = ", ".join(f"{t} {away[t]:.4f}" for t in (PS, TS, OURS, GLOBAL, DP, SGLD))
        better = [n for n, v in paper.items() if max(v[PS][1], v[TS][1]) < v[DP][1]]
        said += [
            (
                f"{name}: DP-TS and DP-PS, fitted in-domain, lower the ECE out of domain, too",
                max(away[PS], away[TS]) < away[DP],
                f"{shown}; on {less} of {len(apart)} corruptions",
                f"on {len(better)} of {len(paper)}",
            ),
            (
                f"{name}: DP-TS and DP-PS have the lowest ECE of the paper's private methods there",
                max(away[PS], away[TS]) < min(away[GLOBAL], away[DP], away[SGLD]),
                order,
            ),
            (
                f"{name}: out of domain recalibration takes a smaller part of the ECE away than "
                "in-domain",
                away[TS] / away[DP] > home[TS] / home[DP],
                f"DP-TS {1 - away[TS] / away[DP]:.2f} against {1 - home[TS] / home[DP]:.2f}",
            ),
        ]
    return said
