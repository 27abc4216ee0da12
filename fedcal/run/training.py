"""Train a base model over simulated clients, and leave its logits for calibration."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedcal.core import checks, numerics, pages
from fedcal.core.checks import InputError, Interrupted, RoundFailed
from fedcal.metrics import below_floor, names, summary
from fedcal.results.files import versions
from fedcal.results.headline import headline
from fedcal.results.page import Displayable, Page, Section, words
from fedcal.run import engines, folders, jobs, result
from fedcal.run.config import read_options
from fedcal.run.training_config import FOLLOWING, TrainConfig, merged
from fedcal.run.training_data import IN_MEMORY, PARTS, ClientData, load
from fedcal.storage.artifact import CHECKPOINT, OUTCOME
from fedcal.storage.atomic import locked, path_of
from fedcal.strategies.methods.training import FedSGD
from fedcal.strategies.server import checkpoint
from fedcal.strategies.server.outcome import RELEASED, Outcome, Progress
from fedcal.training import networks

KIND = folders.TRAINING

TRAINING, ROWS = "training", "rows"
"""Keys of a checkpoint beside the job's: the options of the training, and its rows."""

EVERY = 10
"""Rounds between checkpoints: what a seed draws again may be lost."""

_METRICS = ("metric", "training rows", "test rows")
METRICS = "Exact numbers, for the researcher's eyes: no private release."


@dataclass(frozen=True, repr=False)
class Training(Displayable):
    """A trained model, its logits, and what was promised.

    Attributes
    ----------
    config
        resolved
    federation
        the rows
    outcome
        of the run
    privacy
        record and statement, as those of every run
    logits
        (n, classes) of the rows of each part, client by client
    settings
        of the method, as they were resolved
    event
        rounds, noise and rate in a line
    """

    config: TrainConfig
    federation: ClientData = field(repr=False)
    outcome: Outcome = field(repr=False)
    privacy: dict[str, Any]
    logits: dict[str, numerics.Floats] = field(repr=False)
    settings: dict[str, Any]
    event: str

    @property
    def model(self) -> networks.TrainedModel:
        """The model after the last round."""
        return cast(networks.TrainedModel, self.outcome.artifact)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics of the model on the test rows (`fedcal.metrics.summary`)."""
        return summary(*self._scored("test"))

    @cached_property
    def train_metrics(self) -> dict[str, float]:
        """Metrics of the model on the training rows."""
        return summary(*self._scored("train"))

    def _scored(self, part: str) -> tuple[numerics.Floats, numerics.Integers]:
        return numerics.softmax(self.logits[part]), self.federation.parts[part].y

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each part."""
        return {name: int(self.federation.sizes[name].sum()) for name in PARTS}

    @property
    def history(self) -> list[dict[str, Any]]:
        """Facts of each round: of FedAvg `clients` and `train_loss`, of other methods none."""
        facts = (
            {k: v for k, v in one.items() if k == "round" or k not in RELEASED}
            for one in self.outcome.records
        )
        return [one for one in facts if len(one) > 1]

    def to_json(self) -> dict[str, Any]:
        """Return the content of `training.json`: strict JSON."""
        config = self.config.to_dict() | {"clients": self.federation.clients}  # which may be open
        own = {k: v for k, v in self.settings.items() if k not in FOLLOWING}
        return {
            "schema": 1,
            "config": config | {"set": own},
            "test": self.metrics,
            "train": self.train_metrics,
            "rows_below_floor": {k: below_floor(*self._scored(k)) for k in ("train", "test")},
            "clients": self.federation.clients,
            "classes": self.federation.classes,
            "rows": self.rows,
            "parameters": int(self.model.w.size),
            "rounds": self.history,
            "event": self.event,
            "privacy": self.privacy,
            "communication": result.communication_of(self.outcome),
            "seconds": self.outcome.seconds,
            "versions": versions("torch"),
        }

    def __repr__(self) -> str:
        return f"<training: {self.title}; test accuracy {self.metrics['accuracy']:.3f}>"

    def _lines(self) -> list[dict[str, Any]]:
        return [
            {"metric": metric, "train": self.train_metrics.get(metric), "test": value}
            for metric, value in self.metrics.items()
        ]

    @property
    def title(self) -> str:
        """The method and its data."""
        return f"{self.config.method} on {self.config.data}"

    @property
    def verdict(self) -> str:
        """The accuracy of the model on test rows, in a sentence."""
        return headline({"method": self.config.method, "after": self.metrics})

    def _card(self) -> Page:
        parts = [Section("", self.parts)]
        return Page(self.title, self.verdict, parts, warnings=self.privacy["statement"][:1])

    def save(self, out: str | Path) -> None:
        """Write model, logits, options, numbers and the report into a folder."""
        KIND.write(out, self.to_json(), self.parts, self._write)

    def _write(self, folder: Path) -> None:
        data, columns = self.federation, dict[str, NDArray[Any]]()
        for prefix, part in (("", "calibration"), ("test_", "test")):
            rows = data.parts[part]
            columns[f"{prefix}logits"] = self.logits[part].astype(np.float32)
            columns[f"{prefix}labels"] = rows.y
            if rows.group is not None:
                columns[f"{prefix}group"] = rows.group
        columns["client"] = np.repeat(np.array(data.names), data.sizes["calibration"])
        np.savez_compressed(folder / "logits.npz", **columns)  # type: ignore[arg-type]
        self.model.write(folder, self.model.form)
        self.model.write_state_dict(folder / "model.pt")
        (folder / folders.CONFIG).write_text(self.config.to_toml(), "utf-8")

    @property
    def parts(self) -> list[pages.Part]:
        """Return the model, its metrics and how it was trained, as tables."""
        parts = self.train_metrics, self.metrics
        metrics = [
            (names.heading(metric), *(names.shown(metric, of[metric]) for of in parts))
            for metric in self.metrics
        ]
        facts = {"method": self.config.method, **self.settings, "rounds and noise": self.event}
        return [
            *self.model.page(),
            pages.Table("Metrics", _METRICS, metrics, METRICS, (0,)),
            pages.Table(
                "Training",
                ("", ""),
                tuple((name.replace("_", " "), f"{value}") for name, value in facts.items()),
            ),
        ]


