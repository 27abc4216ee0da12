"""What a training yields: the model, its logits, what was promised, and the files of it all."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedcal.core import pages
from fedcal.core.numerics import softmax
from fedcal.core.optional import need
from fedcal.core.types import Floats
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.shown import Shown, figures_of
from fedcal.experiments.runs.files import PAGE, to_json, write_folder
from fedcal.experiments.runs.folders import TRAINING as KIND
from fedcal.experiments.runs.record import communication_of
from fedcal.experiments.runs.result import versions
from fedcal.experiments.training.config import FOLLOWING, TrainConfig
from fedcal.experiments.training.splits import PARTS, ClientData
from fedcal.metrics import summary
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
    logits: dict[str, Floats] = field(repr=False)
    settings: dict[str, Any]
    event: str

    @property
    def model(self) -> TrainedModel:
        """The model after the last round."""
        return cast(TrainedModel, self.outcome.artifact)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics of the model on the test rows (`fedcal.metrics.summary`)."""
        return self._summary("test")

    @cached_property
    def train_metrics(self) -> dict[str, float]:
        """Metrics of the model on the training rows."""
        return self._summary("train")

    def _summary(self, part: str) -> dict[str, float]:
        """For the researcher's eyes: exact numbers about these rows."""
        return summary(softmax(self.logits[part]), self.federation.parts[part].y)

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each part."""
        return {name: int(self.federation.sizes[name].sum()) for name in PARTS}

    @property
    def history(self) -> list[dict[str, Any]]:
        """Facts of each round: of FedAvg `clients` and `train_loss`, of other methods none."""
        told = (
            {k: v for k, v in one.items() if k == "round" or k not in RELEASED}
            for one in self.outcome.records
        )
        return [one for one in told if len(one) > 1]

    def to_json(self) -> dict[str, Any]:
        """Return the content of `training.json`: strict JSON."""
        config = self.config.to_dict() | {"clients": self.federation.clients}  # which may be open
        own = {k: v for k, v in self.settings.items() if k not in FOLLOWING}
        torch = need("torch", "train", "training a model")
        return {
            "schema": 1,
            "config": config | {"set": own},
            "test": self.metrics,
            "train": self.train_metrics,
            "clients": self.federation.clients,
            "classes": self.federation.classes,
            "rows": self.rows,
            "parameters": int(self.model.w.size),
            "rounds": self.history,
            "event": self.event,
            "privacy": self.privacy,
            "communication": communication_of(self.outcome, self.federation.clients),
            "seconds": self.outcome.seconds,
            "versions": versions() | {"torch": torch.__version__},
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
        from fedcal.experiments.report import artifact_card

        about = {"method": self.config.method, "after": self.metrics}
        return artifact_card({**self.to_json(), **about}, self.page())

    def save(self, out: str | Path) -> None:
        """Write model, logits, options, numbers and the report into a folder."""
        write_folder(path_of(out), partial(self._write, home=path_of(out)), stale=KIND.files)

    def _write(self, folder: Path, home: Path) -> None:
        data, columns = self.federation, dict[str, NDArray[Any]]()
        for prefix, part in (("", "calibration"), ("test_", "test")):
            rows = data.parts[part]
            columns[f"{prefix}logits"] = self.logits[part].astype(np.float32)
            columns[f"{prefix}labels"] = rows.y
            if rows.group is not None:
                columns[f"{prefix}group"] = np.array(rows.group_names)[rows.group]
        columns["client"] = np.repeat(np.array(data.names), data.sizes["calibration"])
        np.savez_compressed(folder / "logits.npz", **columns)  # type: ignore[arg-type]
        self.model.write(folder, self.model.form)
        self.model.write_state_dict(folder / "model.pt")
        (folder / "config.toml").write_text(self.config.to_toml(), "utf-8")
        (folder / "training.json").write_text(to_json(self.to_json()), "utf-8")
        page = {"schema": 1, "form": self.model.form, "parts": pages.to_json(self.page())}
        (folder / PAGE).write_text(to_json(page), "utf-8")
        from fedcal.experiments.report import write_training_report

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
