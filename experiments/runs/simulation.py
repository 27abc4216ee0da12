"""One method on one data set over simulated clients: what `fedcal simulate` runs.

`fit`, before anything is tested, is what the estimator runs, too.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fedcal.calibrators import BBQ, Calibrator, Identity, TemperatureScaling
from fedcal.core.checks import unused
from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.datasets import Dataset
from fedcal.experiments.runs import evaluated
from fedcal.experiments.runs.config import AUTO, POOLED, Config, federation_of, job_of, merge
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.engines.ray import NamedData, run_ray
from fedcal.experiments.runs.folders import RUN, claim, exports_in
from fedcal.experiments.runs.load import (
    load_any,
    name_of,
    rows_to_evaluate,
    test_part,
    warn_of_rows,
)
from fedcal.experiments.runs.paid import Paid
from fedcal.experiments.runs.record import recorded, result_of
from fedcal.experiments.runs.result import SimulationResult
from fedcal.experiments.runs.signatures import SimulateOptions, spelt_out
from fedcal.experiments.runs.statement import about_subjects, without_privacy
from fedcal.experiments.runs.statement.sentences import held_out as held_out_of
from fedcal.experiments.runs.statement.sentences import large_delta
from fedcal.partition import deal
from fedcal.storage.atomic import path_of
from fedcal.strategies.enough import tell, too_little
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome, Progress
from fedcal.trust import SecAgg

_TOGETHER = ("pooled", "All rows were pooled in one place: no federation and no privacy.")
_BASELINES: dict[str, tuple[type[Calibrator], str, str]] = {
    "none": (Identity, SecAgg.name, "Nothing was learned from anybody."),
    "one-source": (
        TemperatureScaling,
        "one-source",
        "One client fitted a temperature to its own rows, for itself: no federation, and nothing "
        "that was sent to anybody.",
    ),
    "pooled-temperature": (TemperatureScaling, *_TOGETHER),
    "pooled-bbq": (BBQ, *_TOGETHER),
}
"""Method of `POOLED` -> its calibrator, and what the record says of trust and of its rows."""


@spelt_out(SimulateOptions, Config)
def simulate(
    data: str | Path | Dataset | Mapping[str, Any] | None = None,
    *,
    config: Config | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
    progress: Progress | None = None,
    **options: Unpack[SimulateOptions],
) -> SimulationResult:
    """Run a method over simulated clients: calibrate a model, or what else the method is for.

    Parameters
    ----------
    data
        a shipped name, the path of a file, a `Dataset`, or arrays as a mapping with the keys
        of a data file (`logits` or `probs`, `labels`, ...); None = what `config` names
    config
        instead of options
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
    if (config.control if config else options.get("control")) is not None:
        from fedcal.experiments.deploy.run import deployed

        asked = config or merge(options)
        unused("a run over real sites writes its report", report=None if report else False)
        return deployed(asked, test=data, out=out, overwrite=overwrite, progress=progress)
    if resume and out is None:
        raise InputError("resume needs the folder of the run: give out")
    folder = None if out is None else path_of(out)
    if folder is not None:
        claim(folder, RUN, overwrite=overwrite, resume=resume, report=report)
    if data is None:
        data = Config.data if config is None else config.data
    config = merge(options) if config is None else config
    loaded = load_any(data, config.class_names, config.positive)
    by_name = isinstance(data, (str, Path)) and config.class_names is config.positive is None
    config = replace(config, data=name_of(data, loaded))
    evaluates = evaluated.evaluates(config.method)
    held_out = loaded.test_scores is None and not evaluates
    loaded = rows_to_evaluate(loaded) if evaluates else loaded.split(config.seed)
    shards = deal(loaded, config.partition, config.clients, config.seed)
    given = config
    if config.ledger is not None:  # found again from another folder
        given = replace(config, ledger=str(path_of(config.ledger).resolve()))
    names = evaluated.client_names(loaded, config.partition, shards.clients)
    dealt = shards
    config, shards = evaluated.resolved(config, dealt, names)
    if evaluates:
        test = evaluated.holdout(shards, names, config.seed, loaded.class_names)
    else:
        test = test_part(loaded, config.seed)
    warn_of_rows(test, "evaluated rows" if evaluates else "test rows")
    paid = Paid(folder, RUN, given.to_toml(), resume)
    with paid.reporting():
        fitted = fit(
            config,
            shards,
            tested=not evaluates,
            held_out=held_out,
            # sites by themselves would find the fit rows, and no groups but those of their column
            by_name=by_name and not evaluates and shards is dealt,
            progress=progress,
            paid=paid,
        )
        fitted.privacy["statement"] += evaluated.about_groups(given)
        if loaded.client_names is not None and config.partition != "natural":
            fitted.privacy["statement"].append(
                f"{loaded.name} names {len(loaded.client_names)} clients of its own; this run "
                f"dealt its rows out by {config.partition} instead (partition 'natural' uses them)."
            )
        result = result_of(
            fitted.outcome,
            fitted.config,
            fitted.privacy,
            shards.clients,
            given=given,
            test=test,
            data=loaded,
        )
        if folder is not None:
            result.save(folder, report=report)
            for path in exports_in(folder) if overwrite else ():  # of what was there before
                path.unlink()
    return result


