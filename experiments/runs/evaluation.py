"""Evaluating a model over simulated clients, as `fedcal evaluate`; and its prediction sets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from fedcal.core.checks import unused
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.evaluated import METHOD, settings
from fedcal.experiments.runs.result import SimulationResult
from fedcal.experiments.runs.signatures import EvaluateOptions, spelt_out
from fedcal.experiments.runs.simulation import simulate
from fedcal.strategies import FedConformal
from fedcal.strategies.server.outcome import Progress


@spelt_out(EvaluateOptions, Config)
def evaluate(
    data: Any = None,
    *,
    model: Any = None,
    only: str | None = None,
    calibrator: str | Path | None = None,
    by: str = "none",
    threshold: float | None = None,
    score: str | None = None,
    bins: int | None = None,
    estimand: str | None = None,
    rows_per_subject: int | None = None,
    config: Config | str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
    progress: Progress | None = None,
    **options: Unpack[EvaluateOptions],
) -> SimulationResult:
    """Evaluate a model on rows that stay with simulated clients: one release, all metrics.

    Rows are those of the test part where the data have one, else all. Where the data have scores
    of a second model, both are evaluated on the rows that have both.

    Parameters
    ----------
    data, model
        as `simulate` takes them
    only
        "accuracy": this metric for the whole budget; None = all metrics
    calibrator
        a `calibrator.npz`: evaluate the model before and after it
    by
        "site" or "group": also each client, or each value of the rows' column `group`
    threshold
        a row is predicted positive from this score on (two classes; 0.5)
    score
        "positive" (two classes), "confidence" or "classes"; None = the first that the model has
    bins
        buckets of the score; None = 240
    estimand
        what intervals are for: "rows" (new rows like these; the default), or "these" rows
    rows_per_subject
        of unit `subject`: 1 = each subject counts once (the default); R = each row does, up to R
        rows of a subject, for R times the noise
    config
        instead of options; or the path of a `config.toml`
    out
        folder for result files; None = write nothing
    resume, overwrite, report
        as `simulate` has them
    progress
        called after each round
    **options
        as `simulate` takes them, but for the method

    Returns
    -------
    SimulationResult
        `metrics` are those of the model; `judged` has all that `result.json` has

    Raises
    ------
    InputError
        Anything the user gave that is not allowed; nothing was released.
    """
    wanted = {"threshold": threshold, "score": score, "bins": bins, "estimand": estimand}
    asked = settings(by, calibrator, only=only, rows_per_subject=rows_per_subject, **wanted)
    output: dict[str, Any] = {
        "out": out,
        "resume": resume,
        "overwrite": overwrite,
        "report": report,
    }
    run = _run(METHOD, asked, config, options)
    return simulate(data, model=model, config=config, progress=progress, **output, **run)


@spelt_out(EvaluateOptions, Config)
def prediction_sets(
    data: Any = None,
    *,
    model: Any = None,
    alpha: float | None = None,
    score: str | None = None,
    by: str | None = None,
    calibrator: str | Path | None = None,
    config: Config | str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
    progress: Progress | None = None,
    **options: Unpack[EvaluateOptions],
) -> SimulationResult:
    """Find prediction sets from rows that stay with simulated clients: the method `conformal`.

    Parameters
    ----------
    data, model
        as `simulate` takes them
    alpha
        share of new rows whose label may be missing in their set; None = 0.1
    score
        how little a label conforms: "lac" (None), "aps", "raps"
    by
        "class" or "group": thresholds of their own for each label, or group of rows
    calibrator
        a `calibrator.npz`: sets are of its probabilities
    config, out, resume, overwrite, report, progress
        as `simulate` has them
    **options
        as `simulate` takes them, but for the method; `set` has its other settings

    Returns
    -------
    SimulationResult
        `sets` are ready for `predict_set`; `before` and `after` tell coverage and size

    Raises
    ------
    InputError
        Anything the user gave that is not allowed; nothing was released.
    """
    asked = settings(calibrator=calibrator, alpha=alpha, score=score)
    asked |= {} if by is None else {"by": by}
    output: dict[str, Any] = {
        "out": out,
        "resume": resume,
        "overwrite": overwrite,
        "report": report,
    }
    run = _run(FedConformal.name, asked, config, options)
    return simulate(data, model=model, config=config, progress=progress, **output, **run)


def _run(
    method: str, asked: Mapping[str, Any], config: object, options: EvaluateOptions
) -> dict[str, Any]:
    """Options of `simulate`, of which `config` would say all."""
    if config is not None:
        unused("config says it", **asked)
        return {**options}
    return {**options, "method": method, "set": {**asked, **options.get("set", {})}}
