"""The Flower ServerApp: a job from plain values, run over whatever grid Flower gives.

A run config holds the keys of `Job.to_fields` and `out`: an absolute folder for the outcome
(`Outcome.load`), or "" to have the result logged.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcal import errors
from fedcal.atomic import whole_file
from fedcal.errors import FedcalError, InputError, RoundFailed
from strategies.base import CalibrationStrategy, ask_who
from strategies.job import OUTCOME, Job, Outcome

PATIENCE = 60.0
"""Seconds that the nodes of all clients have to appear."""

REPLY_TIMEOUT = 1e6
"""Seconds that a client may take to answer; in a simulation nobody goes missing unasked."""

_PROGRESS, _ERROR = "progress", "error.json"

log = logging.getLogger("flwr")  # Flower shows its own logger to who started the run
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """What Flower calls: `strategies.server_app:app`."""
    serve(grid, context.run_config)


def serve(grid: Grid, fields: Mapping[str, Any]) -> Outcome:
    """Run the job that `fields` describe and leave its outcome where they say.

    Raises
    ------
    FedcalError
        As `Job.run`; it is also written into the folder `out`, for `read_error`.
    """
    out = _emptied(Path(str(fields["out"]))) if fields.get("out") else None
    with _told(out):
        job = Job.from_fields(fields)
        wait_for_nodes(grid, job.federation.clients)

        def drive(strategy: CalibrationStrategy) -> None:
            strategy.unavailable = job.unavailable
            strategy.start(grid, timeout=REPLY_TIMEOUT)

        def moved(done: int, planned: int) -> None:
            if out is not None:
                with (out / _PROGRESS).open("a", encoding="ascii") as file:
                    file.write(f"{done} {planned}\n")

        outcome = job.run(drive, moved)
        if out is None:
            _show(job, outcome)
        else:
            outcome.save(out)
        return outcome


def wait_for_nodes(grid: Grid, clients: int) -> None:
    """Return once a node of each client is there and one of them has answered.

    Flower starts the server before the nodes are known and before Ray is up: nothing is
    reserved in a ledger, and no clock runs, until they are.

    Raises
    ------
    RoundFailed
        If there are fewer nodes than clients after `PATIENCE` seconds, or more.
    """
    deadline = time.monotonic() + PATIENCE
    while len(nodes := list(grid.get_node_ids())) < clients and time.monotonic() < deadline:
        time.sleep(0.05)
    if len(nodes) != clients:
        raise RoundFailed(f"there are {len(nodes)} nodes for {clients} clients")
    list(ask_who(grid, nodes[:1], REPLY_TIMEOUT))


def read_progress(out: Path) -> list[tuple[int, int]]:
    """(rounds done, rounds planned) for each round that is done."""
    try:
        lines = (out / _PROGRESS).read_text("ascii").splitlines(keepends=True)
    except OSError:
        return []
    whole = [line.split() for line in lines if line.endswith("\n")]
    return [(int(done), int(planned)) for done, planned in whole]


def read_error(out: Path) -> FedcalError | None:
    """What stopped the run whose outcome should be in `out`, if it was an error of fedcal's."""
    try:
        told = json.loads((out / _ERROR).read_text("utf-8"))
    except OSError:
        return None
    kind = getattr(errors, told["kind"])
    if kind is errors.NotBuiltYet:  # it puts its message together itself
        kind = InputError
    error: FedcalError = kind(told["message"])
    return error


def _emptied(out: Path) -> Path:
    """The folder `out`, without what an earlier run left there."""
    if not out.is_absolute():  # relative to what? Flower decides where this process runs
        raise InputError(f"'out' of the run config must be an absolute path, got {str(out)!r}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in (OUTCOME, _PROGRESS, _ERROR):
            (out / name).unlink(missing_ok=True)
    except OSError as e:
        raise InputError(f"cannot write the outcome to {out}: {e.strerror}") from None
    return out


@contextmanager
def _told(out: Path | None) -> Iterator[None]:
    """Leave word of an error of fedcal's own in `out`."""
    try:
        yield
    except FedcalError as e:
        log.error("fedcal: error: %s", e)
        if out is not None:
            with whole_file(out / _ERROR) as file:
                file.write(json.dumps({"kind": type(e).__name__, "message": str(e)}).encode())
        raise


def _show(job: Job, outcome: Outcome) -> None:
    """Log what came out; no sum, which would be exact without privacy."""
    plan = job.plan
    log.info("fedcal: %s, clients %d, rounds %d", job.method, plan.clients, plan.rounds)
    for record in outcome.records:
        known = f", temperature {record['temperature']:.6g}" if "temperature" in record else ""
        log.info("fedcal: round %d (%s)%s", record["round"], record["query"], known)
    log.info("fedcal: %r in %.3f s", outcome.calibrator, outcome.seconds)
    budget = f"epsilon {plan.epsilon:g}, delta {plan.delta:g}" if plan.private else "no privacy"
    log.info("fedcal: %s, unit %s, trust %s, seed %d", budget, plan.unit, plan.trust, plan.seed)
