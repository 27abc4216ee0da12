"""What an experiment gives: one cell for each method, network and setting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedcal.experiments.comparison.summary import Line
from fedcal.experiments.reproduce.spec import Column, GridExperiment, Part, Printed

BASE = "Base"
"""Title of the model as it is; every grid has it, and its accuracy is the one to keep."""

LOSS = 0.01
"""A method that loses more accuracy than this (absolute) is marked, as in the paper."""


@dataclass(frozen=True)
class Cell:
    """A method on a network with one setting, over its seeds. Metrics are fractions.

    Attributes
    ----------
    network : short name of the data
    part, block, row, title : where it stands; see `Part` and `Column`
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
    epsilon: float | None
    rounds: int | None
    sampling_rate: float | None
    clients: int | None
    partition: str | None
    classwise_ece: tuple[float, ...]
    accuracy: tuple[float, ...]
    accuracy_before: float
    failures: tuple[str, ...] = field(default=())

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
        """What tells it apart from every other cell of the experiment, as text."""
        facts = (self.epsilon, self.rounds, self.sampling_rate, self.clients, self.partition)
        own = () if self.baseline else facts
        return (self.network, self.part, self.title, *("" if f is None else str(f) for f in own))

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


def cell_of(line: Line, part: Part, names: Mapping[str, str]) -> Cell:
    """A line of a comparison as a cell.

    Parameters
    ----------
    names : the line's data -> short name
    """
    baseline = bool(line["baseline"])
    there = bool(line["seeds"])
    column = _column(line, part)
    return Cell(
        network=names[line["data"]],
        part=part.name,
        block=part.block,
        row=part.row,
        title=column.title,
        method=column.method,
        baseline=baseline,
        epsilon=line["epsilon"],
        rounds=None if baseline else line["rounds"],
        sampling_rate=line["sampling_rate"],
        clients=line["clients"],
        partition=line["partition"],
        classwise_ece=tuple(line["after"]["classwise_ece"]["values"]) if there else (),
        accuracy=tuple(line["after"]["accuracy"]["values"]) if there else (),
        accuracy_before=line["before"]["accuracy"]["mean"] if there else 0.0,
        failures=tuple(f["error"] for f in line["failures"]),
    )


def _column(line: Line, part: Part) -> Column:
    for column in part.columns:
        variant = column.variant
        if (variant.method, dict(variant.settings)) == (line["method"], line["settings"]):
            return column
    raise LookupError(f"{line['label']} is no method of the part {part.name}")


def cells_of(experiment: GridExperiment, items: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Cells again from what ships of them.

    Parameters
    ----------
    items : `key`, `classwise_ece` and `accuracy` of each
    """
    base = {i["key"][0]: i["accuracy"] for i in items if i["key"][2] == BASE}
    parts = {part.name: part for part in experiment.parts}
    cells = []
    for item in items:
        network, part_name, title, *facts = item["key"]
        part = parts[part_name]
        told = [fact or None for fact in facts or [""] * 5]
        epsilon, rounds, rate, clients, partition = told
        cells.append(
            Cell(
                network=network,
                part=part_name,
                block=part.block,
                row=part.row,
                title=title,
                method=next(c.method for c in part.columns if c.title == title),
                baseline=not facts,
                epsilon=None if epsilon is None else float(epsilon),
                rounds=None if rounds is None else int(rounds),
                sampling_rate=None if rate is None else float(rate),
                clients=None if clients is None else int(clients),
                partition=partition,
                classwise_ece=tuple(item["classwise_ece"]),
                accuracy=tuple(item["accuracy"]),
                accuracy_before=sum(base[network]) / len(base[network]),
            )
        )
    return cells


def whole(cells: Iterable[Cell]) -> list[Cell]:
    """Those of which no run failed; means of others would be over other seeds."""
    return [c for c in cells if c.classwise_ece and not c.failures]


def printed_cells(table: Printed) -> list[Cell]:
    """A table of the paper as cells, to hold its own numbers against its claims.

    Means only, and no accuracy: the paper prints marks instead.
    """
    return [
        Cell(
            network=name,
            part="printed",
            block="",
            row="",
            title=title,
            method="",
            baseline=False,
            epsilon=None if title == "Base" else table.epsilon,
            rounds=None,
            sampling_rate=None,
            clients=None,
            partition=None,
            classwise_ece=(value[0] / 100,),
            accuracy=(math.nan,),
            accuracy_before=math.nan,
        )
        for name, values in table.rows.items()
        for title, value in zip(table.columns, values, strict=True)
    ]
