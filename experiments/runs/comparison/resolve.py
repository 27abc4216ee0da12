"""The check of a whole grid before anything runs: data, deals and privacy plans."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import NamedTuple

from fedcal import partition
from fedcal.core import checks
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset
from fedcal.experiments.runs import jobs, load
from fedcal.experiments.runs.comparison.grid import AXES, Cell, Grid
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.statement import large_delta
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import settings_of
from fedcal.strategies.warnings import underpowered

LeftOut = tuple[Cell, str]
"""A cell that cannot be, and why."""


class Resolved(NamedTuple):
    """Cells that will be run, and impossible combinations of the grid that are skipped."""

    cells: list[Cell]
    left_out: list[LeftOut]


def resolve(grid: Grid, sources: Mapping[str, Dataset]) -> Resolved:
    """Every cell with the values that its runs will have: clients, rounds, trust, delta.

    A setting for all methods is left to those runs that it does something in. Cells whose runs
    would be the same (two values of delta, and a method that spends none) are
    one: each run is done, and counted, once. Combinations that cannot be are left out, as long as
    each value that was asked for is in some cell.

    Raises
    ------
    InputError
        Data without a test part or natural clients, and what any run would refuse because of a
        value that goes with nothing else in the grid: a number of rounds that a method does not
        have, a parameter, a budget, unit, trust or mechanism.

    Warns
    -----
    UserWarning
        Where a delta is too large, once for each; where something is left out.
    """

    @cache
    def dealt(name: str, partition: str, clients: int | None) -> tuple[Shards, tuple[str, ...]]:
        _, shards, names = load.dealt_rows(sources[name], some, partition, clients, grid.seed)
        return shards, names

    some = grid.variants[0].method  # all are of one family, and so about the same rows

    cells, warned = dict[str, Cell](), dict[str, None]()
    left_out, used = list[LeftOut](), set[tuple[str, object]]()
    idle = {**grid.set, "quorum": None if grid.quorum == Config.quorum else grid.quorum}
    read = {"rows_per_client"}
    for cell in grid.drafts({name: data.test_scores is None for name, data in sources.items()}):
        c = cell.config
        shards, names = dealt(c.data, c.partition, c.clients)
        if not cell.variant.baseline:
            try:
                c, job = _with_effect(cell, shards, names)
            except checks.InputError as e:
                left_out.append((cell, str(e)))
                continue
            plan = job.plan
            read |= {*c.set} if c.quorum == Config.quorum else {*c.set, "quorum"}
            used |= _asked(cell)
            little = "".join(underpowered(c.method, shards, job))
            known = replace(  # what the job resolved, but for the method's parameters
                c,
                clients=plan.clients,
                rounds=plan.rounds - plan.counting_rounds,
                trust=plan.trust,
                delta=plan.delta,
                mechanism=plan.mechanism.name if plan.private else Config.mechanism,
                secure_aggregation=job.secure_aggregation,
            )
            cell = replace(cell, config=known, delta=plan.delta, plan=plan, little=little)
            if plan.private and plan.delta >= 1 / plan.clients:
                warned[large_delta(plan)] = None
        elif cell.variant.dealt:
            cell = replace(cell, config=replace(c, clients=shards.clients))
        cells.setdefault(_meaning(cell), cell)
    for cell, why in left_out:
        if not _asked(cell) <= used:
            raise checks.InputError(f"{cell.name}: {why}")
    unread = {name: value for name, value in idle.items() if name not in read}
    checks.unused("no run of this comparison reads it", **unread)
    if left_out:
        first, why = left_out[0]
        facts = f"{first.variant.label} with {', '.join(first.protection)}: {why}"
        warned[f"impossible combinations are skipped ({len(left_out)}), the first {facts}"] = None
    for text in warned:
        warnings.warn(text, stacklevel=3)
    if few := [cell for cell in cells.values() if cell.little]:
        text = f"lines are unlikely to help ({len(few)}), the first {few[0].name}: {few[0].little}"
        warnings.warn(text, checks.TooLittle, stacklevel=3)
    return Resolved(list(cells.values()), left_out)


def _with_effect(cell: Cell, shards: Shards, names: tuple[str, ...]) -> tuple[Config, Job]:
    """Return the cell's job, without the shared settings that have no effect in it.

    Raises InputError for what is not allowed, and for a setting of the method's own that has no
    effect, as in `fedbbq[clip_positive=1]`.
    """
    config = cell.config
    while True:
        try:
            job = jobs.job_of(*jobs.resolved(config, shards, names))
            job.plan  # noqa: B018  making it refuses what is not allowed
        except checks.NoEffect as e:
            if e.name in cell.variant.settings or e.name not in config.set:
                raise
            config = replace(config, set={k: v for k, v in config.set.items() if k != e.name})
        else:
            return config, job


def _asked(cell: Cell) -> set[tuple[str, object]]:
    """Return the values of the axes that a cell has."""
    return {(axis, getattr(cell.config, axis)) for axis in AXES} | {("method", cell.variant.text)}


def _meaning(cell: Cell) -> str:
    """Return a key that is equal for cells with the same run, however they are spelt."""
    defaults = {k: p.default for k, p in settings_of(cell.config.method).items()}
    plain = asdict(replace(cell.config, set={**defaults, **cell.config.set}))
    return repr(sorted((plain | {"partition": partition.parse(cell.config.partition)}).items()))
