"""The stopwatch: warm up, take turns, keep every repetition."""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

SLOW = 1.0
"""Seconds from which a repetition counts as slow: its warm-up run is kept as a measurement."""

_SLOW_REPETITIONS = 3  # their median does not see a cold start
_MOST_REPETITIONS = 51


class PeerMissing(Exception):
    """A peer cannot be timed here; the message says why."""


@dataclass(frozen=True)
class Contestant:
    """One way to do the work.

    Attributes
    ----------
    name : as shown
    prepare : outside the clock: makes what is timed. It may raise PeerMissing
    values : what a result is worth, so that speed is not bought by a worse one
    close : called when everybody has been timed
    """

    name: str
    prepare: Callable[[], Callable[[], Any]]
    values: Callable[[Any], dict[str, float]]
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Case:
    """One piece of work; the first contestant is ours.

    Attributes
    ----------
    title : as shown
    target : seconds that our median should stay below; None = just shown
    """

    title: str
    target: float | None
    ours: Contestant
    peers: tuple[Contestant, ...] = ()


@dataclass(frozen=True)
class Inside:
    """A result that was timed by itself: in another process, or as a share of a run."""

    seconds: float
    result: Any


@dataclass(frozen=True)
class Timing:
    """What a contestant needed, in seconds, and what its result is worth."""

    name: str
    seconds: tuple[float, ...]
    values: dict[str, float]

    @property
    def median(self) -> float:
        """Median of the repetitions."""
        return statistics.median(self.seconds)

    @property
    def least(self) -> float:
        """The fastest repetition: what disturbs a clock only ever adds to it."""
        return min(self.seconds)


@dataclass(frozen=True)
class Skipped:
    """A contestant that could not be timed."""

    name: str
    reason: str


def checksum(values: NDArray[Any]) -> int:
    """The same number means the same bits."""
    return zlib.crc32(values.tobytes())


def compare(contestants: Sequence[Contestant], repetitions: int) -> list[Timing | Skipped]:
    """Time contestants in turns, so that all of them see the same weather, then close them.

    Parameters
    ----------
    repetitions : at least so many for each; more (up to 51) for what takes little time, three
        for what takes more than a second (also if only a part of it counts)

    Returns
    -------
    In the order of `contestants`.
    """
    try:
        return _compare(contestants, repetitions)
    finally:
        for c in contestants:
            c.close()


def _compare(contestants: Sequence[Contestant], repetitions: int) -> list[Timing | Skipped]:
    missing: dict[str, str] = {}
    taken: dict[str, list[float]] = {}
    wanted: dict[str, int] = {}
    values: dict[str, dict[str, float]] = {}
    for c in contestants:
        try:
            first, result, whole = _clock(c)
        except PeerMissing as why:
            missing[c.name] = str(why)
            continue
        values[c.name] = c.values(result)
        taken[c.name] = [first] if max(first, whole) > SLOW else []
        wanted[c.name] = min(repetitions, _SLOW_REPETITIONS)
        if not taken[c.name]:
            lots = min(_MOST_REPETITIONS, int(SLOW / first)) if repetitions > 2 else 0
            wanted[c.name] = max(repetitions, lots)
    for _ in range(max(wanted.values(), default=0)):
        for c in contestants:
            if c.name in missing or len(taken[c.name]) == wanted[c.name]:
                continue
            try:
                taken[c.name].append(_clock(c)[0])
            except PeerMissing as why:
                missing[c.name] = str(why)
    return [
        Skipped(c.name, missing[c.name])
        if c.name in missing
        else Timing(c.name, tuple(taken[c.name]), values[c.name])
        for c in contestants
    ]


def _clock(contestant: Contestant) -> tuple[float, Any, float]:
    """The seconds that count, the result, and all seconds that passed."""
    run = contestant.prepare()
    start = time.perf_counter()
    result = run()
    passed = time.perf_counter() - start
    if isinstance(result, Inside):
        return result.seconds, result.result, passed
    return passed, result, passed
