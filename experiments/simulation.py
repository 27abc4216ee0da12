"""One method on one data set over simulated clients: what `fedcal simulate` runs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcal import datasets
from fedcal.artifact import Artifact, Holdout
from fedcal.calibrators import BBQ, Calibrator, Identity, TemperatureScaling
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.experiments.config import (
    AUTO,
    POOLED,
    Config,
    federation_of,
    job_of,
    merge,
    unused_rows,
)
from fedcal.experiments.engines.inline import run_inline
from fedcal.experiments.engines.ray import Source, run_ray
from fedcal.experiments.result import SimulationResult, versions
from fedcal.experiments.statement import (
    HELD_OUT,
    NOT_NATURAL,
    about_subjects,
    large_delta,
    of_plan,
    without_privacy,
)
from fedcal.partition import deal
from fedcal.privacy.plan import Plan
from fedcal.shards import Shards
from fedcal.strategies.enough import tell, too_little
from fedcal.strategies.job import Progress
from fedcal.streams import Purpose, stream
from fedcal.trust import SecAgg

ARRAYS = datasets.KEYS


def simulate(
    data: str | Path | Dataset | Mapping[str, Any] | None = None,
    *,
    config: Config | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> SimulationResult:
    """Run a method over simulated clients: calibrate a model, or what else the method is for.

    Parameters
    ----------
    data : a shipped name, the path of a file, a `Dataset`, or arrays as a mapping with the keys
        of a data file (`logits` or `probs`, `labels`, ...); None = what `config` names
    config : instead of options
    out : folder for result files; None = write nothing
    progress : called after each round
    **options : as on the command line: method, clients, partition, rounds, sampling_rate,
        epsilon, delta, unit, trust, mechanism, quorum, noise_source, secure_aggregation, dropout,
        seed, ledger, cap, cap_delta, set={...}

    Raises
    ------
    InputError
        Anything the user gave that is not allowed; nothing was released.
    RoundFailed
        Nobody who was sampled answered; nothing is written.
    """
    if config is not None and options:
        raise InputError(f"give config or options, not both; got {', '.join(options)}")
    if data is None:
        data = Config.data if config is None else config.data
    loaded = load_any(data)
    named, by_name = loaded.name, False
    if isinstance(data, (str, Path)):
        by_name = True
        if not datasets.is_shipped(str(data)):
            named = str(Path(data).expanduser().resolve())
    config = merge({"data": named}, options) if config is None else replace(config, data=named)
    held_out = loaded.test_scores is None
    loaded = loaded.split(config.seed)
    shards = deal(loaded, config.partition, config.clients, config.seed)
    given = config
    if config.ledger is not None:  # found again from another folder
        given = replace(config, ledger=str(Path(config.ledger).resolve()))
    chosen: list[str] = []
    if config.method == AUTO:
        from fedcal.experiments.planner.auto import resolved

        config, chosen = resolved(config, shards, progress)
    if config.method in POOLED:
        run = _fit_pooled(config, shards)
    else:
        run = _fit_federated(config, shards, by_name, progress)
    run.privacy["statement"] += chosen
    if not chosen:  # the planner has looked at more than this does
        tell(run.warned, run.privacy, stacklevel=2)
    if held_out:
        run.privacy["statement"].append(HELD_OUT.format(run.artifact.noun))
    if run.plan is not None:
        run.privacy["statement"] += about_subjects(run.plan, config.partition, held_out)
    if loaded.client_names is not None and config.partition != "natural":
        dealt = NOT_NATURAL.format(loaded.name, len(loaded.client_names), config.partition)
        run.privacy["statement"].append(dealt)
    result = _judge(run, given, loaded)
    if out is not None:
        result.save(out)
    return result


@dataclass(frozen=True)
class _Run:
    """A run before it is judged on test rows."""

    artifact: Artifact
    config: Config
    seconds: float | None
    privacy: dict[str, Any]
    communication: dict[str, Any]
    rounds: list[dict[str, Any]]
    history: list[Artifact] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    plan: Plan | None = None


def load_any(data: Any) -> Dataset:
    """A `Dataset` from whatever `simulate` takes as `data`; InputError for anything else."""
    if isinstance(data, Dataset):
        return data
    if type(data).__module__.partition(".")[0] == "datasets":  # Hugging Face's, not imported here
        return datasets.from_huggingface(data)
    if isinstance(data, Mapping):
        if "labels" not in data or not set(data) <= {*ARRAYS, "name"}:
            raise InputError(
                f"arrays need logits or probs, and labels; allowed are {', '.join(ARRAYS)}; "
                f"got {', '.join(map(str, data))}"
            )
        return datasets.from_arrays(**data)
    return datasets.load(data)


_TOGETHER = ("pooled", "All rows were pooled in one place: no federation and no privacy.")
_ALONE = {
    "none": (SecAgg.name, "Nothing was learned from anybody."),
    "one-source": (
        "one-source",
        "One client fitted a temperature to its own rows, for itself: no federation, and nothing "
        "that was sent to anybody.",
    ),
}


def _one_source(shards: Shards, seed: int) -> Shards:
    """A client with rows, drawn by the seed: the baseline "one source" of Luo et al., 5.1."""
    some = np.flatnonzero(shards.rows)
    drawn = int(stream(seed, Purpose.SAMPLING, 0, "one source").integers(len(some)))
    return shards.take(some[drawn : drawn + 1])


def _fit_pooled(config: Config, shards: Shards) -> _Run:
    fits: dict[str, Calibrator] = {
        "none": Identity(),
        "one-source": TemperatureScaling(),
        "pooled-temperature": TemperatureScaling(),
        "pooled-bbq": BBQ(),
    }
    federation_of(config, shards)  # nothing of it is used, but what is wrong in it is said
    trust, said = _ALONE.get(config.method, _TOGETHER)
    if config.method == "one-source":
        shards_used = _one_source(shards, config.seed)
    else:
        shards_used = shards
    start = time.perf_counter()
    calibrator = fits[config.method].fit(shards_used.logits, shards_used.labels)
    seconds = time.perf_counter() - start
    calibrator.learnt_on(shards.input)
    privacy = without_privacy(trust, config.unit, said)
    communication = {"bytes_up_per_client": 0, "bytes_down_per_client": 0, "rounds": 0}
    known = replace(
        config,
        clients=shards.clients,
        trust=SecAgg.name,
        rounds=None,
        secure_aggregation=config.secure_aggregation or "none",
    )
    few = too_little(config.method, shards_used)
    return _Run(calibrator, known, seconds, privacy, communication, [], warned=few)


def _fit_federated(
    config: Config,
    shards: Shards,
    by_name: bool,
    progress: Progress | None,
) -> _Run:
    """Run a method; `by_name` says whether others find the data by what the config calls them."""
    job = job_of(config, shards)
    plan = job.plan
    if plan.private and plan.delta >= 1 / plan.clients:
        warnings.warn(large_delta(plan), stacklevel=3)
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
    privacy = of_plan(
        plan,
        len(outcome.records),
        job.secure_aggregation,
        job.settings.get("rows_per_client"),  # type: ignore[arg-type]
        noun=outcome.artifact.noun,
    )
    privacy["statement"] += unused_rows(config, job)
    sent = {
        "bytes_up_per_client": outcome.bytes_up,
        "bytes_down_per_client": outcome.bytes_down,
        "rounds": len(outcome.records),
    }
    return _Run(
        outcome.artifact,
        known,
        outcome.seconds,
        privacy,
        sent,
        outcome.records,
        outcome.history,
        too_little(config.method, shards, job),
        plan,
    )


def _judge(run: _Run, given: Config, data: Dataset) -> SimulationResult:
    logits, before, labels = data.test_logits, data.test_probs, data.test_labels
    if logits is None or before is None or labels is None:
        raise InputError(f"{data.name} has no test rows")
    test = Holdout(logits, before, labels, run.config.seed)
    return SimulationResult(
        artifact=run.artifact,
        judged=run.artifact.judge(test),
        privacy=run.privacy,
        communication=run.communication,
        config=run.config,
        given=given,
        seconds=run.seconds,
        versions=versions(),
        rounds=run.rounds,
        test=test,
        data=data,
        history=run.history,
    )
