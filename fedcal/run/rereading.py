"""A release read again: another threshold, a calibrator. No run, and no further charge."""

from pathlib import Path
from typing import Any

import numpy as np

from fedcal.calibrators.score_map import Curve, ScoreLogistic, calibrator_from
from fedcal.core import checks
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.storage.atomic import path_of

_ALL_ROWS = ("positive", "confidence")
"""Scores of all rows, and not of each class."""


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


def calibrator_of(release: ScoreRelease, curve: Curve) -> ScoreLogistic:
    """Return a calibrator fitted to a release's counts: "platt" or "beta"."""
    asked = release.question
    score: Any = checks.one_of("score to calibrate", asked.score, _ALL_ROWS)
    overall = release.histograms["model", "", ""]
    made = calibrator_from(overall, score, curve, asked.classes, release.input)
    made.of_classes(release.class_names)
    return made


def check_comparable(earlier: ScoreRelease, later: ScoreRelease) -> None:
    """Refuse two releases that answer two questions: how they differ.

    What one of them does not say is not compared.
    """
    facts = [_facts(release) for release in (earlier, later)]
    differences = [
        f"{name} ({before}, now {now})"
        for (name, before), now in zip(facts[0].items(), facts[1].values(), strict=True)
        if before != now and None not in (before, now)
    ]
    one, another = (release.question for release in (earlier, later))
    if not np.array_equal(np.round(one.bucket_edges, 9), np.round(another.bucket_edges, 9)):
        differences.append(f"buckets ({one.buckets}, now {another.buckets} with other edges)")
    if one.calibrator != another.calibrator and bool(one.calibrator) == bool(another.calibrator):
        differences.append("calibrator (two different ones)")
    if differences:
        raise checks.InputError(
            f"these releases cannot be compared, they differ in: {'; '.join(differences)}"
        )
    checks.one_of("score of releases to compare", one.score, _ALL_ROWS)


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
        "unit": release.unit or None,  # "" = no noise hides anything
    }
