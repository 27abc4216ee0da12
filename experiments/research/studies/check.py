"""`--check`: where a result is not what ships, and a verdict not what is expected, a line each.

The same seeds give the same numbers on one machine with one set of versions. Elsewhere the last
digits may differ, so each number has a tolerance far below its spread over seeds. Values are kept
by seed: a run with fewer seeds is checked by those that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from fedcal.core.checks import InputError
from fedcal.experiments.research.studies.cells import METRICS, SETTINGS, spread, whole
from fedcal.experiments.research.studies.claims import Verdict
from fedcal.experiments.research.studies.registry import SEEDS, WORDS
from fedcal.experiments.research.studies.result import Reproduction
from fedcal.experiments.research.studies.spec import (
    EVERYWHERE,
    NO_DIFFERENCE,
    NOT_TOLD,
    Experiment,
    Rows,
)

Key: TypeAlias = tuple[str, ...]
Values: TypeAlias = Mapping[str, tuple[Any, float]]
"""Key of a row -> its value, or its values over seeds, and the tolerance."""


def deviations(result: Reproduction, expected: Reproduction) -> list[str]:
    """List each difference between a result and the expected one, a line each.

    Networks of the user's are not checked, nor are those that were not run.
    """
    here, known = (checked(r.experiment, r.rows) for r in (result, expected))
    if result.experiment.parts:
        ran, shipped = ({row["network"] for row in r.rows} for r in (result, expected))
        here = {key: values for key, values in here.items() if key[0] in shipped}
        known = {key: values for key, values in known.items() if key[0] in ran}
    lines: list[str] = []
    for key, then in known.items():
        found = _differs(here[key], then) if key in here else ["no result"]
        lines += (f"{_name(key)}: {line}" for line in found)
    unknown = here.keys() - known.keys()
    return lines + [f"{_name(key)}: not among the expected results" for key in unknown]


def _name(key: Key) -> str:
    return ", ".join(filter(None, key))


def tolerance(metric: str, values: Sequence[float]) -> float:
    """Return a tenth of the spread over seeds, plus a small share of the value itself."""
    share = 0.01 if metric == "classwise_ece" else 0.001
    return 0.1 * spread(values) + share * sum(values) / len(values)


def checked(experiment: Experiment, rows: Rows) -> dict[Key, Values]:
    """Return the checked values of each row of a grid, or of each row of each table.

    Raises
    ------
    InputError
        Nothing tells two rows of a table apart.
    """
    found: dict[Key, Values] = {}
    for row in whole(rows) if experiment.parts else ():
        place = ("network", "part", "title", *(() if row["baseline"] else SETTINGS))
        key = tuple("" if row[k] is None else str(row[k]) for k in place)
        found[key] = {metric: (row[metric], tolerance(metric, row[metric])) for metric in METRICS}
    for table in experiment.tables:
        names = [f.key for f in table.fields if f.digits is None and f.tolerance is None]
        numbers = {f.key: f.tolerance for f in table.fields if f.tolerance is not None}
        for row in filter(table.has, rows) if numbers and table.checked else ():
            key = (table.title, *(str(row.get(k)) for k in names))
            if key in found:
                raise InputError(f"{experiment.name}: two rows are called {_name(key[1:])}")
            found[key] = {k: (row.get(k), allowed) for k, allowed in numbers.items()}
    return found


def _differs(now: Values, then: Values) -> Iterator[str]:
    for key, (was, allowed) in then.items():
        value = now[key][0]
        if isinstance(was, list):  # over seeds
            seeds = min(len(was), len(value))
            before, after = (100 * sum(values[:seeds]) / seeds for values in (was, value))
            if not abs(after - before) <= 100 * allowed:
                words = f"{METRICS[key]} {after:.3f} %, expected {before:.3f} %"
                yield f"{words} (tolerance {100 * allowed:.3f})"
        elif not _near(value, was, allowed):
            yield f"{key} {value!r}, expected {was!r}"


def _near(now: Any, then: Any, allowed: float) -> bool:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (now, then))
    return abs(now - then) <= allowed * abs(then) if numbers else bool(now == then)


# -- verdicts ------------------------------------------------------------------------------------


def wrong_verdicts(result: Reproduction) -> list[str]:
    """List each verdict that is not as expected, and each that only one side has.

    Networks of the user's are not checked, nor those that were not run.
    """
    found, claimed = result.experiment, [v.key for v in result.verdicts]
    networks = {row.get("network") for row in result.rows} & {*found.networks}
    lines = [
        f"{key}: expected, but not claimed"
        for key in sorted(found.expected)
        if not any(fnmatchcase(claim, key) for claim in claimed)
    ]
    for verdict in result.verdicts:
        words = expected_of(found, verdict.key)
        if verdict.places and not words:
            lines.append(f"{verdict.key}: no verdict is expected; its study file should say one")
        for place in dict.fromkeys((*verdict.places, *words) if words else ()):
            holds, word = verdict.places.get(place), words.get(place, words.get(EVERYWHERE))
            everywhere = place in verdict.places or not found.parts
            known = everywhere if place == EVERYWHERE else _network(place) in networks
            none = NO_DIFFERENCE if place in verdict.places else NOT_TOLD
            allowed = (none if holds is None else WORDS[holds], SEEDS)
            if known and word not in allowed:
                lines.append(f"{place}: {allowed[0]}, expected: {word}. {verdict.text}")
    return lines


def expected_of(experiment: Experiment, claim: str) -> Mapping[str, str]:
    """Line of the table -> what is expected of a claim there."""
    patterns = (key for key in experiment.expected if fnmatchcase(claim, key))
    return experiment.expected.get(next(patterns, ""), {})


def unsure(experiment: Experiment, verdict: Verdict) -> list[str]:
    """Lines where the seeds of the noise decide."""
    words = expected_of(experiment, verdict.key)
    return [p for p in verdict.places if words.get(p, words.get(EVERYWHERE)) == SEEDS]


def _network(place: str) -> str:
    return place.partition(",")[0]


def enough_seeds(result: Reproduction) -> bool:
    """Return True if means are over as many seeds as the verdicts assume."""
    seeds = (len(row["classwise_ece"]) for row in result.rows if result.experiment.parts)
    return max(seeds, default=0) >= result.experiment.seeds
