"""The sentence above the table: who is best, and whether the seeds tell it from the next."""

from typing import Any

from fedcal.experiments.runs.comparison.summary import headline


def line(label: str, mean: float, std: float = 0.001, **more: Any) -> dict[str, Any]:
    return {
        "label": label,
        "method": label.lower(),
        "after": {"classwise_ece": {"mean": mean, "std": std}},
        **{"data": "d", "partition": "iid", "clients": 5, "unit": "user", "trust": "central"},
        **{"epsilon": 1.0, "mechanism": "gaussian", "sampling_rate": 1.0, "rounds": 1},
        **{"baseline": False, "seeds": [0, 1], "failures": []},
        **more,
    }


NONE = line("uncalibrated", 0.05, method="none", baseline=True, epsilon=None)


def test_the_best_private_method_is_named_for_each_epsilon():
    lines = [
        NONE,
        line("Exact", 0.001, epsilon=None),
        line("A", 0.02),
        line("B", 0.03),
        line("A", 0.06, epsilon=0.1),
        line("B", 0.07, epsilon=0.1),
        line("C", 0.001, failures=[{"seed": 2}]),
    ]
    assert headline(lines) == (
        "Smallest mean classwise ECE on the test rows: at epsilon = 0.1 A (6 %), no better than "
        "uncalibrated 5 %; at epsilon = 1 A (2 %), uncalibrated 5 %."
    )
    assert "without privacy Exact (0.1 %), uncalibrated 5 %" in headline(lines[:2])


def test_a_winner_within_the_noise_is_no_winner_for_sure():
    close = [NONE, line("A", 0.02, 0.001), line("B", 0.0215, 0.002), line("C", 0.03)]
    assert "A (2 %), within the noise (std over seeds) of B (2.15 %)" in headline(close)
    alone = [line("A", 0.02, 0.0, seeds=[0]), line("B", 0.021, 0.0, seeds=[0])]
    assert "A (2 %) (one seed: the noise is unknown)" in headline(alone)


def test_promises_are_told_apart_and_not_ranked_against_each_other():
    lines = [line("A", 0.02), line("A", 0.03, mechanism="laplace")]
    assert "A, mechanism gaussian (2 %)" in headline(lines)
    lines = [line("A", 0.02), line("A", 0.01, trust="local"), line("B", 0.03)]
    said = headline(lines)
    assert "at epsilon = 1, trust central A (2 %)" in said
    assert "at epsilon = 1, trust local A (1 %)" in said


def test_of_many_settings_the_winners_are_counted():
    lines = [line(m, e) for m, e in (("A", 0.02), ("B", 0.0205))]
    lines += [line("A", 0.02, clients=k) for k in (10, 20)]
    lines += [line(m, e, clients=30) for m, e in (("A", 0.03), ("B", 0.01))]
    assert headline(lines) == (
        "Smallest mean classwise ECE on the test rows, of 4 settings: A in 3, B in 1 (within the "
        "noise (std over seeds) of the next in 1 of them)."
    )


def test_without_a_method_that_ended():
    assert headline([NONE]) == "Nothing but baselines was run."
    failed = line("A", 0.1, failures=[{"seed": 2}])
    assert headline([NONE, failed]) == "No method was run to its end with every seed."
