"""The check of a whole grid before anything runs: data, deals and privacy plans."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import NamedTuple

from fedcal.core import checks, errors
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset
from fedcal.experiments.runs import jobs, load
from fedcal.experiments.runs.comparison.grid import Cell, Grid
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.statement import large_delta
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import exact_only, settings_of
from fedcal.strategies.warnings import underpowered

_TOGETHER = ("epsilon", "unit", "trust", "mechanism")
"""Options that do not all go together; a value of one must go with some value of the others."""


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
    one: each run is done, and counted, once. A budget, unit, trust and mechanism that do not go
    together, or not with a method, are left out, as long as each value that was asked for is in
    some cell.

    Raises
    ------
    InputError
        What any run would refuse: data without a test part or natural clients, a parameter, a
        number of rounds that a method does not have, a budget, unit, trust or mechanism that goes
        with nothing else in the grid.

    Warns
    -----
    UserWarning
        Where a delta is too large, once for each; where something is left out.
    """

    @cache
    def dealt(name: str, partition: str, clients: int | None) -> tuple[Shards, tuple[str, ...]]:
        _, shards, names = load.dealt_rows(sources[name], some, partition, clients, grid.seed)
        return shards, names

    some = grid.method[0].method  # all are of one family, and so about the same rows

    cells, warned = dict[str, Cell](), dict[str, None]()
    left_out, used = list[LeftOut](), set[tuple[str, object]]()
    idle = {k: v for k, v in grid.set.items() if k != "rows_per_client"}
    for cell in grid.drafts({name: data.test_scores is None for name, data in sources.items()}):
        c = cell.config
        shards, names = dealt(c.data, c.partition, c.clients)
        if not cell.variant.baseline:

            def made(
                config: Config, shards: Shards = shards, names: tuple[str, ...] = names
            ) -> Job:
                job = jobs.job_of(*jobs.resolved(config, shards, names))
                job.plan  # noqa: B018  making it refuses what is not allowed
                return job

            try:
                c, job = _with_effect(cell, made)
                plan = job.plan
            except errors.InputError as e:
                if not isinstance(e, errors.NoEffect) and not _goes_alone(c, made):
                    raise errors.InputError(f"{cell.name}: {e}") from None
                left_out.append((cell, str(e)))
                continue
            idle = {k: v for k, v in idle.items() if k not in c.set}
            used |= {(axis, getattr(c, axis)) for axis in _TOGETHER}
            used.add(("method", cell.variant.text))
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
    _refuse_unused(left_out, used)
    checks.unused("no run of this comparison reads it", **idle)
    if left_out:
        warned[_skipped(left_out)] = None
    for text in warned:
        warnings.warn(text, stacklevel=3)
    if few := [cell for cell in cells.values() if cell.little]:
        warnings.warn(_too_few(few), errors.TooLittle, stacklevel=3)
    return Resolved(list(cells.values()), left_out)


def _with_effect(cell: Cell, made: Callable[[Config], Job]) -> tuple[Config, Job]:
    """Return the cell's job, without the shared settings that have no effect in it.

    Raises NoEffect for a setting of the method's own, as in `fedbbq[clip_positive=1]`.
    """
    config = cell.config
    while True:
        try:
            return config, made(config)
        except errors.NoEffect as e:
            if e.name in cell.variant.settings:
                raise
            config = replace(config, set={k: v for k, v in config.set.items() if k != e.name})


def _goes_alone(config: Config, made: Callable[[Config], Job]) -> bool:
    """Return whether the run would exist with default unit, trust and mechanism, or no budget."""
    if config.method in exact_only():
        config = replace(config, epsilon=Config.epsilon)
    plain = replace(
        config, unit=Config.unit, trust=None, mechanism=Config.mechanism, quorum=Config.quorum
    )
    try:
        made(plain)
    except errors.InputError:
        return False
    return True


def _refuse_unused(left_out: Sequence[LeftOut], used: Collection[tuple[str, object]]) -> None:
    """Refuse a value that goes with nothing: the reason is that of the first cell that had it."""
    for axis in ("method", *_TOGETHER):
        for cell, why in left_out:
            asked = cell.variant.text if axis == "method" else getattr(cell.config, axis)
            if (axis, asked) not in used:
                raise errors.InputError(f"{cell.name}: {why}")


def _skipped(left_out: Sequence[LeftOut]) -> str:
    """Return how many combinations are skipped, and the first of them, in one line."""
    (first, why), count = left_out[0], len(left_out)
    some = "1 impossible combination is" if count == 1 else f"{count} impossible combinations are"
    facts = ", ".join(first.protection)
    return f"{some} skipped, the first {first.variant.label} with {facts}: {why}"


def _too_few(cells: Sequence[Cell]) -> str:
    """Return how many lines have too little data to help, and the first of them."""
    some = "1 line is" if len(cells) == 1 else f"{len(cells)} lines are"
    return f"{some} unlikely to help, the first {cells[0].name}: {cells[0].little}"


def _meaning(cell: Cell) -> str:
    """Return a key that is equal for cells with the same run, spelt-out defaults included.

    The grid itself tells the spellings of a partition apart.
    """
    defaults = {k: p.default for k, p in settings_of(cell.config.method).items()}
    return repr(sorted(asdict(replace(cell.config, set={**defaults, **cell.config.set})).items()))
