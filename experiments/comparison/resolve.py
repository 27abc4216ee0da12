"""The check of a whole grid before anything runs: data, deals and privacy plans."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache

from experiments.comparison.grid import Cell, Grid
from experiments.config import job_of
from experiments.statement import large_delta
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.partition import deal
from fedcal.shards import Shards
from strategies.job import settings_of


def resolve(grid: Grid, sources: Mapping[str, Dataset]) -> list[Cell]:
    """Every cell with the values that its runs will have: clients, rounds, trust, delta.

    Cells whose runs would be the same (two values of delta, and a method that spends none) are
    one: each run is done, and counted, once.

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

    cells, warned = dict[str, Cell](), dict[str, None]()
    for cell in grid.drafts({name: data.test_scores is None for name, data in sources.items()}):
        c = cell.config
        shards = dealt(c.data, c.partition, c.clients)
        if not cell.variant.baseline:
            try:
                plan = job_of(c, shards).plan
            except InputError as e:
                raise InputError(f"{cell.name}: {e}") from None
            rounds = plan.rounds - plan.counting_rounds
            known = replace(
                c, clients=plan.clients, rounds=rounds, trust=plan.trust, delta=plan.delta
            )
            cell = replace(cell, config=known, delta=plan.delta)
            if plan.private and plan.delta >= 1 / plan.clients:
                warned[large_delta(plan)] = None
        cells.setdefault(_meaning(cell), cell)
    for text in warned:
        warnings.warn(text, stacklevel=3)
    return list(cells.values())


def _meaning(cell: Cell) -> str:
    """Equal for cells whose runs are the same: settings that are spelt-out defaults are no others.

    A partition's spellings are told apart by the grid.
    """
    defaults = {k: p.default for k, p in settings_of(cell.config.method).items()}
    return repr(sorted(asdict(replace(cell.config, set={**defaults, **cell.config.set})).items()))
