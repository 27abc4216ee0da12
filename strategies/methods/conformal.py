"""Private prediction sets over a federation: a threshold of the clients' conformity scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedcal.calibrators.as_text import text_of
from fedcal.conformal import Conformity, PredictionSets
from fedcal.conformal.aims import KINDS as AIMS
from fedcal.conformal.aims import aim_of
from fedcal.conformal.conformity import BY
from fedcal.conformal.set_release import Goal, Promise
from fedcal.core.checks import one_of, positive, unused, whole
from fedcal.core.errors import InputError
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.noise_plan import make_plan
from fedcal.queries.conformal import SetQuery
from fedcal.queries.declared import Question
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.methods.quantiles import QUANTILES, QuantileRule, Wanted

WEIGH = ("rows", "clients")


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
    `unary`        one encoded bucket of each client                       `local`, unit user
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
        JSON list of the names of groups, by the rows' column
    guarantee
        "marginal": coverage in the mean over the clients' rows and the release; "pac": coverage of
        this release with probability `confidence`
    confidence
        of "pac"
    target
        JSON list of the shares of labels where sets are used: coverage is of these. Weights are
        from counts of the clients' labels, or from source
    source
        JSON list of the shares of labels of the clients' rows, if they are public
    costs
        JSON list of what missing each label costs, in [0, 1]: alpha bounds the mean cost
    among
        JSON list of labels: coverage is of rows with one of these (1 - false-negative rate)
    report
        JSON list of the names of groups of rows, by their column: one more round, for as much of
        the budget as the first, releases the coverage of each
    weigh
        "clients": each client counts equally, and sets are for a row of a new client
    rows_per_client
        public nominal number of rows of a client; of its subjects where these are protected
    rows_known
        that number times the clients is exactly the number of rows, and public; unit "example"
    """

    name, family = "conformal", "conformal"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"alpha": 0.2},
        {"alpha": 0.3, "score": "margin", "guarantee": "pac"},
        {"alpha": 0.3, "among": "[0, 1]"},
    )

    def __init__(
        self,
        federation: Federation,
        *,
        alpha: float = 0.1,
        score: str = "lac",
        randomised: bool = False,
        penalty: float | None = None,
        free: int | None = None,
        score_seed: int | None = None,
        calibrator: str = "",
        quantile: str = AUTO,
        bins: int = 0,
        by: str = "none",
        groups: str = "",
        guarantee: str = "marginal",
        confidence: float = 0.9,
        target: str = "",
        source: str = "",
        costs: str = "",
        among: str = "",
        report: str = "",
        weigh: str = "rows",
        rows_per_client: float | None = None,
        rows_known: bool = False,
        **base: Any,
    ) -> None:
        one_of("by", by, BY)
        one_of("weigh", weigh, WEIGH)
        if groups and by == "none":
            by = "group"
        if guarantee == "marginal":
            unused("it is of guarantee 'pac'", confidence=None if confidence == 0.9 else confidence)
        promise: Promise = guarantee  # type: ignore[assignment]  # checked by the goal
        self._goal = Goal(positive("alpha", alpha), promise, confidence)
        text = text_of(calibrator, federation.classes) if calibrator else ""
        self._conformity = Conformity(score, randomised, penalty, free, score_seed or 0, text)
        fields = {
            "score": score,
            "randomised": randomised,
            "penalty": penalty,
            "free": free,
            "seed": score_seed or 0,
            "calibrator": text,
            "by": by,
            "groups": groups,
        }
        rows = None if rows_per_client is None else positive("rows_per_client", rows_per_client)
        average = weigh != WEIGH[0]
        bins = whole("bins", bins, 0, 4096)
        self._aim = aim_of(federation.classes, source, target=target, costs=costs, among=among)
        wanted = Wanted(self._goal, fields, rows, rows_known, bins, average, self._aim, report)
        wanted.check(federation)
        rule = chosen(quantile, federation, wanted)
        if not rule.takes_known:
            unused(f"quantile '{rule.name}' makes no use of it", rows_known=rows_known or None)
        if rule.needs_rows and rows is None and federation.private:
            raise InputError(
                f"conformal with quantile '{rule.name}' needs rows_per_client, a public nominal "
                "number of rows > 0"
            )
        self._rule = rule(federation, wanted)
        if not (randomised or self._rule.opening.once):
            unused("nothing is drawn by it", score_seed=score_seed)
        if federation.rounds not in (None, self._rule.rounds):
            raise InputError(
                f"conformal asks {self._rule.rounds} times here: rounds = {federation.rounds}"
            )
        opening = self._rule.opening
        self._by, self._names = by, opening.names
        plan = make_plan(
            federation,
            rounds=self._rule.rounds,
            bound=self._rule.bound,
            prefers=self._rule.prefers,
            row_sums=opening.row_sums,
        )
        self._rule.planned(plan)
        self._thresholds = np.ones(1 if self._aim else opening.parts)
        super().__init__(plan, **base)

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Where a clip or a level is made of them."""
        if not federation.private:
            return False
        asked, by = str(settings.get("quantile", AUTO)), str(settings.get("by", "none"))
        score = {"by": "group" if settings.get("groups") else by}
        average = settings.get("weigh") == WEIGH[1]
        known = bool(settings.get("rows_known"))
        source = str(settings.get("source", ""))
        texts = {kind: str(settings.get(kind, "")) for kind in AIMS}
        report = str(settings.get("report", ""))
        try:
            aim = aim_of(federation.classes, source, **texts)
            wanted = Wanted(Goal(0.1), score, None, known, 0, average, aim, report)
            rule = chosen(asked, federation, wanted)
        except InputError:  # told when the run is made
            return False
        return known or rule.needs_rows

    def hopeless(self, rows: float | None) -> bool:
        """Whether sets of so many rows hold all labels."""
        return self._rule.wanted.aim is None and not self._rule.reaches(rows)

    def query(self, round_number: int) -> SetQuery | None:
        """As the rule asks."""
        return self._rule.query(round_number)

    def questions(self) -> tuple[Question, ...]:
        """As the rule says."""
        return self._rule.questions()

    def update(self, release: Release) -> None:
        """Thresholds."""
        self._thresholds = self._rule.learn(release)

    def result(self) -> PredictionSets:
        """The sets so far."""
        return PredictionSets(
            self._conformity,
            self._thresholds,
            self._classes,
            self._goal.alpha,
            self._by,
            self._names,
            guarantee=self._rule.guarantee,
            aim=self._aim,
            release=self._rule.release,
            reported=self._rule.reported,
            basis=self._rule.basis(self._thresholds),
        )

    @property
    def _classes(self) -> int:
        """Of the model."""
        return self._rule.opening.classes


def chosen(quantile: str, federation: Federation, wanted: Wanted) -> type[QuantileRule]:
    """The rule that is asked for, or the first that can serve; InputError if it cannot."""
    one_of("quantile", quantile, (AUTO, *QUANTILES))
    if quantile != AUTO:
        if why := _refuses(QUANTILES[quantile], federation, wanted):
            raise InputError(f"quantile '{quantile}' cannot serve: {why}")
        return QUANTILES[quantile]
    reasons = {name: _refuses(rule, federation, wanted) for name, rule in QUANTILES.items()}
    for name, why in reasons.items():
        if not why:
            return QUANTILES[name]
    told = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    raise InputError(f"no way of finding thresholds can serve here: {told}")


def _refuses(rule: type[QuantileRule], federation: Federation, wanted: Wanted) -> str:
    """Why a rule cannot serve; "" = it can."""
    if wanted.aim is not None and not rule.takes_aim:
        return f"its rows count alike, whatever their label, and {wanted.aim.kind} asks for more"
    if why := rule.refuses(federation, wanted):
        return why
    if wanted.report and not rule.takes_report:
        return "its answers are not counts, and report asks for those of groups"
    return ""
