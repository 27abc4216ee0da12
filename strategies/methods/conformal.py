"""Private prediction sets over a federation: a threshold of the clients' conformity scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedcal.clients.questions.conformal import SetQuery
from fedcal.conformal import PredictionSets
from fedcal.core.checks import one_of, unused
from fedcal.core.errors import InputError
from fedcal.core.types import override
from fedcal.privacy.curator import Release
from fedcal.privacy.declared import Question
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import make_plan
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import check_rounds, nominal_rows
from fedcal.strategies.methods.quantiles import QUANTILES, QuantileRule, Wanted


class FedConformal(FederatedStrategy):
    """Sets of labels that hold a new row's label with probability 1 - alpha.

    Each client scores its rows by how little their label conforms to what the model says of them;
    a row's set is all labels whose score is at most a threshold. The threshold is the order
    statistic of split conformal prediction, less what a private answer may be off by, so that
    coverage is proven for a finite number of rows (`fedcal.strategies.methods.quantiles`):

    =============  ======================================================  =====================
    quantile       what is released                                        for
    =============  ======================================================  =====================
    `exact`        exact counts                                            no privacy
    `crossing`     one threshold, drawn where centred counts cross          `central`, any unit
    `prefix`       noisy counts: thresholds for every alpha                units example, subject
    `gaps`         noisy centred counts at a few thresholds                unit user
    `exponential`  one threshold, drawn as in Angelopoulos et al. 2024     `central`, n public
    =============  ======================================================  =====================

    Privacy: the federation's unit and trust, as the rule says. Public: the federation, all
    parameters, and what is released.

    Parameters
    ----------
    federation
        public facts and budget
    alpha
        share of rows whose label may be missing in its set
    score, randomised, penalty, free
        see `fedcal.conformal.Conformity`
    score_seed
        of what is randomised, and of the choice of a subject's row
    calibrator
        file of a calibrator: sets are of its probabilities
    quantile
        one of the table; "auto" = the first that can serve
    bins
        thresholds that are looked at; 0 = as the rule likes
    by
        thresholds of their own for each label ("class"), or each group of rows ("group")
    groups
        names of groups, by the rows' column
    target
        shares of labels where sets are used: coverage is of these. It needs source
    source
        shares of labels of the clients' rows, which must be public
    rows_per_client
        public nominal number of rows of a client; of its subjects where these are protected
    rows_known
        that number times the clients is exactly the number of rows, and public; unit "example"
    """

    name, family = "conformal", "conformal"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"alpha": 0.2},
        {"alpha": 0.3, "score": "raps", "randomised": True},
        {"alpha": 0.3, "by": "class"},
    )
    settings = Wanted

    def __init__(
        self,
        federation: Federation,
        *,
        ledger: Ledger | None = None,
        secure_aggregation: str = "masks",
        **settings: Any,
    ) -> None:
        self._wanted = wanted = Wanted(federation, **settings)
        wanted.check()
        self._rule = rule = chosen(wanted)(federation, wanted)
        if not rule.takes_known:
            unused(
                f"quantile '{rule.name}' makes no use of it", rows_known=wanted.rows_known or None
            )
        if rule.needs_rows and federation.private:
            nominal_rows(f"conformal with quantile '{rule.name}'", wanted.rows_per_client)
        if not (wanted.randomised or rule.opening.once):
            unused("nothing is drawn by it", score_seed=wanted.score_seed)
        check_rounds(self.name, federation, rule.rounds)
        plan = make_plan(
            federation,
            rounds=rule.rounds,
            bound=rule.bound,
            prefers=rule.prefers,
            row_sums=rule.opening.row_sums,
        )
        rule.planned(plan)
        self._thresholds = np.ones(1 if wanted.shift else rule.opening.parts)
        super().__init__(plan, ledger=ledger, secure_aggregation=secure_aggregation)

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Return whether a clip or a quantile level is computed from the rows."""
        if not federation.private:
            return False
        wanted = Wanted(federation, **settings)
        try:
            rule = chosen(wanted)
        except InputError:  # told when the run is made
            return False
        return wanted.rows_known or rule.needs_rows

    def hopeless(self, rows: float | None) -> bool:
        """Return whether sets made of `rows` rows would hold all labels."""
        return self._wanted.shift is None and not self._rule.reaches(rows)

    @override
    def query(self, round_number: int) -> SetQuery:
        return self._rule.query(round_number)

    @override
    def questions(self) -> tuple[Question, ...]:
        return self._rule.questions()

    @override
    def update(self, release: Release) -> None:
        self._thresholds = self._rule.learn(release)

    @override
    def result(self) -> PredictionSets:
        opening = self._rule.opening
        return PredictionSets(
            self._wanted.conformity,
            self._thresholds,
            opening.classes,
            self._wanted.alpha,
            self._wanted.parts_by,
            opening.names,
            guarantee=self._rule.guarantee,
            shift=self._wanted.shift,
            release=self._rule.release,
            basis=self._rule.basis(self._thresholds),
        )


def chosen(wanted: Wanted) -> type[QuantileRule]:
    """Return the rule that the settings name, or the first that can serve.

    Raises InputError if none can.
    """
    quantile = one_of("quantile", wanted.quantile, (AUTO, *QUANTILES))
    named = QUANTILES if quantile == AUTO else {quantile: QUANTILES[quantile]}
    reasons = dict[str, str]()
    for name, rule in named.items():
        if not (why := rule.refuses(wanted.federation, wanted)):
            return rule
        reasons[name] = why
    if quantile != AUTO:
        raise InputError(f"quantile '{quantile}' cannot serve: {reasons[quantile]}")
    causes = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    raise InputError(f"no way of finding thresholds can serve here: {causes}")
