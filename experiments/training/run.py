"""Train a base model over simulated clients, and leave its logits for calibration."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedcal.accounting.gaussian import rdp_epsilons
from fedcal.core.checks import needed, same, whole
from fedcal.core.errors import InputError, Interrupted, RoundFailed
from fedcal.core.numerics import softmax
from fedcal.experiments.runs import engines, folders, jobs
from fedcal.experiments.runs.config import read_options
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.folders import TRAINING as KIND
from fedcal.experiments.runs.record import recorded
from fedcal.experiments.training import features, result, splits
from fedcal.experiments.training.config import TrainConfig, merged
from fedcal.experiments.training.features import NAME as IN_MEMORY
from fedcal.metrics import accuracy, nll, summary
from fedcal.privacy import curator, noise_plan
from fedcal.storage.atomic import locked, path_of
from fedcal.strategies import FedAvg, FedSGD, base, settings
from fedcal.strategies.server.checkpoint import CHECKPOINT, Checkpoint
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import OUTCOME, Outcome
from fedcal.strategies.server.run_folder import LOCK
from fedcal.training import networks, trained_model


class Looks:
    """Drives a method over clients' rows; of FedAvg it notes loss and accuracy on the test rows."""

    def __init__(self, config: TrainConfig, data: splits.ClientData) -> None:
        self._every = config.evaluate_every
        self._inputs, self._labels = data.inputs("test"), data.labels("test")
        self._strategy: base.FederatedStrategy | None = None

    def round_record(self, round_number: int) -> dict[str, Any]:
        """Return what the method tells of a round."""
        return {} if self._strategy is None else self._strategy.round_record(round_number)

    def drive(self, strategy: base.FederatedStrategy, **rows: Any) -> None:
        """Run a strategy on the clients' rows, as `run_inline` takes them.

        Raises RoundFailed if the loss on the test rows is no number.
        """
        report, self._strategy = strategy.on_release, strategy

        def note(release: curator.Release) -> None:
            number = release.round
            due = number % self._every == 0 or number == strategy.plan.rounds
            if isinstance(strategy, FedAvg) and due:
                self._judge(strategy, number)
            if report is not None:
                report(release)

        strategy.on_release = note
        run_inline(strategy, **rows)

    def _judge(self, strategy: FedAvg, round_number: int) -> None:
        logits = strategy.result().predict(self._inputs)
        if not np.isfinite(logits).all():
            raise RoundFailed(
                f"round {round_number}: the training diverged (the loss is {math.nan}); lower --lr "
                f"(it is {strategy.lr})"
            )
        probs = softmax(logits)
        strategy.judged[round_number] = nll(probs, self._labels), accuracy(probs, self._labels)


AfterRound = Callable[[int, int, dict[str, Any]], None]
"""Called after each round: rounds done, rounds planned, what is told of the round: of a private
training `epsilon` so far, of FedAvg what `Training.history` has."""

