"""What is told of a federated run, whatever drove it: its config, its privacy, what was sent."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal import datasets, strategies
from fedcal.core.naming import names_in
from fedcal.results import statement
from fedcal.results.labels import APP, STUDY
from fedcal.run import result
from fedcal.run.config import Config
from fedcal.storage.artifact import Holdout
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome
from fedcal.strategies.server.participation import sentences


def recorded(
    config: Config,
    job: Job,
    outcome: Outcome,
    tested: bool,
    held_out: bool = False,
    partition: str = "natural",
) -> tuple[Config, dict[str, Any]]:
    """Return the resolved config of a federated run, and its privacy record.

    Parameters
    ----------
    config, job, outcome
        what was asked for, what was planned, and what came of it
    tested, held_out
        whether there are test rows here, and whether they were drawn from the clients' rows
    partition
        of a simulation
    """
    plan, name, real = job.plan, "rows_per_client", config.real
    given, strategy = name in config.set, strategies.STRATEGIES[job.method]
    looked = plan.private and name in job.settings and not given
    untold = looked and plan.row_rate == 1 and not statement.sets_noise(plan)
    known = replace(
        config,
        clients=plan.clients,
        rounds=plan.rounds - plan.counting_rounds,
        trust=plan.trust,
        secure_aggregation=job.secure_aggregation,
        noise_source=job.federation.noise_source,
        ledger=str(path_of(config.ledger).resolve()) if config.ledger else None,
        set={k: v for k, v in job.settings.items() if not (untold and k == name)},
    )
    rows: Any = None if untold else job.settings.get(name)  # checked by the strategy
    facts = statement.Facts(
        noun=outcome.artifact.noun,
        tested=tested,
        held_out=held_out,
        guarded=config.engine == STUDY,
        in_app=config.engine == APP,
        counted=config.engine in ("inline", "ray"),
        rows=rows,
        untold=untold,
        unused=given and not strategy.needs_rows(job.federation, job.settings),
        rows_per_subject=int(str(job.settings.get("rows_per_subject", 1))),
        at_home=strategy.family == "personal" and tested and not real,
        dealt="" if partition == "natural" else partition,
    )
    privacy = statement.of_plan(plan, len(outcome.records), job.secure_aggregation, facts)
    privacy["more"] += [*outcome.at_limits, *(sentences(outcome.sites) if real else ())]
    return known, privacy


def communication_of(outcome: Outcome) -> dict[str, Any]:
    """Return the payload expected for each client."""
    return {
        "bytes_up_per_client": outcome.bytes_up,
        "bytes_down_per_client": outcome.bytes_down,
        "rounds": len(outcome.records),
    }


def result_of(
    outcome: Outcome,
    config: Config,
    privacy: dict[str, Any],
    *,
    given: Config,
    test: Holdout | None,
    data: datasets.Dataset | datasets.BlockRows | None,
) -> result.SimulationResult:
    """Return the result of a run.

    Parameters
    ----------
    outcome, config, privacy
        what came of it, its resolved config, and its privacy record
    given
        what was asked for
    test
        rows that judge it here; None = nobody but real sites does
    data
        what the run was on; None with real sites
    """
    names = None if data is None else data.class_names
    if names is None and config.class_names is not None:
        names = names_in(config.class_names)
    artifact = outcome.artifact.under(privacy["statement"])
    shipped = datasets.is_shipped(config.data)
    named = config.data if shipped else Path(config.data).name  # the name tells no path
    artifact.of_data("" if config.real else named)
    for each in (artifact, *outcome.history):
        each.of_classes(names)
    ends = {"at_limits": outcome.at_limits} if outcome.at_limits else {}
    return result.SimulationResult(
        artifact=artifact,
        judged={**artifact.results(), **({} if test is None else artifact.judge(test)), **ends},
        privacy=privacy,
        communication=communication_of(outcome),
        config=config,
        given=given,
        seconds=outcome.seconds,
        versions=result.versions(),
        rounds=outcome.records,
        test=test,
        data=data if isinstance(data, datasets.Dataset) else None,
        history=outcome.history,
        sites=outcome.sites,
    )
