"""What a study will show, from public numbers alone, before anybody is asked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcal.evaluation.sites.verdicts import SEEN, detectable, least_points
from fedcal.experiments.study.study_file import Study
from fedcal.metrics.holm import ERROR

_SIZES = (100, 300, 1000, 3000, 10000)
"""Numbers of patients that are shown where the study names none."""

MOST = 0.5
"""Gap from which on a number of patients is said to show nothing."""


def check(study: Study) -> dict[str, Any]:
    """What it costs and what it shows, strict JSON.

    Returns
    -------
    dict
        `sentences`, and `sees`: about how many of those protected -> the gap (fraction) that is
        named with probability `SEEN` where it is there; None = none below `MOST`
    """
    plan = study.plan
    (std,) = set(plan.noise_std or (0.0,))
    said = {name: about for name, about in study.sites.items() if about}
    sizes = sorted(set(said.values()) or _SIZES)
    # of the last release: each site, and against each earlier one each site and all of them
    tests = len(study.sites) + (study.per_year * study.years - 1) * (len(study.sites) + 1)
    edges = np.array([0.0, *study.cuts, 1.0])
    parts = len(study.groups) + 1
    sees: dict[str, float | None] = {}
    for size in sizes:
        gap = detectable(
            size,
            rate=study.model.rate,
            edges=edges,
            std=std * math.sqrt(parts),
            tests=tests,
            level=ERROR / study.per_year,
        )
        sees[str(size)] = gap if gap < MOST else None
    return {
        "study": study.study,
        "epsilon": {"release": plan.epsilon, "year": study.epsilon, "all": study.epsilon_total},
        "noise_std": std,
        "unit": plan.unit,
        "mechanism": plan.mechanism,
        "sites": said,
        "sees": sees,
        "sentences": [
            *_costs(study, std),
            *(_shown(study, size, sees[str(size)], said) for size in sizes),
            f"Seen means: named in {100 * SEEN:.0f} of 100 releases where the gap is there. In a "
            f"year without faults any site is named by accident with a chance of {100 * ERROR:g} % "
            "at most.",
            *_doubts(study, sees),
        ],
    }


def _costs(study: Study, std: float) -> list[str]:
    many = f"{study.per_year} releases a year" if study.per_year > 1 else "one release a year"
    return [
        f"{study.study} asks {len(study.sites)} sites for {many}, until {study.until}. Each costs "
        f"a {study.protect} epsilon {study.epsilon_release:g}, a year {study.epsilon:g}; the noise "
        f"on each count has a standard deviation of {std:.1f}.",
        f"A release comes if {study.quorum} of {len(study.sites)} sites answer; "
        f"{study.colluding} of them may work with whoever runs the server, and it still learns "
        "noisy sums alone.",
    ]


def _shown(study: Study, size: int, gap: float | None, said: dict[str, int]) -> str:
    who = ", ".join(name for name, about in said.items() if about == size)
    at = f"{who} (about {study.number(size)})" if who else f"With {study.number(size)}"
    if gap is None:
        return (
            f"{at}: no gap is seen surely; that is too few."
            if who
            else (f"{at} a site sees no gap surely: that is too few.")
        )
    what = f"gaps above {least_points(gap)}"
    return f"{at}: you will see {what}." if who else f"{at} a site will see {what}."


def _doubts(study: Study, sees: dict[str, float | None]) -> list[str]:
    said = []
    if not any(study.sites.values()):
        said.append(
            "No site's number is in the file: write about how many each has under [sites] to read "
            "what it will see."
        )
    if study.away == 0:
        said.append("If one site is away, there is no release.")
    if any(gap is None for gap in sees.values()):
        said.append("Fewer releases a year leave more epsilon for each, and show more.")
    return said
