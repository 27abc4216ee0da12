"""Training by a method of ours: the plan, ledger and engines that every run has, on inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core import pages
from fedcal.core.errors import InputError
from fedcal.core.numerics import softmax
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.files import PAGE, to_json, write_folder
from fedcal.experiments.runs.folders import TRAINING as KIND
from fedcal.experiments.runs.jobs import job_of
from fedcal.experiments.runs.paid import Paid
from fedcal.experiments.runs.record import communication_of, recorded
from fedcal.experiments.runs.result import versions
from fedcal.experiments.training.config import FOLLOWING, SETTINGS, TrainConfig
from fedcal.experiments.training.splits import PARTS, ClientData
from fedcal.privacy.curator import Release
from fedcal.queries import Gradients
from fedcal.storage.artifact import Holdout
from fedcal.storage.atomic import path_of
from fedcal.strategies import STRATEGIES
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.server.checkpoint import CHECKPOINT, Checkpoint
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome, Progress
from fedcal.strategies.settings import check_subjects
from fedcal.training.model_card import clipped_share, clipping_part, scored
from fedcal.training.network import text_of
from fedcal.training.trained_model import TrainedModel

_SHARED = (
    *("epsilon", "delta", "unit", "trust", "mechanism", "quorum", "secure_aggregation"),
    *("committee", "colluding"),
    *("noise_source", "ledger", "cap", "cap_delta", "seed", "engine", "rounds", "method"),
)
"""Options that `fedcal train` shares with `fedcal simulate`."""

_JUDGED_ROUNDS, _JUDGED_ROWS, _FEWEST_ROWS, _JUDGED_NUMBERS = 24, 500, 50, 2**24
"""Rounds and test rows of which it is told how many gradients would be clipped; of networks with
many weights fewer rows, so that it takes a small part of the training's time."""

TRAINING = "training"
"""Key of a checkpoint: the options of the training."""

REUSED = (
    "The calibration rows are the training rows: what is learnt from them afterwards is a further "
    "release about the same rows, and budgets add up (one account: `fedcal.accounting`)."
)
APART = (
    "The calibration rows are others, by a hash of each row's id: a row is in one of the two parts "
    "whatever the others are, so the training and what is learnt from those rows cost the larger "
    "of their budgets together."
)
EXACT = (
    "The metrics of the training rows, the numbers of rows, and logits and labels of the "
    "calibration rows are exact and not private: for the researcher's eyes."
)
TOGETHER = "A unit may have training and calibration rows: their budgets add up."


@dataclass(frozen=True)
class ModelTraining:
    """A model that a method trained, its logits, and what was promised.

    Attributes
    ----------
    config
        resolved
    model
        after the last round
    privacy
        record and statement, as those of every run
    metrics
        of the model on the test rows (`fedcal.training.model_card.scored`): for the researcher's
        eyes
    train_metrics
        the same on the training rows
    logits
        (n, classes) float32 of the calibration and test rows, client by client, by part
    federation
        the rows
    outcome
        of the run
    settings
        of the method
    event
        rounds, noise and rate in a line
    clipping
        how many of the test rows' gradients would be clipped, by round, if the method clips rows
    """

    config: TrainConfig
    model: TrainedModel
    privacy: dict[str, Any]
    metrics: dict[str, float]
    train_metrics: dict[str, float]
    logits: dict[str, NDArray[np.float32]] = field(repr=False)
    federation: ClientData = field(repr=False)
    outcome: Outcome = field(repr=False)
    settings: dict[str, Any]
    event: str
    clipping: list[pages.Part] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The content of `training.json`: strict JSON."""
        config = self.config.to_dict() | {"clients": self.federation.clients}  # which may be open
        settings = {k: v for k, v in self.settings.items() if k not in FOLLOWING}
        return {
            "schema": 1,
            "config": config | {"set": settings},
            "test": self.metrics,
            "train": self.train_metrics,
            "clients": self.federation.clients,
            "classes": self.federation.classes,
            "rows": {name: int(self.federation.sizes(name).sum()) for name in PARTS},
            "parameters": int(self.model.w.size),
            "event": self.event,
            "privacy": self.privacy,
            "communication": communication_of(self.outcome, self.federation.clients),
            "seconds": self.outcome.seconds,
            "versions": versions(),
        }

    def save(self, out: str | Path) -> None:
        """Write model, logits, options, numbers and the report into a folder."""
        write_folder(path_of(out), partial(self._write, home=path_of(out)), stale=KIND.files)

    def _write(self, folder: Path, home: Path) -> None:
        data = self.federation
        columns = {
            "logits": self.logits["calibration"],
            "labels": data.labels("calibration"),
            "client": np.repeat(np.array(data.names), data.sizes("calibration")),
            "test_logits": self.logits["test"],
            "test_labels": data.labels("test"),
        }
        for prefix, part in (("", "calibration"), ("test_", "test")):
            group = column(data, part, "group")
            if group is not None:
                columns[f"{prefix}group"] = np.array(data.group_names)[group]
        np.savez_compressed(folder / "logits.npz", **columns)  # type: ignore[arg-type]
        self.model.write(folder, self.model.form)
        (folder / "config.toml").write_text(self.config.to_toml(), "utf-8")
        (folder / "training.json").write_text(to_json(self.to_json()), "utf-8")
        page = {"schema": 1, "form": self.model.form, "parts": pages.to_json(self.page())}
        (folder / PAGE).write_text(to_json(page), "utf-8")
        from fedcal.experiments.report import write_training_report

        write_training_report(folder, home)

    def page(self) -> list[pages.Part]:
        """The model's card."""
        from fedcal.training.model_card import card_parts

        test = test_rows(self.federation, self.logits)
        told = {"method": self.config.method, **self.settings, "rounds and noise": self.event}
        facts = tuple((name.replace("_", " "), f"{value}") for name, value in told.items())
        return [
            *self.model.page(),
            pages.Table("Training", ("", ""), facts),
            *card_parts({"model": test.probs}, test),
            *self.clipping,
        ]


