"""scikit-learn estimators: fit a calibrator over simulated clients, put one behind a classifier.

Imported only where it is used (`from fedcal import CalibratedModel`): it
needs scikit-learn. `CalibratedModel` is what scikit-learn's `CalibratedClassifierCV` is, with a
calibrator of fedcal's behind the classifier; `FederatedCalibrator` learns one, with privacy:

    base = FrozenEstimator(LogisticRegression().fit(train, labels))
    model = CalibratedModel(base, FederatedCalibrator(epsilon=1.0))
    model.fit(rows, labels_of_rows, client=hospitals)
"""

from __future__ import annotations

from fedcal.core.optional import absent

try:
    import sklearn.base  # noqa: F401  only whether it is there
except ModuleNotFoundError:
    raise absent("scikit-learn", "sklearn", "fedcal.experiments.runs.estimator") from None

from fedcal.experiments.runs.estimator.calibrated_model import CalibratedModel
from fedcal.experiments.runs.estimator.federated import FederatedCalibrator

__all__ = ["CalibratedModel", "FederatedCalibrator"]
