"""A calibrator learnt over simulated clients, as a scikit-learn estimator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedcal import datasets
from fedcal.calibrators import Identity
from fedcal.checks import one_of
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.experiments.config import AUTO, POOLED, Config, job_of, merge, unused_rows
from fedcal.experiments.engines.inline import run_inline
from fedcal.experiments.estimator.scores import columns_of, likeliest
from fedcal.experiments.planner.auto import resolved
from fedcal.experiments.statement import about_subjects, large_delta, of_plan, without_privacy
from fedcal.partition import deal
from fedcal.scores import KINDS, Kind
from fedcal.strategies import STRATEGIES
from fedcal.strategies.enough import tell, too_little
from fedcal.strategies.job import Outcome, Setting, must_calibrate
from fedcal.trust import SecAgg
from fedcal.types import Floats


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
    secure_aggregation, dropout, seed, ledger, cap, cap_delta, set : as on the command line and in
        `fedcal.experiments.simulate`
    input : what the rows are, "logits" or "probs"; `predict_proba` takes the same
    classes : (c,) what the columns are called, in their order (a classifier's `classes_`); None =
        the c different labels that `fit` sees, sorted, as classifiers sort them, or
        0, 1, ..., c - 1, if it sees fewer or all labels are among these

    Attributes
    ----------
    calibrator_ : the fitted `fedcal` calibrator, with `save` and exports
    privacy_ : the privacy record of the run, as in `SimulationResult.privacy`
    result_ : `fedcal.strategies.job.Outcome`: releases, payload bytes, seconds
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
        unit: str = Config.unit,
        trust: str | None = None,
        mechanism: str = "auto",
        quorum: float = Config.quorum,
        noise_source: str = "seeded",
        secure_aggregation: str | None = None,
        dropout: float = 0.0,
        seed: int = 0,
        ledger: str | None = None,
        cap: float | None = None,
        cap_delta: float | None = None,
        set: Mapping[str, Setting] | None = None,
        input: Kind = "logits",
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
        self.cap_delta = cap_delta
        self.set = set
        self.input = input
        self.classes = classes

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
        X : (n, c) scores
        y : (n,) labels, among `classes`
        client : (n,) the client that owns each row; None = dealt out by `partition`
        subject : (n,) whom each row is about, for unit "subject"

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
        one_of("input", self.input, KINDS)
        names = _names(y, X.shape[1]) if self.classes is None else np.asarray(self.classes)
        data = datasets.from_arrays(
            **{self.input: X},
            labels=columns_of(names, y, X.shape[1]),
            client=client,
            subject=subject,
        )
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
        return self.calibrator_.predict_proba(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row, (n,)."""
        probs = self.predict_proba(X)
        return likeliest(self.classes_, probs)


def _names(y: ArrayLike, columns: int) -> NDArray[Any]:
    """What the columns are called, where nobody has said it, (columns,)."""
    plain, found = np.arange(columns), np.unique(y)
    return found if len(found) == columns and not np.isin(found, plain).all() else plain


def _fit(config: Config, data: Dataset) -> tuple[Outcome, dict[str, Any]]:
    """What came of the run over all rows of `data`, and its privacy record."""
    if config.method in POOLED:
        raise InputError(
            f"method {config.method!r} is not federated: fit a calibrator of fedcal.calibrators on "
            f"the rows themselves, or choose one of {', '.join(STRATEGIES)}"
        )
    must_calibrate("FederatedCalibrator", config.method)
    shards = deal(data, config.partition, config.clients, config.seed)
    chosen: list[str] = []
    if config.method == AUTO:
        config, chosen = resolved(config, shards)
        if config.method == "none":
            alone = Identity().fit(shards.logits, shards.labels)
            alone.input = shards.input
            said = "Nothing was learned from anybody."
            record = without_privacy(SecAgg.name, config.unit, said, tested=False)
            record["statement"] += chosen
            return Outcome(alone, [], [], 0, 0, 0.0, []), record
    job = job_of(config, shards)
    if job.plan.private and job.plan.delta >= 1 / job.plan.clients:
        warnings.warn(large_delta(job.plan), stacklevel=3)
    outcome = job.run(partial(run_inline, shards=shards, unavailable=job.unavailable))
    privacy = of_plan(
        job.plan,
        len(outcome.records),
        job.secure_aggregation,
        job.settings.get("rows_per_client"),  # type: ignore[arg-type]  # checked by the strategy
        tested=False,
    )
    torn = about_subjects(job.plan, config.partition, held_out=False)
    privacy["statement"] += [*unused_rows(config, job), *torn, *chosen]
    if not chosen:
        tell(too_little(config.method, shards, job), privacy, stacklevel=3)
    return outcome, privacy
