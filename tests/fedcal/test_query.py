from __future__ import annotations

import numpy as np
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


def test_a_vector_keeps_every_bit_and_counts_eight_bytes_a_number() -> None:
    from flwr.app import ConfigRecord

    w = np.random.default_rng(0).normal(size=7)
    query = Query("scaling_update", {"w": w, "form": "vector"}, Bound((7,)), Ring(3, 2.0**-24), 1)
    fields = ConfigRecord(query.to_fields())
    back = Query.from_fields(dict(fields))
    there = back.params["w"]
    assert isinstance(there, np.ndarray)
    assert there.tobytes() == w.tobytes()
    assert back.params["form"] == "vector"
    without = Query("scaling_update", {"form": "vector"}, query.bound, query.ring, 1)
    assert query.payload_bytes - without.payload_bytes == 8 * 7


@pytest.mark.parametrize("value", [["a", "b"], [b"x"]])
def test_a_vector_of_something_else_is_refused(value: list[object]) -> None:
    with pytest.raises(InputError, match="something else than numbers"):
        Query.from_fields(QUERIES["two blocks"].to_fields() | {"param.w": value})
