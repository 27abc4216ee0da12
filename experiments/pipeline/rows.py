"""Which rows each stage of a pipeline reads, and which of these parts are disjoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.scores import Kind
from fedcal.core.types import Floats
from fedcal.datasets import Dataset
from fedcal.experiments.runs.load import load_any, name_of
from fedcal.experiments.training.splits import PARTS, ClientData
from fedcal.training.trained_model import TrainedModel
from fedcal.units import UNITS, Subject

EVERY = "all"
"""The one part where none are disjoint."""


@dataclass(frozen=True)
class Rows:
    """The rows of a pipeline.

    Attributes
    ----------
    parts
        name -> its rows, with zeros for scores before a model is trained, and no test part
    apart
        name -> the disjoint part that it belongs to: what reads different ones composes in
        parallel
    trained
        the clients' inputs, where a model is trained
    """

    parts: Mapping[str, Dataset]
    apart: Mapping[str, str]
    trained: ClientData | None = field(default=None, repr=False)

    def same(self, one: str, another: str) -> bool:
        """Return whether two parts are the same rows."""
        return one == another or self.apart[one] == self.apart[another] != EVERY

    @property
    def scores(self) -> dict[str, Floats]:
        """Scores of each part before a model is trained: the data's, or zeros."""
        return {name: rows.scores for name, rows in self.parts.items()}

    @property
    def of_clients(self) -> ClientData:
        """The clients' inputs; InputError where there are scores alone."""
        if self.trained is None:
            raise InputError("there are scores of a model, and nothing to train one on")
        return self.trained

    def scored(self, model: TrainedModel) -> dict[str, Floats]:
        """Logits of a trained model, (n, c) of each part."""
        return {part: model.predict(self.of_clients.inputs(part)) for part in self.parts}

    def dataset(
        self, part: str, scores: Mapping[str, Floats], input: Kind, tested: bool = False
    ) -> Dataset:
        """Return a part as clients' rows; `tested`: with the test part beside it."""
        rows, test = self.parts[part], self.parts["test"]
        rows = replace(rows, scores=scores[part], input=input)
        if not tested:
            return rows
        return replace(
            rows,
            test_scores=scores["test"],
            test_labels=test.labels,
            test_client=test.client,
            test_group=test.group,
        )


def rows_of_training(data: ClientData, name: str, held_out: float, unit: str) -> Rows:
    """Rows of inputs: parts by a hash of each row's id.

    Parameters
    ----------
    name
        of the data
    held_out
        share that is kept for calibration; 0 = that reads the training rows
    unit
        of privacy: clients and subjects have rows in all parts
    """
    parts = {}
    for part in PARTS:
        labels = data.labels(part)
        group, subject = (data.column(part, name) for name in ("group", str(Subject.column)))
        parts[part] = Dataset(
            name,
            "logits",
            np.zeros((len(labels), data.classes)),
            labels,
            client=np.repeat(np.arange(data.clients), data.sizes(part)),
            client_names=tuple(map(str, data.names)),
            subject=subject,
            group=group,
            group_names=None if group is None else data.group_names,
        )
    apart = dict(zip(PARTS, PARTS, strict=True))
    if not held_out:
        apart["calibration"] = "train"
    if UNITS[unit].per != "row":
        apart = dict.fromkeys(PARTS, EVERY)
    return Rows(parts, apart, data)


def rows_of_scores(data: str, seed: int, unit: str) -> Rows:
    """Rows with scores of a model: those of the data, and its test rows.

    Test rows that the data do not name are drawn, which is no split that composes in parallel.

    Raises InputError for data that cannot be read, or without labels.
    """
    loaded = load_any(data)
    own = loaded.test_scores is not None
    loaded = replace(loaded.split(seed), name=name_of(data, loaded))
    scores, labels = loaded.test_scores, loaded.test_labels
    if scores is None or labels is None:
        raise InputError(f"{loaded.name} has no test rows")
    nothing: dict[str, Any] = dict.fromkeys(
        ("test_scores", "test_labels", "test_client", "test_group")
    )
    test = replace(
        loaded,
        scores=scores,
        labels=labels,
        client=loaded.test_client,
        client_names=None if loaded.test_client is None else loaded.client_names,
        subject=None,
        group=loaded.test_group,
        group_names=None if loaded.test_group is None else loaded.group_names,
        other_scores=None,
        other_input=None,
        **nothing,
    )
    parts = {"calibration": replace(loaded, **nothing), "test": test}
    disjoint = own and UNITS[unit].per == "row"
    return Rows(parts, {name: name if disjoint else EVERY for name in parts})
