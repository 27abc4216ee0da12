"""Findings on models and groups of rows: all metrics of a release, as in `result.json`.

Unit that counts once in a release (a row, a subject or a client), and its wording.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from fedcal.core.checks import integer, unused
from fedcal.core.numerics import Floats
from fedcal.evaluation.estimates import METRICS, accuracies, compare, evaluate, evaluate_classes
from fedcal.evaluation.estimators import calibration
from fedcal.evaluation.estimators.calibration import CalibrationTest
from fedcal.evaluation.intervals import FIRM, Estimate, warned
from fedcal.metrics.bootstrap import rejected
from fedcal.metrics.histogram import Histogram
from fedcal.metrics.score_table import MOST_SUBJECT_ROWS
from fedcal.units import UNITS

Counted = Literal["rows", "subjects", "clients"]


@dataclass(frozen=True)
class Weighting:
    """Unit that counts once.

    Attributes
    ----------
    counted
        "rows", "subjects", or "clients" where each answers by one of its rows: the plural of the
        unit
    subject_rows
        maximum number of rows that one subject counts as; see `Shards.weights`. 0 = all
    """

    counted: Counted = "rows"
    subject_rows: int = 0

    @property
    def words(self) -> str:
        """The weighting as part of a sentence."""
        return {
            "rows": "each row counts once"
            + (f", all rows of one subject as at most {self.subject_rows:,}" * self.limits),
            "subjects": "each subject counts once, whatever the number of its rows",
            "clients": "each client counts once, by one of its rows",
        }[self.counted]

    @property
    def head(self) -> str:
        """The weighting in few words, for the head of a table."""
        return self.words.split(", ")[0]

    @property
    def limits(self) -> bool:
        """True if rows of one subject may count for less."""
        return self.subject_rows > 1

    @property
    def intervals(self) -> str:
        """Population of the intervals, in words."""
        if self.counted == "clients":
            return "new clients like these"
        return f"new {self.counted} of the same clients, independent of one another"


ROWS = Weighting()


def subject_rows(unit: str, asked: int | None = None) -> int:
    """Return the rows that a subject's rows count as at most: 1 unless asked; 0 = no subjects."""
    if UNITS[unit].column is None:
        unused(f"unit '{unit}' does not weight subjects", rows_per_subject=asked)
        return 0
    return integer("rows_per_subject", 1 if asked is None else asked, 1, MOST_SUBJECT_ROWS)


def counted_of(subject_rows: int) -> Counted:
    """Return what counts once where a subject's rows count as so many at most."""
    return "subjects" if subject_rows == 1 else "rows"


LEVEL = 0.95
"""Confidence level of each interval."""

FEWEST = 20
"""Number of rows below which a group has no metrics."""

IN_GROUPS = tuple(name for name, metric in METRICS.items() if metric.in_groups)
"""Metrics of each group, of those that the score has."""

KEYS = {"model": "metrics", "calibrated": "metrics_after", "other": "metrics_other"}
"""View -> key of its metrics in `result.json`."""

Key = tuple[str, str, str]
"""(view, group, part): whose scores, of which rows ("" = all), of which class ("" = one part)."""

Metrics = Mapping[str, Estimate]
"""Estimates by name of the metric."""


@dataclass(frozen=True)
class Findings:
    """Metrics of each view of the same rows, together and by group.

    Attributes
    ----------
    score
        name of the binned score
    threshold, level
        decision threshold, and confidence level of each interval
    rows
        noisy number of units that count once, and the noise's std; NaN = unknown
    metrics
        view -> metrics of all rows; the first view is the model itself
    difference
        metrics of the second view less those of the first, paired; {} with one view
    groups
        group -> view -> metrics; {} for a group of too few rows (by its noisy count)
    tests
        view -> name of a test -> whether the view is calibrated; {} of the score `classes`
    cox
        view -> group of enough rows -> whether the view is calibrated there, in slope and in the
        large; {} as `tests`
    excluded
        sources of error that no interval contains, in words
    weighting
        unit that counts once
    """

    score: str
    threshold: float
    level: float
    rows: tuple[float, float]
    metrics: Mapping[str, Metrics]
    difference: Metrics
    groups: Mapping[str, Mapping[str, Metrics]]
    tests: Mapping[str, Mapping[str, CalibrationTest]]
    cox: Mapping[str, Mapping[str, CalibrationTest]] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    weighting: Weighting = ROWS

    def to_json(self) -> dict[str, Any]:
        """Return the keys that `result.json` gains."""
        known = (number if math.isfinite(number) else None for number in self.rows)
        counted = dict(zip(("value", "noise"), known, strict=True))
        of_rows = self.weighting.counted == "rows"
        record: dict[str, Any] = {
            "score": self.score,
            "threshold": self.threshold,
            "level": self.level,
            "weighting": self.weighting.words,
            "estimand": self.weighting.intervals,
            "intervals_exclude": list(self.excluded),
            "rows": counted if of_rows else dict.fromkeys(counted),
            "counted": {"of": self.weighting.counted, **counted},
        }
        record |= {KEYS[view]: _plain(metrics) for view, metrics in self.metrics.items()}
        for view, tests in self.tests.items():
            made = {name: _test(test) for name, test in tests.items()}
            record.setdefault("tests", {})[KEYS[view]] = made
        if self.difference:
            record["metrics_difference"] = _plain(self.difference)
        if self.groups:
            record["groups"] = {
                group: {KEYS[view]: _plain(metrics) for view, metrics in views.items()}
                or {"suppressed": True}
                for group, views in self.groups.items()
            }
        for view, by_group in self.cox.items():
            p_values = {group: test.p_value for group, test in by_group.items()}
            sure = {"not_calibrated": list(rejected(p_values)), "p_values": p_values}
            record.setdefault("groups_calibration", {})[KEYS[view]] = sure
        return record


