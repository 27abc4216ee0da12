"""The sentences of a result: what its tests allow to be said, and what ended at a range's end."""

from typing import Any

import numpy as np
import pytest

from fedcal import simulate
from fedcal.metrics.bootstrap import holm
from fedcal.results.headline import headline


def test_holm_is_no_plain_bonferroni():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06}
    )
    assert holm({}) == {}


def plain(result: dict[str, Any]) -> str:
    return headline(result).replace("\xa0", " ")


def calibrated(ece: list[float], nll: list[float], **more: Any) -> dict[str, Any]:
    before = {"accuracy": 0.9, "ece": 0.05, "classwise_ece": 0.14, "nll": 0.40}
    after = {"accuracy": 0.9, "ece": 0.01, "classwise_ece": 0.13, "nll": 0.35}
    change = {"ece": ece, "classwise_ece": ece, "nll": nll, "accuracy": [0.0, 0.0]}
    intervals = {"difference": change, "after": {"accuracy": [0.87, 0.93]}}
    return {"score": "confidence", "before": before, "after": after, "intervals": intervals, **more}


@pytest.mark.parametrize(
    ("ece", "nll", "message"),
    [
        (
            [-0.05, -0.03],
            [-0.06, -0.04],
            "made the probabilities better: top-label ECE from 5.0 to 1.0 %, log loss from 0.400 ",
        ),
        (
            [-0.05, 0.03],
            [-0.06, 0.04],
            "made no difference beyond chance: top-label ECE from 5 to 1 %, log loss from 0.40 to ",
        ),
        (
            [-0.05, 0.03],
            [0.02, 0.04],
            "made the probabilities worse: log loss from 0.400 to 0.350 (within chance: top-label "
            "ECE from 5 to 1 %).",
        ),
        ([-0.05, -0.03], [0.02, 0.04], "made top-label ECE better and log loss worse:"),
        ([0.0, 0.0], [1e-9, 3e-8], "changed nothing:"),
    ],
)
def test_what_calibration_did(ece, nll, message):
    assert plain(calibrated(ece, nll)).startswith(f"Calibration {message}")
    assert plain(calibrated(ece, nll)).endswith("Accuracy stays 90 % (87 to 93).")
    of_two = plain(calibrated(ece, nll, score="positive"))
    assert "ECE of class 1" in of_two
    assert "top-label" not in of_two


RNG = np.random.default_rng(0)
SURE, CHANCE = RNG.integers(0, 3, (2, 1500))
LOGITS = 2 * np.eye(3)[SURE] + 0.1 * RNG.normal(size=(1500, 3))
BEST = "resnet110-cifar10"  # its temperature is 2.1
PRIVATE = {"epsilon": 20.0, "unit": "example"}
CASES = [
    # without an error the best temperature is 0, by chance alone it is infinite
    ("fednewton", SURE, {}, "0.05 to 20"),
    ("fedtemp", SURE, {}, "0.05 to 20"),
    ("pooled-temperature", CHANCE, {}, "0.05 to 20"),
    ("fedoneshot", SURE, {}, "0.25 to 8"),
    ("fedoneshot", SURE, PRIVATE | {"trust": "local"}, "0.25 to 8"),
    ("acct", SURE, PRIVATE | {"set": {"search": "golden"}}, "0.5 to 3"),
    ("acct", SURE, PRIVATE | {"set": {"search": "posterior"}}, "0.5 to 3"),
    ("nllt", CHANCE, {}, "0.5 to 3"),
    ("fednewton-entropy", SURE, {"rounds": 40}, "1 of 2 parameters"),
]


@pytest.mark.parametrize(("method", "labels", "more", "range_"), CASES)
def test_an_end_is_reported(method, labels, more, range_):
    logits = 0.01 * LOGITS if (method, labels is SURE) == ("fednewton", True) else LOGITS
    result = simulate((logits, labels), method=method, clients=5, partition="iid", **more)
    message, *_ = result.to_json()["at_limits"]
    assert range_ in message
    assert message.endswith("the best may lie beyond.")
    assert message in result.privacy["more"]
    assert str(result).count(message) == 1


@pytest.mark.parametrize(
    ("method", "more"),
    [
        *((method, {}) for method in ("fednewton", "fedvector", "dp-ts", "fedbbq", "evaluate")),
        ("acct", {"set": {"search": "golden"}}),
        *((method, PRIVATE) for method in ("acct", "fedoneshot")),
    ],
)
def test_nothing_is_reported_within_a_range(method, more):
    result = simulate(BEST, method=method, clients=5, **more)
    assert "at_limits" not in result.to_json()
    assert "beyond" not in " ".join(result.privacy["more"])
