"""Which claims are expected to hold where: `verdicts.toml`, kept by hand, held against a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedcal.checks import one_of
from fedcal.experiments.config import read_toml
from fedcal.experiments.reproduce.claims import EVERYWHERE, Verdict
from fedcal.experiments.reproduce.result import Reproduction
from fedcal.experiments.reproduce.spec import GridExperiment

FILE = Path(__file__).with_name("verdicts.toml")

WORDS = {True: "holds", False: "does not hold"}
SEEDS = "depends on seeds"
ALLOWED = (*WORDS.values(), SEEDS)

Expected = dict[str, dict[str, str]]
"""Key of a claim -> line of the table -> one of `ALLOWED`."""


def expected_verdicts(name: str) -> Expected:
    """What the file says of an experiment; a single word there is said of every line."""
    raw = read_toml(FILE).get(name, {})
    found = {k: v if isinstance(v, dict) else {EVERYWHERE: v} for k, v in raw.items()}
    for places in found.values():
        for word in places.values():
            one_of("verdict", word, ALLOWED)
    return found


def wrong_verdicts(result: Reproduction) -> list[str]:
    """A line for each verdict that is not as expected, and for each that one side alone knows.

    Networks of the user's are not checked, nor those that were not run.
    """
    expected = expected_verdicts(result.experiment.name)
    here = {v.key: v for v in result.verdicts}
    lines = [f"{key}: expected, but not claimed" for key in sorted(expected.keys() - here.keys())]
    for key, verdict in here.items():
        if key in expected:
            lines += _of_claim(verdict, expected[key], _networks(result))
        elif verdict.places:
            lines.append(f"{key}: no verdict is expected; {FILE.name} should say one")
    return lines


def unsure(verdict: Verdict, expected: Expected) -> list[str]:
    """Lines where the seeds of the noise decide."""
    words = expected.get(verdict.key, {})
    return [p for p in verdict.places if words.get(p, words.get(EVERYWHERE)) == SEEDS]


def _of_claim(verdict: Verdict, expected: dict[str, str], networks: set[str]) -> Iterator[str]:
    for place, holds in verdict.places.items():
        word = expected.get(place, expected.get(EVERYWHERE))
        known = place == EVERYWHERE or _network(place) in networks
        if known and word not in (SEEDS, WORDS[holds]):
            yield f"{place}: {WORDS[holds]}, expected: {word}. {verdict.text}"
    for place in expected.keys() - verdict.places.keys() - {EVERYWHERE}:
        if _network(place) in networks:
            yield f"{place}: not told, expected: {expected[place]}. {verdict.text}"


def _network(place: str) -> str:
    return place.partition(",")[0]


def _networks(result: Reproduction) -> set[str]:
    """The experiment's own networks that were run."""
    found = result.experiment
    own = found.networks if isinstance(found, GridExperiment) else ()
    return {cell.network for cell in result.cells} & {*own}


def enough_seeds(result: Reproduction) -> bool:
    """Whether means are over as many seeds as the verdicts speak of."""
    found = result.experiment
    if not isinstance(found, GridExperiment):
        return True
    return max((len(c.classwise_ece) for c in result.cells), default=0) >= found.seeds
