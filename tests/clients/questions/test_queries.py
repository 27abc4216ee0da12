"""Every question: its examples, its bound, and what it refuses, on the server and on the client."""

import math
from contextlib import suppress
from dataclasses import MISSING, fields, replace
from typing import Any

import numpy as np
import pytest
from neighbours import query_of
from refusals import each_is_refused, refused

from fedcal.clients.questions.histograms import BinOutcomes, ClassHistograms, PooledHistograms
from fedcal.clients.questions.scaling import ScalingNewton
from fedcal.clients.questions.search import AccuracyGap, CalibrationGaps, ClippedNLL
from fedcal.clients.questions.temperature import TemperatureNewton, TemperatureScores
from fedcal.core.checks import InputError
from fedcal.privacy.query import QUERIES, Query, fits
from fedcal.units import Bound

EXAMPLES = [(kind, i) for kind, query in QUERIES.items() for i in range(len(query.examples))]
every_example = pytest.mark.parametrize(("kind", "number"), EXAMPLES)


def read(query: Query, **changes: Any) -> Query:
    """Return the question as a client reads its parameters, some changed; None = left out."""
    facts = {name: getattr(query, name) for name in query.facts}
    params = {k: v for k, v in {**query.params(), **changes}.items() if v is not None}
    return type(query).read(params, facts)


@every_example
def test_a_query_is_read_as_it_was_written_and_from_nothing_else(kind, number):
    query = query_of(kind, number)
    assert read(query) == query
    assert hash(read(query)) == hash(query)
    assert set(query.params()) <= {f.name for f in fields(query)} - set(query.facts)
    assert all(isinstance(v, (bool, int, float, str, np.ndarray)) for v in query.params().values())
    assert all(n >= 1 for n in query.lengths())
    assert number < 10
    optional = {f.name for f in fields(query) if f.default is not MISSING}
    unknown = {"mystery": 1} | {name: getattr(query, name) for name in query.facts}
    missing = set(query.params()) - optional
    each_is_refused(
        [({name: value}, f"has no parameter '{name}'") for name, value in unknown.items()]
        + [({name: None}, f"has no value of '{name}'") for name in missing],
        lambda changes: read(query, **changes),
    )
    if query.facts:
        with pytest.raises(InputError, match=f"has no value of '({'|'.join(query.facts)})'"):
            type(query).read(query.params(), {})


@every_example
def test_hostile_parameters_are_refused_in_one_line(kind, number):
    hostile = [
        *(float("nan"), float("inf"), -float("inf"), -1.0, 10**400, "x", b"x", "", [], ["x"]),
        *(np.array([np.nan]), np.zeros(0), np.zeros((2, 2)), -np.ones(500), object(), {}),
    ]
    query = query_of(kind, number)
    table = [({name: value}, "") for name in query.params() for value in hostile]
    each_is_refused(
        [row for row in table if not may_be(kind, *row[0].items())],
        lambda changes: read(query, **changes),
        most=301,
    )


def may_be(kind: str, given: tuple[str, Any]) -> bool:
    """Return whether one parameter takes a value that another would not."""
    name, value = given
    return (
        # a log(1/T) like any
        (name in ("log_a", "offset", "slope") and type(value) is float and value == -1)
        # the default of the number of classes
        or (name == "score" and isinstance(value, str) and value == "")
        # the client's own rows say which sizes there are
        or (name == "w" and kind in ("mlp_update", "scaling_update") and np.shape(value) == (500,))
    )


def clips_fit(query: Query, clips: int) -> bool:
    with suppress(InputError):
        query.bound("client", (1.0,) * clips)
        return True
    return False


@every_example
def test_bounds_fit_the_answer(kind, number):
    query = query_of(kind, number)
    takes = next(n for n in range(4) if clips_fit(query, n))
    refused(f"clips .* {takes}, got {takes + 1}", query.bound, "client", (1.0,) * (takes + 1))
    refused("unknown part 'site'", query.bound, "site", (1.0,) * takes)
    for order in (1, 2):
        bound = query.bound("client", (0.5, 0.75, 1.0)[:takes], order)
        assert (bound.order, bound.finite, fits(bound, query)) == (order, True, True)
        for part in ("row", "subject"):
            if not query.row_sums:
                refused("unknown part .*; allowed: client", query.bound, part)
                continue
            row, most = query.bound("row", (7.0,), order), getattr(query, "subject_rows", 0)
            times = most if part == "subject" and most else 1
            norms = tuple(times * norm for norm in row.norms)
            own = query.bound(part, (), order)
            assert own.norms == pytest.approx(norms, rel=1e-5)
            plain = {"norms": norms, "per": "client", "whole": False}
            assert replace(own, **plain) == replace(row, **plain)
            assert not own.whole or (order == 1 and query.counts_integers(part))
            assert fits(query.bound(part), query)


