"""What a comparison gives away, in whole sentences."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from fedcal import trust, units
from fedcal.experiments.report.families import family_of
from fedcal.experiments.runs.comparison.grid import Cell
from fedcal.experiments.runs.comparison.resolve import LeftOut
from fedcal.experiments.runs.statement import sentences
from fedcal.strategies.settings import settings_of

_NOISE_SOURCES = {
    "seeded": "Noise follows from the seed, and runs may share it: this is a simulation and gives "
    "no protection. The following is for the same runs, each with its own secret noise.",
    "system": "Noise comes from the operating system's generator: the same comparison again gives "
    "other numbers. What follows counts all runs as published.",
}


class Spent(NamedTuple):
    """Total budget of several private runs over the same units."""

    runs: int
    epsilon: float
    delta: float


def spent(cells: Sequence[Cell], data: str, unit: str) -> list[Spent]:
    """Compose the budgets of all private runs on a data set (basic composition, Dwork et al. 2006).

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
            dealt = units.UNITS[unit].per != "row" and c.partition != "natural"
            key = (c.partition, c.clients, seed) if dealt else ()
            before = groups.get(key, Spent(0, 0.0, 0.0))
            delta = before.delta + cell.delta
            groups[key] = Spent(before.runs + 1, before.epsilon + c.epsilon, delta)
    return list(groups.values())


def statement(
    cells: Sequence[Cell], held_out: Mapping[str, bool], left_out: Sequence[LeftOut] = ()
) -> list[str]:
    """Return sentences on the privacy cost of reading the table.

    Parameters
    ----------
    cells
        resolved
    held_out
        name of the data -> whether its test rows are held out by seed
    left_out
        combinations of the grid that cannot be
    """
    fitted = [c for c in cells if not c.variant.baseline]
    private = [c for c in fitted if math.isfinite(c.config.epsilon)]
    family = family_of(c.variant.method for c in cells).name
    lines = [
        "Choosing among methods, settings or budgets by their results on private rows is itself "
        "a release, and no run's epsilon covers it: choose on public or simulated data."
    ]
    if family != "evaluate":
        noun = "thresholds" if family == "conformal" else "calibrator"
        lines += sentences.of_tests(True, "shown", noun)
    lines += [
        f"The test rows of {name} are held out of the same clients' rows: every number in the "
        "table is an exact function of private rows."
        for name, held in held_out.items()
        if held and family != "evaluate"
    ]
    if private:
        lines += _guarantees(private)
        lines.append(_NOISE_SOURCES[private[0].config.noise_source])
        lines += [*_composed(cells), *_several_units({c.config.unit for c in private})]
    looked = dict.fromkeys(c.config.data for c in private if _looks(c))
    if looked:
        lines.append(
            f"Of {', '.join(looked)} the number of fit rows can be read from the noise scales, and "
            "is taken as public: where rows_per_client is not set, it is rows / clients of the "
            "simulated data. A deployment must choose it without looking (--set "
            "rows_per_client=...)."
        )
    exact = len(cells) - len(private)
    if exact:
        lines.append(
            f"Lines of the table without privacy: {exact}. No epsilon bounds what those runs give "
            "away."
        )
    trusts = {str(c.config.trust) for c in private}
    if len(fitted) > len(private) and any(trust.TRUSTS[t].noise_by != "server" for t in trusts):
        lines.append(
            "Without privacy (epsilon inf) no party adds noise: those runs occur once, under "
            "trust secagg, for all units, trusts and mechanisms."
        )
    lines += dict.fromkeys(f"{c.variant.label}: {c.little}." for c in cells if c.little)
    kinds: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}
    for cell, why in left_out:
        kinds.setdefault((why, cell.protection), {})[cell.variant.label] = None
    return lines + [
        f"Skipped: {', '.join(labels)} with {', '.join(facts)}: {why}."
        for (why, facts), labels in kinds.items()
    ]


def _several_units(there: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each two units on how their budgets relate."""
    for large, small in combinations([u for name, u in units.UNITS.items() if name in there], 2):
        yield (
            f"What is spent for each {small.name} counts runs of unit {small.name} only: runs of "
            f"unit {large.name} come on top, each with at most twice its epsilon and 1 + e^epsilon "
            f"times its delta. For each {large.name} runs of unit {small.name} have no bound but "
            f"their epsilon times its number of {small.plural}, and more delta still."
        )


def _guarantees(private: Sequence[Cell]) -> list[str]:
    """Each guarantee that lines of the table have, in a sentence, and the noise behind it."""
    kinds: dict[tuple[str, str, str, str, float, int], dict[str, None]] = {}
    for cell in private:
        c, plan = cell.config, cell.plan
        if plan is not None:
            how = c.secure_aggregation or "none"
            key = (plan.trust, plan.unit, plan.adjacency, how, c.quorum, plan.federation.colluding)
            kinds.setdefault(key, {})[plan.mechanism.name] = None
    return [
        f"{sentences.in_short(*key)} Noise: {', '.join(mechanisms)}."
        for key, mechanisms in kinds.items()
    ]


def _looks(cell: Cell) -> bool:
    """Return whether a cell's noise scales follow from the number of fit rows."""
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
            sums = f"epsilon = {most.epsilon:.4g}, delta = {min(1.0, most.delta):.3g}"
            if len(groups) == 1:
                yield (
                    f"Published together, all private runs on {data} spend {sums} for each {unit}."
                )
            else:
                yield (
                    f"Published together, the private runs on {data} that share a deal of the "
                    f"rows (seed, partition, number of clients) spend up to {sums} for each "
                    f"{unit}. There are {sum(g.runs for g in groups)} private runs in "
                    f"{len(groups)} deals; these sums do not cover a person with rows in several "
                    "deals."
                )
