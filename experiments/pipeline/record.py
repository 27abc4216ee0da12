"""What is recorded of a pipeline: `pipeline.json`."""

from __future__ import annotations

import json
from typing import Any

from fedcal.experiments.pipeline.settle import Pipeline
from fedcal.experiments.runs.result import versions
from fedcal.units import UNITS

FILE = "pipeline.json"

TOLD = (
    *("before", "after", "metrics", "sets"),
    *("coverage_by", "coverage_warnings", "class_names"),
)
"""Keys of a stage's `result.json` that are kept."""


def new_record(pipeline: Pipeline) -> dict[str, Any]:
    """Return the record of a pipeline that has not run; plain values."""
    budget, config = pipeline.budget, pipeline.config
    stages: list[dict[str, Any]] = []
    for stage in pipeline.stages:
        entry: dict[str, Any] = {
            "name": stage.name,
            "kind": stage.kind,
            "method": stage.config.method,
            "rows": stage.rows,
            "part": pipeline.rows.apart[stage.rows],
            "done": False,
        }
        if budget is not None:
            plan = budget.plans[stage.name]
            entry |= {
                "epsilon": budget.epsilons[stage.name],
                "delta": plan.delta,
                "mechanism": plan.mechanism,
                "releases": plan.rounds,
                "event": plan.event,
            }
        stages.append(entry)
    return {
        "schema": 1,
        "fingerprint": pipeline.fingerprint,
        "config": json.loads(json.dumps(config.given, default=str)),
        "data": config.data,
        "unit": pipeline.stages[0].config.unit,
        "epsilon": None if budget is None else budget.epsilon,
        "delta": None if budget is None else budget.delta,
        "by_part": None if budget is None else dict(budget.by_part),
        "basic_epsilon": None if budget is None else budget.basic,
        "stages": stages,
        "chosen": None,
        "statement": statement_of(pipeline),
        "versions": versions(),
    }


def statement_of(pipeline: Pipeline) -> list[str]:
    """Return sentences on the promise for all stages together."""
    budget, config = pipeline.budget, pipeline.config
    if budget is None:
        return ["No differential privacy: every stage releases exact sums."]
    plan = next(iter(budget.plans.values()))
    neighbours = UNITS[plan.unit].neighbours[plan.adjacency]
    sentences = [
        f"All stages together are ({budget.epsilon:.6g}, {budget.delta:g})-differentially private "
        f"for each {plan.unit} (neighbouring: {neighbours})."
    ]
    by_part: dict[str, list[str]] = {}
    for stage in pipeline.stages:
        by_part.setdefault(pipeline.rows.apart[stage.rows], []).append(stage.name)
    for part, names in by_part.items():
        if len(names) > 1:
            sentences.append(
                f"{', '.join(names)} read the same rows ({part}) and compose: epsilon = "
                f"{budget.by_part[part]:.6g} by one account of their privacy losses."
            )
    if len(by_part) > 1:
        sentences.append(
            f"The parts {', '.join(by_part)} are disjoint, by a hash of each row's id or "
            "because the source keeps its test rows apart: a row is in one of them, whatever the "
            "others are, so the whole costs the largest, not the sum."
        )
    sentences.append(
        "Noise, rounds and rates of all stages were fixed before the first of them ran."
    )
    trainings = [stage.name for stage in pipeline.stages if stage.kind == "train"]
    if len(trainings) > 1:
        sentences.append(
            f"{len(trainings)} trainings were run, and all are charged. The one with the best "
            f"released {config.by} is used; those releases are charged, too."
        )
    stages = {stage.kind: stage for stage in pipeline.stages}
    if sets := stages.get("sets"):
        fitted = [stages[kind] for kind in ("train", "choose", "recalibrate") if kind in stages]
        again = [one.kind for one in fitted if pipeline.rows.same(one.rows, sets.rows)]
        if again:
            sentences.append(
                f"The prediction sets read rows that {', '.join(again)} has read, too: their "
                "promise of coverage is for scores that do not depend on these rows. Coverage on "
                "test rows is measured."
            )
    sentences.append(
        "Seeded noise: anyone who knows the seed can subtract it. Numbers about test rows, and "
        "metrics and numbers of the training rows, are exact, for the researcher only; the only "
        "private releases are those of [evaluate] and [choose]."
    )
    return sentences
