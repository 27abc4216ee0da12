"""Metrics of noisy counts: gradients, bounds, what intervals cover, and what is said of noise."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats
from fedcal.evaluation import (
    METRICS,
    Histogram,
    compare,
    cox,
    decision_curve,
    evaluate,
    page,
    pr_curve,
    roc_curve,
)
from fedcal.evaluation.estimators.calibration import ECES, Ece, reliability
from fedcal.evaluation.estimators.metrics import SmoothMetric, edge_index
from fedcal.evaluation.findings import findings
from fedcal.evaluation.intervals import IntervalOptions, Span, estimate, fieller, normal_quantile
from fedcal.mechanisms import NoiseDistribution

BUCKETS = 240
EDGES = np.arange(BUCKETS + 1) / BUCKETS
MIDDLES = (EDGES[1:] + EDGES[:-1]) / 2
NORMAL = NoiseDistribution()


def truth(a: float, b: float, slope: float = 1.0, shift: float = 0.0) -> Floats:
    """Probabilities of outcome and bucket: beta scores, outcomes by a logistic regression."""
    weight = stats.beta(a, b).pdf(MIDDLES)
    p = 1 / (1 + np.exp(-slope * np.log(MIDDLES / (1 - MIDDLES)) - shift))
    return np.asarray(np.stack([weight * (1 - p), weight * p]) / weight.sum())


def toeplitz(std: float) -> Floats:
    """Noise of counts whose prefix sums were released with a nearly constant noise."""
    column = np.cumprod(np.append(1.0, 1 - 0.5 / np.arange(1, BUCKETS)))
    i = np.arange(BUCKETS)
    strategy = np.where(i[:, None] >= i, column[np.abs(i[:, None] - i)], 0.0)
    return np.asarray(std * np.linalg.norm(column) * np.linalg.inv(strategy))


def releases(
    probabilities: Floats,
    rows: int,
    root: Floats,
    number: int,
    distribution: NoiseDistribution = NORMAL,
) -> list[Histogram]:
    rng = np.random.default_rng(7)
    counts = rng.multinomial(rows, probabilities.ravel(), number).reshape(number, 2, -1)
    first = Histogram(EDGES, counts[0].astype(float), root, distribution)
    noise = first.draws(rng, number)
    return [
        Histogram(EDGES, c + e, root, first.distribution)
        for c, e in zip(counts, noise, strict=True)
    ]


@pytest.mark.parametrize("name", [name for name in METRICS if name not in ECES])
@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_gradients_are_those_of_finite_differences(name, noise):
    root = noise * np.eye(BUCKETS)
    h = releases(truth(2, 3, 0.8), 20_000, root, 1)[0]
    if not noise:
        h = Histogram.exact(EDGES, h.counts + 1)  # precision is not smooth where nobody is
    metric = METRICS[name](0.5)
    assert isinstance(metric, SmoothMetric)
    direction = np.random.default_rng(1).standard_normal(h.counts.shape)
    step = 1e-4

    def at(t: float) -> float:
        return metric.value(Histogram(EDGES, h.counts + t * direction, root))

    slope = (at(step) - at(-step)) / (2 * step)
    assert float((metric.gradient(h) * direction).sum()) == pytest.approx(slope, rel=1e-4)
    assert (metric.gradient(h) * h.counts).sum() == pytest.approx(0, abs=1e-9)


CASES = {
    "no noise": ((1, 1, 0.8), 2_000, np.zeros((BUCKETS, 0)), NoiseDistribution()),
    "some": ((1, 1, 0.8), 20_000, toeplitz(20), NoiseDistribution()),
    "more than sampling": ((0.3, 0.3, 0.8), 5_000, 10 * np.eye(BUCKETS), NoiseDistribution()),
    "skewed": ((1, 6, 0.8), 20_000, toeplitz(10), NoiseDistribution()),
    "double-exponential": ((1, 1, 0.8), 100_000, 40 * np.eye(BUCKETS), NoiseDistribution(True)),
    "dominating": ((1, 1, 0.8), 2_000, 12 * np.eye(BUCKETS), NoiseDistribution()),
}
SMOOTH = ("accuracy", "precision", "recall", "roc_auc", "brier", "log_loss_cut")
CAREFUL = ("specificity", "calibration_slope_cut")
"""Intervals that may cover more than they say."""


@pytest.mark.parametrize(
    ("runs", "within"), [(200, 0.04), pytest.param(1000, 0.025, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)))
def test_intervals_cover_95_percent(number, case, runs, within):
    """A third of the metrics in each case; `make test-all` crosses them.

    Where noise dominates, an interval cut at 0 and 1 may cover more.
    """
    shape, rows, root, distribution = CASES[case]
    probabilities = truth(*shape)
    exact = Histogram.exact(EDGES, rows * probabilities)
    every = (*SMOOTH, *CAREFUL)
    found = dict.fromkeys(every if runs == 1000 else every[number % 3 :: 3], 0.0)
    for h in releases(probabilities, rows, root, runs, distribution):
        for name in found:
            metric = METRICS[name](0.5)
            span = metric.span(h, IntervalOptions())
            found[name] += (span.low <= metric.value(exact) <= span.high) / runs
    assert min(found.values()) >= 0.95 - within, found
    smooth = [share for name, share in found.items() if name in SMOOTH]
    assert case == "dominating" or max(smooth) <= 0.95 + within, found


ERRORS = {
    "calibrated": ((1, 1, 1.0), 5_000, np.zeros((BUCKETS, 0))),
    "calibrated, noisy": ((1, 1, 1.0), 20_000, toeplitz(20)),
    "nearly, noisy": ((1, 1, 0.85), 20_000, 10 * np.eye(BUCKETS)),
    "overconfident, noisy": ((0.5, 0.5, 0.5), 5_000, toeplitz(10)),
    "skewed": ((1, 6, 0.8), 20_000, 5 * np.eye(BUCKETS)),
}


@pytest.mark.parametrize(
    ("case", "runs", "least"),
    [
        ("calibrated, noisy", 25, 0.88),
        # 93 % less 1.2 standard errors
        *(pytest.param(case, 300, 0.915, marks=pytest.mark.slow) for case in ERRORS),
    ],
)
def test_calibration_errors_are_covered(case, runs, least):
    shape, rows, root = ERRORS[case]
    probabilities = truth(*shape)
    exact = Histogram.exact(EDGES, rows * probabilities)
    metric, found = Ece(), 0.0
    for i, h in enumerate(releases(probabilities, rows, root, runs)):
        span, true = metric.span(h, IntervalOptions(seed=i)), metric.value(exact)
        found += (span.low <= (true if true > 1e-9 else 0.0) <= span.high) / runs
    assert found >= least


def test_noise_that_drowns_is_reported():
    h = releases(truth(1, 1, 0.8), 2_000, 100 * np.eye(BUCKETS), 1)[0]
    for name, found in evaluate(h, "positive").items():
        assert found.drowned, name
        assert found.to_json()["value"] is None, name
    assert evaluate(Histogram.exact(EDGES, np.zeros((2, BUCKETS))), "positive")["recall"].drowned
    for counts in (-np.ones((2, BUCKETS)), np.eye(2, BUCKETS) - 0.5):  # fewer than no rows
        found = evaluate(Histogram(EDGES, counts, np.eye(BUCKETS)), "positive")
        assert all(found[name].drowned for name in ("recall", "accuracy"))


@pytest.mark.parametrize(("level", "z"), [(0.95, 1.959964), (0.5, 0.674490)])
def test_a_metric_drowns_where_noise_alone_has_a_half_width_of_a_quarter(level, z):
    scale = 0.8
    for factor, drowned in ((0.9999, False), (1.0001, True)):
        noise = factor * 0.25 * scale / z
        span = Span(0.5, 0.4, 0.6, 0.1, noise)
        assert estimate(span, 0.0, (0.0, 1.0), scale, level).drowned == drowned
        assert estimate(replace(span, firm=False), 0.0, (0.0, 1.0), scale, level).drowned
    with pytest.raises(InputError, match=r"level must be in \(0, 1\)"):
        evaluate(Histogram.exact(EDGES, np.full((2, BUCKETS), 9.0)), "positive", level=1 + level)


@pytest.mark.parametrize("std", [0.0, 5.0, 12.0, 30.0])
def test_the_ece_is_never_below_the_size_of_the_gap(std):
    root = std * np.eye(BUCKETS) if std else np.zeros((BUCKETS, 0))
    for h in releases(truth(2, 3, 1.0, -0.2), 4_000, root, 3):
        found = evaluate(h, "positive")
        gap = found["gap"]
        size = replace(
            gap, value=abs(gap.value), low=max(gap.low, -gap.high, 0), high=max(-gap.low, gap.high)
        )
        for end in ("low", "high"):
            assert getattr(size, end) <= getattr(found["classwise_ece"], end) + 1e-12
        if not (size.drowned or found["classwise_ece"].drowned):
            assert size.value <= found["classwise_ece"].value + 1e-12
        assert std or found["classwise_ece"].high < 0.1
        alone = evaluate(h, "positive", only=("classwise_ece",))
        assert alone["classwise_ece"] == found["classwise_ece"]


def test_intervals_of_few_rows_are_no_points():
    counts = np.zeros((2, BUCKETS))
    counts[0, :80], counts[1, 20:24] = 5.0, 3.0  # 400 and 12 rows; none predicted positive
    found = evaluate(Histogram.exact(EDGES, counts), "positive")
    assert found["net_benefit"].low < -0.004 < 0.004 < found["net_benefit"].high
    assert found["recall"].high > 0.25  # of 0 of 12, Clopper and Pearson: .265
    curve = decision_curve(Histogram.exact(EDGES, counts))  # rows that were not drawn count alike
    assert found["net_benefit"].high == pytest.approx(curve.high[BUCKETS // 2])
    counts[1], counts[1, -4:] = 0.0, 3.0  # all in order
    found = evaluate(Histogram.exact(EDGES, counts), "positive")
    assert (found["roc_auc"].value, found["roc_auc"].high) == (1, 1)
    assert found["roc_auc"].low < 0.8
    assert found["calibration_slope_cut"].warning == "few rows are misplaced"
    assert found["brier"].warning == ""
    counts[:, 5] -= 4.0
    both = evaluate(Histogram(EDGES, counts, np.eye(BUCKETS)), "positive")
    parts = [both[name].value for name in ("recall", "specificity")]
    assert max(parts) <= 1


def test_with_noise_it_is_wilson_s_interval_of_fewer_rows():
    """70 of 100 scores are wrong, all near 0 or 1: the Brier score is a share of rows."""
    counts = np.array([[24.0, 0.0, 0.0, 56.0], [14.0, 0.0, 0.0, 6.0]])
    h = Histogram(np.array([0.0, 1e-4, 0.5, 1 - 1e-4, 1.0]), counts, 2.0 * np.eye(4))
    found = evaluate(h, "positive")["brier"]
    share = found.value
    rows = share * (1 - share) / (found.sampling**2 + found.noise**2)  # of the same variance
    assert 60 < rows < 80
    std = math.sqrt(found.low * (1 - found.low) / rows)  # with the share that is tested
    assert (share - 0.5 / rows - found.low) / std == pytest.approx(1.96, rel=0.03)


def test_a_threshold_between_two_edges_is_refused_with_both():
    h = releases(truth(1, 1, 0.8), 1000, np.eye(BUCKETS), 1)[0]
    near = ", ".join(f"{edge:.6g}" for edge in (EDGES[3], EDGES[4]))
    with pytest.raises(InputError, match=rf"the nearest: {near}$"):
        edge_index(h, float(EDGES[3:5].mean()))


def test_intervals_of_curves_are_fieller_s_of_sums_of_counts():
    """Noise of one variance v on each count: sums of them have variances in closed form."""
    v = 16.0
    h = releases(truth(1, 1, 0.8), 20_000, math.sqrt(v) * np.eye(BUCKETS), 1)[0]
    m = np.arange(BUCKETS, -1, -1.0)  # buckets from each edge on
    n, p = (np.append(np.cumsum(row[::-1])[::-1], 0.0) for row in h.counts)

    def share(top: Floats, bottom: Floats, noise: list[Floats]) -> tuple[Floats, Floats]:
        binomial = bottom * np.array([0.0, -0.5, -1.0])[:, None]  # bottom t (1 - t)
        half = np.where(np.minimum(top, bottom - top) < 30, 0.5, 0.0)  # of few, half a row
        variance = v * np.array(noise) + binomial
        ends = [fieller(top + s, bottom, variance, normal_quantile(0.9)) for s in (-half, half)]
        return ends[0][0], ends[1][1]

    all_p = np.full_like(p, p[0])
    some = np.arange(15).repeat(BUCKETS // 15)
    of_bin = [np.bincount(some, row) for row in h.counts]
    sixteen = np.full(15, BUCKETS / 15)
    for curve, (low, high) in (
        (roc_curve, share(p, all_p, [m, m, np.full_like(m, BUCKETS)])),
        (pr_curve, share(p, p + n, [m, m, 2 * m])),
        (reliability, share(of_bin[1], sum(of_bin), [sixteen, sixteen, 2 * sixteen])),
    ):
        found = curve(h, level=0.9)
        if curve is roc_curve:
            assert max(np.diff(found.x).max(), np.diff(found.y).max()) <= 1e-12
        shown = low if curve is reliability else found.y  # the others hold their points
        np.testing.assert_allclose(found.low, np.fmin(low, shown), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.high, np.fmax(high, shown), rtol=1e-9, atol=1e-12)


def test_a_test_of_calibration_keeps_its_level_and_has_power():
    def rejected(slope: float, root: Floats) -> float:
        drawn = releases(truth(1, 1, slope), 3_000, root, 30)
        return float(np.mean([cox(h).p_value <= 0.05 for h in drawn]))

    for root in (np.zeros((BUCKETS, 0)), toeplitz(5)):
        assert rejected(1.0, root) <= 0.17  # 3 standard errors above 5 %
    assert rejected(0.6, np.zeros((BUCKETS, 0))) > 0.9


def test_paired_differences():
    probabilities = truth(1, 1, 0.8)
    a, b = releases(probabilities, 20_000, toeplitz(5), 2)
    found = compare(a, b, "confidence")
    one, other = evaluate(a, "confidence"), evaluate(b, "confidence")
    for name, difference in found.items():
        assert difference.value == pytest.approx(other[name].value - one[name].value, abs=1e-9)
        assert difference.low <= 0 <= difference.high, name
        assert difference.binning == pytest.approx(one[name].binning + other[name].binning)
    counts = np.array([[2000.0, 600.0], [500.0, 16_900.0]])
    paired = compare(a, b, "confidence", agreement=counts)["accuracy"]
    assert paired.value == pytest.approx(100 / 20_000)
    assert paired.high - paired.low < found["accuracy"].high - found["accuracy"].low


def test_noise_of_a_paired_difference_is_that_of_its_four_cells():
    """(c - b) / n: Var(c - b) = 2 v, Var(n) = 4 v, and the two are uncorrelated."""
    a, b = releases(truth(1, 1, 0.8), 1_000, np.zeros((BUCKETS, 0)), 2)
    cells, v, z = np.array([[100.0, 400.0], [100.0, 400.0]]), 900.0, normal_quantile(0.95)
    sampling = np.array([500.0, 300.0, 1000.0])  # of moved rows, of c - b, of all
    compared = compare(a, b, "confidence", agreement=cells, agreement_noise=math.sqrt(v))
    found, variance = compared["accuracy"], v * np.array([2.0, 0.0, 4.0]) + sampling
    low, high = fieller(300.0, 1000.0, variance, z, (-1.0, 1.0))
    assert (found.low, found.high) == pytest.approx((float(low), float(high)))
    assert found.noise == pytest.approx(math.sqrt(v * (2 + 4 * 0.3**2)) / 1000)
    assert found.sampling == pytest.approx(math.sqrt((0.5 - 0.3**2) / 1000))


@pytest.mark.parametrize("noise", [0.0, 10.0])
def test_paired_differences_are_covered(noise):
    a, b = releases(truth(1, 1), 500, np.zeros((BUCKETS, 0)), 2)
    shares, rng, covered = [0.7, 0.05, 0.09, 0.16], np.random.default_rng(4), []
    for _ in range(400):
        cells = rng.multinomial(500, shares) + noise * rng.standard_normal(4)
        drawn = {"agreement": cells.reshape(2, 2), "agreement_noise": noise}
        found = compare(a, b, "confidence", only=["accuracy"], **drawn)["accuracy"]
        covered.append(found.low <= shares[1] - shares[2] <= found.high)
    assert 0.92 <= np.mean(covered) <= 0.98  # 95 %, and 3 standard errors


# -- findings: metrics of views and groups as JSON, and as parts of a page ------------------------


def drawn_histogram(rows: int, std: float, seed: int = 0) -> Histogram:
    """Rows whose share of outcome 1 is their score, in 60 buckets."""
    rng = np.random.default_rng(seed)
    score, edges = rng.random(rows), np.arange(61) / 60
    outcome = rng.random(rows) < score
    exact = np.array([np.histogram(score[outcome == k], edges)[0] for k in (False, True)])
    return Histogram(edges, exact + std * rng.standard_normal((2, 60)), std * np.eye(60))


def test_a_small_group_is_named_and_has_no_numbers():
    sizes = {"": 5000, "large": 2000, "middling": 300, "small": 15}
    histograms = {
        ("model", name, ""): drawn_histogram(rows, 3.0, max(k - 1, 0))
        for k, (name, rows) in enumerate(sizes.items())
    }
    found = findings(histograms, "positive")
    record = found.to_json()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["groups"]["small"] == {"suppressed": True}
    assert set(record["groups"]["middling"]) == {"metrics"}  # 300 rows, a noise of std 33
    shown = {part.title: part for part in page.parts(found, histograms)}
    table = shown["Groups"]
    assert [row[0] for row in table.rows] == ["large", "middling", "small"]
    assert table.rows[-1][1:] == ("too few", "", "", "", "", "")
    tests = record["groups_calibration"]["metrics"]
    assert set(tests["p_values"]) == {"large", "middling"}
    assert table.columns[-1] == "calibrated: p-value"
    assert [row[-1].endswith(": not calibrated") for row in table.rows[:2]] == [
        name in tests["not_calibrated"] for name in ("large", "middling")
    ]
    assert [page.p_shown(p, 1e-3) for p in (math.nan, 1e-5, 0.04)] == ["", "< 0.001", "0.040"]
    for title in ("Groups", "Accuracy by group", "Calibration in the large by group"):
        assert "Too few rows for any result: small." in shown[title].note


@pytest.mark.parametrize("std", [2.0, 40.0])
def test_two_accuracies_and_their_difference_are_of_the_same_counts(std):
    rng = np.random.default_rng(3)
    histograms = {(view, "", ""): drawn_histogram(4000, std, 9) for view in ("model", "other")}
    agreement = np.array([2700.0, 100.0, 300.0, 900.0]) + std * rng.standard_normal(4)
    record = findings(histograms, "positive", agreement=agreement, cell_std=std).to_json()
    one, other = (record[key]["accuracy"]["value"] for key in ("metrics", "metrics_other"))
    both, first, second, _ = agreement
    assert one == pytest.approx((both + first) / agreement.sum())
    assert other == pytest.approx((both + second) / agreement.sum())
    for name, change in record["metrics_difference"].items():
        pair = [record[key][name]["value"] for key in ("metrics", "metrics_other")]
        if change["value"] is not None:
            assert change["value"] == pytest.approx(pair[1] - pair[0], abs=1e-12), name
            assert change["low"] <= change["value"] <= change["high"], name
        assert (change["value"] is None) >= (None in pair), name