def test_rows(data: ClientData, logits: Mapping[str, Floats | NDArray[np.float32]]) -> Holdout:
    """The test rows with a model's logits."""
    z = np.asarray(logits["test"], np.float64)
    group = column(data, "test", "group")
    return Holdout(z, softmax(z), data.labels("test"), group=group, group_names=data.group_names)


def column(data: ClientData, part: str, name: str) -> Integers | None:
    """A column of all clients' rows in a part, or None."""
    found = [getattr(rows, name) for rows in data.parts[part]]
    return None if any(c is None for c in found) else np.concatenate(found)


def inputs_of(data: ClientData, part: str) -> NDArray[Any]:
    """Inputs of all clients' rows, client by client, (n, ...)."""
    return np.concatenate([rows.x for rows in data.parts[part]])


def shards_of(data: ClientData) -> Shards:
    """The clients' training rows; there are no logits yet, which are zeros."""
    labels = data.labels("train")
    return Shards.from_owner(
        np.zeros((len(labels), data.classes)),
        labels,
        np.repeat(np.arange(data.clients), data.sizes("train")),
        data.clients,
        subjects=column(data, "train", "subject"),
        inputs=inputs_of(data, "train"),
    )


def run_config(config: TrainConfig, data: ClientData) -> Config:
    """What the run is called in the words of `fedcal simulate`."""
    known = config.to_dict()
    settings: dict[str, Any] = dict(config.set)
    settings |= {"network": config.model, "shape": text_of(data.shape)}
    for name, setting in SETTINGS.items():
        if known.get(name) is not None:
            settings.setdefault(setting, known[name])
    shared = {name: known[name] for name in _SHARED if name in known}
    if not STRATEGIES[str(config.method)].one_place:  # it samples clients, the others rows
        shared["sampling_rate"] = config.sampling_rate
    return Config(data=config.data, clients=data.clients, set=settings, **shared)


