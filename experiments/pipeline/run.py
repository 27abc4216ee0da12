"""A pipeline in its folder: charge the ledger, run what is not done, write the record."""

from __future__ import annotations

import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.calibrators import load as load_calibrator
from fedcal.core import pages
from fedcal.core.errors import InputError
from fedcal.core.numerics import softmax
from fedcal.core.scores import Kind
from fedcal.core.types import Floats
from fedcal.experiments.pipeline.config import Stage
from fedcal.experiments.pipeline.record import FILE, TOLD, new_record
from fedcal.experiments.pipeline.report import write_pipeline_report
from fedcal.experiments.pipeline.settle import Pipeline
from fedcal.experiments.runs.files import PAGE, to_json
from fedcal.experiments.runs.folders import PIPELINE, Replaced, claim, files_of
from fedcal.experiments.runs.simulation import simulate
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.run import train_on
from fedcal.privacy.ledger import Ledger
from fedcal.storage.artifact import Holdout
from fedcal.storage.atomic import path_of, whole_file
from fedcal.strategies.server.checkpoint import CHECKPOINT
from fedcal.strategies.server.outcome import OUTCOME, Progress
from fedcal.training.model_card import card_parts
from fedcal.training.trained_model import TrainedModel, load_model

LEDGER = "ledger.sqlite"
"""The ledger's name in the folder, where the file names none."""

REPLACED = ".replaced"
"""Where another pipeline lies until this one is finished."""

Moved = Callable[[str, int, int], None]
"""Name of the stage, rounds done, rounds planned."""


def run(
    pipeline: Pipeline, out: Path, progress: Moved | None = None, *, overwrite: bool = False
) -> dict[str, Any]:
    """Run all stages that `out` does not hold yet, and write the report.

    Parameters
    ----------
    out
        folder: a sub-folder for each stage, `pipeline.json`, `report.html`
    progress
        called after each round
    overwrite
        replace another pipeline that `out` holds; otherwise it is refused

    Returns
    -------
    dict
        the content of `pipeline.json`

    Raises
    ------
    InputError
        If the folder holds another pipeline, or the ledger refuses; nothing was released.
    RoundFailed
        If a stage failed; those before it are kept.
    """
    record, replaced = _begun(pipeline, out, overwrite)
    with _charging(pipeline, out) as charge:
        if replaced:
            shutil.rmtree(out / REPLACED, ignore_errors=True)
            (out / REPLACED).mkdir()
            for path in replaced:
                path.rename(out / REPLACED / path.name)
        _Run(pipeline, record, out, charge, progress).all()
    shutil.rmtree(out / REPLACED, ignore_errors=True)
    write_pipeline_report(out)
    return record


