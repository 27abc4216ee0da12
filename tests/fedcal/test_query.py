from __future__ import annotations

import numpy as np
import pytest
from laws import noise as noise_of

from fedcal.bounding import Bound
from fedcal.errors import InputError
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
    "distributed, per row": Query(
        "clipped_nll",
        {"temperatures": 1.5},
        Bound((3, 1), (0.1, 7.0), "per_value", 1, "row"),
        Ring(50, 2.0**-31, 10**12),
        3,
        noise_of("discrete-laplace", (3, 1), (1e5 / 3, 0.1 + 0.2), 45),
        1 / 3,
        2**62 + 1,
    ),
    "local, unary": Query(
        "outcome_cell",
        {"bins": 2, "seed": 1},
        Bound((2, 2), (2.0, 2.0)),
        Ring(9, 1.0),
        1,
        noise_of("unary", (4,), (0.26894142136999512,)),
    ),
}
OPTIONAL = ("order", "per", "noise", "rate", "seed")
"""Without these it is another query, and one that makes sense."""

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
        if not name.startswith("param.") and name not in OPTIONAL:
            with pytest.raises(InputError, match=f"a query has no field '{name}'"):
                Query.from_fields({k: v for k, v in fields.items() if k != name})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("order", 3),
        ("per", "site"),
        ("norms", ["a", "b"]),
        ("norms", [[1.0], [2.0]]),
        ("norms", 1.0),
        ("lengths", ["x"]),
        ("lengths", 2),
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
        Query.from_fields(QUERIES["two blocks"].to_fields() | {field: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("noise", "none"),
        ("noise", "exponential"),
        ("noise", "gaussian"),  # in 45 shares
        ("noise", 7),
        ("noise", ["discrete-laplace"]),
        ("noise-lengths", [3]),
        ("noise-lengths", [4, 1]),  # another length than the answer's
        ("noise-lengths", [4, 0]),
        ("noise-lengths", [5, -1]),
        ("noise-lengths", ["a", "b"]),
        ("noise-lengths", 4),
        ("noise-scales", [1.0]),
        ("noise-scales", [0.0, 1.0]),
        ("noise-scales", [-1.0, 1.0]),
        ("noise-scales", [float("nan"), 1.0]),
        ("noise-scales", [float("inf"), 1.0]),
        ("noise-scales", ["wide", 1.0]),
        ("noise-scales", [None, 1.0]),
        ("noise-shares", 0),
        ("noise-shares", -3),
        ("noise-shares", "all"),
        ("noise-shares", float("nan")),
    ],
)
def test_noise_that_makes_no_sense_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError) as error:
        Query.from_fields(QUERIES["distributed, per row"].to_fields() | {field: value})
    assert "\n" not in str(error.value)


def test_a_unary_flip_of_a_half_is_refused() -> None:
    with pytest.raises(InputError, match="probability < 1/2"):
        Query.from_fields(QUERIES["local, unary"].to_fields() | {"noise-scales": [0.5]})


@pytest.mark.parametrize("gone", ["noise-lengths", "noise-scales", "noise-shares"])
def test_half_a_noise_is_refused(gone: str) -> None:
    fields = QUERIES["distributed, per row"].to_fields()
    del fields[gone]
    with pytest.raises(InputError, match=f"no field '{gone}'"):
        Query.from_fields(fields)


def test_payload_is_eight_bytes_a_number_and_one_a_character() -> None:
    numbers = 1 + 2 + 2 + 3 + 3  # round, lengths, norms, ring; log_a, flag, n
    text = len("temperature_newton") + len("joint") + len("inverse")
    assert QUERIES["two blocks"].payload_bytes == 8 * numbers + text


def test_noise_and_coins_count_as_payload() -> None:
    numbers = 1 + 2 + 2 + 1 + 3 + 1  # round, lengths, norms, order, ring; temperatures
    numbers += 2 + 2 + 1 + 1 + 1  # noise: lengths, scales, shares; rate, seed
    text = sum(map(len, ("clipped_nll", "per_value", "row", "discrete-laplace")))
    assert QUERIES["distributed, per row"].payload_bytes == 8 * numbers + text


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
