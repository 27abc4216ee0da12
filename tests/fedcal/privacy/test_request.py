"""What travels: two records of a message, keys that stay, and what is refused."""

from typing import Any

import numpy as np
import pytest
from laws import noise as noise_of
from refusals import each_is_refused

from fedcal.clients.questions.histograms import ClassCounts, ClassHistograms, OutcomeCell
from fedcal.clients.questions.scaling import MLPUpdate, ScalingUpdate
from fedcal.clients.questions.search import AccuracyGap, ClippedNLL
from fedcal.clients.questions.temperature import TemperatureNewton, TemperatureUpdate
from fedcal.privacy import wire
from fedcal.privacy.query import QUERIES, Request, facts_of
from fedcal.secure_aggregation import Ring
from fedcal.units import Bound

W = np.linspace(-1, 1, 6)
SEVEN, NINE = Ring(7, 2.0**-31, 12345), Ring(9, 2.0**-20)
REQUESTS = {
    "newton": Request(TemperatureNewton(-0.1 + 0.3, 3), Bound((1, 1), (0.1, 30.0)), SEVEN, 4),
    "update": Request(TemperatureUpdate(1.25, "inverse", False), Bound((1,), (0.5,)), SEVEN, 4),
    "gap": Request(AccuracyGap((0.5, 1.0, 3.0)), Bound((3,), (2.0,), "per_value", 1), SEVEN, 1),
    "distributed, per row": Request(
        ClippedNLL(1.5, 10.0),
        Bound((1,), (10.0,), "joint", 1, "row"),
        Ring(50, 2.0**-31, 10**12),
        3,
        noise_of("laplace", (1,), (1e5 / 3,), 45),
        1 / 3,
        2**62 + 1,
    ),
    "histograms": Request(
        ClassHistograms(8, 3),
        Bound((8,) * 6, (2.0,) * 3 + (10.0,) * 3, "per_block"),
        Ring(2, 2.0**-3),
        1,
    ),
    "no privacy": Request(ClassCounts(3), Bound((3,)), Ring(100, 2.0**-24), 1),
    "local, unary": Request(
        OutcomeCell(2, 1),
        Bound((4,), (2.0,)),
        Ring(9, 1.0),
        1,
        noise_of("unary", (4,), (0.26894142136999512,)),
    ),
    "vector": Request(ScalingUpdate(W, "vector", 10.0, 50, True), Bound((6, 1)), NINE, 2),
    "mlp": Request(MLPUpdate(W, 3, 64, 0.03, 2, False), Bound((6,), (0.5,)), NINE, 2),
}
PINNED = {
    "newton": ("723c6323f7d59161", "9974208576c1b965", 95),
    "update": ("567163888a3cc604", "6543f0539cd4f363", 94),
    "gap": ("b00ecce4ee7f254c", "7afcb70bfcc5831d", 101),
    "distributed, per row": ("2b1a915c0cdbbb35", "9802b0494ad90b6b", 138),
    "histograms": ("5214152391baf995", "94456699c56e5643", 161),
    "no privacy": ("dad78b3413327659", "6c570692fad19244", 57),
    "local, unary": ("08b20ea8412da19c", "f45def1d0ab33996", 110),
    "vector": ("a74346b5c33aa981", "a99998a943a5dcae", 145),
    "mlp": ("636c91dd529ba314", "2d4415c80316fa5b", 151),
}
"""Of seeded noise (the question alone; with all that its noise follows from), and bytes: a change
makes every seeded run another one. They are those from before questions were classes, but for the
two that are about clients' own fits."""

OPTIONAL = ("order", "per", "noise", "rate", "seed")
"""Without these it is another request, and one that makes sense."""

REQUESTS |= {  # a question that no line above is about, as it is asked for each row
    kind: Request(asked := query(**query.examples[0]), asked.bound("row"), SEVEN, 1)
    for kind, query in QUERIES.items()
    if query.row_sums and kind not in {request.query.kind for request in REQUESTS.values()}
}
requests = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
Fields = dict[str, Any]