def _begun(pipeline: Pipeline, out: Path, overwrite: bool) -> tuple[dict[str, Any], list[Path]]:
    """Return the record in the folder, or a new one, and the files that it replaces."""
    path = out / FILE
    claim(out, PIPELINE, resume=path.is_file())
    if not path.is_file():
        for stage in pipeline.stages:
            if (out / stage.name).exists():
                raise InputError(
                    f"--out {out} holds {stage.name}, which is not of a pipeline: choose another "
                    "folder"
                )
        return new_record(pipeline), []
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
        same = record["fingerprint"] == pipeline.fingerprint
        folders = [out / str(one["name"]) for one in record["stages"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path} is not a record of a pipeline") from None
    if same:
        return record, []
    if not overwrite:
        raise InputError(
            f"--out {out} holds another pipeline: other options, other rows or another version of "
            "fedcal; --overwrite replaces it, or choose another folder"
        )
    files = files_of(out, PIPELINE)
    warnings.warn(
        f"{out} holds another pipeline, which is replaced; until this one is finished it lies in "
        f"{out / REPLACED}",
        Replaced,
        stacklevel=3,
    )
    return new_record(pipeline), [*files, *filter(Path.is_dir, folders)]


@contextmanager
def _charging(pipeline: Pipeline, out: Path) -> Iterator[Callable[[int], None]]:
    """Yield a function that notes in the ledger, before each stage, that it is about to run.

    The whole pipeline is one reservation, made before its first release. A stage that was begun
    and not finished may run again: seeded noise makes the same releases of it.
    """
    budget, config = pipeline.budget, pipeline.config
    if budget is None:
        yield lambda number: None
        return
    path = path_of(config.ledger) if config.ledger else out / LEDGER
    cap = config.epsilon if config.cap is None and not path.exists() else config.cap
    run, plans = f"pipeline {pipeline.fingerprint[:16]}", budget.plans
    first = next(iter(plans.values()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with Ledger(path, cap, config.cap_delta) as ledger:
        known = {entry.run: entry.charged for entry in ledger.entries()}
        if run not in known:
            ledger.reserve(
                run,
                epsilon=budget.epsilon,
                delta=budget.delta,
                releases=len(plans),
                mechanism=" + ".join(dict.fromkeys(plan.mechanism for plan in plans.values())),
                unit=first.unit,
                adjacency=first.adjacency,
                event="; ".join(f"{name}: {plan.event}" for name, plan in plans.items()),
            )

        def charge(number: int) -> None:
            if number not in known.get(run, ()):
                ledger.charge(run, number)

        yield charge


class _Run:
    """The stages one after the other, and what each leaves to the next."""

    def __init__(
        self,
        pipeline: Pipeline,
        record: dict[str, Any],
        out: Path,
        charge: Callable[[int], None],
        progress: Moved | None,
    ) -> None:
        self.pipeline, self.record, self.out = pipeline, record, out
        self.charge, self.progress = charge, progress
        self.models: dict[str, TrainedModel] = {}
        self.scores: dict[str, Floats] = pipeline.rows.scores
        self.input: Kind = next(iter(pipeline.rows.parts.values())).input
        self.before: Floats | None = None  # probabilities of the test rows, uncalibrated

    def all(self) -> None:
        """Run all unfinished stages."""
        self._write()
        for number, stage in enumerate(self.pipeline.stages, 1):
            entry = next(one for one in self.record["stages"] if one["name"] == stage.name)
            if not entry["done"]:
                self.charge(number)
                start = time.perf_counter()
                entry["results"] = self._run(stage)
                entry |= {"done": True, "seconds": time.perf_counter() - start}
                self._write()
            self._hand_on(stage)
        self._write_card()

    def _test_probs(self) -> Floats:
        z = self.scores["test"]
        return z if self.input == "probs" else softmax(z)

    def _write_card(self) -> None:
        """Write the model's test metrics, before and after recalibration."""
        rows = self.pipeline.rows.parts["test"]
        now = self._test_probs()
        looks = {"model": now if self.before is None else self.before}
        if self.before is not None:
            looks["recalibrated"] = now
        names = rows.group_names or ()
        test = Holdout(
            rows.scores, looks["model"], rows.labels, group=rows.group, group_names=names
        )
        page = {"schema": 1, "form": "pipeline", "parts": pages.to_json(card_parts(looks, test))}
        with whole_file(self.out / PAGE) as file:
            file.write(to_json(page).encode())

    def _run(self, stage: Stage) -> dict[str, Any]:
        """Run a stage into its folder; its numbers."""
        budget, folder = self.pipeline.budget, self.out / stage.name
        epsilon = math.inf if budget is None else budget.epsilons[stage.name]
        config = replace(stage.config, epsilon=epsilon)
        if isinstance(config, TrainConfig):
            return self._train(stage, config, folder)
        rows, scores, input = self.pipeline.rows, self.scores, self.input
        if stage.of:
            scores, input = rows.scored(self.models[stage.of]), "logits"
        data = rows.dataset(stage.rows, scores, input, tested=stage.tested)
        paid = (folder / OUTCOME).is_file()  # and nothing was made of it yet
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Replaced)  # a stage that was not noted as done
            result = simulate(
                data,
                config=config,
                out=folder,
                resume=paid,
                overwrite=True,
                progress=self._told(stage),
            )
        content = result.to_json()
        return {key: content[key] for key in TOLD if key in content}

    def _train(self, stage: Stage, config: TrainConfig, folder: Path) -> dict[str, Any]:
        report = self._told(stage)
        folder.mkdir(parents=True, exist_ok=True)
        begun = any((folder / name).is_file() for name in (CHECKPOINT, OUTCOME))
        training = train_on(
            config,
            self.pipeline.rows.of_clients,
            folder=folder,
            resume=begun,
            progress=lambda done, total, record: report(done, total),
        )
        return {"test": training.metrics, "train": training.train_metrics}

    def _told(self, stage: Stage) -> Progress:
        def told(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(stage.name, done, total)

        return told

    def _hand_on(self, stage: Stage) -> None:
        """Give the next stages what this one, now or earlier, left in its folder."""
        folder, rows = self.out / stage.name, self.pipeline.rows
        if stage.kind == "train":
            self.models[stage.name] = load_model(folder / "model.npz")
        if stage.kind in ("train", "choose"):
            later = self.pipeline.stages[self.pipeline.stages.index(stage) + 1 :]
            if not any(one.kind in ("train", "choose") for one in later):
                self.record["chosen"] = self._chosen()
                self._write()
                self.scores = rows.scored(self.models[self.record["chosen"]])
                self.input = "logits"
        if stage.kind == "recalibrate":
            self.before = self._test_probs()
            calibrator = load_calibrator(folder / "calibrator.npz")
            self.scores = {part: calibrator.predict_proba(s) for part, s in self.scores.items()}
            self.input = "probs"

    def _chosen(self) -> str:
        """Return the training with the best released metric; of equal ones the first."""
        entries = {one["name"]: one for one in self.record["stages"]}
        metric = self.pipeline.config.by
        sign = 1.0 if metric == "accuracy" else -1.0

        def worth(name: str) -> float:
            estimate = entries[f"choose-{name}"]["results"]["metrics"][metric]
            if estimate["value"] is None:  # noise hides it: the worse end of its interval
                return sign * float(estimate["low" if sign > 0 else "high"])
            return sign * float(estimate["value"])

        names = list(self.models)
        return names[0] if len(names) == 1 else max(names, key=worth)

    def _write(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        with whole_file(self.out / FILE) as file:
            file.write(to_json(self.record).encode())
