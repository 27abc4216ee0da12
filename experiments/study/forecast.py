"""What a study will show, from public numbers alone, before anybody is asked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcal.evaluation.sites.verdicts import SEEN, detectable, least_points
from fedcal.experiments.study.study_file import Study
from fedcal.metrics.gap_change import ERROR

_SIZES = (100, 300, 1000, 3000, 10000)
"""Numbers of patients that are shown where the study names none."""

MOST = 0.5
"""Gap from which on a number of patients is said to show nothing."""


def check(study: Study) -> dict[str, Any]:
    """Return what a study costs and what it will show, as strict JSON.

    Returns
    -------
    dict
        `sentences`, and `sees`: about how many of those protected -> the gap (fraction) that is
        named with probability `SEEN` where it is there; None = none below `MOST`
    """
    plan = study.plan
    (std,) = set(plan.noise_std or (0.0,))
    about_sizes = {name: about for name, about in study.sites.items() if about}
    sizes = sorted(set(about_sizes.values()) or _SIZES)
    # of the last release: each site, and against each earlier one each site and all of them
    tests = 2 * len(study.sites) + (study.per_year * study.years - 1) * (len(study.sites) + 1)
    edges = np.array([0.0, *study.cuts, 1.0])
    parts = len(study.groups) + 1
    rest: dict[str, Any] = {"edges": edges, "std": std * math.sqrt(parts), "tests": tests}
    rest |= {"rate": study.model.rate, "level": ERROR / study.per_year}
    gaps = {size: detectable(size, **rest) for size in sizes}
    sees = {str(size): gap if gap < MOST else None for size, gap in gaps.items()}
    many = f"{study.per_year} releases" if study.per_year > 1 else "one release"
    sentences = [
        f"{study.study} asks {len(study.sites)} sites for {many} a year, until {study.until}. Each "
        f"costs a {study.protect} epsilon {study.epsilon_release:g}, a year {study.epsilon:g}; the "
        f"noise on each count has a standard deviation of {std:.1f}.",
        f"A release comes if {study.quorum} of {len(study.sites)} sites answer; {study.colluding} "
        "of them may collude with the server's operator, who still learns noisy sums only.",
        *(_shown(study, size, gap, about_sizes) for size, gap in gaps.items()),
        f"Seen: named in {100 * SEEN:.0f} of 100 releases where the gap is there. In a year "
        f"without faults any site is named by accident with a chance of {100 * ERROR:g} % at most.",
        "Enter approximate numbers under [sites] of the file to read what the study will see."
        * (not about_sizes),
        "Fewer releases a year leave more epsilon for each, and show more."
        * (None in sees.values()),
    ]
    return {
        "study": study.study,
        "epsilon": {"release": plan.epsilon, "year": study.epsilon, "all": study.epsilon_total},
        "noise_std": std,
        "unit": plan.unit,
        "mechanism": plan.mechanism,
        "sites": about_sizes,
        "sees": sees,
        "sentences": [sentence for sentence in sentences if sentence],
    }


def _shown(study: Study, size: int, gap: float, sizes: dict[str, int]) -> str:
    who = ", ".join(name for name, about in sizes.items() if about == size) or "a site"
    what = f"gaps above {least_points(gap)}" if gap < MOST else "no gap surely: that is too few"
    return f"{who} (about {study.number(size)}): you will see {what}."
