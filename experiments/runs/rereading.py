"""A release read again: another threshold, a calibrator, drift. No run, and no further charge."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedcal.calibrators.score_map import Curve, ScoreLogistic, calibrator_from
from fedcal.core import checks, naming, pages
from fedcal.datasets import is_shipped
from fedcal.evaluation import by_group, drift, intervals, page, thresholds
from fedcal.evaluation.estimates import METRICS
from fedcal.evaluation.findings import ESTIMANDS, Findings
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.experiments.runs import folders, result
from fedcal.metrics.names import heading
from fedcal.storage.atomic import path_of

_WHOLE = ("positive", "confidence")
"""Scores of all rows, and not of each class."""

ALL = ("model", "", "")

_CHANGES = {
    "score": "distribution of the score",
    "calibration": "outcome at a given score",
    "prevalence": "share of the outcome",
}
_P_VALUES = (
    "A p-value is the probability of as large a change from sampling and noise alone; each "
    "stands alone."
)


@dataclass(frozen=True)
class Reading:
    """Reading of an earlier release.

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
    unknown
        what a release does not say, and so was not compared
    """

    path: Path
    release: ScoreRelease
    found: Findings
    threshold: float | None
    chosen: thresholds.Threshold | None
    calibrator: ScoreLogistic | None
    changes: Mapping[str, drift.Change]
    unknown: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return metrics in the form of `result.json`, and the chosen threshold."""
        content, names = self.found.to_json(), self.release.class_names
        if self.chosen is not None:
            content["chosen"] = self.chosen.to_json()
        if self.changes:
            content["changes"] = {name: change.to_json() for name, change in self.changes.items()}
            content["not_compared"] = list(self.unknown)
        content["class_names"] = None if names is None else list(names)
        return {**content, "statement": list(self.release.privacy)}

    @property
    def parts(self) -> list[pages.Part]:
        """The report's tables and figures."""
        release = self.release
        return [
            *(self.asked or ()),
            *page.parts(self.found, release.histograms, release.class_names),
            *by_group.group_parts(self.found, release.histograms),
        ]

    @property
    def asked(self) -> list[pages.Part] | None:
        """Tables of what was asked for in particular; None = of all that the release says."""
        tables: list[pages.Part] = []
        if self.chosen is not None:
            goal = self.chosen.goal
            note = (
                f"It is the {'lowest' if goal == 'precision' else 'highest'} with a {goal} of "
                f"{self.chosen.wanted:g} by the estimate. Its intervals hold for all thresholds "
                "at once, because the best of many was taken."
            )
            tables.append(self._estimates(self.chosen.value, self.chosen.estimates, note=note))
        if self.threshold is not None:
            views = page.names_of([*self.found.metrics])
            for view, metrics in self.found.metrics.items():
                which = f", {views[view]}" if len(views) > 1 else ""
                at_threshold = (name for name, kind in METRICS.items() if kind.at_threshold)
                at = {name: metrics[name] for name in at_threshold if name in metrics}
                tables.append(self._estimates(self.threshold, at, which))
        if self.changes:
            heads = ("what", "change, %", "p-value")
            rows = [
                (_CHANGES[name], f"{100 * test.change:.2f}", page.p_shown(test.p_value, test.floor))
                for name, test in self.changes.items()
            ]
            note = f"{_P_VALUES} {self.not_compared}".rstrip()
            tables.append(pages.Table("Since the earlier release", heads, rows, note))
        return tables if tables or self.calibrator is not None else None

    def _estimates(
        self,
        threshold: float,
        estimates: Mapping[str, intervals.Estimate],
        which: str = "",
        note: str = "",
    ) -> pages.Table:
        """Metrics with their intervals at a threshold."""
        of = "confidence"
        if self.found.score == "positive":
            of = f"probability of {naming.called(self.release.class_names, 1)}"
        rows = [(heading(name, "positive"), *page.texts(name, e)) for name, e in estimates.items()]
        heads = ("metric", "value", "95 % interval")
        return pages.Table(f"Threshold {threshold:.6g} of the {of}{which}", heads, rows, note)

    @property
    def not_compared(self) -> str:
        """A sentence; "" = all that must be equal was."""
        if not self.unknown:
            return ""
        return f"Not compared, because a file does not say: {', '.join(self.unknown)}."

    def save(self, out: Path, *, report: bool = True) -> None:
        """Write the calibrator, if one was made, as a file; else all that was read into a folder.

        That is `reading.json`, the page and its figures; all of them or none.
        """
        if self.calibrator is not None:
            self.calibrator.save(out)
            return
        content = {"schema": 1, "release": str(self.path), **self.to_json()}
        content["versions"] = result.versions()
        folders.READING.write(out, content, self.parts, report=report)


