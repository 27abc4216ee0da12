"""scikit-learn estimators: fit a calibrator over simulated clients, put one behind a classifier.

Imported only where it is used (`from fedcal import CalibratedModel`): it
needs scikit-learn. `CalibratedModel` is what scikit-learn's `CalibratedClassifierCV` is, with a
calibrator of fedcal's behind the classifier; `FederatedCalibrator` learns one, with privacy:

    base = FrozenEstimator(LogisticRegression().fit(train, labels))
    model = CalibratedModel(base, FederatedCalibrator(epsilon=1.0))
    model.fit(rows, labels_of_rows, client=hospitals)
"""

from fedcal.core import checks, imports, numerics

try:
    import sklearn.base  # noqa: F401  only whether it is there
except ModuleNotFoundError:
    raise imports.absent("scikit-learn", "sklearn", "fedcal.run.estimator") from None

import copy
from collections.abc import Mapping, Sequence
from inspect import signature
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_predict
from sklearn.utils import assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedcal import calibrators, datasets, partition
from fedcal.core.checks import InputError
from fedcal.core.numerics import KINDS
from fedcal.core.options import options_of
from fedcal.core.scores import in_class_order, of_both, without_gradient
from fedcal.datasets.model_scores import columns_of, in_columns, method_for, scores_of
from fedcal.datasets.plausible_rows import doubts_of
from fedcal.run import load, simulation
from fedcal.run.config import Config, merge, takes_options
from fedcal.strategies.settings import calibrating

FOLDS = 5

_FEATURES = "; X must be scores, one column per class: for features use CalibratedModel"


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """A classifier of scikit-learn that predicts the likeliest class."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of each row, (n,)."""
        best = self.predict_proba(X).argmax(axis=1)  # first: it says if nothing is fitted
        return np.asarray(self.classes_[best])


