"""What is told of a federated run, whatever drove it: its config, its privacy, what was sent."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal import datasets, strategies
from fedcal.core.classes import names_in
from fedcal.experiments.runs import result, statement
from fedcal.experiments.runs.config import APP, Config
from fedcal.experiments.runs.statement.sentences import AT_HOME, sets_noise, with_real_sites
from fedcal.storage.artifact import Holdout
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome
from fedcal.strategies.server.participation import sentences

UNUSED_ROWS = (
    "rows_per_client = {:g} was given and sets nothing in this run: no bound of it depends on it."
)
UNTOLD_ROWS = (
    "rows_per_client was taken as rows / clients of the simulated data. It sets no noise here "
    "and is omitted from the results, so that no number reveals it: no epsilon covers the exact "
    "number of fit rows. A deployment must choose it without looking."
)
PUBLIC_ROWS = (
    "rows_per_client = {:g} is a public number: it must have been chosen without looking at rows."
)
COUNTED = {
    "masks": "Masks cancel in every sum: this simulation counted them and computed none. Engine "
    "'grpc' computes them.",
    "protocol": "The protocol opens the exact sum or fails: this simulation counted its messages, "
    "let a round fail where it would, and computed none. Engine 'grpc' computes them.",
}
"""How secure aggregation is simulated without messages, where no bit of a result can differ."""
SUBJECT_ROWS = (
    "rows_per_subject = {0}: rows count, all rows of one subject as {0} at most, and the noise is "
    "{0} times that of counting each subject once."
)


def recorded(
    config: Config, job: Job, outcome: Outcome, tested: bool
) -> tuple[Config, dict[str, Any]]:
    """Return the resolved config of a federated run, and its privacy record."""
    plan, name = job.plan, "rows_per_client"
    looked = plan.private and name in job.settings and name not in config.set
    untold = looked and plan.row_rate == 1 and not sets_noise(plan)
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
    real = config.real
    simulated = None if real else rows  # a simulation's number may tell of its rows
    about: Any = {"tested": tested, "noun": outcome.artifact.noun}
    about["real"] = config.control is not None
    releases = len(outcome.records)
    privacy = statement.of_plan(plan, releases, job.secure_aggregation, simulated, **about)
    needed = strategies.STRATEGIES[job.method].needs_rows(job.federation, job.settings)
    if untold:
        privacy["statement"].append(UNTOLD_ROWS)
    elif name in config.set and not needed:
        privacy["statement"].append(UNUSED_ROWS.format(rows))
    elif rows is not None and plan.private and real:
        privacy["statement"].append(PUBLIC_ROWS.format(rows))
    if config.engine in ("inline", "ray") and job.secure_aggregation in COUNTED:
        privacy["statement"].append(COUNTED[job.secure_aggregation])
    if plan.private and int(str(job.settings.get("rows_per_subject", 1))) > 1:
        privacy["statement"].append(SUBJECT_ROWS.format(job.settings["rows_per_subject"]))
    if strategies.STRATEGIES[job.method].family == "personal" and tested and not real:
        privacy["statement"].append(AT_HOME)
    privacy["statement"] += outcome.at_limits
    if real:
        with_real_sites(privacy, in_app=config.engine == APP)
        privacy["statement"] += sentences(outcome.sites)
    return known, privacy


def communication_of(outcome: Outcome, clients: int) -> dict[str, Any]:
    """Return the payload expected for each client, and the size of messages with real sites."""
    sent: dict[str, Any] = {
        "bytes_up_per_client": outcome.bytes_up,
        "bytes_down_per_client": outcome.bytes_down,
        "rounds": len(outcome.records),
    }
    if outcome.message_bytes is not None:
        up, down = (round(count / clients) for count in outcome.message_bytes)
        sent |= {"message_bytes_up_per_client": up, "message_bytes_down_per_client": down}
    return sent


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
        communication=communication_of(outcome, config.clients or 1),
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
