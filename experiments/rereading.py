"""A release read again: another threshold, a calibrator, drift. No run, and no further charge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedcal import pages
from fedcal.atomic import path_of
from fedcal.calibrators import Calibrator
from fedcal.classes import called
from fedcal.errors import InputError
from fedcal.evaluation.calibrate import How, calibrator_from
from fedcal.evaluation.drift import Change, drift_between
from fedcal.evaluation.figures import names_of
from fedcal.evaluation.findings import Findings
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import Estimate
from fedcal.evaluation.page import heading, p_shown, parts, texts
from fedcal.evaluation.release import ScoreRelease
from fedcal.evaluation.thresholds import Goal, Threshold, choose_threshold
from fedcal.experiments.files import PAGE, to_json, write_folder
from fedcal.experiments.folders import READING
from fedcal.experiments.result import versions
from fedcal.pages import Part, Table

ALL = ("model", "", "")

_AT_THRESHOLD = (
    *("accuracy", "balanced_accuracy", "precision", "recall", "specificity"),
    *("f1", "mcc", "net_benefit"),
)
"""Metrics that depend on the threshold."""


@dataclass(frozen=True)
class Reading:
    """What was read.

    Attributes
    ----------
    path, release
        where from
    found
        its metrics at the threshold that was given or chosen
    threshold
        the one that was given
    chosen
        the threshold for a wanted precision, recall or cost, if one was asked for
    calibrator
        made of it, if one was asked for
    changes
        since an earlier release: tests by name; {} if none was given
    """

    path: Path
    release: ScoreRelease
    found: Findings
    threshold: float | None
    chosen: Threshold | None
    calibrator: Calibrator | None
    changes: Mapping[str, Change]

    def to_json(self) -> dict[str, Any]:
        """As `result.json` has metrics, and what was chosen."""
        told = self.found.to_json()
        if self.chosen is not None:
            told["chosen"] = self.chosen.to_json()
        if self.changes:
            told["changes"] = {name: change.to_json() for name, change in self.changes.items()}
        names = self.release.class_names
        told["class_names"] = None if names is None else list(names)
        return {**told, "statement": list(self.release.privacy)}

    def page(self) -> list[Part]:
        """Tables and figures."""
        release = self.release
        return [
            *(self.asked or ()),
            *parts(self.found, release.histograms, release.confusion, release.class_names),
        ]

    @property
    def asked(self) -> list[Part] | None:
        """Tables of what was asked for in particular; None = of all that the release says."""
        tables: list[Part] = []
        if self.chosen is not None:
            tables.append(_chosen(self.chosen, self.release.class_names))
        if self.threshold is not None:
            views = names_of([*self.found.metrics])
            for view, metrics in self.found.metrics.items():
                title = _title(self.threshold, self.release.class_names)
                title += f", {views[view]}" if len(views) > 1 else ""
                at = {name: metrics[name] for name in _AT_THRESHOLD if name in metrics}
                tables.append(_estimates(title, at))
        if self.changes:
            tables.append(_changes(self.changes))
        return tables if tables or self.calibrator is not None else None

    def save(self, out: Path, *, report: bool = True) -> None:
        """Write `reading.json`, the page and its figures into a folder; all of them or none."""

        def write(folder: Path) -> None:
            told = {"schema": 1, "release": str(self.path), **self.to_json()}
            (folder / "reading.json").write_text(to_json(told | {"versions": versions()}), "utf-8")
            parts = pages.to_json(self.page())
            (folder / PAGE).write_text(to_json({"schema": 1, "parts": parts}), "utf-8")
            if report:
                from fedcal.experiments.report import write_reading_report

                write_reading_report(folder)

        write_folder(out, write, stale=READING.files)


def read_release(path: str | Path) -> ScoreRelease:
    """The release in a file; InputError if it is none."""
    path = path_of(path)
    release = ScoreRelease.read(path.parent, path.name.removesuffix(".npz"))
    if not isinstance(release, ScoreRelease):
        raise InputError(f"{path} holds no release of an evaluation")
    if not release.known:
        raise InputError(f"{path} holds no counts: nobody was asked in a round of that evaluation")
    return release


def reread(
    path: str | Path,
    *,
    threshold: float | None = None,
    goals: Mapping[Goal, float | None],
    confident: bool = False,
    calibrate: How | None = None,
    since: str | Path | None = None,
) -> Reading:
    """Read a release again.

    Parameters
    ----------
    path
        of a `release.npz`
    threshold
        of predictions; None = the run's own
    goals
        `precision`, `recall` and `cost` -> what is wanted of a threshold; one of them at most
    confident
        the wanted precision or recall is reached with 95 % confidence, not only by the estimate
    calibrate
        "binning", "isotonic", "platt", "beta" or "bbq": make such a calibrator
    since
        an earlier release of the same score: test whether anything has changed

    Raises
    ------
    InputError
        The file is no release, or what is asked for cannot be read from it.
    """
    release = read_release(path)
    wanted = {goal: value for goal, value in goals.items() if value is not None}
    chosen = None
    if len(wanted) + (threshold is not None) > 1:
        raise InputError("give one of threshold, precision, recall and cost")
    for goal, value in wanted.items():
        if release.question.score != "positive":
            raise InputError(f"the score '{release.question.score}' has no threshold")
        chosen = choose_threshold(release.histograms[ALL], goal, value, confident=confident)
        threshold = chosen.value
    given = threshold if chosen is None else None
    changes = {} if since is None else _compared(read_release(since), release)
    made = _calibrator(release, calibrate)
    found = release.findings(threshold)
    if chosen is not None:
        found, chosen = _joined(found, chosen)
    return Reading(path_of(path), release, found, given, chosen, made, changes)


def _joined(found: Findings, chosen: Threshold) -> tuple[Findings, Threshold]:
    """Both with one interval of each metric: the wider one, as the best of many was chosen."""
    first = next(iter(found.metrics))
    own = dict(found.metrics[first])
    for name, e in chosen.estimates.items():
        if name in own:
            low, high = min(own[name].low, e.low), max(own[name].high, e.high)
            own[name] = replace(own[name], low=low, high=high)
    both = {name: own.get(name, e) for name, e in chosen.estimates.items()}
    metrics = {**found.metrics, first: own}
    return replace(found, metrics=metrics), replace(chosen, estimates=both)


def _compared(earlier: ScoreRelease, later: ScoreRelease) -> dict[str, Change]:
    one, other = earlier.question, later.question
    if (one.score, one.classes) != (other.score, other.classes) or one.score == "classes":
        raise InputError(
            "two releases are compared by the same score, 'positive' or 'confidence', and as many "
            f"classes; these are of '{one.score}' and {one.classes}, '{other.score}' and "
            f"{other.classes}"
        )
    return drift_between(earlier.histograms[ALL], later.histograms[ALL])


def _calibrator(release: ScoreRelease, how: How | None) -> Calibrator | None:
    if how is None:
        return None
    asked = release.question
    if asked.score == "classes":
        raise InputError("a calibrator is made of the score 'positive' or 'confidence'")
    whole: Histogram = release.histograms[ALL]
    score: Any = asked.score
    made = calibrator_from(whole, score, how, asked.classes, release.input)
    made.of_classes(release.class_names)
    return made


_CHANGES = {
    "score": "distribution of the score",
    "calibration": "outcome at a given score",
    "prevalence": "share of the outcome",
}


def _changes(changes: Mapping[str, Change]) -> Table:
    rows = [
        (_CHANGES[name], f"{100 * test.change:.2f}", p_shown(test.p_value, test.floor))
        for name, test in changes.items()
    ]
    return Table(
        "Since the earlier release",
        ("what", "change, %", "p-value"),
        tuple(rows),
        "A p-value says how often rows and noise alone would show as large a change if nothing had "
        "changed; each stands alone.",
    )


def _chosen(threshold: Threshold, names: Sequence[str] | None) -> Table:
    """The threshold that was chosen, and what it is expected to give."""
    sure = " with 95 % confidence" if threshold.confident else " by the estimate"
    goal = {
        "precision": f"the lowest with a precision of {threshold.wanted:g}{sure}",
        "recall": f"the highest with a recall of {threshold.wanted:g}{sure}",
        "cost": f"the cheapest where a false positive costs {threshold.wanted:g} of a false "
        "negative",
    }[threshold.goal]
    return _estimates(
        _title(threshold.value, names),
        threshold.estimates,
        f"It is {goal}. Its intervals hold for all thresholds at once, because the best of many "
        "was taken.",
    )


def _estimates(title: str, estimates: Mapping[str, Estimate], note: str = "") -> Table:
    """Metrics with their intervals."""
    rows = [(heading(name, "positive"), *texts(name, e)) for name, e in estimates.items()]
    return Table(title, ("metric", "value", "95 % interval"), tuple(rows), note)


def _title(threshold: float, names: Sequence[str] | None) -> str:
    return f"Threshold {threshold:.6g} of the probability of {called(names, 1)}"
