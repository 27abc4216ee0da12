"""`--check`: where a result is not what ships, and a verdict not what is expected, a line each.

The same seeds give the same numbers on one machine with one set of versions. Elsewhere the last
digits may differ, so each number has a tolerance far below its spread over seeds. Values are kept
by seed: a run with fewer seeds is checked by those that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from fedcal.errors import InputError
from fedcal.experiments.reproduce.cells import METRICS, Score, spread, whole
from fedcal.experiments.reproduce.claims import Verdict
from fedcal.experiments.reproduce.registry import SEEDS, WORDS
from fedcal.experiments.reproduce.result import Reproduction
from fedcal.experiments.reproduce.spec import (
    EVERYWHERE,
    Experiment,
    GridExperiment,
    Rows,
    RowsExperiment,
)

Key: TypeAlias = tuple[str, ...]


def deviations(result: Reproduction, expected: Reproduction) -> list[str]:
    """Where a result is not what was expected, a line each.

    Networks of the user's are not checked, nor are those that were not run.
    """
    here: Mapping[Key, Any]
    known: Mapping[Key, Any]
    differ: Callable[[Any, Any], Iterator[str]] = _score_differs
    if isinstance(result.experiment, RowsExperiment):
        here, known = (checked_rows(result.experiment, r.rows) for r in (result, expected))
        differ = _row_differs
    else:
        ran, shipped = ({c.network for c in r.cells} for r in (result, expected))
        here = {c.key: c for c in whole(result.cells) if c.network in shipped}
        known = {c.key: c for c in expected.cells if c.network in ran}
    lines: list[str] = []
    for key, then in known.items():
        said = differ(here[key], then) if key in here else ["no result"]
        lines += (f"{_name(key)}: {line}" for line in said)
    unknown = here.keys() - known.keys()
    return lines + [f"{_name(key)}: not among the expected results" for key in unknown]


def _name(key: Key) -> str:
    return ", ".join(filter(None, key))


def tolerance(metric: str, values: Sequence[float]) -> float:
    """A tenth of the spread over seeds, and a little of the value itself."""
    share = 0.01 if metric == "classwise_ece" else 0.001
    return 0.1 * spread(values) + share * sum(values) / len(values)


def _score_differs(now: Score, then: Score) -> Iterator[str]:
    for metric, words in METRICS.items():
        was, is_ = getattr(then, metric), getattr(now, metric)
        seeds = min(len(was), len(is_))
        before, after = (100 * sum(values[:seeds]) / seeds for values in (was, is_))
        allowed = 100 * tolerance(metric, was)
        if not abs(after - before) <= allowed:
            yield f"{words} {after:.3f} %, expected {before:.3f} % (tolerance {allowed:.3f})"


def checked_rows(experiment: RowsExperiment, rows: Rows) -> dict[Key, dict[str, Any]]:
    """Key -> checked values and their tolerance, of each row of each table.

    Raises
    ------
    InputError
        Nothing tells two rows of a table apart.
    """
    found: dict[Key, dict[str, Any]] = {}
    for table in experiment.tables:
        names = [f.key for f in table.fields if f.digits is None and f.tolerance is None]
        checked = [f for f in table.fields if f.tolerance is not None and table.checked]
        for row in table.select(rows) if checked else ():
            key = (table.title, *(str(row.get(k)) for k in names))
            if key in found:
                raise InputError(f"{experiment.name}: two rows are called {_name(key[1:])}")
            found[key] = {f.key: (row.get(f.key), f.tolerance) for f in checked}
    return found


def _row_differs(now: Mapping[str, Any], then: Mapping[str, Any]) -> Iterator[str]:
    for field, (was, allowed) in then.items():
        if not _near(now[field][0], was, allowed):
            yield f"{field} {now[field][0]!r}, expected {was!r}"


def _near(now: Any, then: Any, allowed: float) -> bool:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (now, then))
    return abs(now - then) <= allowed * abs(then) if numbers else bool(now == then)


# -- verdicts ------------------------------------------------------------------------------------


def wrong_verdicts(result: Reproduction) -> list[str]:
    """A line for each verdict that is not as expected, and for each that one side alone knows.

    Networks of the user's are not checked, nor those that were not run.
    """
    found = result.experiment
    own = found.networks if isinstance(found, GridExperiment) else ()
    networks = {cell.network for cell in result.cells} & {*own}
    claimed = [v.key for v in result.verdicts]
    lines = [
        f"{key}: expected, but not claimed"
        for key in sorted(found.expected)
        if not any(fnmatchcase(claim, key) for claim in claimed)
    ]
    for verdict in result.verdicts:
        words = expected_of(found, verdict.key)
        if words:
            lines += _of_claim(verdict, words, networks)
        elif verdict.places:
            lines.append(f"{verdict.key}: no verdict is expected; its study file should say one")
    return lines


def expected_of(experiment: Experiment, claim: str) -> Mapping[str, str]:
    """Line of the table -> what is expected of a claim there."""
    patterns = (key for key in experiment.expected if fnmatchcase(claim, key))
    return experiment.expected.get(next(patterns, ""), {})


def unsure(experiment: Experiment, verdict: Verdict) -> list[str]:
    """Lines where the seeds of the noise decide."""
    words = expected_of(experiment, verdict.key)
    return [p for p in verdict.places if words.get(p, words.get(EVERYWHERE)) == SEEDS]


def _of_claim(verdict: Verdict, words: Mapping[str, str], networks: set[str]) -> Iterator[str]:
    for place, holds in verdict.places.items():
        word = words.get(place, words.get(EVERYWHERE))
        known = place == EVERYWHERE or _network(place) in networks
        if known and word not in (SEEDS, WORDS[holds]):
            yield f"{place}: {WORDS[holds]}, expected: {word}. {verdict.text}"
    for place in words.keys() - verdict.places.keys() - {EVERYWHERE}:
        if _network(place) in networks:
            yield f"{place}: no verdict, expected: {words[place]}. {verdict.text}"


def _network(place: str) -> str:
    return place.partition(",")[0]


def enough_seeds(result: Reproduction) -> bool:
    """Whether means are over as many seeds as the verdicts speak of."""
    found = result.experiment
    if not isinstance(found, GridExperiment):
        return True
    return max((len(c.classwise_ece) for c in result.cells), default=0) >= found.seeds
