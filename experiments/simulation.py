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

from experiments.config import POOLED, Config, merge, settings_of
from experiments.engines.inline import run_inline
from experiments.result import SimulationResult, versions
from experiments.statement import HELD_OUT, NOT_NATURAL, large_delta, of_plan, without_privacy
from fedcal import datasets
from fedcal.calibrators import BBQ, Calibrator, Identity, TemperatureScaling
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.metrics import Reliability, summary
from fedcal.partition import deal
from fedcal.privacy.plan import Federation
from fedcal.shards import Shards
from strategies.job import Job, Progress

ARRAYS = ("logits", "probs", "labels", "client", "test_logits", "test_probs", "test_labels")


def simulate(
    data: str | Path | Dataset | Mapping[str, Any] | None = None,
    *,
    config: Config | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> SimulationResult:
    """Calibrate a model over simulated clients.

    Parameters
    ----------
    data : a shipped name, the path of a file, a `Dataset`, or arrays as a mapping with the keys
        of a data file (`logits` or `probs`, `labels`, ...); None = what `config` names
    config : instead of options
    out : folder for result files; None = write nothing
    progress : called after each round
    **options : as on the command line: method, clients, partition, rounds, sampling_rate,
        epsilon, delta, unit, trust, secure_aggregation, dropout, seed, ledger, cap,
        set={...}

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
    loaded = _load(data)
    named = loaded.name
    if isinstance(data, (str, Path)) and str(data) not in _shipped():
        named = str(Path(data).resolve())
    config = merge({"data": named}, options) if config is None else replace(config, data=named)
    held_out = loaded.test_scores is None
    loaded = loaded.split(config.seed)
    shards = deal(loaded, config.partition, config.clients, config.seed)
    federation = Federation(
        clients=shards.clients,
        classes=loaded.classes,
        rounds=config.rounds,
        sampling_rate=config.sampling_rate,
        epsilon=config.epsilon,
        delta=config.delta,
        unit=config.unit,
        trust=config.trust,
        seed=config.seed,
    )
    if config.method in POOLED:
        run = _fit_pooled(config, shards)
    else:
        run = _fit_federated(config, federation, loaded, shards, progress)
    run.calibrator.input = loaded.input
    if held_out:
        run.privacy["statement"].append(HELD_OUT)
    if loaded.client_names is not None and config.partition != "natural":
        dealt = NOT_NATURAL.format(loaded.name, len(loaded.client_names), config.partition)
        run.privacy["statement"].append(dealt)
    result = _judge(run, loaded)
    if out is not None:
        result.save(out)
    return result


@dataclass(frozen=True)
class _Run:
    """A fit before it is judged on test rows."""

    calibrator: Calibrator
    config: Config
    seconds: float
    privacy: dict[str, Any]
    communication: dict[str, Any]
    rounds: list[dict[str, Any]]
    history: list[Calibrator] = field(default_factory=list)


def _shipped() -> set[str]:
    return {entry.name for entry in datasets.catalogue()}


def _load(data: Any) -> Dataset:
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


def _fit_pooled(config: Config, shards: Shards) -> _Run:
    fits: dict[str, Calibrator] = {
        "none": Identity(),
        "pooled-temperature": TemperatureScaling(),
        "pooled-bbq": BBQ(),
    }
    start = time.perf_counter()
    calibrator = fits[config.method].fit(shards.logits, shards.labels)
    seconds = time.perf_counter() - start
    if config.method == "none":
        said = "Nothing was learned from anybody."
    else:
        said = "All rows were pooled in one place: no federation and no privacy."
    privacy = without_privacy("secagg" if config.method == "none" else "pooled", config.unit, said)
    communication = {"bytes_up_per_client": 0, "bytes_down_per_client": 0, "rounds": 0}
    known = replace(config, clients=shards.clients, trust="secagg", rounds=None)
    return _Run(calibrator, known, seconds, privacy, communication, [])


def _fit_federated(
    config: Config, federation: Federation, data: Dataset, shards: Shards, progress: Progress | None
) -> _Run:
    settings = dict(config.set)
    if "rows_per_client" in settings_of(config.method) and federation.private:
        settings.setdefault("rows_per_client", len(shards.labels) / shards.clients)
    job = Job(
        method=config.method,
        federation=federation,
        settings=settings,
        secure_aggregation=config.secure_aggregation,
        dropout=config.dropout,
        ledger=config.ledger,
        cap=config.cap,
    )
    plan = job.plan
    if plan.private and plan.delta >= 1 / plan.clients:
        warnings.warn(large_delta(plan), stacklevel=3)
    if config.engine == "ray":
        from experiments.engines.ray import run_ray

        outcome = run_ray(job, config, data, progress=progress)
    else:
        drive = partial(run_inline, shards=shards, unavailable=job.unavailable)
        outcome = job.run(drive, progress)
    known = replace(
        config,
        clients=shards.clients,
        rounds=plan.rounds - plan.counting_rounds,
        trust=plan.trust,
        ledger=str(Path(config.ledger).resolve()) if config.ledger else None,
        set=settings,
    )
    privacy = of_plan(
        plan,
        len(outcome.records),
        config.secure_aggregation,
        settings.get("rows_per_client"),  # type: ignore[arg-type]
    )
    sent = {
        "bytes_up_per_client": outcome.bytes_up,
        "bytes_down_per_client": outcome.bytes_down,
        "rounds": len(outcome.records),
    }
    return _Run(
        outcome.calibrator, known, outcome.seconds, privacy, sent, outcome.records, outcome.history
    )


def _judge(run: _Run, data: Dataset) -> SimulationResult:
    logits, before, labels = data.test_logits, data.test_probs, data.test_labels
    if logits is None or before is None or labels is None:
        raise InputError(f"{data.name} has no test rows")
    after = before if isinstance(run.calibrator, Identity) else run.calibrator.predict_proba(logits)
    return SimulationResult(
        calibrator=run.calibrator,
        before=summary(before, labels),
        after=summary(after, labels),
        privacy=run.privacy,
        communication=run.communication,
        config=run.config,
        seconds=run.seconds,
        versions=versions(),
        rounds=run.rounds,
        reliability={
            "before": Reliability.of(before, labels),
            "after": Reliability.of(after, labels),
        },
        test_probs=np.ascontiguousarray(after),
        data=data,
        history=run.history,
    )
