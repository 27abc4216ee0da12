"""The check of a whole grid before anything runs: data, deals and privacy plans."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from experiments.comparison.grid import Cell, Grid
from experiments.config import Config, settings_of
from experiments.statement import large_delta
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.partition import deal
from fedcal.privacy.plan import Federation, Plan
from fedcal.shards import Shards
from strategies.job import Job


def resolve(grid: Grid, sources: Mapping[str, Dataset]) -> list[Cell]:
    """Every cell with the values that its runs will have: clients, rounds, trust.

    Raises
    ------
    InputError
        What any run would refuse: data without a test part or natural clients, a parameter, a
        number of rounds or a trust that a method does not have.

    Warns
    -----
    UserWarning
        Where a delta is too large, once for each.
    """

    @cache
    def dealt(data: str, partition: str, clients: int | None) -> Shards:
        return deal(sources[data].split(grid.seed), partition, clients, grid.seed)

    cells, warned = [], dict[str, None]()
    for cell in grid.drafts({name: data.test_scores is None for name, data in sources.items()}):
        c = cell.config
        shards = dealt(c.data, c.partition, c.clients)
        if not cell.variant.baseline:
            try:
                plan = _plan(c, shards)
            except InputError as e:
                raise InputError(f"{cell.name}: {e}") from None
            rounds = plan.rounds - plan.counting_rounds
            known = replace(c, clients=plan.clients, rounds=rounds, trust=plan.trust)
            cell = replace(cell, config=known, delta=plan.delta)
            if plan.private and plan.delta >= 1 / plan.clients:
                warned[large_delta(plan)] = None
        cells.append(cell)
    for text in warned:
        warnings.warn(text, stacklevel=3)
    return cells


def _plan(c: Config, shards: Shards) -> Plan:
    federation = Federation(
        clients=shards.clients,
        classes=shards.logits.shape[1],
        rounds=c.rounds,
        sampling_rate=c.sampling_rate,
        epsilon=c.epsilon,
        delta=c.delta,
        unit=c.unit,
        trust=c.trust,
        seed=c.seed,
    )
    settings = dict(c.set)
    if "rows_per_client" in settings_of(c.method) and federation.private:
        settings.setdefault("rows_per_client", len(shards.labels) / shards.clients)
    return Job(c.method, federation, settings, c.secure_aggregation, c.dropout).plan