def train(
    config: TrainConfig | str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Training:
    """Train a model over simulated clients, privately or not.

    Parameters
    ----------
    config
        what to train, or the path of its `config.toml`; `options` are its fields. Of these `data`
        may also be rows in memory (`rows_in_memory`), and `model` a `torch.nn.Module` of your own,
        its class or what makes it (`fedcal.training.networks.register_network`)
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
        rows, given["data"] = given["data"], IN_MEMORY
    if "model" in given:  # before any file of this training names it
        given["model"] = networks.register_network(given["model"])
    if out is None:
        if resume:
            checks.needed("--out DIR", out, "--resume continues the training there")
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
            if math.isinf(asked.epsilon) and checkpoint.Checkpoint.load(folder).state is None:
                (folder / CHECKPOINT).unlink()  # nothing is lost
            raise


def _resumed(folder: Path, options: dict[str, Any]) -> TrainConfig:
    """Return the options of the training in a folder.

    Raises InputError if there is nothing to go on with, or other options are given.
    """
    if (folder / CHECKPOINT).is_file():
        begun = checkpoint.Checkpoint.load(folder).job[TRAINING]
    elif (folder / OUTCOME).is_file():
        begun = read_options(folder / folders.CONFIG)
    else:
        finished = (folder / "training.json").is_file()
        why = "the training there is finished" if finished else "there is no checkpoint.json"
        raise InputError(f"nothing to resume in {folder}: {why}")
    before, after = merged(begun), merged(begun, options)
    for name in (one.name for one in fields(after)):
        checks.same(f"{name} with --resume", getattr(after, name), getattr(before, name))
    return after


def _trained(
    config: TrainConfig,
    rows: Any,
    folder: Path | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> Training:
    """Train a model and write its files; see `train`."""
    data, config = load(config, rows)
    networks.need_torch()  # what is wrong here is refused before a ledger is charged
    network = networks.network_named(str(config.model))
    if config.method == FedSGD.name:
        networks.row_gradients(network, data.shape, data.classes).check(data.parts["train"].x)
    else:
        network.module(data.shape, data.classes, 0)
    run, shards = config.run(data.clients, data.shape), data.shards()
    job = jobs.job_of(run, shards)
    about = {ROWS: data.fingerprint(), TRAINING: config.to_dict()}
    release = partial(
        engines.run,
        job,
        shards,
        run.engine,
        progress=progress,
        folder=folder,
        resume=resume,
        every=EVERY,
        about=about,
    )
    ended = resume and folder is not None and (folder / OUTCOME).is_file()
    if resume and folder is not None and not ended:
        begun = checkpoint.Checkpoint.load(folder).job
        if begun.get(ROWS) != about[ROWS]:  # a digest of rows is for no eyes
            raise InputError(f"{config.data} holds other rows than when the training began")
    paid = folders.ReleaseStore(folder, KIND, config.to_toml(), resume=ended)
    with paid.reporting():
        outcome = paid.outcome(job, release)
        known, privacy = result.recorded(run, job, outcome, tested=True)
        kind: Any = {"private": job.plan.private, "per_row": job.plan.protected.per == "row"}
        kind |= {"held_out": config.held_out, "own": config.model in networks.OWN}
        privacy["more"] += words("training", **kind)["budgets"]
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


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder: two that go on with one training would release its open round twice."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / checkpoint.LOCK
    with locked(lock, f"another training writes into {folder}"):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()  # only if nothing was kept
