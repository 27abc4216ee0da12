"""A plan from plain options: what `fedcal plan` and Python callers ask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedcal import datasets
from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.streams import check_seed
from fedcal.experiments.planner.advice import Advice
from fedcal.experiments.planner.advise_methods import advise
from fedcal.experiments.planner.advise_sets import advise_sets
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.method_advice import MethodAdvice
from fedcal.experiments.planner.set_advice import SetAdvice
from fedcal.experiments.planner.worlds import World, made_up, of_public
from fedcal.experiments.runs.config import ENGINES, Config, method_named
from fedcal.experiments.runs.files import to_json, write_folder
from fedcal.experiments.runs.load import load_any
from fedcal.privacy.federation import QUORUM, Federation, check_quorum
from fedcal.strategies.server.outcome import Progress
from fedcal.strategies.settings import Setting
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
) -> MethodAdvice:
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


def plan_sets(
    *,
    clients: int | None = None,
    rows_per_client: float | None = None,
    classes: int | None = None,
    data: Any = None,
    settings: Mapping[str, Setting] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **facts: Any,
) -> SetAdvice:
    """Say what coverage, set sizes and slack to expect of prediction sets, before anything runs.

    Parameters
    ----------
    clients, rows_per_client
        needed; the latter a public nominal number, not a count
    classes
        of the model; None = the classes of `data`
    data
        rows that stand in for the clients', as `simulate` takes them: they must be public, made up,
        or one's own. Without any, scores are taken to be evenly spread, and set sizes are not told
    settings
        of the method `conformal`: alpha, score, quantile, by, ...
    seed
        of everything that is drawn
    **facts
        epsilon, delta, unit, trust, sampling_rate, quorum, mechanism, as of `simulate`

    Raises
    ------
    InputError
        A fact that is missing or not allowed, or no rule that goes with the facts.
    """
    check_seed(seed)
    rows = None if data is None else load_any(data)
    known = facts_of(clients, rows_per_client, classes, [rows.classes] if rows else None, **facts)
    return advise_sets(known, settings or {}, data=rows, seed=seed, progress=progress)


def facts_of(
    clients: int | None,
    rows_per_client: float | None,
    classes: int | None,
    of_data: Sequence[int] | None,
    partition: str = Config.partition,
    **federation: Any,
) -> PublicFacts:
    """Return the public facts; InputError if some are missing or contradict the data's classes."""
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


NEEDED = {
    "clients": "how many take part",
    "rows_per_client": "labelled rows of one client, a public nominal number and not a count",
    "classes": "the number of the model's classes; or data, a shipped set with as many",
}


def _missing(*values: object) -> str:
    """Return which facts a plan lacks, their meaning and their options, in one line."""
    lacks = [name for name, value in zip(NEEDED, values, strict=True) if value is None]
    example = {"clients": 100, "rows_per_client": 50, "classes": 10}
    how = " ".join(f"--{name.replace('_', '-')} {example[name]}" for name in lacks)
    what = ", and ".join(f"{name} ({NEEDED[name]})" for name in lacks)
    return f"a plan needs {what}: for example {how}"


def save(advice: Advice, out: Path) -> None:
    """Write `plan.json`, and `config.toml` for `simulate --config` where there is advice."""

    def write(folder: Path) -> None:
        (folder / "plan.json").write_text(to_json(advice.to_json()), "utf-8")
        if advice.options is not None:
            (folder / "config.toml").write_text(tomli_w.dumps(advice.options), "utf-8")

    write_folder(out, write, stale=("config.toml",))


def _public(name: str) -> World:
    """Return a shipped data set: a file might hold private rows, which a plan never reads."""
    one_of("public data set", name, [e.name for e in datasets.catalogue()], "fedcal datasets")
    return of_public(datasets.load(name))
