"""Each calibrator against its definition; the laws of all of them are in the contract."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from made_up import scored
from refusals import refused
from scipy.optimize import minimize_scalar

from fedcal.calibrators import BBQ, HistogramBinning, TemperatureScaling, WeightedBinning
from fedcal.calibrators.histogram_binning import PRIOR_ROWS, norm_sub, shrunk
from fedcal.core.fitting import label_entries, tempered_moments
from fedcal.core.numerics import shifted, softmax
from fedcal.metrics.binning import cells_of


def rows(classes: int, n: int = 500, hardness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    return scored(classes, n, [classes, n], hardness, 3.0)


def log_loss(logits: np.ndarray, labels: np.ndarray, log_t: float) -> float:
    z = shifted(logits) * math.exp(-log_t)
    return float((np.log(np.exp(z).sum(axis=1)) - label_entries(z, labels)).sum())


@pytest.mark.parametrize(
    ("classes", "n", "hardness"), [(2, 300, 2.0), (10, 50, 1.0), (10, 5000, 6.0), (3, 4001, 7.0)]
)
def test_the_fit_is_the_optimum(classes, n, hardness):
    logits, labels = rows(classes, n, hardness)
    log_t = math.log(TemperatureScaling().fit(logits, labels).temperature)
    assert abs(log_t) < math.log(19)  # an inner one
    a, z = math.exp(-log_t), shifted(logits)
    mean, var = tempered_moments(z, a)
    gradient = a * (mean - label_entries(z, labels)).sum()
    curvature = a * a * var.sum()
    assert abs(gradient) < 1e-6 * curvature  # a Newton step from here
    twin = minimize_scalar(
        lambda t: log_loss(logits, labels, t),
        bracket=(log_t - 0.1, log_t + 0.1),
        options={"xtol": 1e-10},
    )
    # the loss is flat at its bottom: a comparison of values tells log T to sqrt(eps) at best
    assert log_t == pytest.approx(float(twin.x), abs=1e-6)


def test_a_class_that_is_masked_out_does_not_matter():
    """Masks are often the lowest float32."""
    logits, labels = rows(3)
    expected = TemperatureScaling().fit(logits, labels).temperature
    for mask in (-1e4, float(np.finfo(np.float32).min), -1e90):
        masked = np.concatenate([logits, np.full((len(logits), 1), mask)], axis=1)
        got = TemperatureScaling().fit(masked, labels).temperature
        assert got == pytest.approx(expected, rel=1e-9)


def test_histogram_binning_by_hand():
    positive = np.array([[0.0, 1.0, 3.0, 0.0], [5.0, 0.0, -2.0, -1.0], [0.0] * 4])
    negative = np.array([[4.0, 3.0, 1.0, 0.0], [-5.0, 0.0, 2.0, -1.0], [0.0] * 4])
    table = HistogramBinning.from_histograms(positive, negative, 3).table
    # an empty bin returns its midpoint; a negative (noisy) count is none
    assert table[:2].tolist() == [[0.0, 0.25, 0.75, 0.875], [1.0, 0.375, 0.0, 0.875]]


def slow_bbq(positive: list[float], negative: list[float], estimate: str) -> list[float]:
    """Naeini et al. 2015 with N' = 2, in plain Python, one class; "share": Maddock et al., B.4."""
    fine = len(positive)
    p_fine, n_fine = ([max(v, 0.0) for v in counts] for counts in (positive, negative))
    models = []
    bins = 2
    while bins <= fine:
        width = fine // bins
        score, means = 0.0, []
        for b in range(bins):
            p = sum(p_fine[b * width : (b + 1) * width])
            n = sum(n_fine[b * width : (b + 1) * width])
            middle = (b + 0.5) / bins
            alpha, beta = 2 / bins * middle, 2 / bins * (1 - middle)
            score += math.lgamma(2 / bins) - math.lgamma(p + n + 2 / bins)
            score += math.lgamma(p + alpha) - math.lgamma(alpha)
            score += math.lgamma(n + beta) - math.lgamma(beta)
            if estimate == "share":
                means += [p / (p + n) if p + n > 0 else middle] * width
            else:
                means += [(p + alpha) / (p + n + 2 / bins)] * width
        models.append((score, means))
        bins *= 2
    top = max(score for score, _ in models)
    weights = [math.exp(score - top) for score, _ in models]
    return [
        sum(w * means[b] for w, (_, means) in zip(weights, models, strict=True)) / sum(weights)
        for b in range(fine)
    ]


@pytest.mark.parametrize(("bins", "noise"), [(2, 3.0), (8, 0.0), (32, 3.0)])
@pytest.mark.parametrize("estimate", ["posterior", "share"])
def test_bbq_against_a_slow_twin(bins, noise, estimate):
    rng = np.random.default_rng(bins)
    rise = np.linspace(0, 1, bins)
    positive, negative = (
        rng.poisson(mean, (3, bins)) + noise * rng.normal(size=(3, bins))
        for mean in (6 * rise, 4 * rise[::-1])
    )
    positive[2] = negative[2] = 0.0  # a class that nobody has
    table = BBQ.from_histograms(positive, negative, 3, estimate=estimate).table
    counts = zip(positive.tolist(), negative.tolist(), strict=True)
    expected = [slow_bbq(p, n, estimate) for p, n in counts]
    np.testing.assert_allclose(table, expected, rtol=1e-11)


