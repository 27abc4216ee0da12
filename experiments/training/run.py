"""Train a base model over simulated clients, and leave its logits for calibration."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.accounting.zcdp import rdp_epsilons
from fedcal.core.checks import needed, same
from fedcal.core.errors import InputError, Interrupted, RoundFailed
from fedcal.core.options import options_of
from fedcal.experiments.runs import engines, folders
from fedcal.experiments.runs.config import Config, RunOptions, read_options
from fedcal.experiments.runs.jobs import job_of
from fedcal.experiments.runs.record import recorded
from fedcal.experiments.training.config import TrainConfig, merged
from fedcal.experiments.training.features import IN_MEMORY, LabelledRows, rows_in_memory
from fedcal.experiments.training.result import Training
from fedcal.experiments.training.splits import PARTS, ClientData, load
from fedcal.privacy.noise_plan import Plan
from fedcal.storage.atomic import locked, path_of
from fedcal.strategies import STRATEGIES, FedSGD
from fedcal.strategies.server.checkpoint import CHECKPOINT, Checkpoint
from fedcal.strategies.server.outcome import OUTCOME, Outcome
from fedcal.strategies.server.run_folder import LOCK
from fedcal.strategies.settings import check_subjects
from fedcal.training.networks import OWN, enlist, network_named, text_of

KIND = folders.TRAINING

AfterRound = Callable[[int, int, float], None]
"""Called after each round: rounds done, rounds planned, the epsilon of the releases so far."""

TRAINING, ROWS = "training", "digest of the rows"
"""Keys of a checkpoint beside the job's: the options of the training, and its rows."""

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
OF_OWN = (
    "The module is the user's own: its code, first weights and constants are taken to know nothing "
    "of the rows, and it to keep nothing between calls."
)
TOGETHER = "A unit may have training and calibration rows: their budgets add up."


def train(
    config: TrainConfig | str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: AfterRound | None = None,
    **options: Any,
) -> Training:
    """Train a model over simulated clients, privately or not.

    Parameters
    ----------
    config
        what to train, or the path of its `config.toml`; `options` are its fields. Of these `data`
        may also be rows in memory (`rows_in_memory`), and `model` a `torch.nn.Module` of your own,
        its class or what makes it (`fedcal.training.networks.enlist`)
    out
        folder for the files and, on the way, the checkpoint; None = nothing is written
    resume
        go on with the checkpoint in `out`, whose options it has: others are refused. What a
        finished training leaves unsaid is made of what was paid for
    overwrite
        replace a training that `out` holds; otherwise it is refused
    progress
        called after each round

    Returns
    -------
    Training
        The same bits for the same configuration, also if it was interrupted and resumed.

    Raises
    ------
    InputError
        If an option, the data or the folder cannot be used, or torch is missing.
    RoundFailed
        If a client failed or the training diverged.
    Interrupted
        On Ctrl-C; what was done is in `out`.
    """
    if config is not None and not isinstance(config, TrainConfig):
        config = merged(read_options(path_of(config)))
    given = {} if config is None else config.to_dict()
    given |= {k: v for k, v in options.items() if v is not None}
    rows = None
    if not isinstance(given.get("data", ""), (str, Path)):
        rows = rows_in_memory(given["data"], given.get("feature_norm"))
        given["data"] = IN_MEMORY
    if "model" in given:  # before any file of this training names it
        given["model"] = enlist(given["model"])
    if out is None:
        if resume:
            needed("--out DIR", out, "--resume continues the training there")
        return _trained(merged(given), rows, progress=progress)
    folder = path_of(out)
    folders.claim(folder, KIND, overwrite=overwrite, resume=resume)
    if not (resume or overwrite) and any((folder / name).exists() for name in KIND.unfinished):
        raise InputError(
            f"--out {folder} holds an unfinished training: continue with --resume, or replace it "
            "with --overwrite"
        )
    with _alone(folder):  # what is there must not change on the way
        asked = _resumed(folder, given) if resume else merged(given)
        try:
            return _trained(asked, rows, folder, resume=resume, progress=progress)
        except KeyboardInterrupt:
            if not (folder / CHECKPOINT).is_file():
                raise
            raise Interrupted(
                f"what was done is kept; continue: fedcal train --out {folder} --resume"
            ) from None
        except RoundFailed:
            if math.isinf(asked.epsilon) and Checkpoint.load(folder).state is None:
                (folder / CHECKPOINT).unlink()  # nothing is lost
            raise


