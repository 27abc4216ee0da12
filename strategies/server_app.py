"""The Flower ServerApp: a job from plain values, run over whatever grid Flower gives.

A run config holds the keys of `Job.to_fields`, and `out`: an absolute folder for the outcome
(`Outcome.load`), or "" to have the result logged. `clients` may be 0, as many as there are nodes.
The keys `data` and `partition` are for the sites of a simulation (`fedcal.clients.site.sources`);
there `classes` may be 0 and `input` "", those of the data.
"""

import logging
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedcal import datasets
from fedcal.core import checks, imports, naming
from fedcal.core.checks import NO_ROWS, FedcalError, InputError, RoundFailed
from fedcal.partition import ASSIGNED, deal
from fedcal.privacy.agreement import job_digest, key_of_job
from fedcal.secure_aggregation.roster import Roster
from fedcal.strategies import base, register, warnings
from fedcal.strategies.server import checkpoint, collector, participation, transport
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome
from fedcal.strategies.settings import check_subjects, lacks_rows, needs_subjects
from fedcal.trust import TRUSTS

WITHOUT_UNREADY = "without-unready"
"""Key of a run config: go on without real sites that say that they cannot take part."""

FRESH: dict[str, bool] = {"resume": False, "deliver": False, WITHOUT_UNREADY: False}
"""Default flags of a new run."""

_ANY = 2  # classes, where it is not known yet how many

