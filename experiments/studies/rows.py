"""Shared by studies: rows of plain values, their making one by one, and telling them in words.

And what several of them simulate: random streams, dealt rows, and releases of known sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import stdev
from typing import Any, TypeVar, cast

import numpy as np

from experiments.studies.spec import Record, Rows, RowsClaim
from fedcal import partition
from fedcal.core.numerics import Floats, Integers, Purpose, Words, stream
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.mechanisms import Gaussian, Laplace, Sum
from fedcal.mechanisms.choice import Unary, unary_flip
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.query import Query
from fedcal.strategies.server.outcome import Progress

T = TypeVar("T")

Claims = Callable[[Rows], Iterable[RowsClaim]]


def counted(todo: Iterable[T], progress: Progress | None) -> Iterator[T]:
    """Iterate over tasks, and report each as done when the next one is taken."""
    todo = list(todo)
    for done, task in enumerate(todo, 1):
        yield task
        if progress is not None:
            progress(done, len(todo))


def where(rows: Iterable[Record], /, **facts: object) -> Rows:
    """All rows with these facts."""
    return [r for r in rows if all(r.get(k) == v for k, v in facts.items())]


def one(rows: Iterable[Record], /, **facts: object) -> Record:
    """Return the only row with these facts."""
    (found,) = where(rows, **facts)
    return found


def grouped(rows: Iterable[Record], *keys: str) -> dict[tuple[Any, ...], Rows]:
    """Values of some keys -> the rows that have them, in the order of the rows."""
    found: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return found


def rng_of(study: str, seed: int, *what: object) -> np.random.Generator:
    """Return the random generator of one run of a setting of a study."""
    return stream(seed, Purpose.BOOTSTRAP, what=f"{study} {' '.join(map(str, what))}")


def span(values: Iterable[float], form: str = ".1f", factor: float = 1.0) -> str:
    """Format the smallest and the largest of some numbers."""
    each = list(values)
    return " to ".join(f"{factor * end:{form}}" for end in (min(each), max(each)))


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of a sample of at least two."""
    return stdev(values) / math.sqrt(len(values))


def of_each(claims: Claims) -> Claims:
    """Claims about each of the data by itself; its name stands before the text."""

    def every(found: Rows) -> Iterator[RowsClaim]:
        for (name,), mine in grouped((r for r in found if "data" in r), "data").items():
            for text, *rest in claims(mine):
                yield cast("RowsClaim", (f"{name}: {text}", *rest))

    return every


def assigned(
    logits: Floats, labels: Integers, picked: Integers, clients: int, rng: np.random.Generator
) -> Shards:
    """Deal some of the rows to clients with Dirichlet(0.1) label skew."""
    owner = partition.dirichlet(labels[picked], clients, 0.1, rng)
    return rows_by_owner(logits[picked], labels[picked], owner, clients)


def release_of(
    plan: Plan, number: int, query: Query, total: Floats, clients: int, rng: np.random.Generator
) -> Release:
    """Release the sum of all answers of a private round; the noise of all is drawn together.

    Parameters
    ----------
    plan, number, query
        of the round
    total
        (numbers,) what the clients' answers add up to
    clients
        that answer
    rng
        of the noise
    """
    if plan.bound is None:
        raise TypeError("a round without privacy")
    costs = query.costs if plan.mechanism.answers == "index" else None
    of = plan.sum_of(plan.bound, clients, costs)
    if costs is None:
        words = np.rint(total / of.ring.grid).astype(np.int64).view(np.uint64)
        total = of.ring.decode(draw_sum(plan, words, of, rng))
    values, std = plan.mechanism.release(total, of, lambda: rng)
    return Release(number, query.kind, values, std)


def draw_sum(plan: Plan, total: Words, of: Sum, rng: np.random.Generator) -> Words:
    """Return an exact sum plus the noise of all repliers, in one draw, (length,) words.

    One normal variate a number, or a difference of two negative binomial variates, or binomial
    counts of the bits that stay and that are flipped.
    """
    mechanism = plan.mechanism
    if isinstance(mechanism, Gaussian):
        drawn = of.std / of.ring.grid * rng.standard_normal(len(of.std))
        return of.ring.add(total, np.rint(drawn).astype(np.int64))
    if isinstance(mechanism, Laplace) and of.noise_copies:
        one = of.std / (of.ring.grid * math.sqrt(of.noise_copies))
        stop = -np.expm1(-2.0 * np.arcsinh(1.0 / (math.sqrt(2.0) * one)))  # 1 - exp(-1 / scale)
        plus, minus = rng.negative_binomial(of.noise_copies, stop, (2, len(one)))
        return of.ring.add(total, plus - minus)
    if isinstance(mechanism, Unary):
        ones = np.clip(total.view(np.int64), 0, of.repliers)
        sent = rng.binomial(ones, 0.5) + rng.binomial(
            of.repliers - ones, unary_flip(mechanism.epsilon)
        )
        return np.asarray(sent.astype(np.int64).view(np.uint64))
    return total
