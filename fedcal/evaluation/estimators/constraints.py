"""Metrics of the same rows constrain each other: their estimates are made to agree.

For any rows |gap| <= ECE (of bins of equal width or mass, smooth), |gap| <= KS, ECE <= MCE, and
ECE**2 <= reliability <= MCE**2. Each is estimated by itself; noise, which is corrected for in
each, may leave an estimate below what another one implies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from graphlib import TopologicalSorter

from fedcal.evaluation.estimators.all_metrics import GAPS
from fedcal.evaluation.intervals.intervals import Estimate


def agreed(estimates: Mapping[str, Estimate], hidden: Collection[str] = ()) -> dict[str, Estimate]:
    """Return the estimates, values and both ends raised to the bounds that others imply.

    The debiased ECE corrects for the choice of rows, which |gap| does not: its value is raised to
    the low end alone.

    Parameters
    ----------
    estimates
        by name
    hidden
        errors that noise alone may have caused: drowned where their low end stays 0
    """
    each = dict(estimates)
    for name in TopologicalSorter({k: kind.never_below for k, kind in GAPS.items()}).static_order():
        if name not in GAPS or name not in each or not math.isfinite(each[name].value):
            continue
        metric = GAPS[name]
        for source, power in metric.never_below.items():
            if source not in each or not math.isfinite(each[source].value):
                continue
            by, e = each[source], each[name]
            low = max(by.low, -by.high, 0.0) ** power
            high = min(max(abs(by.low), abs(by.high)) ** power, metric.bounds[1])
            value = low if by.drowned or metric.debiased else abs(by.value) ** power
            each[name] = replace(
                e, value=max(e.value, value), low=max(e.low, low), high=max(e.high, high, value)
            )
        if name in hidden and each[name].low <= 0:
            each[name] = replace(each[name], drowned=True)
    return each