TRAINING, ROWS = "training", "rows"
"""Keys of a checkpoint beside the job's: the options of the training, the rows' fingerprint."""

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
) -> result.Training:
    """Train a model over simulated clients: by FedAvg, or privately by another method.

    Parameters
    ----------
    config
        what to train, or the path of its `config.toml`; `options` are its fields. Of these `data`
        may also be rows in memory (`rows_in_memory`), and `model` a `torch.nn.Module` of your own,
        its class or what makes it (`fedcal.training.networks.enlist`)
    out
        folder for the files and, on the way, the checkpoint; None = nothing is written
    resume
        go on with the checkpoint in `out`. The options are those of the checkpoint; of
        others only more `rounds` of FedAvg are allowed. What a finished training leaves unsaid is
        made of what was paid for
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
    folder = None if out is None else path_of(out)
    if config is not None and not isinstance(config, TrainConfig):
        config = merged(read_options(path_of(config)))
    options_given = {} if config is None else config.to_dict()
    options_given |= {k: v for k, v in options.items() if v is not None}
    rows = None
    if not isinstance(options_given.get("data", ""), (str, Path)):
        rows = features.rows_in_memory(options_given["data"], options_given.get("feature_norm"))
        options_given["data"] = IN_MEMORY
    if "model" in options_given:
        options_given["model"] = networks.enlist(
            options_given["model"]
        )  # before any file of this training names it
    if folder is None:
        if resume:
            needed("--out DIR", folder, "--resume continues the training there")
        data, resolved = splits.load(merged(options_given), rows)
        return train_on(resolved, data, progress=progress)
    folders.claim(folder, KIND, overwrite=overwrite, resume=resume)
    if not (resume or overwrite) and any((folder / name).exists() for name in KIND.unfinished):
        raise InputError(
            f"--out {folder} holds an unfinished training: continue with --resume, or replace it "
            "with --overwrite"
        )
    if not resume:
        data, resolved = splits.load(merged(options_given), rows)
    reached, checkpoint = 0, None

    def told(done: int, total: int, record: dict[str, Any]) -> None:
        nonlocal reached
        reached = done
        if progress is not None:
            progress(done, total, record)

    with _alone(folder):
        if resume:  # what is there must not change on the way
            asked, checkpoint = _resumed(folder, options_given)
            data, resolved = splits.load(asked, rows)
        try:
            return train_on(
                resolved, data, folder=folder, resume=resume, checkpoint=checkpoint, progress=told
            )
        except KeyboardInterrupt:
            if not (folder / CHECKPOINT).is_file():
                raise
            what = f"{reached} rounds are" if reached else "what was done is"
            raise Interrupted(
                f"{what} kept; continue: fedcal train --out {folder} --resume"
            ) from None
        except RoundFailed:
            if math.isinf(resolved.epsilon) and not (reached or resume):
                (folder / CHECKPOINT).unlink(missing_ok=True)  # nothing is lost
            raise


def train_on(
    config: TrainConfig,
    data: splits.ClientData,
    *,
    folder: Path | None = None,
    resume: bool = False,
    checkpoint: Checkpoint | None = None,
    progress: AfterRound | None = None,
) -> result.Training:
    """Train a model on rows that are dealt.

    Parameters
    ----------
    config, data
        as `splits.load` gives them
    folder
        for the checkpoint, and for the files in the end; None = nothing is kept
    resume
        go on with the checkpoint that is there, or with what was paid for
    kept
        this checkpoint with other options that may change, which is written if all else agrees
    progress
        called after each round

    Raises
    ------
    InputError
        If an option is not allowed, or the ledger refuses; nothing was released.
    RoundFailed
        If a client failed, or the training diverged.
    """
    network, by_row = networks.network_named(str(config.model)), config.method == FedSGD.name
    # now, before a ledger is charged
    network.check(data.inputs("train"), data.classes, by_row=by_row)
    run, shards = splits.run_config(config, data), data.shards(trainers=not config.by_method)
    job = jobs.job_of(run, shards)
    settings.check_subjects(job.federation, shards)
    _warn_of_one(job.plan)
    about = {ROWS: data.fingerprint(), TRAINING: config.to_dict()} if folder is not None else {}
    begun = resume and folder is not None and (folder / CHECKPOINT).is_file()
    if begun and folder is not None:
        _check_rows(config, checkpoint or Checkpoint.load(folder), job, about)
        if checkpoint is not None:
            checkpoint.save(folder)
    looks, spent = Looks(config, data), _spent(job.plan)

    def told(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, {"epsilon": spent(done)} | looks.round_record(done))

    def trained() -> Outcome:
        if resume:
            same("engine with --resume", run.engine, "inline")
        return engines.run(
            job,
            shards,
            run.engine,
            progress=told,
            drive=looks.drive,
            folder=folder,
            resume=resume,
            every=config.checkpoint_every,
            about=about,
        )

    ended = resume and folder is not None and (folder / OUTCOME).is_file()
    paid = folders.Paid(folder, KIND, config.to_toml(), resume=ended)
    with paid.reporting():
        outcome = paid.outcome(job, trained)
        model = cast(trained_model.TrainedModel, outcome.artifact)
        known, privacy = recorded(run, job, outcome, tested=True)
        privacy["statement"] += _about_parts(config, job.plan)
        logits = {part: model.predict(data.inputs(part)) for part in splits.PARTS}
        if not all(np.isfinite(some).all() for some in logits.values()):
            raise RoundFailed(f"the training diverged in its last round; lower --lr ({config.lr})")
        metrics = {part: summary(softmax(logits[part]), data.labels(part)) for part in splits.PARTS}
        training = result.Training(
            config=config,
            model=model,
            privacy=privacy,
            metrics=metrics["test"],
            train_metrics=metrics["train"],
            logits={part: logits[part].astype(np.float32) for part in splits.PARTS},
            federation=data,
            outcome=outcome,
            settings=dict(known.set),
            event=job.plan.event,
        )
        if folder is not None:
            training.save(folder)
    return training


def _resumed(folder: Path, options: dict[str, Any]) -> tuple[TrainConfig, Checkpoint | None]:
    """Return the options of a resumed training, and its checkpoint if these change it.

    What is given beside those that it began with may say more rounds of FedAvg.

    Raises InputError if there is nothing to go on with, or other options are given.
    """
    if not (folder / CHECKPOINT).is_file():
        if (folder / OUTCOME).is_file():
            return merged(read_options(folder / folders.CONFIG), options), None
        finished = (folder / "training.json").is_file()
        why = "the training there is finished" if finished else f"there is no {CHECKPOINT}"
        raise InputError(f"nothing to resume in {folder}: {why}")
    checkpoint = Checkpoint.load(folder)
    before, after = merged(checkpoint.job[TRAINING]), merged(checkpoint.job[TRAINING], options)
    free = {"checkpoint_every"} if after.by_method else {"rounds", "checkpoint_every"}
    if (folder / OUTCOME).is_file():
        free -= {"rounds"}  # all were done, and paid for
    for name in (field.name for field in fields(after)):
        old, new = getattr(before, name), getattr(after, name)
        if name not in free:
            same(f"{name} with --resume", new, old)
    done = 0 if checkpoint.state is None else len(checkpoint.state.get("losses", ()))
    whole("rounds with --resume", after.rounds or 0, max(done, before.rounds or 0))
    if after == before:
        return after, None
    rounds = {} if after.by_method else {"rounds": after.rounds}
    checkpoint.job = {**checkpoint.job, **rounds, TRAINING: after.to_dict()}
    return after, checkpoint


def _check_rows(
    config: TrainConfig, checkpoint: Checkpoint, job: Job, about: dict[str, Any]
) -> None:
    """Refuse a checkpoint of other rows or of another job."""
    if checkpoint.job.get(ROWS) != about[ROWS]:  # a digest of rows is for no eyes
        raise InputError(f"{config.data} holds other rows than when the training began")
    checkpoint.check({**job.to_fields(), **about})


def _warn_of_one(plan: noise_plan.Plan) -> None:
    """Say it where one client trains in each round."""
    rate, clients = plan.federation.sampling_rate, plan.clients
    if plan.cohort and clients > 1 and len(plan.sample(1)) == 1:
        warnings.warn(
            f"one client trains in each round: sampling rate {rate:g} of {clients} clients; "
            f"--sampling-rate {min(1.0, 5 / clients):.2g} takes {min(5, clients)}",
            stacklevel=4,
        )


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


def _about_parts(config: TrainConfig, plan: noise_plan.Plan) -> list[str]:
    """Return sentences on files about private rows, and on budgets of later stages."""
    if not plan.private:
        return []
    own = [OF_OWN] if config.model in networks.OWN else []
    if plan.protected.per != "row":
        return [EXACT, TOGETHER, *own]
    return [EXACT, APART if config.held_out else REUSED, *own]


def _spent(plan: noise_plan.Plan) -> Callable[[int], float]:
    """Return a function: rounds done -> epsilon of the releases so far, at the plan's delta.

    By Renyi DP, which is quick and above the account that the noise was planned by; so the plan's
    epsilon, which holds for all rounds, stands in where that is less.
    """
    if not plan.private or plan.mechanism.order != 2:
        return lambda rounds: plan.epsilon
    epsilon_of = rdp_epsilons(plan.delta, plan.multiplier, plan.amplifying_rate)
    return lambda rounds: min(plan.epsilon, epsilon_of(rounds))
