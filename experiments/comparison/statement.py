"""What a comparison gives away, in whole sentences."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from fedcal.experiments.comparison.grid import Cell
from fedcal.experiments.comparison.resolve import LeftOut
from fedcal.experiments.statement import sentences
from fedcal.privacy.federation import QUORUM
from fedcal.strategies.settings import settings_of
from fedcal.trust import TRUSTS
from fedcal.units import UNITS


class Spent(NamedTuple):
    """What some private runs over the same units add up to."""

    runs: int
    epsilon: float
    delta: float


def spent(cells: Sequence[Cell], data: str, unit: str) -> list[Spent]:
    """Basic composition (Dwork et al. 2006) over all private runs on one data set.

    Budgets add up where the protected units are the same: over all runs for natural clients (and
    for single rows), but only within a seed where a partition deals rows to clients, since a
    client of one deal, or a client's subject, is nobody in another. There is one entry for each
    set of units.
    """
    groups: dict[tuple[object, ...], Spent] = {}
    for cell in cells:
        c = cell.config
        if c.data != data or c.unit != unit or math.isinf(c.epsilon) or cell.variant.baseline:
            continue
        for seed in cell.seeds:
            dealt = UNITS[unit].per != "row" and c.partition != "natural"
            key = (c.partition, c.clients, seed) if dealt else ()
            before = groups.get(key, Spent(0, 0.0, 0.0))
            delta = before.delta + cell.delta
            groups[key] = Spent(before.runs + 1, before.epsilon + c.epsilon, delta)
    return list(groups.values())


def statement(
    cells: Sequence[Cell], held_out: Mapping[str, bool], left_out: Sequence[LeftOut] = ()
) -> list[str]:
    """What reading the table means.

    Parameters
    ----------
    cells : resolved
    held_out : name of the data -> whether its test rows are held out by seed
    left_out : combinations of the grid that cannot be
    """
    fitted = [c for c in cells if not c.variant.baseline]
    private = [c for c in fitted if math.isfinite(c.config.epsilon)]
    said = [sentences.CHOOSING_AMONG_RUNS, sentences.TEST_ROWS]
    said += [sentences.HELD_OUT_OF_RUNS.format(name) for name, held in held_out.items() if held]
    if private:
        said += _guarantees(private)
        seeded = private[0].config.noise_source == "seeded"
        said += [
            sentences.SEEDED_OF_RUNS if seeded else sentences.SYSTEM_OF_RUNS,
            *_composed(cells),
        ]
        said += _several_units({c.config.unit for c in private})
    looked = dict.fromkeys(c.config.data for c in private if _looks(c))
    if looked:
        said.append(sentences.ROWS_PER_CLIENT_OF_RUNS.format(", ".join(looked)))
    exact = len(cells) - len(private)
    if exact:
        lines = "1 line of the table is" if exact == 1 else f"{exact} lines of the table are"
        said.append(f"{lines} without privacy: no epsilon bounds what those runs give away.")
    if len(fitted) > len(private) and any(
        TRUSTS[str(c.config.trust)].noise_by != "server" for c in private
    ):
        said.append(sentences.EXACT_ONCE)
    said += dict.fromkeys(f"{c.variant.label}: {c.little}." for c in cells if c.little)
    return said + _not_there(left_out)


def _several_units(there: Collection[str]) -> list[str]:
    """What budgets of one unit mean for another, a sentence for each two."""
    units = [unit for name, unit in UNITS.items() if name in there]
    return [
        sentences.BOTH_UNITS.format(
            small=small.name,
            large=large.name,
            one=_one(small.name),
            all=_one(large.name),
            many=small.plural,
        )
        for large, small in combinations(units, 2)
    ]


def _one(unit: str) -> str:
    return UNITS[unit].plural.removesuffix("s")


def _guarantees(private: Sequence[Cell]) -> list[str]:
    """Each guarantee that lines of the table have, in a sentence, and the noise behind it."""
    kinds: dict[tuple[str, str, str, bool], dict[str, None]] = {}
    for cell in private:
        c, plan = cell.config, cell.plan
        if plan is not None:
            masks = c.secure_aggregation == "masks"
            key = (plan.trust, plan.unit, plan.adjacency, masks)
            kinds.setdefault(key, {})[plan.mechanism] = None
    shared = (c.config.quorum for c in private if c.plan is not None and c.plan.model.shared)
    quorum = next(shared, QUORUM)
    return [
        f"{sentences.in_short(*key, quorum)} Noise: {', '.join(mechanisms)}."
        for key, mechanisms in kinds.items()
    ]


def _not_there(left_out: Sequence[LeftOut]) -> list[str]:
    """What was left out, and why, one sentence for each kind."""
    kinds: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}
    for cell, why in left_out:
        kinds.setdefault((why, cell.protection), {})[cell.variant.label] = None
    return [
        f"Left out: {', '.join(labels)} with {', '.join(facts)}: {why}."
        for (why, facts), labels in kinds.items()
    ]


def _looks(cell: Cell) -> bool:
    """Whether its noise scales follow from the number of fit rows."""
    name = "rows_per_client"
    if cell.plan is not None and not sentences.sets_noise(cell.plan):
        return False
    return name in settings_of(cell.config.method) and name not in cell.config.set


def _composed(cells: Sequence[Cell]) -> Iterator[str]:
    for data in dict.fromkeys(c.config.data for c in cells):
        for unit in dict.fromkeys(c.config.unit for c in cells if c.config.data == data):
            groups = spent(cells, data, unit)
            if not groups:
                continue
            most = max(groups, key=lambda g: (g.epsilon, g.delta))
            runs = sum(g.runs for g in groups)
            sums = f"epsilon = {most.epsilon:.4g}, delta = {min(1.0, most.delta):.3g}"
            who = f"each {_one(unit)}"
            if len(groups) == 1:
                yield f"Published together, all private runs on {data} spend {sums} for {who}."
            else:
                yield (
                    f"Published together, the private runs on {data} that share a deal of the "
                    "rows (seed, partition, number of clients) spend up to "
                    f"{sums} for {who}. There are {runs} private runs in {len(groups)} deals; "
                    "these sums do not cover who has rows in several deals."
                )