def _plain(metrics: Metrics) -> dict[str, Any]:
    return {name: estimate.to_json() for name, estimate in metrics.items()}


def _test(test: CalibrationTest) -> dict[str, float | None]:
    """Return plain numbers; None for a statistic that noise has left without a value."""
    return {k: v if math.isfinite(v) else None for k, v in asdict(test).items()}


def findings(
    histograms: Mapping[Key, Histogram],
    score: str,
    *,
    agreement: Floats | None = None,
    cell_std: float = 0.0,
    threshold: float = 0.5,
    excluded: tuple[str, ...] = (),
    weighting: Weighting = ROWS,
) -> Findings:
    """Read all metrics of a release.

    Parameters
    ----------
    histograms
        by (view, group, part)
    score
        binned score: `positive`, `confidence` or `classes`
    agreement
        (4,) rows that both views, only the first, only the second, and neither predict right
    cell_std
        std of the noise of each of these
    threshold
        decision threshold, for the score `positive`
    excluded
        sources of error that no interval contains, in words
    weighting
        unit that counts once

    Raises
    ------
    InputError
        If the threshold is not an edge of a bucket.
    """

    def read(view: str, group: str, only: Collection[str] = ()) -> Metrics:
        parts = [h for (v, g, _), h in histograms.items() if (v, g) == (view, group)]
        if score == "classes":
            return evaluate_classes(parts)
        return evaluate(parts[0], score, threshold=threshold, only=only)

    views = list(dict.fromkeys(view for view, _, _ in histograms))
    groups: dict[str, dict[str, Metrics]] = {}
    for _, group, _ in histograms:
        if group and group not in groups:
            some = counted(histograms, views[0], group)
            shown = some[0] >= max(FEWEST, FIRM * some[1])
            groups[group] = {view: read(view, group, IN_GROUPS) for view in views if shown}
    metrics = dict[str, Metrics]()
    for view in views:  # the second has the metrics of the first, of cut scores or not
        metrics[view] = read(view, "", metrics[views[0]] if metrics else ())
    difference: Metrics = {}
    tests, cox_of = dict[str, dict[str, CalibrationTest]](), {}
    if score != "classes":
        overall = {view: histograms[view, "", ""] for view in views}
        tests = {view: {"cox": calibration.cox(h).bounded()} for view, h in overall.items()}
        if groups:
            for view in views:
                known = [group for group, own in groups.items() if own]
                cox_of[view] = {g: calibration.cox(histograms[view, g, ""]) for g in known}
                tests[view]["groups_cox"] = calibration.together(cox_of[view].values())
        if len(views) == 2:
            at_half = agreement is not None and (threshold == 0.5 or score != "positive")
            pairs = np.asarray(agreement)[::-1].reshape(2, 2) if at_half else None
            if pairs is not None:  # all three accuracies from the same counts: they agree
                both = accuracies(pairs, cell_std)
                for view, accuracy in zip(views, both, strict=True):
                    metrics[view] = {**metrics[view], "accuracy": accuracy}
            first, second = overall.values()
            difference = compare(
                first,
                second,
                score,
                agreement=pairs,
                agreement_noise=cell_std,
                threshold=threshold,
                only=metrics[views[0]],
            )
    return Findings(
        score,
        threshold,
        LEVEL,
        counted(histograms, views[0], ""),
        {view: warned(own, excluded) for view, own in metrics.items()},
        warned(difference, excluded),
        {g: {v: warned(own, excluded) for v, own in of.items()} for g, of in groups.items()},
        tests,
        cox_of,
        excluded,
        weighting,
    )


def few(h: Histogram) -> bool:
    """Return whether rows are too few for a result, by their noisy count."""
    return bool(h.rows < max(FEWEST, FIRM * h.rows_std))


def counted(histograms: Mapping[Key, Histogram], view: str, group: str) -> tuple[float, float]:
    """Return the rows of a group, and the std of their noise."""
    h = next(h for (v, g, _), h in histograms.items() if (v, g) == (view, group))
    return h.rows, h.rows_std
