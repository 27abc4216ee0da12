"""What travels: two records of a message, keys that stay, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from laws import noise as noise_of

from fedcal.bounding import Bound
from fedcal.errors import InputError
from fedcal.queries import (
    QUERIES,
    AccuracyGap,
    BinOutcomes,
    CalibrationGaps,
    ClassCounts,
    ClassHistograms,
    ClippedNLL,
    MLPUpdate,
    OutcomeCell,
    PooledHistograms,
    ScalingNewton,
    ScalingUpdate,
    TemperatureNewton,
    TemperatureScores,
    TemperatureUpdate,
)
from fedcal.queries.request import Context, Request
from fedcal.secure_aggregation import Ring

W = np.linspace(-1, 1, 6)
SEVEN, NINE = Ring(7, 2.0**-31, 12345), Ring(9, 2.0**-20)
CONTEXT = Context("run-1", "0" * 64, 3, 4, "example", "distributed", "discrete-laplace", 1.0, 0.0)
REQUESTS = {
    "newton": Request(TemperatureNewton(-0.1 + 0.3, 3), Bound((1, 1), (0.1, 30.0)), SEVEN, 4),
    "update": Request(TemperatureUpdate(1.25, "inverse", False), Bound((1,), (0.5,)), SEVEN, 4),
    "update, limited": Request(
        TemperatureUpdate(1.25, "temperature", True, 30.0, 50),
        Bound((1, 1), (0.5, 2.0), "per_block"),
        Ring(7, 2.0**-24),
        1,
    ),
    "scores": Request(TemperatureScores(0.25, 8.0, 7), Bound((7,), (4.0,), "per_value"), SEVEN, 1),
    "gap": Request(AccuracyGap((0.5, 1.0, 3.0)), Bound((3,), (2.0,), "per_value", 1), SEVEN, 1),
    "distributed, per row": Request(
        ClippedNLL(1.5, 10.0),
        Bound((1,), (10.0,), "joint", 1, "row"),
        Ring(50, 2.0**-31, 10**12),
        3,
        noise_of("discrete-laplace", (1,), (1e5 / 3,), 45),
        1 / 3,
        2**62 + 1,
        CONTEXT,
    ),
    "gaps": Request(CalibrationGaps(1.5, 4), Bound((4,), (2.0,), "joint", 1), Ring(7, 2.0**-31), 1),
    "histograms": Request(
        ClassHistograms(8, 3),
        Bound((8,) * 6, (2.0,) * 3 + (10.0,) * 3, "per_block"),
        Ring(2, 2.0**-3),
        1,
    ),
    "pooled": Request(
        PooledHistograms(8, 3), Bound((8, 1, 7), (1.0, 4.0, 0.5)), Ring(2, 2.0**-3), 1
    ),
    "no privacy": Request(ClassCounts(3), Bound((3,)), Ring(100, 2.0**-24), 1),
    "outcomes": Request(
        BinOutcomes(4, "correct_total"), Bound((4, 4), (1.0, 1.0), "per_block", 1), NINE, 1
    ),
    "local, unary": Request(
        OutcomeCell(2, 1),
        Bound((4,), (2.0,)),
        Ring(9, 1.0),
        1,
        noise_of("unary", (4,), (0.26894142136999512,)),
    ),
    "vector newton": Request(
        ScalingNewton("vector", W, "diagonal", 3),
        Bound((3,) * 4, (15.0, 3.0, 45.0, 3.0)),
        NINE,
        2,
    ),
    "vector": Request(ScalingUpdate(W, "vector", 10.0, 50, True), Bound((6, 1)), NINE, 2),
    "mlp": Request(MLPUpdate(W, 3, 64, 0.03, 2, False), Bound((6,), (0.5,)), NINE, 2),
}
PINNED = {
    "newton": ("723c6323f7d59161", "9974208576c1b965", 95),
    "update": ("567163888a3cc604", "6543f0539cd4f363", 94),
    "update, limited": ("d6bac32d2e84b798", "d285f5874eebd610", 134),
    "scores": ("44fa71f61fe82eaa", "4db25799f997cea0", 99),
    "gap": ("b00ecce4ee7f254c", "7afcb70bfcc5831d", 101),
    "distributed, per row": ("2b1a915c0cdbbb35", "ad852e3438ebb7cb", 147),
    "gaps": ("088c41f0186fbbed", "2ea654a7ae88cf19", 93),
    "histograms": ("5214152391baf995", "94456699c56e5643", 161),
    "pooled": ("1b40166af6cc38a8", "b359887fd90e9bfa", 110),
    "no privacy": ("dad78b3413327659", "6c570692fad19244", 57),
    "outcomes": ("e94f9aba60fac0c5", "8c7787f5aeba84a5", 114),
    "local, unary": ("08b20ea8412da19c", "f45def1d0ab33996", 110),
    "vector newton": ("b187022933dfec29", "c0120ac5aaa0c763", 177),
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
    return Request.from_fields(
        {**request.to_fields(), **(fields or {})}, {**request.context_fields(), **(context or {})}
    )


@pytest.mark.parametrize("name", PINNED)
def test_keys_and_bytes_stay(name: str) -> None:
    request = REQUESTS[name]
    assert (request.question[:16], request.key[:16], request.payload_bytes) == PINNED[name]


@requests
def test_the_context_is_in_no_key_and_no_payload(request_: Request) -> None:
    mechanism = CONTEXT.mechanism if request_.noise is None else request_.noise.mechanism
    context = replace(CONTEXT, round=request_.round, mechanism=mechanism)
    for other in (replace(request_, context=context), replace(request_, context=None)):
        assert other.question == request_.question
        assert other.key == request_.key
        assert other.payload_bytes == request_.payload_bytes
        assert other.to_fields() == request_.to_fields()


@requests
def test_fields_give_the_request_back(request_: Request) -> None:
    read = back(request_)
    assert read == request_
    assert hash(read.query) == hash(request_.query)
    assert (read.question, read.key) == (request_.question, request_.key)


@requests
def test_fields_travel_in_flower_records(request_: Request) -> None:
    from flwr.app import ConfigRecord

    fields, context = request_.to_fields(), request_.context_fields()
    assert Request.from_fields(ConfigRecord(fields), ConfigRecord(context)) == request_


@requests
def test_a_missing_field_is_named(request_: Request) -> None:
    fields, context = request_.to_fields(), request_.context_fields()
    for name in fields:
        if not name.startswith("param.") and name not in OPTIONAL:
            with pytest.raises(InputError, match=f"a query has no field '{name}'"):
                Request.from_fields({k: v for k, v in fields.items() if k != name}, context)
    for name in context:
        said = name.removeprefix("fact.")
        with pytest.raises(InputError, match=f"no (field|value of) '{said}'"):
            Request.from_fields(fields, {k: v for k, v in context.items() if k != name})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", 7),
        ("kind", "rows"),
        ("order", 3),
        ("per", "site"),
        ("norms", ["a", "b"]),
        ("norms", [[1.0], [2.0]]),
        ("norms", 1.0),
        ("lengths", ["x"]),
        ("lengths", 2),
        ("lengths", [2, 1]),
        ("clients", "many"),
        ("headroom", -1),
        ("headroom", 2**63),
        ("grid", [1.0]),
        ("round", "first"),
        ("round", float("inf")),
        ("rate", 0.0),
        ("rate", 1.5),
        ("rate", -0.1),
        ("rate", float("nan")),
        ("rate", "often"),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", "x"),
        ("norms", [0.0, 1.0]),
        ("norms", [1.0]),
        ("rule", "none"),
        ("grid", 0.3),
        ("clients", 0),
        ("lengths", []),
    ],
)
def test_a_tampered_bound_or_ring_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError) as error:
        back(REQUESTS["newton"], {field: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("noise", "none"),
        ("noise", "exponential"),
        ("noise", "gaussian"),  # in 45 shares
        ("noise", "discrete-gaussian"),  # another than the context's
        ("noise", 7),
        ("noise", ["discrete-laplace"]),
        ("noise-lengths", [2]),  # another length than the answer's
        ("noise-lengths", [1, 0]),
        ("noise-lengths", [2, -1]),
        ("noise-lengths", ["a"]),
        ("noise-lengths", 1),
        ("noise-scales", [1.0, 2.0]),
        ("noise-scales", [0.0]),
        ("noise-scales", [-1.0]),
        ("noise-scales", [float("nan")]),
        ("noise-scales", [float("inf")]),
        ("noise-scales", ["wide"]),
        ("noise-scales", [None]),
        ("noise-shares", 0),
        ("noise-shares", -3),
        ("noise-shares", "all"),
        ("noise-shares", float("nan")),
    ],
)
def test_noise_that_makes_no_sense_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError) as error:
        back(REQUESTS["distributed, per row"], {field: value})
    assert "\n" not in str(error.value)


def test_a_unary_flip_of_a_half_is_refused() -> None:
    with pytest.raises(InputError, match="probability < 1/2"):
        back(REQUESTS["local, unary"], {"noise-scales": [0.5]})


@pytest.mark.parametrize("gone", ["noise-lengths", "noise-scales", "noise-shares"])
def test_half_a_noise_is_refused(gone: str) -> None:
    request = REQUESTS["distributed, per row"]
    fields = request.to_fields()
    del fields[gone]
    with pytest.raises(InputError, match=f"no field '{gone}'"):
        Request.from_fields(fields, request.context_fields())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"version": 2}, "version 2 of the wire form is not known here, only 1"),
        ({"version": True}, "version True of the wire form"),
        ({"version": "1"}, "version '1' of the wire form"),
        ({"query-version": 9}, "version 9 of the query 'clipped_nll' is not known here, only 1"),
        ({"run": ""}, "run of the context"),
        ({"run": "x" * 65}, "run of the context"),
        ({"run": "two\nlines"}, "run of the context"),
        ({"plan": "0" * 63}, "plan of the context"),
        ({"plan": 7}, "plan of the context"),
        ({"round": 4}, "a query of round 3 came for round 4"),
        ({"round": 2}, "a query of round 3 came for round 2"),
        ({"round": 3.0}, "round of the context"),
        ({"rounds": 2}, "round of the context"),
        ({"rounds": float("nan")}, "rounds of the context"),
        ({"unit": "ROW"}, "unit of the context"),
        ({"trust": ["central"]}, "trust of the context"),
        ({"mechanism": "laplace"}, "does not go with a run by 'laplace'"),
        ({"epsilon": float("nan")}, "epsilon of the context"),
        ({"epsilon": 0.0}, "epsilon of the context"),
        ({"epsilon": "1"}, "epsilon of the context"),
        ({"epsilon": True}, "epsilon of the context"),
        ({"delta": 1.0}, "delta of the context"),
        ({"delta": -1e-9}, "delta of the context"),
        ({"delta": float("nan")}, "delta of the context"),
    ],
    ids=str,
)
def test_a_context_that_makes_no_sense_is_refused(change: Fields, match: str) -> None:
    with pytest.raises(InputError, match=match) as error:
        back(REQUESTS["distributed, per row"], context=change)
    assert "\n" not in str(error.value)


def test_without_privacy_a_context_has_no_end_of_budget() -> None:
    context = replace(CONTEXT, epsilon=float("inf"), mechanism="none", round=4)
    request = replace(REQUESTS["newton"], context=context)
    assert back(request).context == context


@pytest.mark.parametrize("name", ["newton", "vector newton", "histograms", "no privacy"])
@pytest.mark.parametrize("value", [None, 0, 1, -3, 2.5, "3", True, float("nan"), 10**9])
def test_a_number_of_classes_that_is_none_is_refused(name: str, value: object) -> None:
    with pytest.raises(InputError):
        back(REQUESTS[name], context={"fact.classes": value})


def test_payload_is_eight_bytes_a_number_and_one_a_character() -> None:
    numbers = 1 + 2 + 2 + 3 + 1  # round, lengths, norms, ring; log_a
    text = len("temperature_newton") + len("joint")
    assert REQUESTS["newton"].payload_bytes == 8 * numbers + text


def test_noise_and_coins_count_as_payload() -> None:
    numbers = 1 + 1 + 1 + 1 + 3 + 2  # round, lengths, norms, order, ring; temperatures, nll_clip
    numbers += 1 + 1 + 1 + 1 + 1  # noise: lengths, scales, shares; rate, seed
    text = sum(map(len, ("clipped_nll", "joint", "row", "discrete-laplace")))
    assert REQUESTS["distributed, per row"].payload_bytes == 8 * numbers + text


def test_a_vector_keeps_every_bit() -> None:
    from flwr.app import ConfigRecord

    w = np.random.default_rng(0).normal(size=6)
    request = replace(REQUESTS["vector"], query=ScalingUpdate(w, "vector", 10.0, 50, True))
    fields, context = ConfigRecord(request.to_fields()), request.context_fields()
    there = Request.from_fields(dict(fields), context).query
    assert isinstance(there, ScalingUpdate)
    assert there.w.tobytes() == w.tobytes()
    assert not there.w.flags.writeable
    w[0] = 7.0
    assert request.query.w[0] != 7.0


@pytest.mark.parametrize("value", [["a", "b"], [b"x"]])
def test_a_vector_of_something_else_is_refused(value: list[object]) -> None:
    with pytest.raises(InputError, match="something else than numbers"):
        back(REQUESTS["vector"], {"param.w": value})
