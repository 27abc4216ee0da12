"""The sentence above the table: who is best, and whether the seeds tell it from the next."""

from typing import Any

import numpy as np
import pytest

from fedcal import metrics
from fedcal.metrics import Reliability
from fedcal.results.comparison import as_table, headline, marks_of


def over(*values: float) -> dict[str, Any]:
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": std, "values": [*values]}


def line(label: str, *nll: float, **more: Any) -> dict[str, Any]:
    known = {
        **{"label": label, "method": label.lower(), "before": {"nll": over(0.5)}},
        **{"data": "d", "partition": "iid", "clients": 5, "unit": "user", "trust": "central"},
        **{"epsilon": 1.0, "mechanism": "gaussian", "sampling_rate": 1.0, "rounds": 1},
        **{"delta": 1e-5, "noise_std": 1.0, "bytes_up": 1, "bytes_down": 1, "failures": []},
        **{"baseline": False, "seeds": [*range(len(nll))], "seconds": {"mean": 1.0, "std": 0.0}},
    }
    more["after"] = {"nll": over(*nll)} | more.get("after", {})
    return known | more


NONE = line("uncalibrated", 0.5, method="none", baseline=True, epsilon=float("inf"))


def test_a_winner_is_sure_where_the_difference_seed_by_seed_exceeds_its_error():
    seeds = [0.2, 0.3, 0.4]  # far apart, but the same rows for each method
    best, next_one = (
        line("A", *seeds),
        line("B", *(s + 0.01 + d for s, d in zip(seeds, [0, 1e-3, -1e-3], strict=True))),
    )
    assert "epsilon = 1 A (0.3), uncalibrated 0.5." in headline([NONE, best, next_one])
    noisy = line("B", 0.31, 0.21, 0.41)
    assert "A (0.3), within the noise of the seeds of B (0.31)" in headline([NONE, best, noisy])
    lines = [NONE, best, noisy, line("C", *(s + 0.1 for s in seeds)), line("D", 0.2, 0.2, 4.0)]
    stars = [[row[-1].best for row in as_table(some, ["nll"]).rows] for some in (lines, lines[:3])]
    assert stars == [[False, True, True, False, False], [False] * 3]  # none if all had one
    alone = [line("A", 0.2), line("B", 0.21)]
    assert "A (0.2) (one seed: the noise is unknown)" in headline(alone)


def collapsing(label: str, nll: float, resolution: float, **more: Any) -> dict[str, Any]:
    before = {"nll": over(0.5, 0.5), "resolution": over(0.1, 0.1)}
    ece = {"ece": over(1e-4, 1e-4), "resolution": over(resolution, resolution)}
    return line(label, nll, nll, before=before, after=ece, **more)


@pytest.mark.parametrize(
    ("resolution", "nll", "is_collapsed"),
    [(0.009, 0.46, True), (0.011, 0.69, False), (0.0, 0.44, False)],
)
def test_a_collapsed_calibrator_is_marked_and_wins_nothing(resolution, nll, is_collapsed):
    pooled = line("pooled", 0.45, method="pooled-temperature", baseline=True, epsilon=float("inf"))
    one = collapsing("flat", nll, resolution)
    lines = [NONE, pooled, one, collapsing("good", 0.47, 0.1)]
    assert ("†" in marks_of(one, lines)) is is_collapsed
    assert ("flat" in headline(lines)) is (not is_collapsed and nll < 0.47)
    shown = {row[0].text: row for row in as_table(lines, ["nll", "ece"]).rows}
    assert shown["flat"][0].mark == "†" * is_collapsed
    assert not (is_collapsed and shown["flat"][-2].best)


def test_resolution_and_uncertainty_are_murphy_s():
    rng = np.random.default_rng(0)
    score = (rng.integers(0, 15, 4000) + 0.5) / 15  # all rows of a bin have one probability
    probs, labels = np.c_[1 - score, score], rng.integers(0, 2, 4000)
    found = Reliability.of(probs, labels)
    share = np.array([labels[score == s].mean() for s in score])
    total = np.mean((score - share) ** 2) - found.resolution + found.uncertainty
    assert metrics.brier(probs, labels) == pytest.approx(total, abs=1e-12)
    labels = rng.integers(0, 4, 4000)
    constant = np.tile(np.bincount(labels) / 4000, (4000, 1))
    found = Reliability.of(constant, labels)
    assert found.resolution == pytest.approx(0, abs=1e-15)
    assert metrics.brier(constant, labels) == pytest.approx(found.uncertainty, abs=1e-12)


def test_a_line_without_skill_is_marked():
    def marks(*brier: float) -> str:
        after = {"brier": over(*brier), "uncertainty": over(*[0.2] * len(brier))}
        one = line("A", *[0.4] * len(brier), after=after)
        return marks_of(one, [one])

    assert marks(0.21, 0.21) == "‡"
    assert marks(0.21, 0.19) == marks(0.19, 0.19) == ""
