"""What ended at an end of its range, a search or a parameter: whatever tells a result says so."""

import numpy as np
import pytest

from fedcal import simulate

RNG = np.random.default_rng(0)
SURE, CHANCE = RNG.integers(0, 3, (2, 1500))
LOGITS = 2 * np.eye(3)[SURE] + 0.1 * RNG.normal(size=(1500, 3))
BEST = "resnet110-cifar10"  # its temperature is 2.1
PRIVATE = {"epsilon": 20.0, "unit": "example"}
CASES = [
    # without an error the best temperature is 0, by chance alone it is infinite
    ("fednewton", SURE, {}, "0.05 to 20"),
    ("fednewton", CHANCE, {}, "0.05 to 20"),
    ("fedtemp", SURE, {}, "0.05 to 20"),
    ("fedtemp", SURE, {"set": {"limit": 3.0}}, "0.333333 to 3"),
    ("pooled-temperature", CHANCE, {}, "0.05 to 20"),
    *(
        ("fedoneshot", SURE, more, "0.25 to 8")
        for more in ({}, PRIVATE, PRIVATE | {"trust": "local"})
    ),
    *(
        ("acct", SURE, more | {"set": {"search": search}}, "0.5 to 3")
        for search in ("golden", "posterior")
        for more in ({"set": {"rows_per_client": 30}}, PRIVATE)
        if not (search == "posterior" and more is not PRIVATE)
    ),
    ("nllt", CHANCE, {}, "0.5 to 3"),
    ("fednewton-entropy", SURE, {"rounds": 40}, "1 of 2 parameters"),
]


@pytest.mark.parametrize(("method", "labels", "more", "range_"), CASES)
def test_an_end_is_said(method, labels, more, range_):
    logits = 0.01 * LOGITS if (method, labels is SURE) == ("fednewton", True) else LOGITS
    result = simulate((logits, labels), method=method, clients=5, partition="iid", **more)
    (said,) = result.to_json()["at_limits"]
    assert range_ in said
    assert said.endswith("the best may lie beyond.")
    assert said in result.privacy["more"]
    assert said in str(result).splitlines()


@pytest.mark.parametrize(
    ("method", "more"),
    [
        *((method, {}) for method in ("fednewton", "fedtemp", "fedoneshot", "fedvector", "dp-ts")),
        ("acct", {"set": {"search": "golden"}}),
        ("nllt", {"set": {"search": "exponential"}}),
        *((method, PRIVATE) for method in ("acct", "nllt", "fedoneshot", "fednewton")),
        *((method, {}) for method in ("pooled-temperature", "none", "fedbbq", "evaluate")),
    ],
)
def test_nothing_is_said_within_a_range(method, more):
    result = simulate(BEST, method=method, clients=5, **more)
    assert "at_limits" not in result.to_json()
    assert "beyond" not in " ".join(result.privacy["more"])