def _resumed(folder: Path, options: dict[str, Any]) -> TrainConfig:
    """Return the options of the training in a folder.

    Raises InputError if there is nothing to go on with, or other options are given.
    """
    if (folder / CHECKPOINT).is_file():
        begun = Checkpoint.load(folder).job[TRAINING]
    elif (folder / OUTCOME).is_file():
        begun = read_options(folder / folders.CONFIG)
    else:
        finished = (folder / "training.json").is_file()
        why = "the training there is finished" if finished else f"there is no {CHECKPOINT}"
        raise InputError(f"nothing to resume in {folder}: {why}")
    before, after = merged(begun), merged(begun, options)
    for name in (field.name for field in fields(after)):
        same(f"{name} with --resume", getattr(after, name), getattr(before, name))
    return after


def _trained(
    config: TrainConfig,
    rows: LabelledRows | None,
    folder: Path | None = None,
    *,
    resume: bool = False,
    progress: AfterRound | None = None,
) -> Training:
    """Train a model and write its files; see `train`."""
    data, config = load(config, rows)
    network, by_row = network_named(str(config.model)), config.method == FedSGD.name
    # now, before a ledger is charged
    network.check(data.parts["train"].x, data.classes, by_row=by_row)
    run, shards = _run_config(config, data), data.shards()
    job = job_of(run, shards)
    check_subjects(job.federation, shards)
    rate, clients = job.plan.federation.sampling_rate, job.plan.clients
    if job.plan.cohort and clients > 1 and len(job.plan.sample(1)) == 1:
        warnings.warn(
            f"one client trains in each round: sampling rate {rate:g} of {clients} clients; "
            f"--sampling-rate {min(1.0, 5 / clients):.2g} takes {min(5, clients)}",
            stacklevel=3,
        )
    epsilon_of = _epsilon_so_far(job.plan)
    kept: dict[str, Any] = {"folder": folder, "every": config.checkpoint_every}
    if folder is not None:
        kept |= {"about": {ROWS: data.fingerprint(), TRAINING: config.to_dict()}}
        kept |= {"resume": resume and (folder / CHECKPOINT).is_file()}

    def after_round(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, epsilon_of(done))

    def released() -> Outcome:
        return engines.run(job, shards, run.engine, progress=after_round, **kept)

    ended = resume and folder is not None and (folder / OUTCOME).is_file()
    paid = folders.Paid(folder, KIND, config.to_toml(), resume=ended)
    with paid.reporting():
        outcome = paid.outcome(job, released)
        known, privacy = recorded(run, job, outcome, tested=True)
        privacy["statement"] += _about_parts(config, job.plan)
        model: Any = outcome.artifact
        logits = {part: model.predict(data.parts[part].x) for part in PARTS}
        if not all(np.isfinite(some).all() for some in logits.values()):
            raise RoundFailed(f"the training diverged in its last round; lower --lr ({config.lr})")
        training = Training(
            config, data, outcome, privacy, logits, settings=dict(known.set), event=job.plan.event
        )
        if folder is not None:
            training.save(folder)
    return training


def _run_config(config: TrainConfig, data: ClientData) -> Config:
    """Return the run in the terms of `fedcal simulate`."""
    shared = {k: v for k, v in config.to_dict().items() if k in options_of(RunOptions)}
    method = str(config.method)
    if STRATEGIES[method].one_place:  # it samples rows, the others clients
        del shared["sampling_rate"]
    settings = {"network": config.model, "shape": text_of(data.shape), **config.settings}
    return Config(data=config.data, method=method, clients=data.clients, set=settings, **shared)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder: two that go on with one training would release its open round twice."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / LOCK
    with locked(lock, f"another training writes into {folder}"):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()  # only if nothing was kept


def _about_parts(config: TrainConfig, plan: Plan) -> list[str]:
    """Return sentences on files about private rows, and on budgets of later stages."""
    if not plan.private:
        return []
    own = [OF_OWN] if config.model in OWN else []
    if plan.protected.per != "row":
        return [EXACT, TOGETHER, *own]
    return [EXACT, APART if config.held_out else REUSED, *own]


def _epsilon_so_far(plan: Plan) -> Callable[[int], float]:
    """Return a function: rounds done -> epsilon of the releases so far, at the plan's delta.

    By Renyi DP, which is quick and above the account that the noise was planned by; so the plan's
    epsilon, which holds for all rounds, stands in where that is less.
    """
    if not plan.private or plan.law.order != 2:
        return lambda rounds: plan.epsilon
    epsilon_of = rdp_epsilons(plan.delta, plan.multiplier, plan.amplifying_rate)
    return lambda rounds: min(plan.epsilon, epsilon_of(rounds))