@pytest.mark.parametrize("std", [1e-6, 30.0, 1e6])
def test_a_bin_is_weighed_by_what_is_known_of_it_despite_the_noise(std):
    """Without noise all is; with that of 30 some; with that of a million nothing."""
    rng, rate = np.random.default_rng(4), np.array([[0.5, 0.1, 0.9, 0.6]])
    rows = np.array([[4000.0, 40.0, 0.0, 400.0]])
    variance = np.full((1, 4), std**2)
    noisy = [rows * r + std * rng.normal(size=(1, 4)) for r in (rate, 1 - rate)]
    table, weights = shrunk(*noisy, variance, variance)
    assert ((table >= 0) & (table <= 1) & (weights >= 0) & (weights <= 1)).all()
    if std < 1:
        np.testing.assert_allclose(weights[rows > 0], 1, atol=1e-6)
        np.testing.assert_allclose(table[rows > 0], rate[rows > 0], atol=1e-4)
    elif std == 30:
        signal, noise = (4000.0**2 - 2 * 900) / 4, 900 * (0.5**2 + 0.5**2)
        assert weights[0, 0] == pytest.approx(signal / (signal + PRIOR_ROWS * noise), abs=0.005)
        assert (weights[0, 1:3] < 0.2).all()
    else:
        assert weights.max() < 0.02


@pytest.mark.parametrize("bins", [0, 1, 3, 6, 100])
def test_bbq_needs_a_power_of_two_of_bins(bins):
    counts = np.ones((3, bins))
    refused("BBQ needs a power of two of bins", BBQ.from_histograms, counts, counts, 3)


def test_pooled_fit_is_from_histograms_of_all_rows():
    logits, labels = rows(10)
    counts = np.bincount(cells_of(softmax(logits), labels, 128).ravel(), minlength=2560)
    federated = BBQ.from_histograms(*counts.astype(float).reshape(2, -1, 128), 10)
    np.testing.assert_array_equal(federated.table, BBQ().fit(logits, labels).table)


def test_a_row_of_zeros_keeps_the_models_probabilities():
    table = np.array([[0.0, 1.0], [0.0, 0.5], [0.0, 0.0]])
    logits = np.log([[0.3, 0.3, 0.4], [0.8, 0.1, 0.1]])
    base = HistogramBinning(table, 3)
    for calibrator in (base, WeightedBinning(base, np.ones(3))):
        got = calibrator.predict_proba(logits)
        np.testing.assert_array_equal(got[0], softmax(logits)[0])
        assert got[1].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(("kind", "classes"), [(HistogramBinning, 2), (BBQ, 10)])
@pytest.mark.parametrize("mixed", ["all", "changed"])
def test_weight_one_is_the_base_bit_for_bit_and_weight_zero_the_model(kind, mixed, classes):
    logits, labels = rows(classes)
    base = kind().fit(logits, labels)
    weighted = WeightedBinning(base, np.ones(len(base.table)), mixed)
    np.testing.assert_array_equal(weighted.predict_proba(logits), base.predict_proba(logits))
    if mixed == "all":
        model = WeightedBinning(base, np.zeros(len(base.table)))
        np.testing.assert_allclose(model.predict_proba(logits), softmax(logits), rtol=1e-14)


def test_changed_mixes_only_rows_whose_prediction_changes():
    logits, labels = rows(10, 400, 4.0)
    base = HistogramBinning().fit(logits, np.random.default_rng(0).permutation(labels))
    weights = np.full(len(base.table), 0.3)
    plain = base.predict_proba(logits)
    changed = plain.argmax(axis=1) != softmax(logits).argmax(axis=1)
    assert 0.05 < changed.mean() < 0.95
    got = WeightedBinning(base, weights, "changed").predict_proba(logits)
    np.testing.assert_array_equal(got[~changed], plain[~changed])
    mixed = WeightedBinning(base, weights, "all").predict_proba(logits)
    np.testing.assert_array_equal(got[changed], mixed[changed])
    assert (mixed[~changed] != plain[~changed]).any(axis=1).mean() > 0.9


COUNTS = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=20),
    elements=st.floats(-1e6, 1e6, allow_subnormal=False),
)


@given(COUNTS)
def test_norm_sub_is_not_negative_and_keeps_the_total(counts):
    """The order stays, and the same is taken from all that stay, where there are negatives."""
    got, close = norm_sub(counts), 1e-9 * float(np.abs(counts).sum() + 1e-300)
    assert (got >= 0).all()
    negative = (counts < 0).any(axis=1)
    total = counts.sum(axis=1)
    assert got.sum(axis=1) == pytest.approx(np.maximum(total, 0.0), abs=close)
    assert not got[negative & (total <= 0)].any()
    assert np.array_equal(got[~negative], counts[~negative])
    for before, after in zip(counts, got, strict=True):
        taken = (before - after)[after > 0]
        if len(taken):
            assert taken == pytest.approx(taken[0], abs=close)
            assert taken[0] >= -close  # a total is never raised
            assert (before[after == 0] <= taken[0] + close).all()
