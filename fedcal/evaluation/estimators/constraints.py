"""Metrics of the same rows constrain each other: their estimates are made to agree.

For any rows |gap| <= ECE (of bins of equal width or mass, smooth), |gap| <= KS, ECE <= MCE, and
ECE**2 <= reliability <= MCE**2. Each is estimated by itself; noise, which is corrected for in
each, may leave an estimate below what another one implies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from fedcal.evaluation.estimators.calibration import GAPS
from fedcal.evaluation.intervals.intervals import Estimate

BELOW: Mapping[str, Mapping[str, float]] = {
    "ece": {"gap": 1.0},
    "ece_debiased": {"gap": 1.0},
    "ece_equal_mass": {"gap": 1.0},
    "smooth_ece": {"gap": 1.0},
    "ks": {"gap": 1.0},
    "brier_reliability": {"gap": 2.0, "ece": 2.0},
    "mce": {"gap": 1.0, "ece": 1.0, "brier_reliability": 0.5},
}
"""Metric -> metrics whose absolute value to this power it is never below."""


def agreed(found: Mapping[str, Estimate], hidden: Collection[str] = ()) -> dict[str, Estimate]:
    """The estimates, raised to what others imply: their values and both ends.

    The debiased ECE corrects for the choice of rows, which |gap| does not: its value is raised to
    the low end alone.

    Parameters
    ----------
    found
        by name
    hidden
        errors that noise alone may have made: drowned where their low end stays 0
    """
    each = dict(found)
    for name, sources in BELOW.items():
        if name not in each or not math.isfinite(each[name].value):
            continue
        most = GAPS[name].bounds[1]
        for source, power in sources.items():
            if source not in each or not math.isfinite(each[source].value):
                continue
            by, e = each[source], each[name]
            low = max(by.low, -by.high, 0.0) ** power
            high = min(max(abs(by.low), abs(by.high)) ** power, most)
            value = low if by.drowned or name == "ece_debiased" else abs(by.value) ** power
            each[name] = replace(
                e, value=max(e.value, value), low=max(e.low, low), high=max(e.high, high, value)
            )
        if name in hidden and each[name].low <= 0:
            each[name] = replace(each[name], drowned=True)
    return each
