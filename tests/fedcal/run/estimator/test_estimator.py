"""scikit-learn estimators: their own rules, scikit-learn's checks, and a whole pipeline."""

from typing import Any

import numpy as np
import pytest
from refusals import refused

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcal.calibrators import BBQ, TemperatureScaling
from fedcal.core.checks import PrivacyError
from fedcal.core.numerics import softmax
from fedcal.datasets import from_arrays
from fedcal.datasets.model_scores import scores_of
from fedcal.partition import deal
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.run.estimator import CalibratedModel, FederatedCalibrator
from fedcal.strategies.methods.newton import FedNewton


def overconfident(n: int = 600, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits at three times their right scale, and labels."""
    rng = np.random.default_rng([seed, classes])
    z = rng.normal(scale=1.5, size=(n, classes))
    u = rng.random(n)
    labels = (np.cumsum(softmax(z), axis=1) < u[:, None]).sum(axis=1)
    return 3 * z, np.minimum(labels, classes - 1)


def features(n: int = 400, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, classes, 1])
    labels = rng.integers(0, classes, n)
    return rng.normal(size=(n, 5)) + np.eye(5)[labels] * 1.5, np.array(["c", "a", "b"])[labels]


# The columns of X are scores, one for each class: there fewer than classes, or without meaning.
DOES_NOT_APPLY = (
    *("check_classifiers_classes", "check_classifiers_train", "check_readonly_memmap_input"),
    *("check_estimators_fit_returns_self", "check_estimators_overwrite_params"),
)


def failing(estimator: Any) -> dict[str, str]:
    none = isinstance(estimator, CalibratedModel)
    return {} if none else dict.fromkeys(DOES_NOT_APPLY, "X are scores")


@parametrize_with_checks(
    [
        FederatedCalibrator("fedbbq", clients=7, partition="iid"),
        # three folds, as scikit-learn's own list of checks has it for CalibratedClassifierCV
        CalibratedModel(GaussianNB(), FederatedCalibrator(input="probs"), cv=3),
    ],
    expected_failed_checks=failing,
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of labels that have nothing to do with rows
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_all_rows_are_fitted_on():
    logits, labels = overconfident()
    fitted = FederatedCalibrator(clients=20, partition="iid", seed=3).fit(logits, labels)
    shards = deal(from_arrays(logits=logits, labels=labels), "iid", 20, 3)
    strategy = FedNewton(Federation(clients=20, classes=3, seed=3))
    assert fitted.calibrator_.arrays() == run_inline(strategy, shards).arrays()
    refused("keeps its ledger", strategy.charge_to, None, error=PrivacyError)


def test_a_client_column_is_the_natural_partition():
    logits, labels = overconfident()
    client = np.array(["ward", "clinic", "home"])[np.arange(600) % 3]
    fitted = FederatedCalibrator("fedtemp").fit(logits, labels, client=client)
    other = FederatedCalibrator("fedtemp", clients=3).fit(logits, labels)
    assert fitted.result_.records[0]["values"] != other.result_.records[0]["values"]
    same = FederatedCalibrator("fedtemp", partition="natural", clients=3)
    assert same.fit(logits, labels, client=client).result_.records == fitted.result_.records
    assert fitted.privacy_["releases"] == 12
    for options, words in (({"clients": 4}, "must be 3, got 4"), ({"partition": "iid"}, "unknown")):
        refused(words, FederatedCalibrator(**options).fit, logits, labels, client=client)


def test_columns_are_the_sorted_labels_or_those_that_are_named():
    logits, labels = overconfident()
    plain = FederatedCalibrator().fit(logits, labels)
    for names, classes in (("1 2 3", None), ("cat ant bee", ["cat", "ant", "bee"])):
        called = np.array(names.split())
        fitted = FederatedCalibrator(classes=classes).fit(logits, called[labels])
        np.testing.assert_array_equal(fitted.classes_, called)
        np.testing.assert_array_equal(fitted.predict_proba(logits), plain.predict_proba(logits))
        np.testing.assert_array_equal(fitted.predict(logits), called[plain.predict(logits)])
    for classes, y, words in (
        (None, ["ant", "bee", "ant"], "label 'ant' at row 0 is not among classes"),
        (["cat", "ant", "bee"], ["dog", "ant", "bee"], "label 'dog' at row 0 is not among"),
        (["cat", "ant"], ["cat", "ant", "ant"], "classes must be 3 different names"),
        (None, ["sick", "well", "well"], "for features use CalibratedModel"),
    ):
        refused(words, FederatedCalibrator(classes=classes).fit, logits[:9], y * 3)


def test_fit_warns_at_the_callers_line():
    logits, labels = overconfident(classes=2)
    base = LogisticRegression().fit(logits, labels)
    for model in (FederatedCalibrator(), CalibratedModel(base, TemperatureScaling())):
        for x, words in ((1e3 * logits, "is at an end of its range"), (-logits, "wrong way round")):
            with pytest.warns(UserWarning, match="range|round|columns") as caught:
                model.fit(x, labels)
            assert (__file__, True) in {(w.filename, words in str(w.message)) for w in caught}


def test_a_row_of_a_decision_function_may_look_like_probabilities():
    x, y = features()
    base = LogisticRegression().fit(x, y)
    base.decision_function = lambda rows: np.tile([0.2, 0.3, 0.5], (len(rows), 1))
    model = CalibratedModel(base, TemperatureScaling(2.0, 3))
    np.testing.assert_allclose(model.predict_proba(x[:1]), softmax(np.array([[0.1, 0.15, 0.25]])))


CALIBRATORS = {
    "temperature": TemperatureScaling(),
    "bbq": BBQ(),
    "federated": FederatedCalibrator(clients=5, partition="iid"),
    "federated, probs": FederatedCalibrator("fedbbq", clients=5, input="probs"),
}


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_fitted_classifier_is_kept_and_all_rows_calibrate(name):
    (x, y), (x2, y2), calibrator = features(), features(seed=1), CALIBRATORS[name]
    base = LogisticRegression().fit(x, y)
    frozen = FrozenEstimator(base) if name in ("bbq", "federated") else base
    model = CalibratedModel(frozen, calibrator).fit(x2, y2)
    scores, by_hand = scores_of(base, x2, calibrator.input), clone(calibrator, safe=False)
    federated = isinstance(calibrator, FederatedCalibrator)
    by_hand.fit(scores, y2 if federated else np.searchsorted(base.classes_, y2))
    np.testing.assert_array_equal(model.predict_proba(x2), by_hand.predict_proba(scores))
    assert not hasattr(calibrator, "calibrator_")  # neither parameter is changed
    assert not getattr(calibrator, "classes", None)


def test_one_temperature_is_that_of_calibrated_classifier_cv():
    (x, y), (x2, y2) = features(n=600), features(n=600, seed=1)
    base = LogisticRegression(C=1e4).fit(x[:40], y[:40])
    for estimator, rows in ((FrozenEstimator(base), (x2, y2)), (GaussianNB(), (x, y))):
        peer = CalibratedClassifierCV(estimator, method="temperature", ensemble=False, cv=5)
        ours = CalibratedModel(estimator, TemperatureScaling(), cv=5)
        want, got = (m.fit(*rows).predict_proba(x2) for m in (peer, ours))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-3)
        assert ours.score(x2, y2) == peer.score(x2, y2)


def test_subjects_are_those_that_fit_gets():
    logits, labels = overconfident()
    client, names = np.arange(len(labels)) % 7, [f"patient {k // 9}" for k in range(len(labels))]
    own = FederatedCalibrator(epsilon=2.0, unit="subject")
    refused("unit 'subject' needs a column subject", own.fit, logits, labels, client=client)
    more = own.fit(logits, labels, client=client, subject=names).privacy_["more"]
    assert not any("deals rows, not subjects" in line for line in more)
    each = FederatedCalibrator(epsilon=2.0, unit="example").fit(logits, labels, client=client)
    own.fit(logits, labels, client=client, subject=np.arange(len(labels)))
    assert own.privacy_["noise_std"] == each.privacy_["noise_std"]
