"""A calibrator learnt over simulated clients, as a scikit-learn estimator."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedcal import datasets
from fedcal.core.checks import one_of
from fedcal.core.classes import ids_of
from fedcal.core.errors import InputError
from fedcal.core.options import options_of
from fedcal.core.scores import KINDS, in_class_order, of_both, without_gradient
from fedcal.core.types import Floats
from fedcal.datasets.model_scores import columns_of
from fedcal.experiments.deploy.at_home import priors_of
from fedcal.experiments.runs.config import POOLED, Config, merge
from fedcal.experiments.runs.estimator.calibrated_model import Classifier
from fedcal.experiments.runs.jobs import resolved
from fedcal.experiments.runs.simulation import fit
from fedcal.partition import deal
from fedcal.personal.at_site import calibrator_of, recalibrated
from fedcal.strategies import STRATEGIES, FedPrior
from fedcal.strategies.settings import must_calibrate

_PARAMETERS = {
    name: getattr(Config, name)
    for name in options_of(Config)
    # `fit` has no use for a run's own
    if name not in ("method", "data", "engine", "ray_address", "class_names", "positive", "csv")
} | {"partition": None, "set": None, "input": "logits", "classes": None}
_PARAMETERS["personal"] = False
"""What is given by name, and the defaults."""

_SIGNATURE = Signature(
    [
        Parameter("self", Parameter.POSITIONAL_OR_KEYWORD),
        Parameter("method", Parameter.POSITIONAL_OR_KEYWORD, default=Config.method),
        *(Parameter(n, Parameter.KEYWORD_ONLY, default=d) for n, d in _PARAMETERS.items()),
    ]
)


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
        `fedcal.experiments.simulate`
    input
        what the rows are, "logits" or "probs"; `predict_proba` takes the same
    classes
        (c,) what the columns are called, in their order (a classifier's `classes_`); None =
        the c different labels that `fit` sees, sorted, as classifiers sort them, or
        0, 1, ..., c - 1, if it sees fewer or all labels are among these
    personal
        a calibrator for each client, of its own rows and a prior from the others: the method is
        `fedprior`, and `fit` and `predict_proba` need `client`

    Attributes
    ----------
    calibrator_
        the fitted `fedcal` calibrator, with `save` and exports; without `personal`
    calibrators_, taken_
        with `personal`: client -> its calibrator, and whether its gate took one or left the model
    privacy_
        the privacy record of the run, as in `SimulationResult.privacy`
    result_
        `fedcal.strategies.server.outcome.Outcome`: releases, payload bytes, seconds
    classes_
        (c,)
    n_features_in_
        c
    """

    def __init__(self, method: str = Config.method, **parameters: Any) -> None:
        arguments = _SIGNATURE.bind(self, method, **parameters)
        arguments.apply_defaults()
        for name, value in list(arguments.arguments.items())[1:]:
            setattr(self, name, value)

    __init__.__signature__ = _SIGNATURE  # type: ignore[attr-defined]  # which scikit-learn reads

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
        """
        if client is not None and self.partition not in (None, "natural"):
            raise InputError(
                f"fit got client, so partition must be 'natural' or None, not {self.partition!r}"
            )
        one_of("input", self.input, KINDS)
        given, y = self._columns(X), without_gradient(y, "y")
        X, y = validate_data(self, given, y, dtype=np.float64, ensure_min_features=2)
        check_classification_targets(y)
        names = _names(y, X.shape[1]) if self.classes is None else np.asarray(self.classes)
        X = _in_order(given, names)
        data = datasets.from_arrays(
            **{self.input: X},
            labels=columns_of(names, y, X.shape[1]),
            client=client,
            subject=subject,
        )
        options = {name: getattr(self, name) for name in options_of(Config) if hasattr(self, name)}
        options["partition"] = self.partition or (None if client is None else "natural")
        if self.personal:
            if client is None or self.method not in (Config.method, FedPrior.name):
                raise InputError(f"personal needs client, and the method {FedPrior.name!r} or none")
            options["method"] = FedPrior.name
        config = merge({"data": data.name}, options, {"set": self.set})
        if config.method in POOLED:
            raise InputError(
                f"method {config.method!r} is not federated: fit a calibrator of "
                "fedcal.calibrators on the rows themselves, or choose one of "
                f"{', '.join(STRATEGIES)}"
            )
        shards = deal(data, config.partition, config.clients, config.seed)
        if self.personal:
            config, shards = resolved(config, shards, data.client_names or ())
        else:
            must_calibrate(type(self).__name__, config.method)
        fitted = fit(config, shards, tested=False)
        self.result_, self.privacy_ = fitted.outcome, fitted.privacy
        self.classes_, called = names, None if names.dtype.kind in "iub" else tuple(map(str, names))
        if not self.personal:
            self.calibrator_ = self.result_.calibrator
            self.calibrator_.of_classes(called)
            return self
        priors = priors_of(self.result_.artifact)
        whose = np.unique(ids_of("client", client)).tolist()
        named = dict(zip(map(str, whose), whose, strict=True))
        each = [priors.get(name, priors[""]) for name in data.client_names or ()]
        at = recalibrated(shards, each, None if subject is None else shards.weights(1))
        self.calibrators_, self.taken_ = {}, {}
        for k, name in enumerate(data.client_names or ()):
            made = calibrator_of(at.chosen[k], shards.classes, self.input)
            made.of_classes(called)
            self.calibrators_[named[name]], self.taken_[named[name]] = made, bool(at.taken[k])
        return self

    def _columns(self, X: Any) -> Any:
        X = without_gradient(X, "X")
        return of_both("X", X) if self.input == "probs" and np.ndim(X) == 1 else X

    def predict_proba(self, X: Any, client: Any = None) -> Floats:
        """Calibrated probabilities of scores, as `fit` takes them, -> (n, c).

        With `personal`, `client` is whose calibrator each row gets, (n,), or one for all rows;
        InputError without it, and for a client that `fit` has not seen.
        """
        check_is_fitted(self)
        given = self._columns(X)
        validate_data(self, given, dtype=np.float64, reset=False)
        X = _in_order(given, self.classes_)
        if bool(self.personal) != (client is not None):
            raise InputError("predict_proba takes client with personal=True, and only then")
        if client is None:
            return self.calibrator_.predict_proba(X)
        if np.ndim(client) and np.shape(client) != (len(X),):
            raise InputError(f"client must be one, or one for each of {len(X):,} rows")
        probs, whose = np.empty(X.shape), np.broadcast_to(ids_of("client", client), len(X))
        for one in np.unique(whose).tolist():
            if one not in self.calibrators_:
                one_of("client", str(one), map(str, self.calibrators_), "calibrators_")
            probs[whose == one] = self.calibrators_[one].predict_proba(X[whose == one])
        return probs


def _in_order(X: Any, classes: NDArray[Any]) -> Floats:
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
