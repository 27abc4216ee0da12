"""Contributions of neighbouring data, in exact arithmetic, for contracts over all questions."""

from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fedcal.calibrators import TemperatureScaling
from fedcal.clients.questions.scaling import form_of
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Words
from fedcal.privacy.query import QUERIES, Query, Request
from fedcal.secure_aggregation import Ring
from fedcal.training.networks import network_named
from fedcal.units import Bound

CLASSES, CLIENTS, MOST_CLIPS = 3, 17, 8

kinds = pytest.mark.parametrize("kind", QUERIES)


def query_of(kind: str, number: int) -> Query:
    return QUERIES[kind](**QUERIES[kind].examples[number])


def resized(kind: str, number: int, classes: int) -> Query | None:
    """An example for another number of classes; None if a vector of it has a fixed size."""
    query, arguments = QUERIES[kind], dict(QUERIES[kind].examples[number])
    vectors = any(np.ndim(value) for value in query(**arguments).params().values())
    arguments |= {name: classes for name in query.facts if name == "classes"}
    if "network" in arguments:
        size = network_named(arguments["network"]).size((classes,), classes)
        arguments |= {"shape": str(classes), "w": np.linspace(-0.5, 0.5, size)}
    elif kind.startswith(("scaling_", "mlp_")):
        form = arguments.get("form", "order-preserving-mlp")
        if form != TemperatureScaling.kind:
            near = form_of(form).identity(classes)
            arguments["w"] = near + np.linspace(-0.25, 0.25, len(near))
    elif vectors:
        return None
    return query(**arguments)


def numbers(kind: str) -> range:
    return range(len(QUERIES[kind].examples))


def same_bits(x: Floats | Words, y: Floats | Words) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()


def request(query: Query, bound: Bound, clients: int = CLIENTS) -> Request:
    fine = query.fine and bound.per == "row"
    return Request(query, bound, Ring(clients, 2.0**-38 if fine else 2.0**-24), round=1)


def of_client(query: Query, order: Any) -> Bound:
    """The question's own bound of a client, with as many clips as it takes."""
    for clips in range(MOST_CLIPS + 1):
        with suppress(InputError):
            return query.bound("client", (2.0,) * clips, order)
    raise AssertionError(f"{query.kind} has no bound of a client")


def assert_within(words: Words, bound: Bound, grid: float) -> None:
    """The rule's norms, in exact rational arithmetic."""
    edges = np.cumsum((0, *bound.lengths))
    step = Fraction(grid)
    for row in words.view(np.int64).tolist():
        shares = []
        for b, norm in enumerate(bound.norms):
            block = [int(v) for v in row[edges[b] : edges[b + 1]] if v]
            if bound.rule == "per_value":
                assert max(map(abs, block), default=0) * step <= Fraction(norm)
            total = sum(abs(v) ** bound.order for v in block)
            shares.append(total * (step / Fraction(norm)) ** bound.order)
        if bound.rule == "per_block":
            assert max(shares) <= 1
        elif bound.rule == "joint":
            assert sum(shares) <= 1
