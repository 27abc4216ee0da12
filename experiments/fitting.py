"""A method on dealt rows, before anything is tested: what `simulate` and the estimator share."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.calibrators import BBQ, Calibrator, Identity, TemperatureScaling
from fedcal.experiments.config import AUTO, POOLED, Config, federation_of, job_of
from fedcal.experiments.engines.inline import run_inline
from fedcal.experiments.engines.ray import Source, run_ray
from fedcal.experiments.statement import about_subjects, of_plan, without_privacy
from fedcal.experiments.statement.sentences import large_delta
from fedcal.shards import Shards
from fedcal.strategies import STRATEGIES
from fedcal.strategies.enough import tell, too_little
from fedcal.strategies.outcome import Outcome, Progress
from fedcal.streams import Purpose, stream
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

UNUSED_ROWS = (
    "rows_per_client = {:g} was given and sets nothing in this run: no bound of it depends on it."
)


@dataclass(frozen=True)
class Fitted:
    """What came of a run, its resolved config, and its privacy record."""

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
        fitted = _fit_baseline(config, shards, tested)
    else:
        fitted = _fit_federated(config, shards, tested, held_out, by_name, progress)
    fitted.privacy["statement"] += chosen
    if not chosen:  # the planner has looked at more than this does
        tell(fitted.too_little, fitted.privacy, stacklevel=3)
    return fitted


def _fit_baseline(config: Config, shards: Shards, tested: bool) -> Fitted:
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
    return Fitted(outcome, known, privacy, too_little(config.method, read), [])


def _fit_federated(
    config: Config,
    shards: Shards,
    tested: bool,
    held_out: bool,
    by_name: bool,
    progress: Progress | None,
) -> Fitted:
    job = job_of(config, shards)
    plan = job.plan
    if plan.private and plan.delta >= 1 / plan.clients:
        warnings.warn(large_delta(plan), stacklevel=4)
    if config.engine == "ray":
        source = Source(config.data, config.partition) if by_name else None
        address = config.ray_address
        outcome = run_ray(job, shards, source=source, ray_address=address, progress=progress)
    else:
        drive = partial(run_inline, shards=shards, unavailable=job.unavailable)
        outcome = job.run(drive, progress)
    known = replace(
        config,
        clients=shards.clients,
        rounds=plan.rounds - plan.counting_rounds,
        trust=plan.trust,
        secure_aggregation=job.secure_aggregation,
        ledger=str(Path(config.ledger).resolve()) if config.ledger else None,
        set=job.settings,
    )
    rows: Any = job.settings.get("rows_per_client")  # checked by the strategy
    noun = outcome.artifact.noun
    privacy = of_plan(
        plan, len(outcome.records), job.secure_aggregation, rows, tested=tested, noun=noun
    )
    needed = STRATEGIES[job.method].needs_rows(job.federation, job.settings)
    if "rows_per_client" in config.set and not needed:
        privacy["statement"].append(UNUSED_ROWS.format(rows))
    few = too_little(config.method, shards, job)
    return Fitted(outcome, known, privacy, few, about_subjects(plan, config.partition, held_out))