log = logging.getLogger("flwr")  # Flower shows its own logger to whoever started the run
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the server; Flower calls it as `fedcal.strategies.server_app:app`."""
    serve(grid, context.run_config)


def serve(grid: Grid, fields: Mapping[str, Any], model: ArrayRecord | None = None) -> Outcome:
    """Run the job that `fields` describe and leave its outcome where they say.

    Clients of a Flower app score their rows by a `model` first.

    Raises FedcalError as `Job.run`; it is also written into the folder `out`, for `read_error`.
    """
    resume, method = checks.read(fields, "resume", bool), checks.read(fields, "method", str)
    without_unready = checks.read({**FRESH, **fields}, WITHOUT_UNREADY, bool)  # a new key
    if ":" in method:  # of another package, named by whoever starts the run
        register(imports.named("method", method))
    out = Path(str(fields["out"])) if fields.get("out") else None
    grid = cast(Grid, participation.PromptGrid(grid))
    with _logged(), nullcontext() if out is None else checkpoint.held(out, resume=resume):
        # an error in it is raised before anybody waits
        early = Job.from_fields(fields, nodes=1, classes=_ANY)
        clients, infos = wait_for_nodes(grid, early, int(fields["clients"]), model)
        first = next(iter(infos), None)  # of an app's clients not all know the classes
        knows = next((info for info in infos if info.classes is not None), first)
        job = _resolved(fields, clients, knows)
        for line in warnings.underpowered(job.method, None, job):
            log.warning("fedcal: %s", line)

        folder = out if job.tolerant else None
        names = participation.names_of(job.roster, job.plan.clients)
        driven: list[base.FederatedStrategy] = []

        def drive(strategy: base.FederatedStrategy) -> None:
            driven.append(strategy)
            strategy.unavailable = job.unavailable
            strategy.tolerant, strategy.class_digest = job.tolerant, job.class_digest
            strategy.without_unready = without_unready
            strategy.scores = (job.federation.classes, job.input)
            strategy.terms = key_of_job(job.to_fields(), job.plan)
            if job.plan.committee:
                agreed = job_digest(strategy.terms, strategy.run)
                of = (Roster.from_text(job.roster), agreed, strategy.run, folder)
                strategy.secure = collector.SecureRounds(*of)
            strategy.assign_sites(infos if job.tolerant else ())
            strategy.start(grid, model, timeout=job.timeout)

        progress = partial(checkpoint.note_progress, out) if out else None
        outcome = job.run(drive, progress, folder=folder, resume=resume)
        for line in outcome.at_limits:
            log.warning("fedcal: %s", line)
        about = {key: str(fields.get(key, "")) for key in ("data", "partition", "engine")}
        outcome = replace(outcome, job={**outcome.job, **about})
        if job.tolerant:
            names = tuple(driven[0].names.get(k, name) for k, name in enumerate(names))
            sites = driven[0].took_part.to_result(names, secret=job.plan.secret_sample)
            outcome = replace(outcome, sites=sites, artifact=outcome.artifact.of_sites(sites))
        if out is not None:  # else Flower's log has what was learned
            outcome.save(out)
        if checks.read(fields, "deliver", bool):
            called = {node: names[site] for node, site in driven[0].roster.items()}
            deliver(grid, job, outcome, called)
        return outcome


@contextmanager
def _logged() -> Iterator[None]:
    """Flower shows a failure by its traceback; an error of fedcal's own also as one line.

    What sites and files say is logged as printable text.
    """
    harmless = naming.Printable(lines=True)
    log.addFilter(harmless)
    try:
        yield
    except FedcalError as e:
        log.error("fedcal: error: %s", e)
        raise
    finally:
        log.removeFilter(harmless)


def wait_for_nodes(
    grid: Grid, job: Job, clients: int, model: ArrayRecord | None = None
) -> tuple[int, list[participation.NodeInfo]]:
    """Return once a node of each client is there and one of them has answered; of real sites all.

    Flower starts the server before the nodes are known and before Ray is up: nothing is
    reserved in a ledger, and no clock runs, until they are. Of real sites some may be away
    after the grace period: the run begins without them if as many are there as must answer a
    round.

    Parameters
    ----------
    grid
        Flower's
    job
        how long to wait, and for whom
    clients
        enrolled; 0 = as many as there are nodes, which a node of a simulation knows
    model
        as `ask_node_info` takes it

    Returns
    -------
    tuple[int, list[NodeInfo]]
        How many clients there are, and what nodes report: a simulation's first one,
        or all real sites.

    Raises
    ------
    InputError
        If `clients` is 0 and the node cannot tell.
    RoundFailed
        If there are too few nodes after the grace period, or more than clients.
    """
    nodes = _nodes(grid, job, clients)
    if job.tolerant and clients:
        private = job.federation.private
        infos = participation.ask_node_info(grid, nodes, job.timeout, True, model, private)
        if not infos:
            raise RoundFailed("no connected site has answered; no question was sent")
        if model is not None and all(info.classes is None for info in infos):
            why = "no client can score rows with the model; no question was sent"
            raise RoundFailed(f"{why}: {reports_of(infos)}; see the clients' own logs")
        there, names = {info.place for info in infos}, participation.names_of(job.roster, clients)
        away = [name for k, name in enumerate(names) if job.roster and k not in there]
        if away:
            log.warning("fedcal: not there: %s", naming.listed(away))
        return clients, infos
    infos = participation.ask_node_info(grid, nodes[:1], job.timeout)
    if not clients:
        if not infos or infos[0].clients is None:
            why = "and these nodes do not say how many they are: give their number"
            raise InputError(f"'clients' of the run config is 0, {why}")
        clients = infos[0].clients
        _nodes(grid, job, clients)
    return clients, infos


def check_clients(grid: Grid, fields: Mapping[str, Any], model: ArrayRecord) -> None:
    """Have the clients of a Flower app score their rows by a model, and ask them nothing else.

    Raises RoundFailed if scores differ in form, no client has rows, or one fails or is silent.
    """
    job = Job.from_fields(fields, nodes=1, classes=_ANY)
    with _logged():
        nodes = _nodes(grid, job, int(fields["clients"]))
        about = job.timeout, True, model, job.federation.private
        prompt = cast(Grid, participation.PromptGrid(grid))
        infos = participation.ask_node_info(prompt, nodes, *about)
        silent = sorted(set(nodes) - {info.node for info in infos})
        infos += [participation.NodeInfo(node, error="no answer") for node in silent]
        forms = {(at.error, at.classes, at.input) for at in infos if at.error != NO_ROWS}
        if len(forms) != 1 or any(error for error, *_ in forms):
            why = f"the clients cannot all answer: {reports_of(infos)}"
            raise RoundFailed(f"{why}; see their own logs")
        able = sum(not info.error for info in infos)
        log.info("fedcal: %d clients can answer: %s", able, reports_of(infos))


def reports_of(infos: Iterable[participation.NodeInfo]) -> str:
    """Return why clients have no scores, or what they say of them, each with their names."""
    names: dict[str, list[str]] = {}
    for info in sorted(infos, key=lambda info: info.error in ("", NO_ROWS)):
        form = info.error or f"{info.input} of {info.classes} classes"
        names.setdefault(form, []).append(info.name)
    parts = [f"{naming.listed(clients)}: {form}" for form, clients in names.items()]
    return naming.listed(parts, "; ")


def _nodes(grid: Grid, job: Job, clients: int) -> list[int]:
    """Return the nodes, once there is one for each client; with 0 clients, once there is any."""
    deadline = time.monotonic() + job.grace
    while (there := len(nodes := list(grid.get_node_ids()))) < max(clients, 1):
        if time.monotonic() >= deadline:
            break
        time.sleep(0.05)
    facts, least = job.federation, clients or 1
    if job.tolerant and clients:
        quorum = TRUSTS[str(facts.trust)].quorum(facts.quorum, clients)
        least = facts.fewest() if facts.committee else quorum
    if there < least or there > clients > 0:
        have = f"{there} of {clients or 'any'} sites had connected after {job.grace:g} s"
        need = f"the run is for {least} to {clients or 'all'}"
        raise RoundFailed(f"{have}, and {need}: no question was sent")
    if there < clients:
        log.warning("fedcal: %d of %d sites are connected: the run begins", there, clients)
    return nodes


def deliver(grid: Grid, job: Job, outcome: Outcome, called: Mapping[int, str]) -> None:
    """Give each site what was learned; one that is away goes without, and the log names it.

    Parameters
    ----------
    called
        node -> what its site is called
    """
    form = outcome.artifact.form
    with tempfile.TemporaryDirectory() as folder:
        names = outcome.artifact.write(Path(folder), form)
        files = {name: (Path(folder) / name).read_bytes() for name in names}
    run = ConfigRecord({"run": outcome.run, "form": form})
    content = {"files": ConfigRecord({**files}), "run": run}
    nodes, about = list(grid.get_node_ids()), (transport.RESULT, 0, job.timeout)
    sending = [participation.message(content, node, *about) for node in nodes]
    receivers: set[int] = set()
    with suppress(RoundFailed):  # Flower takes none: the run is done all the same
        replies = grid.send_and_receive(sending, timeout=job.timeout)
        receivers = {reply.metadata.src_node_id for reply in replies if not reply.has_error()}
    without = [called.get(node, f"node {node}") for node in nodes if node not in receivers]
    log.log(
        logging.WARNING if without else logging.INFO,
        "fedcal: %d of %d sites have the %s%s",
        *(len(nodes) - len(without), len(nodes), outcome.artifact.noun),
        f", not {naming.listed(sorted(without))}" if without else "",
    )


def _resolved(fields: Mapping[str, Any], clients: int, info: participation.NodeInfo | None) -> Job:
    """Return the job; open fields come from a site's statement or from the simulated data."""
    simulated = info is not None and info.clients is not None
    if info is not None and info.classes is not None:
        fields = {
            **fields,
            "classes": fields["classes"] or info.classes,
            "input": fields["input"] or info.input,
            "class-digest": fields["class-digest"] or info.digest or "",
        }
    job = Job.from_fields(fields, nodes=clients, classes=_ANY)
    known = info is None or info.site is not None
    if job.tolerant and not known and job.plan.model.shared and not job.plan.committee:
        why = "the server would see each share of the noise"
        needs = f"trust '{job.plan.trust}' with real sites needs secure aggregation among them"
        raise InputError(f"{needs}: {why}; make a study, or use central or local")
    rows_open = lacks_rows(job.method, job.federation, job.settings)
    missing = [key for key in ("classes", "input") if not fields[key]]
    # Rows in a file that was written for this run were looked at by its writer.
    by_data = simulated and needs_subjects(job.federation) and fields["partition"] != ASSIGNED
    if not rows_open and not missing and not by_data:
        return job
    if not simulated and missing:
        why = f"{missing[0]!r} of the run config is {fields[missing[0]]!r}"
        give = "give it (classes: their number; input: logits or probs)"
        raise InputError(f"{why}, and the clients' data are not simulated: {give}")
    if not simulated:
        give = """give set={"rows_per_client": 50}, as JSON text `settings` of a run config"""
        needs = "needs a public nominal number of rows of a client"
        raise InputError(f"{job.method} with privacy {needs}: {give}")
    seed = job.federation.seed
    data = datasets.load(str(fields["data"])).read_by(job.method, seed)
    shards = deal(data, str(fields["partition"]), clients, seed)
    check_subjects(job.federation, shards)
    job = Job.from_fields(fields, nodes=clients, classes=shards.classes, input=shards.input)
    if not rows_open:
        return job
    rows = len(shards.labels) / shards.clients
    why = "a deployment must choose this public number without looking"
    log.info("fedcal: rows_per_client %g is rows / clients of the simulated data; %s", rows, why)
    return replace(job, settings={**job.settings, "rows_per_client": rows})
