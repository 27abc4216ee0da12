"""What a comparison gives away: facts for the template of statements."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

from fedcal import trust, units
from fedcal.results.families import family_of
from fedcal.results.statement import sets_noise, told
from fedcal.run.comparison.grid import Cell, LeftOut
from fedcal.strategies.settings import settings_of


def composed(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Compose the budgets of all private runs on the same data (basic composition, Dwork 2006).

    Budgets add up where the protected units are the same: over all runs for natural clients (and
    for single rows), but only within a seed where a partition deals rows to clients, since a
    client of one deal, or a client's subject, is nobody in another.

    Returns
    -------
    list of dict
        For each data set and unit what the runs of the costliest deal spend (`epsilon`,
        `delta`), and the numbers of `deals` and `runs`.
    """
    totals: dict[tuple[str, str], dict[tuple[object, ...], tuple[float, float, int]]] = {}
    for cell in cells:
        c = cell.config
        if math.isinf(c.epsilon) or cell.variant.baseline:
            continue
        deals = totals.setdefault((c.data, c.unit), {})
        dealt = units.UNITS[c.unit].per != "row" and c.partition != "natural"
        for seed in cell.seeds:
            key = (c.partition, c.clients, seed) if dealt else ()
            epsilon, delta, runs = deals.get(key, (0.0, 0.0, 0))
            deals[key] = (epsilon + c.epsilon, delta + c.delta, runs + 1)
    found = []
    for (data, unit), deals in totals.items():
        epsilon, delta, _ = max(deals.values())
        one = {"data": data, "unit": unit, "epsilon": epsilon, "delta": min(1.0, delta)}
        found.append({**one, "deals": len(deals), "runs": sum(runs for *_, runs in deals.values())})
    return found


class Trusted(NamedTuple):
    """What decides against whom a guarantee holds."""

    model: trust.Trust
    secure_aggregation: str
    quorum: float
    colluding: int


def statement(
    cells: Sequence[Cell], held_out: Sequence[str], left_out: Sequence[LeftOut] = ()
) -> dict[str, list[str]]:
    """Return sentences on the privacy cost of reading the table: `statement`, at most six, `more`.

    Parameters
    ----------
    cells
        resolved
    held_out
        names of data whose test rows are held out by seed
    left_out
        combinations of the grid that cannot be
    """
    fitted = [c for c in cells if not c.variant.baseline]
    private = [c for c in fitted if math.isfinite(c.config.epsilon)]
    guarantees: dict[Trusted, dict[str, None]] = {}
    for cell in private:
        if (plan := cell.plan) is not None:
            how, quorum = cell.config.secure_aggregation or "none", cell.config.quorum
            trusted = Trusted(plan.model, how, quorum, plan.federation.colluding)
            changed = f"{plan.protected.neighbours[plan.adjacency]} (unit {plan.unit})"
            guarantees.setdefault(trusted, {})[changed] = None
    family = family_of(c.variant.method for c in cells).name
    there = [
        unit for name, unit in units.UNITS.items() if any(c.config.unit == name for c in private)
    ]
    found = told(
        kind="comparison",
        noun={"evaluate": "", "conformal": "thresholds"}.get(family, "calibrator"),
        held_out=held_out,
        guarantees=guarantees,
        mechanisms=dict.fromkeys(c.plan.mechanism.name for c in private if c.plan is not None),
        noise_source=private[0].config.noise_source if private else "",
        more_delta=" and more delta" if any(c.config.delta for c in private) else "",
        composed=composed(cells),
        looked=list(dict.fromkeys(c.config.data for c in private if _looks(c))),
        exact=len(cells) - len(private),
        units=there,
        pairs=list(combinations(there, 2)),
        once=len(fitted) > len(private) and any(t.model.noise_by == "client" for t in guarantees),
    )
    found["more"] += dict.fromkeys(f"{c.variant.label}: {c.little}." for c in cells if c.little)
    kinds: dict[str, dict[str, None]] = {}
    for cell, why in left_out:
        told_of = f"with {', '.join(cell.protection)}: {why}."
        kinds.setdefault(told_of, {})[cell.variant.label] = None
    found["more"] += [f"Skipped: {', '.join(labels)} {why}" for why, labels in kinds.items()]
    return found


def _looks(cell: Cell) -> bool:
    """Return whether a cell's noise scales follow from the number of fit rows."""
    name = "rows_per_client"
    if cell.plan is not None and not sets_noise(cell.plan):
        return False
    return name in settings_of(cell.config.method) and name not in cell.config.set
