"""What a grid gives: a score for each method, network and setting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedcal.experiments.comparison.summary import Line
from fedcal.experiments.reproduce.spec import GridExperiment, Part, Printed, TitledMethod

BASE = "Base"
"""Title of the model as it is; every grid has it, and its accuracy is the one to keep."""

METRICS = {"classwise_ece": "classwise ECE", "accuracy": "accuracy"}
"""What is kept of each run, and its words."""

_SETTINGS = ("epsilon", "rounds", "sampling_rate", "clients", "partition")

SHIPPED = ("network", "part", "title", "baseline", *_SETTINGS, *METRICS)
"""What is kept of a score in expected results; the rest follows."""

LOSS = 0.01
"""A method that loses more accuracy than this (absolute) is marked, as in the paper."""


@dataclass(frozen=True)
class Score:
    """A method on a network with one setting, over its seeds. Metrics are fractions.

    Attributes
    ----------
    network : short name of the data
    part, block, row, title : where it stands; see `Part` and `TitledMethod`
    method : as `compare` takes it
    baseline : it reads the rows themselves; nothing but the data changes its result
    epsilon : None = without privacy
    rounds, sampling_rate, clients, partition : of its runs; None for baselines
    classwise_ece, accuracy : on the test rows, one value for each seed
    accuracy_before : mean without a calibrator, over the same seeds
    failures : messages of runs that failed; their seeds have no values
    """

    network: str
    part: str
    block: str
    row: str
    title: str
    method: str
    baseline: bool
    epsilon: float | None = None
    rounds: int | None = None
    sampling_rate: float | None = None
    clients: int | None = None
    partition: str | None = None
    classwise_ece: tuple[float, ...] = ()
    accuracy: tuple[float, ...] = ()
    accuracy_before: float = 0.0
    failures: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Of classwise ECE."""
        return sum(self.classwise_ece) / len(self.classwise_ece)

    @property
    def std(self) -> float:
        """Of classwise ECE; of a sample, 0 for one run."""
        return spread(self.classwise_ece)

    @property
    def loss(self) -> float:
        """Mean accuracy that is lost to the calibrator; negative = won."""
        return self.accuracy_before - sum(self.accuracy) / len(self.accuracy)

    @property
    def marked(self) -> bool:
        """Whether it loses more than 1 % of accuracy."""
        return self.loss > LOSS

    @property
    def place(self) -> tuple[str, str]:
        """The line of the table."""
        return self.network, self.row

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it apart from every other score of the experiment, as text."""
        own = () if self.baseline else [getattr(self, name) for name in _SETTINGS]
        return (self.network, self.part, self.title, *("" if v is None else str(v) for v in own))

    def to_json(self) -> dict[str, Any]:
        """Plain values, with what follows from them."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        if self.classwise_ece:
            plain |= {
                "classwise_ece_mean": self.mean,
                "classwise_ece_std": self.std,
                "accuracy_mean": self.accuracy_before - self.loss,
                "loses_accuracy": self.marked,
            }
        return plain


def spread(values: Sequence[float]) -> float:
    """Standard deviation of a sample; 0 for one value."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def score_of(line: Line, part: Part, names: Mapping[str, str]) -> Score:
    """A line of a comparison as a score.

    Parameters
    ----------
    names : the line's data -> short name
    """
    values = {k: line[k] for k in _SETTINGS}
    if line["baseline"]:
        values["rounds"] = None
    if line["seeds"]:
        values |= {metric: tuple(line["after"][metric]["values"]) for metric in METRICS}
        values["accuracy_before"] = line["before"]["accuracy"]["mean"]
    method = _method(line, part)
    return Score(
        network=names[line["data"]],
        part=part.name,
        block=part.block,
        row=part.row,
        title=method.title,
        method=method.method,
        baseline=line["baseline"],
        failures=tuple(f["error"] for f in line["failures"]),
        **values,
    )


def _method(line: Line, part: Part) -> TitledMethod:
    for method in part.columns:
        variant = method.variant
        if (variant.method, dict(variant.settings)) == (line["method"], line["settings"]):
            return method
    raise LookupError(f"{line['label']} is no method of the part {part.name}")


def scores_of(experiment: GridExperiment, items: Sequence[Mapping[str, Any]]) -> list[Score]:
    """Scores again from what ships of them, the values of `SHIPPED`."""
    accuracy = {i["network"]: i["accuracy"] for i in items if i["title"] == BASE}
    places = {
        (part.name, method.title): {"block": part.block, "row": part.row, "method": method.method}
        for part in experiment.parts
        for method in part.columns
    }
    scores = []
    for item in items:
        values: dict[str, Any] = {k: tuple(v) if k in METRICS else v for k, v in item.items()}
        values |= places[item["part"], item["title"]]
        before = accuracy[item["network"]]
        scores.append(Score(**values, accuracy_before=sum(before) / len(before)))
    return scores


def whole(scores: Iterable[Score]) -> list[Score]:
    """Those of which no run failed; means of others would be over other seeds."""
    return [s for s in scores if s.classwise_ece and not s.failures]


def printed_scores(table: Printed) -> list[Score]:
    """A table of the paper as scores, to hold its own numbers against its claims.

    Means only, and no accuracy: the paper prints marks instead.
    """
    return [
        Score(
            *(name, "printed", "", "", title, "", False),
            epsilon=None if title == BASE else table.epsilon,
            classwise_ece=(value[0] / 100,),
            accuracy=(math.nan,),
            accuracy_before=math.nan,
        )
        for name, values in table.rows.items()
        for title, value in zip(table.columns, values, strict=True)
    ]
