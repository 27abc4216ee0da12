"""The sentences of a result: what the tests on its page allow to be said, and no more."""

from typing import Any

import pytest

from fedcal.experiments.report.headline import headline
from fedcal.metrics.holm import holm


def told(value: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    half = None if low is None or high is None else (high - low) / 4
    return {
        "value": value,
        "low": low,
        "high": high,
        "sampling": half,
        "noise": 0.0,
        "binning": 0.0,
    }


def evaluated(gap: dict[str, Any], score: str = "positive", **more: Any) -> dict[str, Any]:
    metrics = {"accuracy": told(0.41, 0.384, 0.436), "gap": gap}
    return {"method": "evaluate", "score": score, "threshold": 0.5, "metrics": metrics, **more}


def plain(result: dict[str, Any]) -> str:
    return headline(result).replace("\xa0", " ")


UNKNOWN = "Whether its confidence is right on average could not be measured under this noise."


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        ((0.134, 0.09, 0.18), "Its confidence is 13 points too high (9 to 18) on average."),
        ((-0.204, -0.24, -0.16), "Its confidence is 20 points too low (16 to 24) on average."),
        ((None, 0.09, 0.18), "Its confidence is 9 to 18 points too high on average."),
        ((0.01, -0.03, 0.05), "On average its confidence is right to within 5 points."),
        ((None, -0.9, 0.9), UNKNOWN),
        ((None, None, None), UNKNOWN),
    ],
)
def test_the_direction_of_the_mean_gap_in_words(gap, said):
    rows = "Right in 41 % of the rows (38 to 44). "
    assert plain(evaluated(told(*gap), "confidence")) == rows + said
    of_two = said.replace("Its confidence", "The probability of class 1")
    of_two = of_two.replace("its confidence", "the probability of class 1")
    assert plain(evaluated(told(*gap))) == rows + of_two


def test_what_noise_drowns_is_no_number():
    alone = {"metrics": {"ks": told(0.013, 0.0, 0.027), "roc_auc": told(None, 0.0, 1.0)}}
    unknown = "ROC AUC could not be measured under this noise."
    assert plain(alone) == f"{unknown} KS calibration error: 1.3 % (0.0 to 2.7)."
    nobody = evaluated(told(None, -1.0, 1.0), rows={"value": None, "noise": None})
    assert plain(nobody) == "No client was contacted in a round, so nothing is known."
    result = evaluated(told(None, -1.0, 1.0))
    result["metrics"]["accuracy"] = told(None, 0.0, 1.0)
    assert not any(c.isdigit() for c in plain(result).replace("class 1", ""))
    result["metrics"]["accuracy"] = told(None, 0.38, 0.72)
    assert plain(result).startswith("Right in 38 to 72 % of the rows.")


def test_scores_that_are_right_on_average_only():
    p_values = {"ks": 0.3, "hosmer_lemeshow": 0.02}
    tests = {"metrics": {k: {"statistic": 1.0, "p_value": p} for k, p in p_values.items()}}
    assert "but not score by score (p = 0.04)." in plain(
        evaluated(told(0, -0.03, 0.05), tests=tests)
    )
    tests["metrics"]["hosmer_lemeshow"]["p_value"] = 0.03  # .06 of two tests
    assert "score by score" not in plain(evaluated(told(0, -0.03, 0.05), tests=tests))


def grouped(**p_values: float) -> dict[str, Any]:
    gaps = {"a": told(-0.16, -0.25, -0.07), "b": told(None, 0.02, 0.32), "c": told(0.0, -0.1, 0.1)}
    groups = {name: {"metrics": {"gap": gap}} for name, gap in gaps.items()}
    tests = {"groups": {"statistic": 9.0, "p_value": 0.01, "by_group": p_values}}
    of = {"groups": groups | {"few": {"suppressed": True}}, "tests": {"metrics": tests}}
    return evaluated(told(0.0, -0.03, 0.05), "confidence", **of)


