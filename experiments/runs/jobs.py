"""The one door from options to a job: what a server runs, in plain values.

Behind it nothing asks the options again: the job holds what a server needs, and `run` of
`fedcal.experiments.runs.engines` takes it from there.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from fedcal.calibrators import load
from fedcal.core.classes import digest_of, names_in
from fedcal.core.errors import InputError
from fedcal.core.shards import Population
from fedcal.experiments.runs.config import APP, GRACE, TIMEOUT, Config
from fedcal.privacy.federation import Federation
from fedcal.secure_aggregation.committee import (
    EVERYBODY_UP_TO,
    check_committee,
    colluding,
    default_threshold,
    read_committee,
)
from fedcal.secure_aggregation.roster import Roster
from fedcal.storage.atomic import path_of
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import check_subjects, lacks_rows, nominal_rows
from fedcal.trust import TRUSTS
from fedcal.units import UNITS

_ANY = 2  # classes, until real sites say how many


def federation_of(config: Config, shards: Population | None) -> Federation:
    """Return the public facts and the budget of a run.

    Raises InputError if a value is not allowed.

    Parameters
    ----------
    config
        what was asked for
    shards
        how the rows were dealt; None = real sites keep theirs, and say how many classes there are
    """
    clients = config.clients or 0 if shards is None else shards.clients
    names = () if config.class_names is None else names_in(config.class_names)
    path = config.set.get("calibrator")  # real sites have its classes
    classes = len(names) or (load(str(path)).classes if path and shards is None else _ANY)
    federation = Federation(
        clients=clients,
        classes=classes if shards is None else shards.classes,
        rounds=config.rounds,
        sampling_rate=config.sampling_rate,
        epsilon=config.epsilon,
        delta=config.delta,
        unit=config.unit,
        trust=config.trust,
        seed=config.seed,
        mechanism=config.mechanism,
        quorum=config.quorum,
        noise_source=config.noise_source,
        **_committee(config, clients),
    )
    if shards is not None:
        check_subjects(federation, shards)
    elif federation.committee:
        federation.fewest()  # here, and not once the server has started
    return federation


def job_of(config: Config, shards: Population | None) -> Job:
    """Return the server's job from the options and the partitioned rows.

    In a simulation `rows_per_client`, a public number in a deployment, is by default the mean of
    the simulated shards (of their subjects, where each counts once), where the method needs it: it
    tells how many rows there are. Real sites keep their rows: they say what classes and scores they
    have, noise and coins come from the operating system, and the seed fixes public choices alone.

    Raises InputError if the method or its privacy plan refuses a value, or real sites need one that
    a simulation takes from its rows.
    """
    if shards is None:
        config = replace(config, noise_source="system")
    federation = federation_of(config, shards)
    fewest, hides = STRATEGIES[config.method].fewest_users, UNITS[federation.unit].whole_client
    if federation.private and hides and federation.clients < fewest:
        raise InputError(
            f"{config.method} with unit '{federation.unit}' hides each client among at least "
            f"{fewest}, got {federation.clients}: units 'example' and 'subject' take any number"
        )
    settings = dict(config.set)
    if lacks_rows(config.method, federation, settings):
        if shards is None:
            raise InputError(
                f"{config.method} with privacy needs a public nominal number of rows of a client, "
                "chosen without looking: give --set rows_per_client=200, in Python "
                'set={"rows_per_client": 200}'
            )
        settings["rows_per_client"] = nominal_rows(config.method, federation, shards)
    known: dict[str, Any] = {} if shards is None else {"input": shards.input}
    return Job(
        method=config.method,
        federation=federation,
        settings=settings,
        secure_aggregation=_sums(config, federation),
        dropout=config.dropout,
        ledger=config.ledger,
        cap=config.cap,
        cap_delta=config.cap_delta,
        **known,
        **_waiting(config),
        **_among_sites(config),
    )


def _sums(config: Config, federation: Federation) -> str:
    """Return the kind of sum: a share of noise alone protects no client, their sum does."""
    if config.protocol:
        return "protocol"
    shared = TRUSTS[str(federation.trust)].shared
    return config.secure_aggregation or ("masks" if shared else "none")


def _among_sites(config: Config) -> dict[str, Any]:
    """Return the fields that a federation file adds to a job."""
    if config.federation is None:
        return {}
    return {"roster": Roster.read(path_of(config.federation)).to_text()}


def _waiting(config: Config) -> dict[str, Any]:
    """Return how the job of real processes waits for its sites, and for which classes."""
    if config.engine not in ("grpc", APP):
        return {}
    named = config.control is not None and config.class_names is not None
    return {
        "tolerant": True,
        "timeout": config.timeout or TIMEOUT,
        "grace": config.grace or GRACE,
        "class_digest": digest_of(names_in(str(config.class_names))) if named else "",
    }


def _committee(config: Config, clients: int) -> dict[str, int]:
    """`committee`, `threshold` and `colluding` of a `Federation`; {} without the protocol.

    By default all of up to 7 clients are members, else 7; and as many may collude as the committee
    bears, as long as two others are left in a sum.
    """
    if not config.protocol:
        return {}
    if config.federation is not None:
        named = Roster.read(path_of(config.federation)).committee
        size, threshold = len(named.members), named.threshold
    elif config.committee is not None:
        size, threshold = read_committee(config.committee)
    else:
        size = min(clients, EVERYBODY_UP_TO)
        threshold = default_threshold(size)
        check_committee(size, threshold)
    most = config.colluding
    if most is None:
        least = math.ceil(config.quorum * clients)
        most = min(colluding(size, threshold), max(0, least - 2))
    return {"committee": size, "threshold": threshold, "colluding": most}
