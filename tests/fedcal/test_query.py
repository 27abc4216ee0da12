from __future__ import annotations

import pytest

from fedcal.errors import InputError
from fedcal.privacy.bounding import Bound
from fedcal.query import Query
from fedcal.secure_aggregation import Ring

QUERIES = {
    "no privacy": Query("class_counts", {}, Bound((10,)), Ring(100, 2.0**-24), 1),
    "two blocks": Query(
        "temperature_newton",
        {"log_a": -0.1 + 0.3, "flag": True, "name": "inverse", "n": 7},
        Bound((1, 1), (0.1, 30.0)),
        Ring(7, 2.0**-31, 12345),
        4,
    ),
    "per block": Query(
        "class_histograms",
        {"bins": 8},
        Bound((8, 8), (2.0, 1 / 3), "per_block"),
        Ring(2, 2.0**-3),
        1,
    ),
}
queries = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())


@queries
def test_fields_give_the_query_back(query: Query) -> None:
    back = Query.from_fields(query.to_fields())
    assert back == query
    assert {type(v) for v in back.params.values()} <= {bool, int, float, str}


@queries
def test_fields_travel_in_a_flower_record(query: Query) -> None:
    from flwr.app import ConfigRecord

    assert Query.from_fields(ConfigRecord(query.to_fields())) == query


@queries
def test_a_missing_field_is_named(query: Query) -> None:
    fields = query.to_fields()
    for name in fields:
        if not name.startswith("param."):
            with pytest.raises(InputError, match=f"a query has no field '{name}'"):
                Query.from_fields({k: v for k, v in fields.items() if k != name})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("norms", [0.0, 1.0]),
        ("norms", [1.0]),
        ("rule", "none"),
        ("grid", 0.3),
        ("clients", 0),
        ("lengths", []),
    ],
)
def test_a_tampered_bound_or_ring_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError):
        Query.from_fields(QUERIES["two blocks"].to_fields() | {field: value})


def test_payload_is_eight_bytes_a_number_and_one_a_character() -> None:
    numbers = 1 + 2 + 2 + 3 + 3  # round, lengths, norms, ring; log_a, flag, n
    text = len("temperature_newton") + len("joint") + len("inverse")
    assert QUERIES["two blocks"].payload_bytes == 8 * numbers + text