def back(request: Request, fields: Fields | None = None, context: Fields | None = None) -> Request:
    """What is read of a request, with some fields changed."""
    return wire.from_fields(
        {**wire.to_fields(request), **(fields or {})},
        {**facts_of(request.query), **(context or {})},
    )


@pytest.mark.parametrize("name", PINNED)
def test_keys_and_bytes_stay(name):
    request = REQUESTS[name]
    own = request.query.noise_key[:16], request.key[:16], wire.payload_bytes(request)
    assert own == PINNED[name]


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


@requests
def test_a_missing_field_is_named(request_):
    fields, context = wire.to_fields(request_), facts_of(request_.query)
    named = [name for name in fields if not name.startswith("param.") and name not in OPTIONAL]
    each_is_refused(
        [(name, f"a query cannot be read: '{name}' is missing") for name in named],
        lambda gone: wire.from_fields({k: v for k, v in fields.items() if k != gone}, context),
    )
    each_is_refused(
        [
            (name, f"(no value of|cannot be read:) '{name.removeprefix('fact.')}'")
            for name in context
        ],
        lambda gone: wire.from_fields(fields, {k: v for k, v in context.items() if k != gone}),
    )


BAD: dict[str, list[Any]] = {
    "kind": [7, "rows"],
    "order": [3],
    "per": ["site"],
    "rule": ["none"],
    "norms": [["a", "b"], [[1.0], [2.0]], 1.0, [0.0, 1.0], [1.0]],
    "lengths": [["x"], 2, [2, 1], []],
    "clients": ["many", 0],
    "headroom": [-1, 2**63],
    "grid": [[1.0], 0.3],
    "round": ["first", float("inf")],
    "rate": [0.0, 1.5, -0.1, float("nan"), "often"],
    "seed": [-1, 2**63, "x"],
}
BAD_NOISE: dict[str, list[Any]] = {
    "noise": ["none", "exponential", 7, ["laplace"]],
    "noise-lengths": [[2], [1, 0], [2, -1], ["a"], 1],  # the answer's is [1]
    "noise-scales": [[1.0, 2.0], [0.0], [-1.0], [float("nan")], [float("inf")], ["wide"], [None]],
    "noise-shares": [0, -3, "all", float("nan")],
}
NO_CLASSES = [None, 0, 1, -3, 2.5, "3", True, float("nan"), 10**9]


def test_tampered_fields_are_refused():
    for name, bad in (("newton", BAD), ("distributed, per row", BAD_NOISE)):
        rows = [({field: value}, "") for field, values in bad.items() for value in values]
        each_is_refused(rows, lambda fields, name=name: back(REQUESTS[name], fields))
    flip = ({"noise-scales": [0.5]}, "probability < 1/2")
    each_is_refused([flip], lambda fields: back(REQUESTS["local, unary"], fields))
    vectors = [({"param.w": value}, "a query cannot be read") for value in (["a"], [b"x"])]
    each_is_refused(vectors, lambda fields: back(REQUESTS["vector"], fields))
    for name in ("newton", "histograms", "no privacy"):
        each_is_refused(
            [({"fact.classes": value}, "") for value in NO_CLASSES],
            lambda facts, name=name: back(REQUESTS[name], context=facts),
        )


def test_a_context_that_makes_no_sense_is_refused():
    table: list[tuple[Fields, str]] = [
        ({"version": 2}, "version of the wire form must be 1, got 2"),
        ({"version": True}, "version of the wire form must be 1, got True"),
        ({"version": "1"}, "version of the wire form must be 1, got '1'"),
        ({"query-version": 9}, "version of the query 'clipped_nll' must be 1, got 9"),
    ]
    each_is_refused(table, lambda context: back(REQUESTS["distributed, per row"], context=context))
