"""The result of a run that is paid for and was never judged or shown: made of what it left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedcal.core.errors import InputError
from fedcal.datasets import BlockRows, Dataset
from fedcal.experiments.runs.config import Config, load_config, merge
from fedcal.experiments.runs.load import load_any, rows_of
from fedcal.experiments.runs.options import options_of, read_options
from fedcal.experiments.runs.paid import CONFIG
from fedcal.experiments.runs.record import recorded, result_of
from fedcal.experiments.runs.result import SimulationResult
from fedcal.experiments.runs.simulation import simulate
from fedcal.experiments.runs.statement import about_subjects
from fedcal.experiments.runs.statement.sentences import held_out as held_out_of
from fedcal.partition import DEALT
from fedcal.storage.artifact import Holdout
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import OUTCOME, Outcome
from fedcal.strategies.server.run_folder import forget


def finish(folder: Path) -> Path:
    """Judge and write what a folder's `outcome.json` tells of; nothing runs, and nothing is paid.

    Returns
    -------
    Path
        Of the report.

    Raises
    ------
    InputError
        The folder holds no outcome, or its rows cannot be had again.
    """
    if (folder / "run.json").is_file():
        from fedcal.experiments.deploy.run import asked_for, deployed

        asked = asked_for(folder, {})
        deployed(asked, test=asked.data or None, out=folder, resume=True)
    elif not (folder / CONFIG).is_file():
        _of_flower(folder).save(folder)
        forget(folder, checkpoint=True)  # what it holds is in the result
    elif "model" in read_options(folder / CONFIG):
        from fedcal.experiments.training.run import train

        train(out=folder, resume=True)
    else:
        config = load_config(folder / CONFIG, {})
        try:
            simulate(config.data, config=config, out=folder, resume=True)
        except InputError as error:
            raise InputError(
                f"{error}; a run on arrays is reported by simulate(..., out={str(folder)!r}, "
                "resume=True) in Python"
            ) from None
    return folder / "report.html"


def _of_flower(folder: Path) -> SimulationResult:
    """Return the result of a `flwr run`; test rows of simulated sites evaluate it."""
    outcome = Outcome.load(folder)
    if not outcome.job:
        raise InputError(f"{folder / OUTCOME} does not name its run")
    return of_messages(outcome)


def of_messages(outcome: Outcome, test: Holdout | None = None, **given: Any) -> SimulationResult:
    """Return the result of a run that Flower drove.

    Parameters
    ----------
    outcome
        with its job
    test
        rows that judge it; None = those of simulated sites, if it was on such
    **given
        options of the run that a job does not have
    """
    job = Job.from_fields(outcome.job)
    fields = {key.replace("-", "_"): value for key, value in outcome.job.items()}
    known = {n: v for n, v in fields.items() if n in options_of(Config) and v not in ("", 0)}
    for name in ("committee", "timeout", "grace"):  # another thing there, or of no use any more
        known.pop(name, None)
    data, partition = str(fields.get("data", "")), str(fields.get("partition", ""))
    known |= {"data": data, "set": job.settings, **given}
    known["engine"] = fields.get("engine") or ("flower" if data else "grpc")
    rows: Dataset | BlockRows | None = None
    held_out, tested = False, test is not None
    if data and partition != DEALT:
        dealt = rows_of(merge(known), load_any(data))
        held_out, rows, test, tested = dealt.held_out, dealt.data, dealt.test, dealt.tested
    config, privacy = recorded(merge(known), job, outcome, tested=tested)
    if held_out:
        privacy["statement"].append(held_out_of(outcome.artifact.noun))
    privacy["statement"] += about_subjects(job.plan, partition, held_out)
    clients = job.plan.clients
    return result_of(outcome, config, privacy, clients, given=config, test=test, data=rows)