def read_release(path: str | Path) -> ScoreRelease:
    """Return the release in a file; InputError if it is not a release."""
    path = path_of(path)
    release = ScoreRelease.read(path.parent, path.name.removesuffix(".npz"))
    if not isinstance(release, ScoreRelease):
        raise checks.InputError(f"{path} holds no release of an evaluation")
    if not release.known:
        raise checks.InputError(
            f"{path} contains no counts: no client was contacted in a round of that evaluation"
        )
    return release


def reread(
    path: str | Path,
    *,
    threshold: float | None = None,
    at: str | None = None,
    calibrate: Curve | None = None,
    since: str | Path | None = None,
) -> Reading:
    """Read a release again.

    Parameters
    ----------
    path
        of a `release.npz`
    threshold
        of predictions; None = the run's own
    at
        what is wanted of a threshold, such as "recall>=0.95" or "precision>=0.9"
    calibrate
        "platt" or "beta": make such a calibrator
    since
        an earlier release of the same score: test whether anything has changed

    Raises
    ------
    InputError
        The file is no release, or what is asked for cannot be read from it.
    """
    release = read_release(path)
    chosen = None
    if at is not None:
        checks.unused("at finds a threshold", threshold=threshold)
        checks.same("score that has a threshold", release.question.score, "positive")
        chosen = thresholds.choose_threshold(release.histograms[ALL], *thresholds.goal_of(at))
        threshold = chosen.value
    wished = threshold if chosen is None else None
    made, asked = None, release.question
    if calibrate is not None:
        score: Any = checks.one_of("score to calibrate", asked.score, _WHOLE)
        whole = release.histograms[ALL]
        made = calibrator_from(whole, score, calibrate, asked.classes, release.input)
        made.of_classes(release.class_names)
    findings = release.findings(threshold)
    if chosen is not None:
        findings, chosen = _joined(findings, chosen)
    read = Reading(path_of(path), release, findings, wished, chosen, made, {})
    if since is None:
        return read
    earlier = read_release(since)
    unknown = comparable(earlier, release)
    changes = drift.drift_between(earlier.histograms[ALL], release.histograms[ALL])
    return replace(read, changes=changes, unknown=unknown)


def _joined(
    findings: Findings, chosen: thresholds.Threshold
) -> tuple[Findings, thresholds.Threshold]:
    """Both with one interval of each metric: the wider one, as the best of many was chosen."""
    first, own = next(iter(findings.metrics.items()))
    both = dict(chosen.estimates)
    for name in both.keys() & own.keys():
        one, other = own[name], both[name]
        both[name] = replace(one, low=min(one.low, other.low), high=max(one.high, other.high))
    wider = {name: both.get(name, estimate) for name, estimate in own.items()}
    metrics = {**findings.metrics, first: wider}
    return replace(findings, metrics=metrics), replace(chosen, estimates=both)


def comparable(earlier: ScoreRelease, later: ScoreRelease) -> tuple[str, ...]:
    """Return what is not known of one of two releases, and so cannot be compared.

    Raises InputError if they answer two questions, or are of other data: how they differ.
    """
    facts = [_facts(release) for release in (earlier, later)]
    unknown, differences = list[str](), list[str]()
    for (name, before), now in zip(facts[0].items(), facts[1].values(), strict=True):
        if before is None or now is None:
            unknown += [name] * (before is not now)
        elif before != now:
            differences.append(f"{name} ({before}, now {now})")
    one, another = (release.question for release in (earlier, later))
    if not drift.same_edges(one.bucket_edges, another.bucket_edges):
        differences.append(f"buckets ({one.buckets}, now {another.buckets} with other edges)")
    if one.calibrator != another.calibrator and bool(one.calibrator) == bool(another.calibrator):
        differences.append("calibrator (two different ones)")
    if earlier.unit and later.unit and earlier.unit != later.unit:  # "" = no noise hides anything
        differences.append(f"unit ({earlier.unit}, now {later.unit})")
    before, now = (release.data or "rows of real sites" for release in (earlier, later))
    if None in (earlier.data, later.data):
        unknown.append("data set")
    elif before != now and (is_shipped(before) or is_shipped(now)):  # else two quarters
        differences.append(f"data set ({before}, now {now})")
    if differences:
        raise checks.InputError(
            f"these releases cannot be compared, they differ in: {'; '.join(differences)}"
        )
    checks.one_of("score of releases to compare", one.score, _WHOLE)
    return tuple(unknown)


def _facts(release: ScoreRelease) -> dict[str, str | None]:
    """Return the facts that must be equal in two releases, in words; None = unknown."""
    asked, names = release.question, release.class_names
    return {
        "score": asked.score,
        "number of classes": str(asked.classes),
        "class names": None if names is None else ", ".join(names),
        "scores": "logits" if release.input == "logits" else "probabilities",
        "calibrator": "with one" if asked.calibrator else "without",
        "weighting": release.weighting.words,
        "estimand": ESTIMANDS[release.estimand],
    }
