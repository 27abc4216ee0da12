"""The Flower ServerApp: a job from plain values, run over whatever grid Flower gives.

A run config holds the keys of `Job.to_fields`, and `out`: an absolute folder for the outcome
(`Outcome.load`), or "" to have the result logged. `clients` may be 0, as many as there are nodes.
The keys `data` and `partition` are for the sites of a simulation (`fedcal.clients.site`); there
`classes` may be 0 and `input` "", those of the data.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcal import datasets, errors
from fedcal.atomic import whole_file
from fedcal.errors import FedcalError, InputError, RoundFailed
from fedcal.partition import DEALT, deal
from fedcal.strategies.base import CalibrationStrategy
from fedcal.strategies.enough import too_little
from fedcal.strategies.flower import ask_who
from fedcal.strategies.job import Job
from fedcal.strategies.outcome import OUTCOME, RELEASED, Outcome
from fedcal.strategies.settings import check_subjects, lacks_rows, needs_subjects

PATIENCE = 60.0
"""Seconds that the nodes of all clients have to appear."""

REPLY_TIMEOUT = 1e6
"""Seconds that a client may take to answer; in a simulation nobody goes missing unasked."""

_PROGRESS, _ERROR = "progress", "error.json"
_ANY = 2  # classes, where it is not known yet how many

log = logging.getLogger("flwr")  # Flower shows its own logger to who started the run
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """What Flower calls: `fedcal.strategies.server_app:app`."""
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
        # what is wrong in it is said before anybody waits
        Job.from_fields(fields, nodes=1, classes=_ANY)
        job = _resolved(fields, *wait_for_nodes(grid, int(fields["clients"])))
        for line in too_little(job.method, None, job):
            log.warning("fedcal: %s", line)

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


def wait_for_nodes(grid: Grid, clients: int) -> tuple[int, bool]:
    """Return once a node of each client is there and one of them has answered.

    Flower starts the server before the nodes are known and before Ray is up: nothing is
    reserved in a ledger, and no clock runs, until they are.

    Parameters
    ----------
    grid
        Flower's
    clients
        enrolled; 0 = as many as there are nodes, which a node of a simulation knows

    Returns
    -------
    tuple[int, bool]
        How many clients there are, and whether they deal the data of the run config among them.

    Raises
    ------
    InputError
        If `clients` is 0 and the node cannot tell.
    RoundFailed
        If there are fewer nodes than clients after `PATIENCE` seconds, or more.
    """
    who = next(iter(ask_who(grid, _nodes(grid, clients)[:1], REPLY_TIMEOUT)), None)
    dealt = None if who is None else who.clients
    if not clients:
        if dealt is None:
            raise InputError(
                "'clients' of the run config is 0, and these nodes do not say how many they are: "
                "give their number"
            )
        clients = dealt
        _nodes(grid, clients)
    return clients, dealt is not None


def _nodes(grid: Grid, clients: int) -> list[int]:
    """The nodes, once there is one for each client; 0 = once there is any."""
    deadline = time.monotonic() + PATIENCE
    while len(nodes := list(grid.get_node_ids())) < max(clients, 1):
        if time.monotonic() >= deadline:
            break
        time.sleep(0.05)
    if not nodes or (clients and len(nodes) != clients):
        wanted = f" for {clients} clients; start as many, or give clients = 0" if clients else ""
        raise RoundFailed(f"there are {len(nodes)} nodes{wanted}")
    return nodes


def _resolved(fields: Mapping[str, Any], clients: int, dealt: bool) -> Job:
    """The job; what it leaves open is taken from the simulated data, if they are dealt."""
    job = Job.from_fields(fields, nodes=clients, classes=_ANY)
    rows_open = lacks_rows(job.method, job.federation, job.settings)
    missing = [key for key in ("classes", "input") if not fields[key]]
    # Rows in a file that was written for this run were looked at by who wrote it.
    told = dealt and needs_subjects(job.federation) and fields["partition"] != DEALT
    if not rows_open and not missing and not told:
        return job
    if not dealt and missing:
        raise InputError(
            f"{missing[0]!r} of the run config is {fields[missing[0]]!r}, and the clients' data "
            "are not simulated: give it (classes: their number; input: logits or probs)"
        )
    if not dealt:
        raise InputError(
            f"{job.method} with privacy needs a public nominal number of rows of a client: give "
            """settings='{"rows_per_client": 50}' in the run config"""
        )
    seed = job.federation.seed
    data = datasets.load(str(fields["data"])).split(seed)
    shards = deal(data, str(fields["partition"]), clients, seed)
    check_subjects(job.federation, shards)
    job = Job.from_fields(fields, nodes=clients, classes=shards.classes, input=shards.input)
    if not rows_open:
        return job
    rows = len(shards.labels) / shards.clients
    log.info(
        "fedcal: rows_per_client %g is rows / clients of the simulated data; a deployment must "
        "choose this public number without looking",
        rows,
    )
    return replace(job, settings={**job.settings, "rows_per_client": rows})


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
        known = "".join(
            f", {key} {value:.6g}" if isinstance(value, float) else f", {key} {value}"
            for key, value in record.items()
            if key not in RELEASED
        )
        log.info("fedcal: round %d (%s)%s", record["round"], record["query"], known)
    took = "" if outcome.seconds is None else f" in {outcome.seconds:.3f} s"
    log.info("fedcal: %r%s", outcome.artifact, took)
    budget = f"epsilon {plan.epsilon:g}, delta {plan.delta:g}" if plan.private else "no privacy"
    log.info("fedcal: %s, unit %s, trust %s, seed %d", budget, plan.unit, plan.trust, plan.seed)
