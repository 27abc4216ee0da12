"""A pipeline's stages with what each reads and spends, settled before any of them runs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import fedcal
from fedcal.core.errors import InputError
from fedcal.datasets import Dataset
from fedcal.experiments.pipeline.budget import Budget, Spender, budget_of
from fedcal.experiments.pipeline.config import PipelineConfig, Stage, naming
from fedcal.experiments.pipeline.rows import Rows, rows_of_scores, rows_of_training
from fedcal.experiments.runs import evaluated
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.jobs import job_of
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.splits import load, run_config
from fedcal.partition import client_names, deal
from fedcal.privacy.noise_plan import Plan


@dataclass(frozen=True)
class Pipeline:
    """A pipeline whose budget is settled; nothing has run.

    Attributes
    ----------
    config
        what its file says
    stages
        in the order in which they run
    rows
        what they read
    budget
        None without privacy
    fingerprint
        tells another pipeline, other rows or another version of fedcal from this
    """

    config: PipelineConfig
    stages: tuple[Stage, ...]
    rows: Rows = field(repr=False)
    budget: Budget | None
    fingerprint: str


def settle(config: PipelineConfig) -> Pipeline:
    """Read the rows, and say what each stage spends.

    Raises InputError if the data cannot be read, a stage refuses its options, or the budget does
    not do.
    """
    stages: list[Stage] = []
    if config.trainings:
        data, first = load(cast(TrainConfig, config.trainings[0].config))
        rows = rows_of_training(data, first.data, first.held_out, first.unit)
        about = data.fingerprint()
        for number, training in enumerate(config.trainings):
            resolved = _resolved(cast(TrainConfig, training.config), first, number)
            stages.append(replace(training, config=resolved))
    else:
        rows = rows_of_scores(config.data, config.seed, config.stages[0].config.unit)
        about = _fingerprint_of(rows.parts)
    if config.choose is not None:
        for model in tuple(stages):
            # [evaluate] may ask the same question of the same rows: never with the same noise
            seed = model.config.seed + len(config.trainings)
            own = replace(_dealt(config.choose.config, rows), seed=seed)
            name = f"choose-{model.name}"
            stages.append(replace(config.choose, name=name, config=own, of=model.name))
    stages += [replace(after, config=_dealt(after.config, rows)) for after in config.stages]
    plans = {stage.name: _planned(stage, rows) for stage in stages}
    spenders = [
        Spender(stage.name, rows.apart[stage.rows], stage.epsilon, plans[stage.name])
        for stage in stages
    ]
    if config.private:
        _check_open(stages, rows)
    budget = budget_of(spenders, config.epsilon, config.delta) if config.private else None
    if budget is None:
        for plan in plans.values():
            plan(math.inf)  # refuses bad settings before anything runs
    content = json.dumps([config.given, about, fedcal.__version__], sort_keys=True, default=str)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Pipeline(config, tuple(stages), rows, budget, digest)


def _check_open(stages: Sequence[Stage], rows: Rows) -> None:
    """Check that one stage of a part takes what the others leave; trainings share it."""
    for part in dict.fromkeys(rows.apart.values()):
        mine = [s for s in stages if rows.apart[s.rows] == part and s.epsilon is None]
        if len(mine) > 1 and any(s.kind != mine[0].kind for s in mine):
            raise InputError(
                f"{' and '.join(s.name for s in mine)} read the same rows ({part}): give epsilon "
                "to all but one, which gets the rest"
            )


def _resolved(one: TrainConfig, first: TrainConfig, number: int) -> TrainConfig:
    """Return a training resolved for the data; all are on the same rows, cut alike."""
    known = ("clients", "partition", "held_out", "max_rows", "min_rows", "feature_norm", "data")
    for name in known[2:]:
        if number and getattr(one, name) != getattr(first, name):
            raise InputError(f"[[tune]] {number}: {name} must be that of [train]")
    own_noise = one.seed + number
    one = replace(one, clients=first.clients, partition=first.partition, seed=own_noise)
    if one.model is None:
        one = replace(one, model=first.model)
    if one.method is None:
        one = replace(one, method=first.method)
    if not one.by_method:
        where = f"[[tune]] {number}" if number else "[train]"
        raise InputError(
            f"{where}: method '{one.method}' has no privacy and no plan; give method = 'fedsgd'"
        )
    return one


def _fingerprint_of(parts: Mapping[str, Dataset]) -> str:
    digest = hashlib.sha256()
    for name, rows in parts.items():
        digest.update(f"{name} {rows.input} {rows.scores.shape}".encode())
        for column in (rows.scores, rows.labels, rows.client, rows.subject, rows.group):
            digest.update(b"-" if column is None else column.tobytes())
    return digest.hexdigest()


def _planned(stage: Stage, rows: Rows) -> Callable[[float], Plan]:
    """Return a function from an epsilon to the stage's plan, by public facts."""
    data = rows.dataset(stage.rows, rows.scores, rows.parts[stage.rows].input)
    if isinstance(stage.config, TrainConfig):
        config = run_config(stage.config, rows.of_clients)
        shards = deal(data, "natural", None, config.seed)
    else:
        config = stage.config
        shards = deal(data, config.partition, config.clients, config.seed)
        names = client_names(data, config.partition, shards.clients)
        config, shards = evaluated.resolved(config, shards, names)

    def plan(epsilon: float) -> Plan:
        with naming(f"[{stage.name}]"):
            return job_of(replace(config, epsilon=epsilon), shards).plan

    return plan


def _dealt(config: TrainConfig | Config, rows: Rows) -> TrainConfig | Config:
    """After a training its clients are those of all stages."""
    if rows.trained is None:
        return config
    return replace(config, clients=None, partition="natural")
