"""`--method auto`: the planner's choice in place of a method, from public facts only."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import lru_cache

from fedcal.core.shards import Population
from fedcal.experiments.planner.advise_methods import advise
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.method_advice import MethodAdvice
from fedcal.experiments.planner.worlds import made_up
from fedcal.experiments.runs.config import AUTO, Config
from fedcal.experiments.runs.jobs import federation_of
from fedcal.partition import DrawnPartition, parse
from fedcal.strategies.server.outcome import Progress

CHOSEN = (
    "Method and settings were chosen by the planner from public facts only (clients, nominal rows "
    "per client, classes, budget, unit, trust), by runs on made-up rows, never from rows of the "
    "clients: {}."
)
NOMINAL = (
    "The planner's rows_per_client was rows / clients of the simulated data, since it was not "
    "given; a deployment must name it without looking (--set rows_per_client=M)."
)
LEFT_ALONE = (
    "The planner expected no method to beat leaving the model alone, so no client was contacted "
    "and no budget was spent."
)

_OF_METHODS = (
    *("epsilon", "trust", "mechanism", "rounds", "quorum"),
    *("ledger", "cap", "cap_delta"),
)
"""Options that the method "none" does not have."""


def resolved(
    config: Config, shards: Population, progress: Progress | None = None
) -> tuple[Config, list[str]]:
    """Return the config with the planner's choice, and sentences that state it.

    Of the shards only what is public is read: how many there are, how many classes, and (in a
    simulation that does not give `rows_per_client`) rows / clients. Where nothing is expected to
    beat leaving the model alone, the choice is the method "none", without privacy and so without a
    ledger: it learns nothing and releases nothing.

    Raises
    ------
    InputError
        If the facts are not allowed, or no method goes with them.

    Warns
    -----
    UserWarning
        Where nothing is expected to help.
    """
    if config.method != AUTO:
        return config, []
    nominal = config.set.get("rows_per_client")
    rows = max(shards.size, 1) / shards.clients if nominal is None else nominal
    simulable = isinstance(parse(config.partition), DrawnPartition)
    facts = PublicFacts(
        replace(federation_of(config, shards), seed=0, noise_source="seeded"),
        rows,  # type: ignore[arg-type]  # checked there
        config.partition if simulable else Config.partition,
    )
    if progress is None:
        advice = advice_on(facts, config.engine)
    else:
        worlds = made_up(facts.federation.classes)
        advice = advise(facts, worlds, engine=config.engine, progress=progress)
    notes = [] if nominal is not None else [NOMINAL]
    if advice.chosen is None:
        warnings.warn(advice.not_enough(), stacklevel=4)
        default = {name: getattr(Config, name) for name in _OF_METHODS}
        return replace(config, method="none", set={}, **default), [LEFT_ALONE, *notes]
    options = advice.options or {}
    chosen = dict(options.get("set", {}))
    if nominal is None:
        chosen.pop("rows_per_client", None)  # the run takes the same number, and knows whose it is
    known = replace(config, method=options["method"], rounds=options["rounds"], set=chosen)
    return known, [CHOSEN.format(advice.chosen.candidate.text), *notes]


@lru_cache(maxsize=64)
def advice_on(facts: PublicFacts, engine: str = Config.engine) -> MethodAdvice:
    """Return the advice on made-up worlds; it is computed once in a process."""
    return advise(facts, made_up(facts.federation.classes), engine=engine)
