"""Calibrators from a release's histogram: post-processing, without a further charge."""

from __future__ import annotations

from typing import Literal, get_args

from fedcal.calibrators.fits.score_fit import Curve
from fedcal.calibrators.score_map import ScoreLogistic, ScoreMap, Table
from fedcal.core.checks import one_of
from fedcal.core.removed import check_kept
from fedcal.core.scores import KINDS, Kind
from fedcal.evaluation.histogram import Histogram
from fedcal.metrics.buckets import Score

How = Literal[Table, Curve]


def calibrator_from(
    h: Histogram, score: Score, how: How, classes: int, input: Kind
) -> ScoreMap | ScoreLogistic:
    """Return a calibrator of the score that was binned.

    Parameters
    ----------
    h
        rows by score and outcome
    score
        "positive" (two classes; the outcome is class 1) or "confidence" (a correct prediction)
    how
        "binning", "isotonic", "bbq" (`ScoreMap`), "platt" or "beta" (`ScoreLogistic`); see
        `fedcal.calibrators.fits`. Under noise "platt" and "beta" lose least
    classes
        number of classes of the model
    input
        kind of the model's scores, "logits" or "probs"

    Raises
    ------
    InputError
        An unknown name, or a score that models of so many classes do not have.
    """
    check_kept(how)
    one_of("how", how, get_args(How))
    form = ScoreLogistic if how in get_args(Curve) else ScoreMap
    calibrator = form.from_histogram(h, how, score, classes)
    calibrator.input = one_of("input", input, KINDS)
    return calibrator
