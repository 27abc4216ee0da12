"""Requests as two records of a message, and refusals of what is not one."""

from typing import Any

import numpy as np
import pytest
from laws import noise as noise_of
from refusals import each_is_refused

from fedcal.clients.questions.score_cell import ScoreCell
from fedcal.clients.questions.search import ClippedNLL
from fedcal.privacy import wire
from fedcal.privacy.query import QUERIES, Request
from fedcal.privacy.wire import facts_of
from fedcal.secure_aggregation import Ring
from fedcal.units import Bound

SEVEN = Ring(7, 2.0**-31, 12345)


REQUESTS = {
    kind: Request(asked := query(**query.examples[0]), asked.bound("row"), SEVEN, 1)
    for kind, query in QUERIES.items()
    if query.row_sums
}
REQUESTS |= {
    "distributed, per row": Request(
        ClippedNLL(1.5, 10.0),
        Bound((1,), (10.0,), "joint", 1, "row"),
        Ring(50, 2.0**-31, 10**12),
        3,
        noise_of("laplace", (1,), (1e5 / 3,), 45),
        1 / 3,
        2**62 + 1,
    ),
    "local, unary": Request(
        ScoreCell(3, np.array([2.0]), 1, 0, 1),
        Bound((4,), (2.0,)),
        Ring(9, 1.0),
        1,
        noise_of("unary", (4,), (0.26894142136999512,)),
    ),
}
requests = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
Fields = dict[str, Any]


def back(request: Request, fields: Fields | None = None, context: Fields | None = None) -> Request:
    """Return the request that is read, with some fields changed."""
    return wire.from_fields(
        {**wire.to_fields(request), **(fields or {})},
        {**facts_of(request.query), **(context or {})},
    )


@requests
def test_fields_give_the_request_back(request_):
    """Also of Flower's records."""
    from flwr.app import ConfigRecord

    fields, context = wire.to_fields(request_), facts_of(request_.query)
    for record in (dict, ConfigRecord):
        read = wire.from_fields(record(fields), record(context))
        assert read == request_
        assert hash(read.query) == hash(request_.query)
        assert (read.query, read.key) == (request_.query, request_.key)


BAD: dict[str, list[Any]] = {
    "kind": [7, "rows"],
    "order": [3],
    "per": ["site"],
    "rule": ["none"],
    "norms": [["a"], [[1.0]], 1.0, [0.0], [1.0, 2.0]],
    "lengths": [["x"], 2, [2], []],
    "clients": ["many", 0],
    "headroom": [-1, 2**63],
    "grid": [[1.0], 0.3],
    "round": ["first", float("inf")],
    "rate": [0.0, 1.5, float("nan"), "often"],
    "seed": [-1, 2**63, "x"],
    "noise": ["none", "exponential", 7, ["laplace"]],
    "noise-lengths": [[2], [1, 0], [2, -1], ["a"], 1],  # the answer's is [1]
    "noise-scales": [[1.0, 2.0], [0.0], [-1.0], [float("nan")], ["wide"], [None]],
    "noise-shares": [0, "all", float("nan")],
}


def test_tampered_fields_and_other_versions_are_refused():
    tampered, unary = REQUESTS["distributed, per row"], REQUESTS["local, unary"]
    rows: list[tuple[Fields, str]] = [({k: v}, "") for k, values in BAD.items() for v in values]
    rows += [({"param.t": None}, ""), ({"param.more": 1.0}, "")]
    each_is_refused(rows, lambda fields: back(tampered, fields))
    flip = ({"noise-scales": [0.5]}, "probability < 1/2")
    each_is_refused([flip], lambda fields: back(unary, fields))
    vectors = [({"param.edges": value}, "a query cannot be read") for value in (["a"], [b"x"])]
    each_is_refused(vectors, lambda fields: back(REQUESTS["score_counts"], fields))
    classes = [({"fact.classes": value}, "") for value in (None, 1, 2.5, "3", True, 10**9)]
    each_is_refused(classes, lambda facts: back(REQUESTS["class_histograms"], context=facts))
    versions = [({"version": v}, "version of the wire form must be 1") for v in (2, True, "1")]
    versions += [({"query-version": 9}, "version of the query 'clipped_nll' must be 1, got 9")]
    each_is_refused(versions, lambda context: back(tampered, context=context))
    fields, context = wire.to_fields(tampered), facts_of(tampered.query)
    gone = [(name, f"'{name}' is missing") for name in ("kind", "lengths", "grid", "round")]
    each_is_refused(
        gone, lambda name: wire.from_fields({k: fields[k] for k in fields if k != name}, context)
    )
