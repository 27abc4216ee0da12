"""What a run that evaluates a model reads: rows, groups, a second model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from fedcal.core.checks import listed, one_of
from fedcal.core.errors import InputError
from fedcal.core.printable import plain_names
from fedcal.core.shards import Population, Shards
from fedcal.evaluation.intervals.intervals import beyond
from fedcal.experiments.runs.config import Config
from fedcal.secure_aggregation.roster import Roster
from fedcal.storage.artifact import Holdout
from fedcal.storage.atomic import path_of
from fedcal.strategies import STRATEGIES
from fedcal.strategies.settings import settings_of
from fedcal.units import UNITS

Held = TypeVar("Held", bound=Population)

METHOD = "evaluate"

BY = ("none", "site", "group")
"""What rows are counted apart by: nothing, their client, or their column `group`."""


def evaluates(method: str) -> bool:
    """Return whether a method evaluates: clients then hold the evaluated rows."""
    return method in STRATEGIES and STRATEGIES[method].family == "evaluate"


def is_personal(method: str) -> bool:
    """Return whether a method serves recalibration at home: it knows sites by their names."""
    return method in STRATEGIES and STRATEGIES[method].family == "personal"


def _by_site(config: Config) -> bool:
    """Return whether rows are counted by site, with the sites still to be named."""
    groups = config.set.get("groups")
    if is_personal(config.method):
        hidden = math.isfinite(config.epsilon) and UNITS[config.unit].whole_client
        return groups in (None, "site") and not hidden
    return groups == "site" and evaluates(config.method)


def by_roster(config: Config) -> Config:
    """Return the config with sites named by the federation file; InputError without a file."""
    if not _by_site(config):
        return config
    if config.federation is None:
        raise InputError(f"{config.method} by site takes the sites' names from --federation")
    names = json.dumps([site.name for site in Roster.read(path_of(config.federation)).sites])
    by = {} if is_personal(config.method) else {"by": "site"}
    return replace(config, set={**config.set, "groups": names, **by})


def settings(
    by: str = "none", calibrator: str | Path | None = None, **others: Any
) -> dict[str, Any]:
    """Return the method's settings from the options of `evaluate`, without those not given."""
    one_of("by", by, BY)
    path = None if calibrator is None else str(path_of(calibrator).resolve())
    values = {"calibrator": path, "groups": None if by == "none" else by, **others}
    return {name: value for name, value in values.items() if value is not None}


def resolved(config: Config, rows: Held, names: tuple[str, ...]) -> tuple[Config, Held]:
    """Return config and rows with the settings of an evaluation resolved for these rows.

    `groups` "site" and "group" become the list of their names. Names that are no groups of the rows
    are those of clients, which then have them; for prediction sets a row's group is its client. A
    second model is evaluated where the rows have its scores, if no calibrator is given.

    Raises InputError for rows in blocks that are to be counted by client.
    """
    known, chosen = settings_of(config.method), dict(config.set)
    if not isinstance(rows, Shards) and (is_personal(config.method) or "site" in chosen.values()):
        raise InputError("rows in blocks are not told apart by client: leave out by site")
    shards = cast("Shards", rows)  # what is asked of rows in blocks, they have, too
    if is_personal(config.method):
        shards = replace(shards, names=names)
        chosen |= {"groups": "site"} if _by_site(config) else {}
    if shards.has_other and "other" in known and not {"calibrator", "only"} & chosen.keys():
        chosen.setdefault("other", True)
    asked: Any = chosen.get("groups", "")
    if "groups" not in known or not asked:
        return replace(config, set=chosen), cast("Held", shards)
    if asked == "group" and not shards.group_names:
        raise InputError("the data have no column group; --by site takes clients instead")
    parts = _listed(asked, shards.group_names if asked == "group" else names)
    chosen["groups"] = json.dumps(parts)
    by_site = "site" in (asked, chosen.get("by"))
    if by_site or set(parts) <= set(names) - set(shards.group_names):
        if evaluates(config.method):
            chosen["by"], shards = "site", replace(shards, names=names)
        elif not is_personal(config.method):
            shards = replace(shards, groups=shards.owner, group_names=names)
    return replace(config, set=chosen), cast("Held", shards)


def _listed(asked: Any, names: tuple[str, ...]) -> list[str]:
    if asked in BY:
        return list(names)
    parts = listed("groups", asked, f"names, or {' or '.join(BY[1:])}")
    return plain_names("groups", map(str, parts))


def about_groups(config: Config) -> list[str]:
    """Return sentences on names of groups that a private run took from its rows."""
    if config.set.get("groups") != "group" or not math.isfinite(config.epsilon):
        return []
    return [
        "The names of groups were read from the data: this reveals that each group has rows, "
        "which no epsilon covers. A deployment must list the groups without looking."
    ]


def about_intervals(result: Mapping[str, Any]) -> str:
    """Return sentences on what is counted, how many, and what the intervals cover and exclude.

    From the keys of `result.json`; "" if it has none.
    """
    if "estimand" not in result:
        return ""
    number = result.get("counted", {"value": None})
    about = result["weighting"].capitalize()
    if number["value"] is not None:
        noise = f" (noise of std {number['noise']:,.1f})" if number["noise"] else ""
        about += f": {number['value']:,.0f} {number['of']}{noise}"
    return f"{about}. Intervals are for {result['estimand']}.{beyond(result['intervals_exclude'])}"


def holdout(
    shards: Shards, names: tuple[str, ...], seed: int, class_names: tuple[str, ...] | None = None
) -> Holdout:
    """Return the evaluated rows, for exact numbers that a researcher sees beside the release."""
    rows = (shards.logits, shards.probs, shards.labels)
    return Holdout(*rows, seed, owner=shards.owner, names=names, class_names=class_names)