def test_the_part_that_is_clipped_follows_from_the_unit():
    for query in QUERIES.values():
        assert query.part("user") == "client"
        assert query.part("example") == ("row" if query.row_sums else "client")


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_bounds_of_one_row(classes):
    """In figures, as the methods' documentation has them."""
    c, tables = classes, 1 if classes == 2 else classes
    ones = {2: 1.0 if c == 2 else math.sqrt(c), 1: 1.0 if c == 2 else float(c)}
    pooled = {2: math.sqrt(3.25), 1: 3.5}
    half = 2 + math.log(c) ** 2 / 2
    assert TemperatureNewton(0.0, c).bound("row") == Bound((1, 1), (4.0, half))
    entropy = ScalingNewton("entropy-temperature", np.zeros(2), c)
    assert entropy.bound("row") == Bound((2, 3), (4.0, half))
    for order in (1, 2):
        norm = pytest.approx(ones[order], rel=1e-15)
        bound = ClassHistograms(8, c).bound("row", order=order)
        assert (bound.lengths, bound.rule) == ((8,) * (2 * tables), "joint")
        assert bound.norms == (norm,) * (2 * tables)
        bound = PooledHistograms(8, c).bound("row", order=order)
        norm = pytest.approx(pooled[order], rel=1e-15)
        first = pytest.approx(2 * (c - 1) * pooled[order], rel=1e-15)
        assert bound.norms == ((1.0,) if c == 2 else (norm, first, norm))


def test_bounds_of_one_row_in_a_search():
    assert TemperatureScores(0.5, 2.0, 5).bound("row") == Bound((5,), (4.0,), "per_value")
    assert AccuracyGap(1.5).bound("row", order=1) == Bound((1,), (1.0,), "joint", 1)
    assert AccuracyGap((1, 2)).bound("row", order=1) == Bound((2,), (1.0,), "per_value", 1)
    assert ClippedNLL(1.5, 7.0).bound("row", order=1) == Bound((1,), (7.0,), "joint", 1)
    assert CalibrationGaps(1.5, 4).bound("row", order=1) == Bound((4,), (1.0,), "joint", 1)
    several = CalibrationGaps((1.5, 2.0), 4).bound("row", order=1)
    assert several == Bound((4, 4), (1.0, 1.0), "per_block", 1)
    assert CalibrationGaps((1.5, 2.0), 1).bound("row", order=1).rule == "per_value"
    full: dict[str, Any] = {"order": 1, "per": "row", "whole": True}
    assert BinOutcomes(3, "correct_wrong").bound("row", order=1) == Bound((6,), (1.0,), **full)
    total = BinOutcomes(3, "correct_total").bound("row", order=1)
    assert total == Bound((3, 3), (1.0, 1.0), "per_block", **full)


def test_sizes_that_are_too_large_or_do_not_fit_are_refused():
    wrong = ([0.0, 0.4, 0.4, 1.0], [0.0, 0.6, 0.4, 1.0], [0.1, 1.0], [0.0, 0.9])
    falling = [(QUERIES["score_counts"], 3, np.array(edges)) for edges in wrong]
    table: list[tuple[tuple[Any, ...], str]] = [
        ((ClassHistograms, 2**16, 10**6), ""),
        ((ScalingNewton, "matrix", np.zeros(300 * 301), 300), ""),
        ((CalibrationGaps, (1.0, 2.0), 2**20), ""),
        ((TemperatureScores, 0.5, 2.0, 2**20), ""),
        ((AccuracyGap, (1.0,) * (2**16 + 1)), ""),
        ((ScalingNewton, "vector", np.zeros(6), 4), ""),
        *((made, "must increase from 0 to 1") for made in falling),
    ]
    each_is_refused(table, lambda made: made[0](*made[1:]).bound("row"))
