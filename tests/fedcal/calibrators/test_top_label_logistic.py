"""A temperature, then a logistic map of the predicted class's log-odds."""

import numpy as np
import pytest

from fedcal.calibrators import TemperatureScaling, TopLabelLogistic
from fedcal.calibrators.top_label_logistic import derivatives, mapped, top_log_odds
from fedcal.core.errors import InputError
from fedcal.core.numerics import shifted, softmax
from fedcal.core.types import Floats, Integers
from fedcal.metrics import ece


def polarised(n: int = 20_000, seed: int = 0) -> tuple[Floats, Integers]:
    """Rows that are crowded at both ends of the confidence: no temperature straightens that."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (n, 5))
    y = (softmax(z).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, 4)
    top = softmax(z).max(axis=1)
    return z * np.where(top > 0.6, 3.0, 1.0)[:, None], y


def test_the_identity_changes_nothing():
    z = np.random.default_rng(1).normal(0, 8, (500, 4))  # some beyond the cut
    np.testing.assert_allclose(TopLabelLogistic(classes=4).calibrated(z), softmax(z), atol=1e-12)


def test_log_odds_are_those_of_the_largest_probability():
    z = np.random.default_rng(2).normal(0, 1.5, (300, 4))
    p = softmax(0.7 * z).max(axis=1)
    np.testing.assert_allclose(top_log_odds(shifted(z), 0.7), np.log(p / (1 - p)), atol=1e-9)


def test_derivatives_are_those_of_the_loss():
    rng = np.random.default_rng(3)
    s, right = rng.normal(2, 2, 200), (rng.random(200) < 0.7).astype(np.float64)

    def loss(w: Floats) -> float:
        v = mapped(w[0], w[1], s)
        return float(-(right * np.log(v) + (1 - right) * np.log1p(-v)).sum())

    w, step = np.array([0.2, 0.8]), 1e-5
    g0, g1, _, h01, _ = derivatives(w[0], w[1], s, right).sum(axis=0)
    across = np.array([[step, 0.0], [0.0, step]])
    slopes = [(loss(w + d) - loss(w - d)) / (2 * step) for d in across]
    assert slopes == pytest.approx([g0, g1], rel=1e-5)
    beside = [derivatives(w[0], w[1] + t, s, right)[:, 0].sum() for t in (step, -step)]
    assert (beside[0] - beside[1]) / (2 * step) == pytest.approx(h01, rel=1e-5)


def test_it_undoes_what_no_temperature_does_and_keeps_predictions():
    z, y = polarised()
    new, of = polarised(seed=1)
    one, ours = TemperatureScaling().fit(z, y), TopLabelLogistic().fit(z, y)
    assert ours.temperature == one.temperature
    gaps = [ece(calibrator.calibrated(new), of) for calibrator in (one, ours)]
    assert gaps[1] < 0.7 * gaps[0]
    assert (ours.calibrated(new).argmax(axis=1) == new.argmax(axis=1)).all()


@pytest.mark.parametrize("w", [[0.0], [0.0, np.nan], [0.0, 40.0]])
def test_what_is_no_map_is_refused(w):
    with pytest.raises(InputError, match="2 numbers, offset and slope"):
        TopLabelLogistic(1.0, w, 3)