class CalibratedModel(Classifier):
    """A classifier with a calibrator behind it.

    `fit` trains what is not fitted yet, and keeps what is:

    * neither: the classifier's scores of each row come from cross-validation, from a copy that has
      not seen the row; the calibrator learns from all of them, and the classifier from all rows.
      So does `CalibratedClassifierCV(ensemble=False)`; one calibrator, so that a privacy budget
      is spent once.
    * a fitted classifier (or a `FrozenEstimator`): it stays as it is, and all rows calibrate.
      They must not be those that it was trained on.
    * both: there is nothing to do, and `predict_proba` works without `fit`.

    As everywhere in scikit-learn `clone`, and with it cross-validation and searches, makes an
    unfitted copy of the classifier, which is trained anew; wrap it in `FrozenEstimator` to keep it
    there, too.

    Parameters
    ----------
    estimator
        a scikit-learn classifier with `decision_function` or `predict_proba`, or a
        pipeline that ends in one
    calibrator
        one of `fedcal.calibrators`, or a `FederatedCalibrator`, whose `classes` are then
        those of the classifier. Its `input` says which scores it gets, see `scores_of`
    cv
        folds for a classifier that is not fitted: a number, a splitter of scikit-learn or its
        splits, each row in one test fold; None = 5

    Attributes
    ----------
    estimator_, calibrator_
        the fitted parts; with a `FederatedCalibrator` the latter has
        `privacy_`
    classes_
        (c,) the classifier's
    n_features_in_, feature_names_in_
        the classifier's, if it has them
    """

    def __init__(self, estimator: Any, calibrator: Any, *, cv: Any = None) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.cv = cv

    def fit(
        self,
        X: Any,
        y: Any = None,
        client: ArrayLike | None = None,
        subject: ArrayLike | None = None,
        **others: Any,
    ) -> Self:
        """Train what is not fitted yet.

        Parameters
        ----------
        X
            n rows, as the classifier takes them
        y
            (n,) labels of any kind
        client, subject
            (n,) the client that owns each row, and whom it is about, for a
            `FederatedCalibrator`

        Raises
        ------
        NotFittedError
            The calibrator is fitted, to another model, for the classifier is not.
        InputError
            Weights or other arguments, labels that a fitted classifier does not know, a class
            with fewer rows than folds; or as `scores_of` and the calibrator's `fit`.
        """
        why = f"FederatedCalibrator(METHOD) or of fedcal.calibrators, not {self.calibrator!r:.80}"
        checks.needed("calibrator", getattr(self.calibrator, "input", None), why)
        why = "calibrators count each row once; a classifier that needs more may be fitted before"
        owners = {"clients", "groups"} & {*others}
        checks.unused("did you mean client=?" if owners else why, **others)
        if self._finished():
            for stale in ("estimator_", "calibrator_"):  # of an earlier fit, of other parts
                self.__dict__.pop(stale, None)
            return self
        if _is_fitted(self.calibrator):
            raise NotFittedError("the calibrator is fitted to another model than this: clone it")
        if y is None:
            raise InputError("CalibratedModel requires y to be passed, but the target y is None")
        X, y = indexable(X, without_gradient(y, "y"))
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        self.estimator_, scores = self._trained(X, y)
        self.calibrator_ = self._calibrated(scores, y, client=client, subject=subject)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def _trained(self, X: Any, y: NDArray[Any]) -> tuple[Any, numerics.Floats]:
        """Return the fitted classifier, and scores of rows that it was not trained on."""
        kind = self.calibrator.input
        if _is_fitted(self.estimator):
            return self.estimator, scores_of(self.estimator, X, kind)
        fitted = clone(self.estimator).fit(X, y)
        cv = FOLDS if self.cv is None else self.cv
        classes, counts = np.unique(y, return_counts=True)
        if isinstance(cv, Integral) and counts.min() < cv:
            rare = classes[counts.argmin()]
            raise InputError(
                f"cross-validation in {cv} folds needs as many samples of each class, and class "
                f"{rare} has {counts.min()} sample(s); take a smaller cv, or a fitted estimator"
            )
        method = method_for(fitted, kind)
        predictions = cross_val_predict(clone(self.estimator), X, y, cv=cv, method=method)
        return fitted, in_columns(fitted, predictions, method, kind)

    def _calibrated(
        self, scores: numerics.Floats, y: NDArray[Any], **owned: ArrayLike | None
    ) -> Any:
        classes = np.asarray(self.estimator_.classes_)
        if not isinstance(self.calibrator, calibrators.Calibrator):
            return clone(self.calibrator).set_params(classes=classes).fit(scores, y, **owned)
        checks.unused("the calibrator takes pooled rows, and is not a FederatedCalibrator", **owned)
        labels = columns_of(classes, y, len(classes))
        _warn(doubts_of("the classifier", scores, labels, [*map(str, classes)]))
        pooled = copy.deepcopy(self.calibrator).fit(scores, labels)
        _warn(pooled.at_limits())
        return pooled

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes of the classifier, (c,)."""
        return np.asarray(getattr(self, "estimator_", self.estimator).classes_)

    def predict_proba(self, X: Any) -> numerics.Floats:
        """Calibrated probabilities, (n, c), in the order of `classes_`.

        Raises InputError if the number of classes differs between the two, or as `scores_of`.
        """
        check_is_fitted(self)
        fitted = getattr(self, "calibrator_", self.calibrator)
        calibrator: calibrators.Calibrator = getattr(fitted, "calibrator_", fitted)
        scores = scores_of(getattr(self, "estimator_", self.estimator), X, calibrator.input)
        if calibrator.input == "logits":  # also where a row could be taken for probabilities
            return calibrator.calibrated(scores)
        return calibrator.predict_proba(scores)

    def _finished(self) -> bool:
        return _is_fitted(self.estimator) and _is_fitted(self.calibrator)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrator_") or self._finished()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        checks.warn(line)


def _is_fitted(part: Any) -> bool:
    if isinstance(part, calibrators.Calibrator):
        return part.classes > 0
    try:
        check_is_fitted(part)
    except NotFittedError:
        return False
    return True


class FederatedCalibrator(Classifier):
    """A calibrator learnt over simulated clients, from a classifier's scores.

    Its rows are *scores*, one column for each class, not features. All rows given to `fit` are
    fitted on; nothing is held out and no test metric is computed.

    Parameters
    ----------
    method
        as `--method`, but for the pooled baselines
    clients
        how many; None = the number of different `client`, else 100
    partition
        how rows are dealt to clients; None = "natural" where `fit` gets `client`, else
        "dirichlet:0.1"
    rounds, sampling_rate, epsilon, delta, unit, trust, mechanism, quorum, noise_source,
    secure_aggregation, dropout, seed, ledger, cap, cap_delta, set
        as on the command line and in
        `fedcal.simulate`
    input
        what the rows are, "logits" or "probs"; `predict_proba` takes the same
    classes
        (c,) what the columns are called, in their order (a classifier's `classes_`); None =
        the c different labels that `fit` sees, sorted, as classifiers sort them, or
        0, 1, ..., c - 1, if it sees fewer or all labels are among these

    Attributes
    ----------
    calibrator_
        the fitted `fedcal` calibrator, with `save` and exports
    privacy_
        the privacy record of the run, as in `SimulationResult.privacy`
    result_
        `fedcal.strategies.server.outcome.Outcome`: releases, payload bytes, seconds
    classes_
        (c,)
    n_features_in_
        c
    """

    # `fit` has no use for a run's own options
    @takes_options(Config, "data", "engine", "ray_address", "class_names", "positive")
    def __init__(
        self,
        method: str = Config.method,
        *,
        partition: str | None = None,
        set: Mapping[str, Any] | None = None,
        input: str = "logits",
        classes: Any = None,
        **options: Any,
    ) -> None:
        own = {"partition": partition, "set": set, "input": input, "classes": classes}
        given = signature(FederatedCalibrator).bind(method, **own, **options)
        given.apply_defaults()
        self.__dict__.update(given.arguments)

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        client: ArrayLike | None = None,
        subject: ArrayLike | None = None,
    ) -> Self:
        """Run the method over simulated clients.

        Parameters
        ----------
        X
            (n, c) scores, or (n,) probabilities of the second of two classes
        y
            (n,) labels, among `classes`
        client
            (n,) the client that owns each row; None = dealt out by `partition`
        subject
            (n,) subject of each row, for unit "subject"

        Raises
        ------
        InputError
            A parameter or array that is not allowed; nothing was released.
        RoundFailed
            Nobody who was sampled answered.

        Warns
        -----
        UserWarning
            Of rows that are probably not what they are taken for, of too few of them, and of a
            temperature at an end of its range.
        """
        if client is not None:
            checks.one_of("partition if fit gets client", self.partition or "natural", ["natural"])
        checks.one_of("input", self.input, KINDS)
        given, y = self._columns(X), without_gradient(y, "y")
        X, y = validate_data(self, given, y, dtype=np.float64, ensure_min_features=2)
        check_classification_targets(y)
        names = _names(y, X.shape[1]) if self.classes is None else np.asarray(self.classes)
        X = _in_order(given, names)
        y = columns_of(names, y, X.shape[1], _FEATURES * (self.classes is None))
        data = datasets.from_arrays(**{self.input: X}, labels=y, client=client, subject=subject)
        _warn(doubts_of("X", data.scores, data.labels, [*map(str, names)]))
        options = {name: getattr(self, name) for name in options_of(Config) if hasattr(self, name)}
        options["partition"] = self.partition or (None if client is None else "natural")
        config = merge({"data": data.name}, options)
        checks.one_of("method that calibrates", config.method, calibrating())
        shards = partition.deal(data, config.partition, config.clients, config.seed)
        fitted = simulation.fit(load.RunRows(config, shards, data))
        self.result_, self.privacy_ = fitted.outcome, fitted.privacy
        _warn(self.result_.at_limits)
        self.classes_, self.calibrator_ = names, self.result_.calibrator
        self.calibrator_.of_classes(None if names.dtype.kind in "iub" else tuple(map(str, names)))
        return self

    def _columns(self, X: Any) -> Any:
        X = without_gradient(X, "X")
        single = np.asarray(X).ndim == 1
        if single and self.input == "logits":
            raise InputError("X: Reshape your data: columns [0, z], or expit(z) with input='probs'")
        return of_both("X", X) if single else X

    def predict_proba(self, X: Any) -> numerics.Floats:
        """Calibrated probabilities of scores, as `fit` takes them, -> (n, c)."""
        check_is_fitted(self)
        given = self._columns(X)
        validate_data(self, given, dtype=np.float64, reset=False)
        return self.calibrator_.predict_proba(_in_order(given, self.classes_))


def _in_order(X: Any, classes: NDArray[Any]) -> numerics.Floats:
    """Return checked scores with a frame's columns in the order of the classes, if they have names.

    Classes that are the numbers of the columns have none.
    """
    numbered = np.array_equal(classes, np.arange(len(classes)))
    names = None if numbered else [*map(str, classes.tolist())]
    return np.asarray(in_class_order("X", X, names), np.float64)


def _names(y: ArrayLike, columns: int) -> NDArray[Any]:
    """Return default names of the columns, (columns,)."""
    plain, labels = np.arange(columns), np.unique(y)
    return labels if len(labels) == columns and not np.isin(labels, plain).all() else plain
