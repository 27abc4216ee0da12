"""What a training yields: the model, its logits, what was promised, and the files of it all."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core import pages
from fedcal.core.optional import need
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.shown import Shown, figures_of
from fedcal.experiments.runs import record, result
from fedcal.experiments.runs.files import PAGE, to_json, write_folder
from fedcal.experiments.runs.folders import TRAINING as KIND
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.splits import PARTS, ClientData
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import RELEASED, Outcome
from fedcal.training.trained_model import TrainedModel

EXACT = "Exact numbers, for the researcher's eyes: no private release."


@dataclass(frozen=True, repr=False)
class Training(Shown):
    """A trained model, its logits, and what was promised.

    Attributes
    ----------
    config
        resolved
    model
        after the last round
    privacy
        record and statement, as those of every run
    metrics
        of the model on the test rows (`fedcal.metrics.summary`): for the researcher's eyes
    train_metrics
        the same on the training rows
    logits
        (n, classes) float32 of the rows of each part, client by client
    federation
        the rows
    outcome
        of the run
    settings
        of the method, as they were resolved
    event
        rounds, noise and rate in a line
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

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each part."""
        return {name: int(self.federation.sizes(name).sum()) for name in PARTS}

    @property
    def history(self) -> list[dict[str, Any]]:
        """Facts of each round: of FedAvg `clients`, `train_loss`, `test_loss`, `test_accuracy`.

        The last two only of rounds that were judged; nothing of a method that tells nothing.
        """
        records = self.outcome.records
        records_kept = [{k: v for k, v in one.items() if k not in RELEASED} for one in records]
        rounds = (one["round"] for one in records)
        return [{"round": n, **one} for n, one in zip(rounds, records_kept, strict=True) if one]

    def to_json(self) -> dict[str, Any]:
        """Return the content of `training.json`: strict JSON."""
        config = self.config.to_dict() | {"clients": self.federation.clients}  # which may be open
        return {
            "schema": 1,
            "config": config | {"set": self.config.own_settings(self.settings)},
            "test": self.metrics,
            "train": self.train_metrics,
            "clients": self.federation.clients,
            "classes": self.federation.classes,
            "rows": self.rows,
            "parameters": int(self.model.w.size),
            "rounds": self.history,
            "event": self.event,
            "privacy": self.privacy,
            "communication": record.communication_of(self.outcome, self.federation.clients),
            "seconds": self.outcome.seconds,
            "versions": result.versions() | self._torch(),
        }

    def __repr__(self) -> str:
        text = f"{self.config.method} on {self.config.data}"
        return f"<training: {text}; test accuracy {self.metrics['accuracy']:.3f}>"

    def _lines(self) -> list[dict[str, Any]]:
        known = self.train_metrics
        return [
            {"metric": metric, "train": known.get(metric), "test": value}
            for metric, value in self.metrics.items()
        ]

    def _figures(self) -> dict[str, Sheet]:
        return figures_of(self.page(), str)

    def _repr_html_(self) -> str:
        from fedcal.experiments.report.comparison import artifact_card

        about = {"method": self.config.method, "after": self.metrics}
        return artifact_card({**self.to_json(), **about}, self.page())

    def _torch(self) -> dict[str, str]:
        return {"torch": need("torch", "train", "training a model").__version__}

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
            group = data.column(part, "group")
            if group is not None:
                columns[f"{prefix}group"] = np.array(data.group_names)[group]
        np.savez_compressed(folder / "logits.npz", **columns)  # type: ignore[arg-type]
        self.model.write(folder, self.model.form)
        self.model.write_state_dict(folder / "model.pt")
        (folder / "config.toml").write_text(self.config.to_toml(), "utf-8")
        (folder / "training.json").write_text(to_json(self.to_json()), "utf-8")
        page = {"schema": 1, "form": self.model.form, "parts": pages.to_json(self.page())}
        (folder / PAGE).write_text(to_json(page), "utf-8")
        from fedcal.experiments.report.simulation import write_training_report

        write_training_report(folder, home)

    def page(self) -> list[pages.Part]:
        """Return the model, its metrics and how it was trained, as tables."""
        metrics = tuple(
            (name, f"{self.train_metrics[name]:.4f}", f"{value:.4f}")
            for name, value in self.metrics.items()
        )
        facts = {"method": self.config.method, **self.settings, "rounds and noise": self.event}
        return [
            *self.model.page(),
            pages.Table("Metrics", ("metric", "training rows", "test rows"), metrics, EXACT),
            pages.Table(
                "Training",
                ("", ""),
                tuple((name.replace("_", " "), f"{value}") for name, value in facts.items()),
            ),
        ]
