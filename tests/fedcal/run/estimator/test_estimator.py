"""scikit-learn estimators: their own rules, scikit-learn's checks, and a whole pipeline."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcal.calibrators import BBQ, Identity, TemperatureScaling
from fedcal.core.checks import InputError
from fedcal.core.numerics import logits_from_probs, softmax
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
    of_scores = not isinstance(estimator, CalibratedModel)
    return dict.fromkeys(DOES_NOT_APPLY, "X are scores") if of_scores else {}


@parametrize_with_checks(
    [
        FederatedCalibrator("fedbbq", clients=7, partition="iid"),
        # three folds, as scikit-learn's own list of checks has it for CalibratedClassifierCV
        CalibratedModel(GaussianNB(), FederatedCalibrator(input="probs"), cv=3),
    ],
    expected_failed_checks=failing,
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_all_rows_are_fitted_on():
    logits, labels = overconfident()
    fitted = FederatedCalibrator(clients=20, partition="iid", seed=3).fit(logits, labels)
    shards = deal(from_arrays(logits=logits, labels=labels), "iid", 20, 3)
    assert len(shards.labels) == len(labels)
    want = run_inline(FedNewton(Federation(clients=20, classes=3, seed=3)), shards)
    assert fitted.calibrator_.arrays() == want.arrays()
    # without privacy FedNewton is pooled temperature scaling, of all rows and not of half of them
    pooled = TemperatureScaling().fit(logits, labels)
    assert fitted.calibrator_.temperature == pytest.approx(pooled.temperature, rel=1e-6)
    assert 2 < pooled.temperature < 4


def test_a_client_column_is_the_natural_partition():
    logits, labels = overconfident()
    client = np.array(["ward", "clinic", "home"])[np.arange(600) % 3]
    fitted = FederatedCalibrator("fedtemp").fit(logits, labels, client=client)
    other = FederatedCalibrator("fedtemp", clients=3).fit(logits, labels)
    assert fitted.result_.records[0]["values"] != other.result_.records[0]["values"]
    same = FederatedCalibrator("fedtemp", partition="natural", clients=3)
    assert same.fit(logits, labels, client=client).result_.records == fitted.result_.records
    assert fitted.privacy_["releases"] == 12
    with pytest.raises(InputError, match="must be 3, got 4"):
        FederatedCalibrator(clients=4).fit(logits, labels, client=client)
    with pytest.raises(InputError, match="unknown partition where fit gets client 'iid'"):
        FederatedCalibrator(partition="iid").fit(logits, labels, client=client)


def test_columns_are_the_sorted_labels_or_those_that_are_named():
    logits, labels = overconfident()
    plain = FederatedCalibrator().fit(logits, labels)
    for names, named in (("ant bee cat", None), ("1 2 3", None), ("cat ant bee", True)):
        told = np.array(names.split())
        fitted = FederatedCalibrator(classes=named and told.tolist()).fit(logits, told[labels])
        np.testing.assert_array_equal(fitted.classes_, told)
        np.testing.assert_array_equal(fitted.predict_proba(logits), plain.predict_proba(logits))
        np.testing.assert_array_equal(fitted.predict(logits), told[plain.predict(logits)])
        assert fitted.score(logits, told[labels]) == plain.score(logits, labels)
    two = labels != 1
    assert FederatedCalibrator().fit(logits[two], labels[two]).classes_.tolist() == [0, 1, 2]
    for classes, y, words in (
        (None, ["ant", "bee", "ant"], "label 'ant' at row 0 is not among classes"),
        (["cat", "ant", "bee"], ["dog", "ant", "bee"], "label 'dog' at row 0 is not among"),
        (["cat", "ant"], ["cat", "ant", "ant"], "classes must be 3 different names"),
    ):
        with pytest.raises(InputError, match=words):
            FederatedCalibrator(classes=classes).fit(logits[:9], y * 3)


@pytest.mark.parametrize(("classes", "kind"), [(2, "logits"), (3, "probs")])
def test_a_model_with_a_calibrator_behind_it(classes, kind):
    x, y = features(classes=classes)
    base = LogisticRegression().fit(x, y)
    calibrator = TemperatureScaling(2.0, classes)
    calibrator.input = kind
    model = CalibratedModel(base, calibrator)
    want = calibrator.calibrated(logits_from_probs(base.predict_proba(x)))
    np.testing.assert_allclose(model.predict_proba(x), want, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(model.classes_, base.classes_)
    np.testing.assert_array_equal(model.predict(x), base.predict(x))
    assert model.score(x, y) == base.score(x, y) > 0.5
    whole = make_pipeline(FunctionTransformer(np.negative), model).fit(-x, y)
    np.testing.assert_array_equal(whole.predict_proba(-x), model.predict_proba(x))
    np.testing.assert_array_equal(whole.classes_, base.classes_)
    same = CalibratedModel(base, Identity(classes)).predict_proba(x)
    np.testing.assert_allclose(same, base.predict_proba(x), rtol=0, atol=1e-12)


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
    scores = scores_of(base, x2, calibrator.input)
    by_hand = clone(calibrator, safe=False)
    if isinstance(calibrator, FederatedCalibrator):
        by_hand.set_params(classes=base.classes_).fit(scores, y2)
    else:
        by_hand.fit(scores, np.searchsorted(base.classes_, y2))
    np.testing.assert_array_equal(model.predict_proba(x2), by_hand.predict_proba(scores))
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    assert not hasattr(calibrator, "calibrator_")  # neither parameter is changed
    assert not getattr(calibrator, "classes", None)


@pytest.mark.parametrize(("name", "classes"), [*zip(CALIBRATORS, (2, 3, 3, 2), strict=True)])
def test_without_a_fitted_classifier_scores_come_from_cross_validation(name, classes):
    (x, y), calibrator = features(classes=classes), CALIBRATORS[name]
    base = make_pipeline(StandardScaler(), LogisticRegression(C=100.0))
    model = CalibratedModel(base, calibrator).fit(x, y)
    whole = clone(base).fit(x, y)
    np.testing.assert_array_equal(model.estimator_.predict_proba(x), whole.predict_proba(x))
    told = "predict_proba" if calibrator.input == "probs" else "decision_function"
    held_out = cross_val_predict(base, x, y, method=told)
    if held_out.ndim == 1:
        held_out = np.stack([0 * held_out, held_out], axis=1)
    want = clone(calibrator, safe=False)
    want.fit(held_out, np.searchsorted(whole.classes_, y))
    scores = scores_of(whole, x, calibrator.input)
    np.testing.assert_array_equal(model.predict_proba(x), want.predict_proba(scores))
    with pytest.raises(NotFittedError):
        base.predict(x)


def test_one_temperature_is_that_of_calibrated_classifier_cv():
    (x, y), (x2, y2) = features(n=600), features(n=600, seed=1)
    base = LogisticRegression(C=1e4).fit(x[:40], y[:40])
    for estimator, rows in ((FrozenEstimator(base), (x2, y2)), (GaussianNB(), (x, y))):
        peer = CalibratedClassifierCV(
            estimator, method="temperature", ensemble=False, cv=StratifiedKFold(5)
        )
        ours = CalibratedModel(estimator, TemperatureScaling(), cv=StratifiedKFold(5))
        want, got = (m.fit(*rows).predict_proba(x2) for m in (peer, ours))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-3)
        assert ours.score(x2, y2) == peer.score(x2, y2)


def test_subjects_are_those_that_fit_is_told():
    logits, labels = overconfident()
    client, names = np.arange(len(labels)) % 7, [f"patient {k // 9}" for k in range(len(labels))]
    own = FederatedCalibrator(epsilon=2.0, unit="subject")
    for subject, words in (
        (None, "unit 'subject' needs a column subject"),
        ([1, 2, 3], "subject: must have shape"),
    ):
        with pytest.raises(InputError, match=words):
            own.fit(logits, labels, client=client, subject=subject)
    said = own.fit(logits, labels, client=client, subject=names).privacy_["more"]
    assert not any("deals rows, not subjects" in line for line in said)
    each = FederatedCalibrator(epsilon=2.0, unit="example").fit(logits, labels, client=client)
    own.fit(logits, labels, client=client, subject=np.arange(len(labels)))
    assert own.privacy_["noise_std"] == each.privacy_["noise_std"]