def test_only_groups_that_stand_out_are_named_and_the_rest_is_no_all_clear():
    said = plain(grouped(a=0.01, b=0.2, c=0.9))
    assert said.endswith(
        "By group it is too low for a (by 16); elsewhere gaps below 12 to 18 "
        "points could go unseen."
    )
    said = plain(grouped(a=0.01, b=0.02, c=0.9))
    assert "too low for a (by 16) and too high for b (by 2 to 32); elsewhere gaps" in said
    said = plain(grouped(a=0.06, b=0.2, c=0.9))
    assert "Over the 3 groups it is off (p = 0.01), but none stands out" in said


def test_holm_is_no_plain_bonferroni():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06}
    )
    assert holm({}) == {}


def calibrated(ece: list[float], nll: list[float], **more: Any) -> dict[str, Any]:
    before = {"accuracy": 0.9, "ece": 0.05, "classwise_ece": 0.14, "nll": 0.40}
    after = {"accuracy": 0.9, "ece": 0.01, "classwise_ece": 0.13, "nll": 0.35}
    change = {"ece": ece, "classwise_ece": ece, "nll": nll, "accuracy": [0.0, 0.0]}
    intervals = {"difference": change, "after": {"accuracy": [0.87, 0.93]}}
    return {"score": "confidence", "before": before, "after": after, "intervals": intervals, **more}


@pytest.mark.parametrize(
    ("ece", "nll", "said"),
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
        ([-0.05, 0.03], [0.02, 0.04], "made the probabilities worse:"),
        ([-0.05, -0.03], [0.02, 0.04], "made top-label ECE better and log loss worse:"),
        ([0.0, 0.0], [0.0, 0.0], "changed nothing:"),
    ],
)
def test_what_calibration_did(ece, nll, said):
    assert plain(calibrated(ece, nll)).startswith(f"Calibration {said}")
    assert plain(calibrated(ece, nll)).endswith("Accuracy stays 90 % (87 to 93).")
    of_two = plain(calibrated(ece, nll, score="positive"))
    assert "ECE of class 1" in of_two
    assert "top-label" not in of_two


def test_without_intervals_or_test_rows_nothing_is_better_or_worse():
    said = plain(calibrated([], [], intervals=None))
    few = "too few test rows to tell better from worse."
    assert said == f"Calibration: top-label ECE from 5.00 to 1.00 %; {few}"
    assert "it is unknown here" in plain({"before": None, "after": None, "method": "fedtemp"})


def test_a_second_model():
    metrics = {"accuracy": told(0.961, 0.95, 0.97), "log_loss": told(0.1, 0.09, 0.11)}
    other = {"accuracy": told(0.976, 0.97, 0.98), "log_loss": told(0.08, 0.07, 0.09)}
    change = {"accuracy": told(0.015, -0.001, 0.03), "log_loss": told(None, -0.04, 0.02)}
    result = {"metrics": metrics, "metrics_other": other, "metrics_difference": change}
    assert plain(result).endswith(
        "The second model does not differ beyond chance: accuracy from 96.1 to 97.6 %, log loss "
        "from 0.10 to 0.08."
    )
    change["accuracy"] |= {"low": 0.001}
    assert "The second model is better: " in plain(result)


def test_sets_against_what_was_wanted():
    after = {"coverage": 0.887, "set_size": 1.7}
    whole = {"all": {"rows": 9, "coverage": 0.887, "low": 0.87, "high": 0.895, "set_size": 1.7}}
    result: dict[str, Any] = {"sets": {"alpha": 0.1}, "before": {}, "after": after}
    result["coverage_by"] = {"whole": whole}
    # the rows of the threshold vary, too: the interval of test rows alone decides nothing
    assert "; 90 % wanted" in plain(result)
    result["coverage_warnings"] = ["Sets cover 88.7 % of the test rows, less than asked for."]
    assert "fewer than the 90 % wanted by more than chance" in plain(result)


def test_drift_is_corrected_for_three_tests():
    p_values = {"score": 0.001, "calibration": 0.03, "prevalence": 0.5}
    changes = {name: {"change": 0.1, "p_value": p} for name, p in p_values.items()}
    assert (
        plain({"changes": changes}) == "Since the earlier release the scores changed beyond chance."
    )