def train_by_method(
    config: TrainConfig,
    data: ClientData,
    *,
    folder: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    hear: Callable[[Job], object] | None = None,
    paid: Paid | None = None,
) -> ModelTraining:
    """Train a model by a strategy of ours.

    Parameters
    ----------
    config, data
        as `splits.load` gives them
    folder
        for the checkpoint; None = none is kept
    resume
        go on with the one that is there
    progress
        called after each round
    hear
        called with the job before it begins
    paid
        keeps what was released

    Raises
    ------
    InputError
        If an option is not allowed, or the ledger refuses; nothing was released.
    RoundFailed
        If a client failed, or the training diverged.
    """
    shards, run = shards_of(data), run_config(config, data)
    given = {k: v for k, v in config.to_dict().items() if v != math.inf}
    job = job_of(run, shards)
    check_subjects(job.federation, shards)
    if hear is not None:
        hear(job)
    clipped = _Clipped(data)
    about = {"rows": data.fingerprint(), TRAINING: given} if folder is not None else {}

    def trained() -> Outcome:
        if run.engine == "inline":
            return job.run(
                partial(clipped.drive, shards=shards),
                progress,
                folder=folder,
                resume=resume,
                every=config.checkpoint_every,
                about=about,
            )
        if resume:
            raise InputError("--resume goes on with a training that runs inline")
        return _by_engine(run.engine, job, shards, progress)

    paid = paid or Paid(None, KIND, "")
    if paid.resume and folder is not None and (folder / CHECKPOINT).is_file():
        Checkpoint.load(folder).check({**job.to_fields(), **about})
    outcome = paid.outcome(job, trained)
    model = outcome.artifact
    if not isinstance(model, TrainedModel):
        raise InputError(f"method '{run.method}' trains no model")
    known, privacy = recorded(run, job, outcome, tested=True)
    privacy["statement"] += _about_parts(config, job)
    logits = {part: model.predict(inputs_of(data, part)) for part in PARTS}
    metrics = {part: scored(softmax(logits[part]), data.labels(part)) for part in PARTS}
    return ModelTraining(
        config=config,
        model=model,
        privacy=privacy,
        metrics=metrics["test"],
        train_metrics=metrics["train"],
        logits={part: logits[part].astype(np.float32) for part in PARTS},
        federation=data,
        outcome=outcome,
        settings=dict(known.set),
        event=job.plan.event,
        clipping=clipped.parts(),
    )


class _Clipped:
    """Follows a training: how many of some test rows' gradients would be clipped, now and then."""

    def __init__(self, data: ClientData) -> None:
        self._data = data
        self._shares: list[tuple[int, float]] = []
        self._last: Gradients | None = None

    def drive(self, strategy: FederatedStrategy, shards: Shards) -> None:
        """Run a strategy on the clients' rows."""
        told, rounds = strategy.on_release, strategy.plan.rounds
        looks = set(np.unique(np.linspace(1, rounds, _JUDGED_ROUNDS).astype(int)).tolist())
        inputs, labels = inputs_of(self._data, "test"), self._data.labels("test")

        def note(release: Release) -> None:
            query = strategy.query(release.round) if release.round in looks else None
            if isinstance(query, Gradients):
                most = max(_FEWEST_ROWS, min(_JUDGED_ROWS, _JUDGED_NUMBERS // len(query.w)))
                some = np.unique(np.linspace(0, len(labels) - 1, most).astype(np.int64))
                share = clipped_share(query, inputs[some], labels[some])
                self._shares.append((release.round, share))
                self._last = query
            if told is not None:
                told(release)

        strategy.on_release = note
        run_inline(strategy, shards=shards)

    def parts(self) -> list[pages.Part]:
        """The figure, if there is anything in it."""
        return [] if self._last is None else [clipping_part(self._shares, self._last)]


def _by_engine(engine: str, job: Job, shards: Shards, progress: Progress | None) -> Outcome:
    if engine == "ray":
        from fedcal.experiments.runs.engines.ray import run_ray

        return run_ray(job, shards, progress=progress)
    from fedcal.experiments.runs.engines.grpc import run_grpc

    return run_grpc(job, shards, progress=progress)


def _about_parts(config: TrainConfig, job: Job) -> list[str]:
    """What files tell of private rows, and how budgets go together with those of what follows."""
    if not job.plan.private:
        return []
    if job.plan.protected.per != "row":
        return [EXACT, TOGETHER]
    return [EXACT, APART if config.held_out else REUSED]


def spent_so_far(job: Job) -> Callable[[int], float]:
    """Rounds done -> epsilon of the releases so far, at the plan's delta.

    By Renyi DP, which is quick and above the account that the noise was planned by; so the plan's
    epsilon, which holds for all rounds, stands in where that is less.
    """
    plan = job.plan
    if not plan.private or plan.law.order != 2:
        return lambda rounds: plan.epsilon
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant, compute_epsilon

    one = RdpAccountant([*range(2, 64), 128, 256, 512])  # broken ones may fail to converge
    one.compose(PoissonSampledDpEvent(plan.amplifying_rate, GaussianDpEvent(plan.multiplier)))
    orders, each = np.array(one._orders), np.array(one._rdp)

    def spent(rounds: int) -> float:
        return min(plan.epsilon, float(compute_epsilon(orders, rounds * each, plan.delta)[0]))

    return spent
