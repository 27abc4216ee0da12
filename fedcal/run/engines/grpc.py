"""Real clients on one machine: a SuperLink and a SuperNode for each client, over gRPC.

The processes and messages are those of a deployment (`fedcal site`), with TLS and node
authentication by keys that are made for the run and thrown away after it. All ports are on
the loopback interface, and every process ends with the run, whatever ends it.
"""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.clients.site.preparing import prepare
from fedcal.core.checks import integer, warn
from fedcal.core.shards import Shards
from fedcal.run.engines import superlink
from fedcal.run.engines.supernode import SuperNode, supernode
from fedcal.run.engines.tls import make_certificates, make_site_key
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Committee, Member, Roster
from fedcal.strategies.server import checkpoint, outcome
from fedcal.strategies.server.job import Job
from fedcal.strategies.server_app import FRESH
from fedcal.strategies.warnings import underpowered

MOST_CLIENTS = 64
"""On one machine: each is four processes."""


_START_SECONDS, _SITE_SECONDS = 60.0, 10.0
"""Seconds for all processes, and for each site, to start on a slow machine."""


def run_grpc(
    job: Job,
    shards: Shards,
    *,
    progress: outcome.Progress | None = None,
    nodes: list[SuperNode] | None = None,
) -> outcome.Outcome:
    """Run a job over one SuperNode for each client.

    Parameters
    ----------
    job
        what the server runs
    shards
        one shard for each client
    progress
        called after each round
    nodes
        gains the SuperNodes in the order of the clients, for who means to end some

    Returns
    -------
    Outcome
        Same bits as from `run_inline`. `seconds` are those of the rounds in the server.

    Raises
    ------
    InputError
        If there are too many clients, Flower's commands are missing, or as `Job.run`; nothing
        was released.
    RoundFailed
        If too few of those asked answered.
    FedcalError
        If Flower failed.
    """
    what = "the number of clients with engine 'grpc' (inline takes any)"
    integer(what, shards.clients, 1, MOST_CLIENTS)
    programs = superlink.commands("grpc")
    patient = max(job.grace, _START_SECONDS + _SITE_SECONDS * shards.clients)
    job = replace(job, tolerant=True, grace=patient)  # here none is away: they are only slow
    with superlink.run_folder() as folder, contextlib.ExitStack() as running:
        keys, out = folder / "keys", folder / "out"
        names = [f"site-{k}" for k in range(shards.clients)]
        make_certificates(keys, ["127.0.0.1", "localhost"])
        for name in names:
            make_site_key(keys, name, name)
        out.mkdir()
        signing: list[SigningKey] = []
        if job.plan.committee is not None:
            signing = [SigningKey.generate() for _ in names]
            roster = simulated_roster(signing, *job.plan.committee)
            job = replace(job, roster=roster.to_text())
        here = {"data": "", "partition": "", "out": str(out), **FRESH}
        run = superlink.FlowerRun(folder, programs, {})
        run.write_app({**job.to_fields(), **here})
        fleet = ""

        def options() -> list[str | Path]:
            nonlocal fleet
            fleet = f"127.0.0.1:{superlink.free_port()}"
            return [*secured(keys), "--fleet-api-address", fleet]

        running.enter_context(run.superlink(options, keys / "ca.crt"))
        public = [str(keys / f"{name}.pub") for name in names]
        run.flwr_many([["supernode", "register", key, superlink.CONNECTION] for key in public])
        terms = job.terms()
        for k, name in enumerate(names):
            site = folder / name
            own = shards.block(k, k + 1)
            place: dict[str, Any] = {}
            if job.federation.noise_source == "seeded":
                place["seed"] = job.plan.client_seed
            if signing:
                place |= {"roster": roster, "sign_key": folder / f"{name}.pem"}
                place["sign_key"].touch(0o600)
                place["sign_key"].write_bytes(signing[k].to_pem())
            prepare(site, own, number=k, simulated=True, terms=terms, **place)
            key = keys / f"{name}.key"
            node = supernode(site, fleet=fleet, root_certificates=keys / "ca.crt", key=key)
            started = running.enter_context(node)
            if nodes is not None:
                nodes.append(started)
        status = run.run(None, out, progress)
        known = {f"fedcal: {line}" for line in underpowered(job.method, None, job)}
        for line in checkpoint.read_notices(out):
            if line not in known:  # what the caller says by itself
                warn(line.removeprefix("fedcal: "))
        return run.outcome(out, status, "Flower's run", private=job.plan.private)


def simulated_roster(keys: list[SigningKey], committee: int, threshold: int) -> Roster:
    """Return a federation of sites with these keys, the first of which are the committee."""
    sites = tuple(Member(f"site-{k}", key.public) for k, key in enumerate(keys))
    return Roster("simulation", sites, Committee.of_first(committee, threshold))


def secured(keys: Path) -> list[str | Path]:
    """Options of a SuperLink with TLS that lets in nodes with a registered key alone."""
    return [
        *("--ssl-ca-certfile", keys / "ca.crt"),
        *("--ssl-certfile", keys / "server.crt"),
        *("--ssl-keyfile", keys / "server.key"),
        "--enable-supernode-auth",
    ]
