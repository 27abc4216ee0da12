"""A plan from plain options: what `fedcal plan` and Python callers ask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedcal import datasets
from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.streams import check_seed
from fedcal.experiments.planner.advice import Advice, advise
from fedcal.experiments.planner.choice import CandidateEstimate
from fedcal.experiments.planner.duration import grpc_seconds
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.sentences import (
    approximations,
    at_home,
    command,
    explanation,
    not_enough,
)
from fedcal.experiments.planner.worlds import World, made_up, of_public
from fedcal.experiments.runs.config import ENGINES, Config, method_named
from fedcal.privacy.federation import QUORUM, Federation, check_quorum
from fedcal.strategies.server.outcome import Progress
from fedcal.units import User


def plan(
    *,
    clients: int | None = None,
    rows_per_client: float | None = None,
    classes: int | None = None,
    epsilon: float = math.inf,
    delta: float = 1e-5,
    unit: str = User.name,
    trust: str | None = None,
    sampling_rate: float = 1.0,
    rounds: int | None = None,
    quorum: float = QUORUM,
    mechanism: str = "auto",
    partition: str = "dirichlet:0.1",
    data: str | Sequence[str] = (),
    methods: Sequence[str] | None = None,
    seed: int = 0,
    engine: str = Config.engine,
    progress: Progress | None = None,
) -> Advice:
    """Say what a budget, rounds and clients buy, before anything runs.

    Parameters
    ----------
    clients, epsilon, delta, unit, trust, sampling_rate, rounds, quorum, mechanism, partition
        as
        of `simulate`, but `rounds` None = the planner's choice
    clients, rows_per_client
        needed; the latter a public nominal number, not a count
    classes
        of the model; None = the classes of `data`
    data
        names of shipped public data sets to plan on, in place of made-up rows
    methods
        only these
    seed
        of everything that is drawn; the same facts and seed give the same plan
    engine
        that the run is for: of "grpc" the plan says the expected wall time, and of methods that are
        about as good it recommends the one with fewest rounds

    Raises
    ------
    InputError
        A fact that is missing or not allowed, a data set that is not shipped, or no method that
        goes with the facts.
    """
    check_seed(seed)
    one_of("engine", engine, ENGINES)
    worlds: tuple[World, ...] = ()
    if data:
        worlds = tuple(_public(name) for name in ([data] if isinstance(data, str) else data))
    facts = facts_of(
        clients,
        rows_per_client,
        classes,
        [world.classes for world in worlds],
        partition,
        rounds=rounds,
        sampling_rate=sampling_rate,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        trust=trust,
        mechanism=mechanism,
        quorum=quorum,
    )
    return advise(
        facts,
        worlds or made_up(facts.federation.classes, seed),
        methods=methods and [method_named(name) for name in methods],
        seed=seed,
        engine=engine,
        progress=progress,
    )


def facts_of(
    clients: int | None,
    rows_per_client: float | None,
    classes: int | None,
    of_data: Sequence[int] | None,
    partition: str = Config.partition,
    **federation: Any,
) -> PublicFacts:
    """The public facts; InputError for what is missing, or does not fit the classes of the data."""
    there = {*(of_data or ())} | ({classes} if classes else set())
    if of_data and len(there) > 1:
        raise InputError(
            f"data and classes must fit together, got {', '.join(map(str, sorted(there)))} classes"
        )
    known = of_data[0] if of_data else classes
    if clients is None or rows_per_client is None or known is None:
        raise InputError(_missing(clients, rows_per_client, known))
    check_quorum(federation.get("quorum", QUORUM), federation.get("trust"))
    return PublicFacts(
        Federation(clients=clients, classes=known, **federation), rows_per_client, partition
    )


_MEANT = {
    "clients": "how many take part",
    "rows_per_client": "labelled rows of one client, a public nominal number and not a count",
    "classes": "how many the model tells apart; or data, a shipped set with as many",
}


def _missing(*given: object) -> str:
    """Which facts a plan lacks, what they mean and how they are given, in one line."""
    lacks = [name for name, value in zip(_MEANT, given, strict=True) if value is None]
    example = {"clients": 100, "rows_per_client": 50, "classes": 10}
    how = " ".join(f"--{name.replace('_', '-')} {example[name]}" for name in lacks)
    what = ", and ".join(f"{name} ({_MEANT[name]})" for name in lacks)
    return f"a plan needs {what}: for example {how}"


def to_json(advice: Advice) -> dict[str, Any]:
    """The content of `plan.json`: strict JSON, no NaN and no infinity."""
    enough, chosen = advice.enough, advice.chosen
    missing: dict[str, Any] | None = None
    if chosen is None:
        least = asdict(enough) if enough is not None else {"clients": None, "epsilon": None}
        missing = {"line": not_enough(advice)} | {
            fact: found and {"least": found[0], "method": found[1]} for fact, found in least.items()
        }

    def line(estimate: CandidateEstimate) -> dict[str, Any]:
        if advice.engine != "grpc":
            return estimate.to_json()
        return estimate.to_json() | {"wall_seconds": grpc_seconds(estimate.plan)}

    return {
        "schema": 1,
        "facts": advice.facts.to_json(),
        "seed": advice.seed,
        "worlds": advice.worlds,
        "methods": [line(e) for e in advice.estimates],
        "refused": [{"method": name, "why": why} for name, why in advice.refused],
        "recommendation": None if chosen is None else line(chosen),
        "options": advice.options,
        "command": command(advice),
        "not_enough": missing,
        "statement": [*at_home(advice), *explanation(advice)],
        "approximations": approximations(advice),
        "seconds": advice.seconds,
    }


def _public(name: str) -> World:
    """A shipped data set: a file might hold somebody's rows, and a plan looks at none."""
    one_of("public data set", name, [e.name for e in datasets.catalogue()], "fedcal datasets")
    return of_public(datasets.load(name))
