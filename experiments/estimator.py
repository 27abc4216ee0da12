"""scikit-learn estimators: fit a calibrator over simulated clients, put one around a classifier.

Imported only where it is used (`from experiments.estimator import FederatedCalibrator`): it needs
scikit-learn. Its three names in a row:

    base = LogisticRegression().fit(train, labels)
    fitted = FederatedCalibrator(epsilon=1.0, classes=base.classes_)
    fitted.fit(scores_of(base, rows), labels_of_rows, client=hospitals)
    model = CalibratedModel(base, fitted.calibrator_)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.config import AUTO, POOLED, Config, job_of, merge, unused_rows
from experiments.engines.inline import run_inline
from experiments.planner.auto import resolved
from experiments.planner.enough import tell, too_little
from experiments.statement import large_delta, of_plan, without_privacy
from fedcal import datasets
from fedcal.calibrators import Calibrator, Identity
from fedcal.checks import one_of
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.partition import deal
from fedcal.types import Floats
from strategies import STRATEGIES
from strategies.job import Outcome, Setting

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import get_tags
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError:
    raise InputError(
        "experiments.estimator needs scikit-learn, which is not installed: "
        "pip install 'fedcal[sklearn]'"
    ) from None

INPUTS = ("logits", "probs")


def scores_of(estimator: Any, X: Any, input: str = "logits") -> Floats:
    """What a fitted classifier tells about rows, in the form that a calibrator takes.

    Parameters
    ----------
    estimator : a fitted scikit-learn classifier (or a pipeline that ends in one)
    X : rows, as the estimator takes them
    input : "probs": `predict_proba`. "logits": `decision_function`, where that of two classes,
        a single column d, becomes (0, d), so that softmax gives sigmoid(d); without one
        log(max(p, 1e-12)) of `predict_proba`

    Returns
    -------
    (n, c) in the order of `estimator.classes_`

    Raises
    ------
    InputError
        The estimator has no such method, or does not give one column for each class (as
        one-against-one decision functions do not).
    """
    one_of("input", input, INPUTS)
    name = type(estimator).__name__
    if input == "logits" and hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X), np.float64)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
    elif hasattr(estimator, "predict_proba"):
        scores = np.asarray(estimator.predict_proba(X), np.float64)
        if input == "logits":
            scores = _checked("probs", scores).logits
    else:
        needed = "predict_proba" if input == "probs" else "decision_function or predict_proba"
        raise InputError(f"{name} has no {needed}")
    classes = len(estimator.classes_)
    if scores.ndim != 2 or scores.shape[1] != classes:
        raise InputError(f"{name} has {classes} classes, but its scores have shape {scores.shape}")
    return scores


class CalibratedModel(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """A fitted classifier with a fitted calibrator behind it.

    Both stay as they are: `fit` changes nothing and `clone` gives the same object back, so that
    neither a pipeline nor cross-validation trains anything anew (scikit-learn's `FrozenEstimator`
    does the same).

    Parameters
    ----------
    estimator : a fitted scikit-learn classifier
    calibrator : a fitted `fedcal` calibrator; its `input` says which scores of the estimator it
        gets, see `scores_of`
    """

    def __init__(self, estimator: Any, calibrator: Calibrator) -> None:
        self.estimator = estimator
        self.calibrator = calibrator

    def fit(self, X: Any, y: Any = None, **ignored: Any) -> Self:
        """Nothing: estimator and calibrator are fitted already."""
        check_is_fitted(self.estimator)
        return self

    @property
    def classes_(self) -> NDArray[Any]:
        """(c,) the estimator's."""
        return np.asarray(self.estimator.classes_)

    def predict_proba(self, X: Any) -> Floats:
        """Calibrated probabilities, (n, c), in the order of `classes_`.

        Raises
        ------
        InputError
            The number of classes differs between the two, or as `scores_of`.
        """
        check_is_fitted(self.estimator)
        scores = scores_of(self.estimator, X, self.calibrator.input)
        return self.calibrator.predict_proba(_checked(self.calibrator.input, scores).logits)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row, (n,)."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])

    def __sklearn_clone__(self) -> Self:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


class FederatedCalibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A calibrator learnt over simulated clients, from a classifier's scores.

    Its rows are *scores*, one column for each class, not features. All rows given to `fit` are
    fitted on; nothing is held out and no test metric is computed.

    Parameters
    ----------
    method : as `--method`, "auto" too, but for the pooled baselines
    clients : how many; None = the number of different `client`, else 100
    partition : how rows are dealt to clients; None = "natural" where `fit` gets `client`, else
        "dirichlet:0.1"
    rounds, sampling_rate, epsilon, delta, unit, trust, mechanism, quorum, noise_source,
    secure_aggregation, dropout, seed, ledger, cap, set : as on the command line and in
        `experiments.simulate`
    input : what the rows are, "logits" or "probs"
    classes : (c,) what the columns are called, in their order (a classifier's `classes_`); None =
        0, 1, ..., c - 1

    Attributes
    ----------
    calibrator_ : the fitted `fedcal` calibrator, with `save` and exports
    privacy_ : the privacy record of the run, as in `SimulationResult.privacy`
    result_ : `strategies.job.Outcome`: releases, payload bytes, seconds
    classes_ : (c,)
    n_features_in_ : c
    """

    def __init__(
        self,
        method: str = "fednewton",
        *,
        clients: int | None = None,
        partition: str | None = None,
        rounds: int | None = None,
        sampling_rate: float = 1.0,
        epsilon: float = math.inf,
        delta: float = 1e-5,
        unit: str = "user",
        trust: str | None = None,
        mechanism: str = "auto",
        quorum: float = Config.quorum,
        noise_source: str = "seeded",
        secure_aggregation: str | None = None,
        dropout: float = 0.0,
        seed: int = 0,
        ledger: str | None = None,
        cap: float | None = None,
        set: Mapping[str, Setting] | None = None,
        input: str = "logits",
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.method = method
        self.clients = clients
        self.partition = partition
        self.rounds = rounds
        self.sampling_rate = sampling_rate
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.trust = trust
        self.mechanism = mechanism
        self.quorum = quorum
        self.noise_source = noise_source
        self.secure_aggregation = secure_aggregation
        self.dropout = dropout
        self.seed = seed
        self.ledger = ledger
        self.cap = cap
        self.set = set
        self.input = input
        self.classes = classes

    def fit(self, X: Any, y: ArrayLike, client: ArrayLike | None = None) -> Self:
        """Run the method over simulated clients.

        Parameters
        ----------
        X : (n, c) scores
        y : (n,) labels, among `classes`
        client : (n,) the client that owns each row; None = dealt out by `partition`

        Raises
        ------
        InputError
            A parameter or array that is not allowed; nothing was released.
        RoundFailed
            Nobody who was sampled answered.
        """
        if client is not None and self.partition not in (None, "natural"):
            raise InputError(
                f"fit got client, so partition must be 'natural' or None, not {self.partition!r}"
            )
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_features=2)
        check_classification_targets(y)
        one_of("input", self.input, INPUTS)
        names = np.arange(X.shape[1]) if self.classes is None else np.asarray(self.classes)
        labels = y if self.classes is None else _columns(names, y, X.shape[1])
        data = _checked(self.input, X, labels, client)
        options = {f.name: getattr(self, f.name) for f in fields(Config) if hasattr(self, f.name)}
        options["partition"] = self.partition or (None if client is None else "natural")
        options["set"] = self.set or {}
        config = merge({"data": data.name}, options)
        self.result_, self.privacy_ = _fit(config, data)
        self.calibrator_ = self.result_.calibrator
        self.classes_ = names
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Calibrated probabilities of scores, (n, c) -> (n, c)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.calibrator_.predict_proba(_checked(self.calibrator_.input, X).logits)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row, (n,)."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])


def _checked(
    input: str, scores: ArrayLike, labels: ArrayLike | None = None, client: ArrayLike | None = None
) -> Dataset:
    """The checks that every data file passes, too."""
    given = {input: scores}
    return datasets.from_arrays(
        **given,  # type: ignore[arg-type]  # mypy does not see which key
        labels=labels,
        client=client,
        labels_required=False,
    )


def _columns(names: NDArray[Any], y: ArrayLike, columns: int) -> NDArray[Any]:
    """The column of each label."""
    place = {name: j for j, name in enumerate(names.ravel().tolist())}
    if names.ndim != 1 or len(place) != columns:
        raise InputError(f"classes must be {columns} different names, one for each column of X")
    labels = np.asarray(y).tolist()
    found = [place.get(label, -1) for label in labels]
    if -1 in found:
        row = found.index(-1)
        raise InputError(f"label {labels[row]!r} at row {row} is not among classes")
    return np.array(found, np.int64)


def _fit(config: Config, data: Dataset) -> tuple[Outcome, dict[str, Any]]:
    """What came of the run over all rows of `data`, and its privacy record."""
    if config.method in POOLED:
        raise InputError(
            f"method {config.method!r} is not federated: fit a calibrator of fedcal.calibrators on "
            f"the rows themselves, or choose one of {', '.join(STRATEGIES)}"
        )
    shards = deal(data, config.partition, config.clients, config.seed)
    chosen: list[str] = []
    if config.method == AUTO:
        config, chosen = resolved(config, shards)
        if config.method == "none":
            alone = Identity().fit(shards.logits, shards.labels)
            alone.input = data.input
            said = "Nothing was learned from anybody."
            record = without_privacy("secagg", config.unit, said, tested=False)
            record["statement"] += chosen
            return Outcome(alone, [], [], 0, 0, 0.0, []), record
    job = job_of(config, shards)
    if job.plan.private and job.plan.delta >= 1 / job.plan.clients:
        warnings.warn(large_delta(job.plan), stacklevel=3)
    outcome = job.run(partial(run_inline, shards=shards, unavailable=job.unavailable))
    outcome.calibrator.input = data.input
    privacy = of_plan(
        job.plan,
        len(outcome.records),
        job.secure_aggregation,
        job.settings.get("rows_per_client"),  # type: ignore[arg-type]  # checked by the strategy
        tested=False,
    )
    privacy["statement"] += [*unused_rows(config, job), *chosen]
    if not chosen:
        tell(too_little(config.method, shards, job), privacy, stacklevel=3)
    return outcome, privacy
