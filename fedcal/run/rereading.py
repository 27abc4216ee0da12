"""A release read again: another threshold, a calibrator. No run, and no further charge."""

from pathlib import Path
from typing import Any

from fedcal.calibrators.score_map import SCORES, Curve, ScoreLogistic, calibrator_from
from fedcal.core import checks
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.storage.atomic import path_of


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
    score: Any = checks.one_of("score to calibrate", asked.score, SCORES)
    overall = release.histograms["model", "", ""]
    made = calibrator_from(overall, score, curve, asked.classes, release.input)
    made.of_classes(release.class_names)
    return made
