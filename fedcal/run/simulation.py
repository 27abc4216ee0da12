"""One method on one data set over simulated clients: what `fedcal simulate` runs.

`fit`, before anything is tested, is what the estimator runs, too.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from fedcal import calibrators, datasets
from fedcal.core.checks import InputError, unused, warn
from fedcal.core.numerics import Purpose, stream
from fedcal.core.options import options_of
from fedcal.core.shards import Shards
from fedcal.partition import ASSIGNED
from fedcal.results import statement
from fedcal.results.labels import APP, STUDY
from fedcal.run import folders, jobs, load
from fedcal.run.config import POOLED, Config, load_config, merge, read_options, takes_options
from fedcal.run.engines import run
from fedcal.run.result import SimulationResult, recorded, result_of
from fedcal.storage.artifact import OUTCOME, Holdout
from fedcal.storage.atomic import path_of
from fedcal.strategies.methods.conformal import FedConformal
from fedcal.strategies.server.checkpoint import forget
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome, Progress
from fedcal.strategies.warnings import emit, underpowered
from fedcal.trust import SecAgg

_TOGETHER = ("pooled", "All rows were pooled in one place: no federation and no privacy.")
_BASELINES: dict[str, tuple[type[calibrators.Calibrator], str, str]] = {
    "none": (calibrators.Identity, SecAgg.name, "Nothing was learned from anybody."),
    "one-source": (
        calibrators.TemperatureScaling,
        "one-source",
        "One client fitted a temperature to its own rows, for itself: no federation, and nothing "
        "that was sent to anybody.",
    ),
    "pooled-temperature": (calibrators.TemperatureScaling, *_TOGETHER),
    "pooled-bbq": (calibrators.BBQ, *_TOGETHER),
}
"""Method of `POOLED` -> its calibrator, and what the record says of trust and of its rows."""


@takes_options(Config, "data")
def simulate(
    data: Any = None,
    *,
    model: Any = None,
    config: Config | str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> SimulationResult:
    """Run a method over simulated clients: calibrate a model, or what else the method is for.

    Parameters
    ----------
    data
        a shipped name, the path of a file, rows that are read in blocks (`blocks:PATH`, a folder
        or a pattern: see `fedcal.datasets.in_blocks`), a `Dataset`, a data frame of pandas or
        Polars, or arrays or tensors, as (logits, labels) or a mapping with the keys of a data file
        (`logits` or `probs`, `labels`, ...); None = what `config` names
    model
        a fitted scikit-learn classifier or torch model that scores the rows; `data` are then
        (rows, labels), or what else `fedcal.datasets.from_model` takes
    config
        instead of options; or the path of a `config.toml`
    out
        folder for result files; None = write nothing. What was released is there before it is
        judged and shown
    resume
        run nothing: make the result of what `out` holds of this run, which is paid for
    overwrite
        replace a run that `out` holds; otherwise it is refused
    report
        False writes neither report nor figures, which take most of the time of a short run;
        `fedcal report` makes them later
    progress
        called after each round
    **options
        as on the command line: method, clients, partition, rounds, sampling_rate,
        epsilon, delta, unit, trust, mechanism, quorum, noise_source, secure_aggregation, committee,
        colluding, dropout,
        seed, ledger, cap, cap_delta, set={...}

    Raises
    ------
    InputError
        Anything the user gave that is not allowed; nothing was released.
    RoundFailed
        Nobody who was sampled answered; nothing is written.
    FedcalError
        Of what was released no result could be made, or none written; `out` holds it.
    """
    if config is not None and options:
        raise InputError(f"give config or options, not both; got {', '.join(options)}")
    read = merge(options) if config is None else config
    asked = read if isinstance(read, Config) else load_config(read)
    if asked.real:
        raise InputError(f"engine '{asked.engine}' is started by {_STARTED_BY[asked.engine]}")
    if model is not None:  # all that follows needs is what it says
        data = load.load_any(data, asked.class_names, asked.positive, model)
    if resume and out is None:
        raise InputError("resume needs the folder of the run: give out")
    folder = None if out is None else path_of(out)
    if folder is not None:
        folders.claim(folder, folders.RUN, overwrite=overwrite, resume=resume)
    asked, rows = load.read_rows(asked, asked.data if data is None else data, progress)
    if asked.ledger is not None:  # found again from another folder
        asked = replace(asked, ledger=str(path_of(asked.ledger).resolve()))
    paid = folders.ReleaseStore(folder, folders.RUN, asked.to_toml(), resume)
    with paid.reporting():
        fitted = fit(rows, progress, paid)
        fitted.privacy["more"] += rows.sentences
        result = result_of(*fitted, given=asked, test=rows.test, data=rows.data)
        if folder is not None:
            result.save(folder, report=report)
    return result


class Fitted(NamedTuple):
    """The outcome of a run, its resolved config, and its privacy record."""

    outcome: Outcome
    config: Config
    privacy: dict[str, Any]


def fit(
    rows: load.RunRows, progress: Progress | None = None, paid: folders.ReleaseStore | None = None
) -> Fitted:
    """Run a method or a baseline.

    Parameters
    ----------
    rows : RunRows
        What it reads, and the config; whatever is not given there is resolved.
    progress : callable, optional
        Called after each round.
    paid : ReleaseStore, optional
        Keeps what was released.

    Raises
    ------
    InputError
        Anything that is not allowed; nothing was released.
    RoundFailed
        Nobody who was sampled answered.
    """
    config, shards = rows.config, rows.shards
    if config.method in POOLED:
        return _baseline(config, cast("Shards", shards), rows)
    job = jobs.job_of(config, shards)
    if too_large := statement.large_delta(job.plan):
        warn(too_large)
    few = emit(underpowered(config.method, shards, job))
    where: Any = {"ray_address": config.ray_address, "progress": progress}
    release = partial(run, job, shards, config.engine, **where)
    outcome = release() if paid is None else paid.outcome(job, release)
    about = rows.tested, rows.held_out, config.partition
    known, privacy = recorded(config, job, outcome, *about)
    privacy["more"] += few
    return Fitted(outcome, known, privacy)


def _baseline(config: Config, shards: Shards, of: load.RunRows) -> Fitted:
    jobs.federation_of(config, shards)  # nothing of it is used, but what is wrong in it is refused
    calibrator_class, trust, words = _BASELINES[config.method]
    read = shards
    if config.method == "one-source":  # Luo et al., 5.1: a client with rows, drawn by the seed
        some = np.flatnonzero(shards.rows)
        draw = stream(config.seed, Purpose.SAMPLING, 0, "one source").integers(len(some))
        read = shards.take(some[[int(draw)]])
    start = time.perf_counter()
    scores = read.logits if read.input == "logits" else read.probs
    calibrator = calibrator_class().fit(scores, read.labels, input=read.input)
    seconds = time.perf_counter() - start
    how: Any = {"clients": shards.clients, "trust": SecAgg.name, "rounds": None}
    how["secure_aggregation"] = config.secure_aggregation or "none"
    outcome = Outcome(calibrator, [], [], 0, 0, seconds, [], at_limits=calibrator.at_limits())
    facts = statement.Facts(calibrator.noun, of.tested, of.held_out)
    privacy = statement.without_privacy(trust, config.unit, words, facts)
    privacy["more"] += [*outcome.at_limits, *emit(underpowered(config.method, read))]
    return Fitted(outcome, replace(config, **how), privacy)


_STARTED_BY = {APP: "a Flower app: its server runs fedcal.AfterTraining", STUDY: "fedcal study run"}


def finish(folder: Path) -> Path:
    """Judge and write what a folder's `outcome.json` tells of; nothing runs, and nothing is paid.

    Returns
    -------
    Path
        Of the report.

    Raises
    ------
    InputError
        The folder holds no outcome, or its rows cannot be had again.
    """
    if not (folder / folders.CONFIG).is_file():
        outcome = Outcome.load(folder)
        if not outcome.job:
            raise InputError(f"{folder / OUTCOME} does not name its run")
        of_messages(outcome).save(folder)
        forget(folder, checkpoint=True)  # what it holds is in the result
    elif "model" in read_options(folder / folders.CONFIG):
        from fedcal.run.training import train

        train(out=folder, resume=True)
    else:
        config = load_config(folder / folders.CONFIG, {})
        try:
            simulate(config.data, config=config, out=folder, resume=True)
        except InputError as error:
            raise InputError(
                f"{error}; a run on arrays is reported by simulate(..., out={str(folder)!r}, "
                "resume=True) in Python"
            ) from None
    return folder / "report.html"


def of_messages(outcome: Outcome, test: Holdout | None = None, **given: Any) -> SimulationResult:
    """Return the result of a run that Flower drove.

    Parameters
    ----------
    outcome
        with its job
    test
        rows that judge it; None = those of simulated sites, if it was on such
    **given
        options of the run that a job does not have
    """
    job = Job.from_fields(outcome.job)
    fields = {key.replace("-", "_"): value for key, value in outcome.job.items()}
    names = options_of(Config).keys() - {"committee", "timeout", "grace"}  # others there, or unused
    known = {n: v for n, v in fields.items() if n in names and v not in ("", 0)}
    data, partition = str(fields.get("data", "")), str(fields.get("partition", ""))
    known |= {"data": data, "set": job.settings, **given}
    known["engine"] = fields.get("engine") or ("flower" if data else "grpc")
    rows: datasets.Dataset | datasets.BlockRows | None = None
    held_out, tested = False, test is not None
    if data and partition != ASSIGNED:
        assigned = load.rows_of(merge(known), load.load_any(data))
        held_out, rows = assigned.held_out, assigned.data
        test, tested = assigned.test, assigned.tested
    config, privacy = recorded(merge(known), job, outcome, tested, held_out, partition)
    return result_of(outcome, config, privacy, given=config, test=test, data=rows)


@takes_options(simulate, "method")
def evaluate(
    data: Any = None,
    *,
    calibrator: str | Path | None = None,
    by: str = "none",
    threshold: float | None = None,
    score: str | None = None,
    bins: int | None = None,
    rows_per_subject: int | None = None,
    config: Config | str | Path | None = None,
    **options: Any,
) -> SimulationResult:
    """Evaluate a model on rows that stay with simulated clients: one release, all metrics.

    Rows are those of the test part where the data have one, else all. Where the data have scores
    of a second model, both are evaluated on the rows that have both.

    Parameters
    ----------
    data
        as `simulate` takes them
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
    rows_per_subject
        of unit `subject`: 1 = each subject counts once (the default); R = each row does, up to R
        rows of a subject, for R times the noise
    config
        instead of options; or the path of a `config.toml`
    **options
        as `simulate` takes them (model, out, ... too), but for the method

    Returns
    -------
    SimulationResult
        `metrics` are those of the model; `evaluated` has all that `result.json` has

    Raises
    ------
    InputError
        Anything the user gave that is not allowed; nothing was released.
    """
    chosen = {"threshold": threshold, "score": score, "bins": bins}
    chosen["rows_per_subject"] = rows_per_subject
    asked = jobs.settings(by, calibrator, **chosen)
    return simulate(data, config=config, **_run(jobs.METHOD, asked, config, options))


@takes_options(simulate, "method")
def prediction_sets(
    data: Any = None,
    *,
    alpha: float | None = None,
    score: str | None = None,
    by: str | None = None,
    calibrator: str | Path | None = None,
    config: Config | str | Path | None = None,
    **options: Any,
) -> SimulationResult:
    """Find prediction sets from rows that stay with simulated clients: the method `conformal`.

    Parameters
    ----------
    data
        as `simulate` takes them
    alpha
        share of new rows whose label may be missing in their set; None = 0.1
    score
        how little a label conforms: "lac" (None), "aps", "raps"
    by
        "class" or "group": thresholds of their own for each label, or group of rows
    calibrator
        a `calibrator.npz`: sets are of its probabilities
    config
        instead of options; or the path of a `config.toml`
    **options
        as `simulate` takes them (model, out, ... too), but for the method; `set` has its other
        settings

    Returns
    -------
    SimulationResult
        `sets` are ready for `predict_set`; `before` and `after` tell coverage and size

    Raises
    ------
    InputError
        Anything the user gave that is not allowed; nothing was released.
    """
    asked = jobs.settings(calibrator=calibrator, alpha=alpha, score=score)
    asked |= {} if by is None else {"by": by}
    return simulate(data, config=config, **_run(FedConformal.name, asked, config, options))


def _run(
    method: str, asked: Mapping[str, Any], config: object, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Options of `simulate`, of which `config` would say all."""
    unused("the function says it", method=options.get("method"))
    unused("give alpha, the share of misses: 0.05 for 95 %", coverage=options.get("coverage"))
    if config is not None:
        unused("config says it", **asked)
        return {**options}
    return {**options, "method": method, "set": {**asked, **options.get("set", {})}}