@dataclass(frozen=True)
class Fitted:
    """The outcome of a run, its resolved config, its privacy record, and sentences for that."""

    outcome: Outcome
    config: Config
    privacy: dict[str, Any]
    too_little: list[str]
    about_subjects: list[str]


def fit(
    config: Config,
    shards: Shards,
    *,
    tested: bool = True,
    held_out: bool = False,
    by_name: bool = False,
    progress: Progress | None = None,
    paid: Paid | None = None,
) -> Fitted:
    """Run a method, one that the planner chooses, or a baseline.

    Warnings are those of the caller's caller.

    Parameters
    ----------
    config : Config
        "auto" and whatever is not given are resolved.
    shards : Shards
        The rows as they were dealt.
    tested : bool
        Whether test rows are judged afterwards.
    held_out : bool
        Whether these were drawn from the same rows.
    by_name : bool
        Whether others find the data by what the config calls them.
    progress : callable, optional
        Called after each round.
    paid : Paid, optional
        Keeps what was released.

    Raises
    ------
    InputError
        Anything that is not allowed; nothing was released.
    RoundFailed
        Nobody who was sampled answered.
    """
    chosen: list[str] = []
    if config.method == AUTO:
        from fedcal.experiments.planner.auto import resolved

        config, chosen = resolved(config, shards, progress)
    if config.method in POOLED:
        fitted = _fit_baseline(config, shards, tested, bool(chosen))
    else:
        paid = paid or Paid(None, RUN, "")
        fitted = _fit_federated(
            config, shards, tested, held_out, by_name, progress, paid, bool(chosen)
        )
    fitted.privacy["statement"] += [*chosen, *fitted.too_little]
    if held_out:
        fitted.privacy["statement"].append(held_out_of(fitted.outcome.artifact.noun))
    fitted.privacy["statement"] += fitted.about_subjects
    return fitted


def _warned(method: str, shards: Shards, job: Job | None, planned: bool) -> list[str]:
    """Warn of too little to help, before anything is paid for; the same as sentences."""
    said: dict[str, Any] = {"statement": []}
    if not planned:  # the planner has looked at more than this does
        tell(too_little(method, shards, job), said, stacklevel=5)
    return list(said["statement"])


def _fit_baseline(config: Config, shards: Shards, tested: bool, planned: bool) -> Fitted:
    federation_of(config, shards)  # nothing of it is used, but what is wrong in it is refused
    calibrator_class, trust, words = _BASELINES[config.method]
    read = shards
    if config.method == "one-source":  # Luo et al., 5.1: a client with rows, drawn by the seed
        some = np.flatnonzero(shards.rows)
        draw = stream(config.seed, Purpose.SAMPLING, 0, "one source").integers(len(some))
        read = shards.take(some[[int(draw)]])
    start = time.perf_counter()
    calibrator = calibrator_class().fit(read.logits, read.labels)
    seconds = time.perf_counter() - start
    calibrator.learnt_on(read.input)
    known = replace(
        config,
        clients=shards.clients,
        trust=SecAgg.name,
        rounds=None,
        secure_aggregation=config.secure_aggregation or "none",
    )
    outcome = Outcome(calibrator, [], [], 0, 0, seconds, [])
    privacy = without_privacy(trust, config.unit, words, tested=tested)
    return Fitted(outcome, known, privacy, _warned(config.method, read, None, planned), [])


def _fit_federated(
    config: Config,
    shards: Shards,
    tested: bool,
    held_out: bool,
    by_name: bool,
    progress: Progress | None,
    paid: Paid,
    planned: bool,
) -> Fitted:
    job = job_of(config, shards)
    plan = job.plan
    if plan.private and plan.delta >= 1 / plan.clients:
        warnings.warn(large_delta(plan), stacklevel=4)
    few = _warned(config.method, shards, job, planned)

    def run() -> Outcome:
        if config.engine == "ray":
            source = NamedData(config.data, config.partition) if by_name else None
            address = config.ray_address
            return run_ray(job, shards, source=source, ray_address=address, progress=progress)
        if config.engine == "grpc":
            from fedcal.experiments.runs.engines.grpc import run_grpc

            return run_grpc(job, shards, progress=progress)
        drive = partial(run_inline, shards=shards, unavailable=job.unavailable)
        return job.run(drive, progress)

    outcome = paid.outcome(job, run)
    about = about_subjects(plan, config.partition, held_out)
    return Fitted(outcome, *recorded(config, job, outcome, tested), few, about)
