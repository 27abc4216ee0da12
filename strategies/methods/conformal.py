"""Private prediction sets: thresholds of the clients' conformity scores, from noisy counts too."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedcal.clients.questions.conformal import SetCounts, SetGaps, SetQuery
from fedcal.conformal import PredictionSets, page
from fedcal.conformal.levels import CountNoise, after_last, centred_level, client_clip
from fedcal.conformal.page import FAILS, SetRelease
from fedcal.core.checks import InputError, one_of
from fedcal.core.imports import registry
from fedcal.core.numerics import Floats, override
from fedcal.mechanisms import MECHANISMS, Gaussian, Laplace
from fedcal.privacy import AUTO, Federation, Plan, Question, Release
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.methods import counting, quantiles
from fedcal.strategies.methods.quantiles import ConformalSettings, QuantileRule

BINS, BINS_OF_PARTS = 256, 64
"""Thresholds of `prefix`, of one part and of several: at so many the grid adds at most 0.2 and 0.8
points of coverage to evenly spread scores."""

GAPS = 24
"""Thresholds of `gaps`: each is noisy by itself, and all share the budget."""


class Noisy(QuantileRule):
    """A rule that reads thresholds from noisy counts of rows."""

    @classmethod
    @override
    def obstacles(cls, settings: ConformalSettings) -> dict[str, bool]:
        asked = settings.federation.mechanism
        other = asked != AUTO and MECHANISMS[asked].answers != "sum"
        why = f"it releases sums, which '{asked}' does not make noisy"
        return super().obstacles(settings) | {why: other}

    @property
    def std(self) -> float:
        """Standard deviation of the noise of a sum, as planned."""
        return float(max(self.plan.noise_std or (0.0,)))

    def noise(self, std: float) -> CountNoise:
        """Return the noise of numbers with this std."""
        return CountNoise(std, self.plan.noise_distribution(std))

    def learn(self, release: Release) -> Floats:
        """Return the thresholds; all labels where no site answered."""
        if self.plan.unanswered(release.std):
            return np.ones(self.opening.parts)
        return self.found(release.values, float(release.std.max(initial=0.0)))

    @abstractmethod
    def found(self, values: Floats, std: float) -> Floats:
        """Return the thresholds from released values, whose noise has this std, (parts,)."""


class NoisyGaps(Noisy):
    """Centred counts at a few thresholds, each clipped and noisy by itself (ours).

    Privacy: the plan's; unit "user" (zero-out; replace under `local`): each of a client's centred
    counts is clipped to +-C. How many rows there are is taken from the public nominal number; of
    several parts from a noisy bound.
    """

    name = "gaps"
    needs_rows = True
    opening: SetGaps

    def __init__(self, settings: ConformalSettings) -> None:
        super().__init__(settings)
        self._stricter = self.alpha
        if settings.apart:
            self._stricter -= FAILS * self.alpha  # the bound of a part's number of rows may fail
        need, at = 1.0 - self._stricter, self.thresholds(settings.bins or GAPS)
        self.opening = self.ask(SetGaps, at, need=need)
        rows = (settings.rows_per_client or 1.0) / self.opening.parts
        self._clip = client_clip(rows, self.alpha)
        self.bound, self.prefers = self.bound_by(self._clip), (Gaussian, Laplace)

    @classmethod
    @override
    def obstacles(cls, settings: ConformalSettings) -> dict[str, bool]:
        return super().obstacles(settings) | {"it protects whole clients": not settings.by_client}

    @override
    def found(self, values: Floats, std: float) -> Floats:
        asked, alpha = self.opening, self._stricter
        sums, noise = values.reshape(asked.parts, -1), self.noise(std)
        one, last = noise.of_one(), sums[:, -1]  # at 1 each row counts alpha, unless it is clipped
        if asked.parts > 1:
            fewest = last - noise.bound(np.ones(1), 1.0 - FAILS * self.alpha)
            self.counted = tuple((last / alpha).tolist()), std / alpha
            levels = [centred_level(rows, alpha, one) for rows in (fewest / alpha).tolist()]
        else:
            levels = [centred_level(self.settings.expected, alpha, one)]
        parts = zip(sums, levels, strict=True)
        return np.array([after_last(asked.thresholds, s[:-1] < level) for s, level in parts])

    def reaches(self, rows: float | None) -> bool:
        """Return whether the level is at most the sum over all rows of a part."""
        each = (rows or 0.0) / self.opening.parts
        level = centred_level(each, self._stricter, self.noise(self.std).of_one())
        return level <= self._stricter * each

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Guarantee, with its assumption about clipping."""
        promise, clipped = self.clipped(self._clip, "")
        rows = f"{self.settings.expected:,.6g} rows"
        counts_on = f"This counts on about {rows} in all, or more."
        return (promise, *([] if self.settings.apart else [counts_on]), clipped)


class PrefixCounts(Noisy):
    """Counts of rows by score, encoded for prefix sums, with exactly known noise (ours).

    Privacy: the plan's, by the noise on all counts together; unit "example" (add/remove of a row,
    which is a 1 in one count) and unit "subject" (one of a subject's rows counts, drawn by a
    hash). With the number of rows private the level suits a noisy bound of it.
    """

    name = "prefix"
    takes_known = True
    opening: SetCounts

    def __init__(self, settings: ConformalSettings) -> None:
        super().__init__(settings)
        bins = settings.bins or (BINS_OF_PARTS if settings.apart else BINS)
        mechanism, encoding, height = counting.quietest(settings.federation, bins, self.rounds)
        more = {"once": settings.one_row_each, "encoding": encoding, "height": height}
        self.opening = self.ask(SetCounts, self.thresholds(bins, arcs=True), **more)
        part = self.opening.part(settings.federation.unit)
        self.bound, self.prefers = self.opening.bound(part, (), mechanism.order), (mechanism,)

    @classmethod
    @override
    def obstacles(cls, settings: ConformalSettings) -> dict[str, bool]:
        known = settings.rows_known and settings.apart
        return super().obstacles(settings) | {
            "it protects rows, or subjects, not whole clients": settings.by_client,
            "the rows of each part are counted: rows_known is for all parts together": known,
        }

    @override
    def found(self, values: Floats, std: float) -> Floats:
        self.release = made = self._made(values, std)
        of_rows = std * float(np.linalg.norm(made.prefix[-1]))
        self.counted = tuple(made.below[:, -1].tolist()), of_rows
        return made.found(self.alpha)

    def _made(self, values: Floats, std: float) -> SetRelease:
        return SetRelease(
            np.asarray(self.opening.thresholds),
            self.opening.decode(values),
            self.opening.decoder,
            self.noise(std),
            round(self.settings.expected) if self.settings.rows_known else None,
            self.whose,
        )

    def reaches(self, rows: float | None) -> bool:
        """Return whether exact counts of rows that all have the least score give a threshold."""
        if rows is None:
            return True
        made = self._made(np.zeros(sum(self.opening.lengths())), self.std)
        counts = np.zeros_like(made.counts)
        counts[:, 0] = rows / len(counts)
        known = None if made.rows is None else round(rows)
        return bool((replace(made, counts=counts, rows=known).found(self.alpha) < 1).any())

    @property
    @override
    def whose(self) -> str:
        if not self.settings.apart:
            return super().whose
        return super().whose.replace("all clients' rows taken together", "the clients' rows there")

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Exact guarantee, of exchangeable rows and the distribution of the noise."""
        if self.release is None:
            return (self.promise,)
        return page.of_release(self.release, self.alpha, self.settings.parts_by)


QUANTILES: dict[str, type[QuantileRule]] = registry(
    quantiles.Exact, quantiles.Crossing, PrefixCounts, NoisyGaps, quantiles.ExponentialQuantile
)
"""Name in settings -> rule; of those that can serve the first is the default."""


class FedConformal(ConformalSettings, FederatedStrategy):
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
        see `fedcal.conformal.Conformity`; scores by order are randomised if nothing else is said
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
    rows_per_client
        public nominal number of rows of a client; of its subjects where these are protected
    rows_known
        that number times the clients is exactly the number of rows, and public; unit "example"
    preset
        "paper" = with privacy quantile="exponential" and rows_known, as Angelopoulos et al., where
        none is given
    """

    name, family = "conformal", "conformal"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"alpha": 0.2},
        {"alpha": 0.3, "score": "raps", "randomised": True},
        {"alpha": 0.3, "by": "class"},
    )

    def prepare(self) -> Plan:
        """Return the plan of the rule that finds the thresholds."""
        self.check()
        self._rule = rule = chosen(self)(self)
        if not rule.takes_known:
            self.unused(f"quantile '{rule.name}' makes no use of it", "rows_known")
        if rule.needs_rows and self.federation.private:
            self.nominal_rows(f"conformal with quantile '{rule.name}'")
        self.check_rounds(rule.rounds)
        more = {"prefers": rule.prefers, "row_sums": rule.opening.row_sums}
        plan = self.plan_with(rule.rounds, rule.bound, **more)
        rule.planned(plan)
        self._thresholds = np.ones(rule.opening.parts)
        return plan

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Return whether a clip or a quantile level is computed from the rows."""
        if not federation.private:
            return False
        conformal = ConformalSettings(federation, **settings)
        try:
            rule = chosen(conformal)
        except InputError:  # raised when the run is made
            return False
        return conformal.rows_known or rule.needs_rows

    def hopeless(self, rows: float | None) -> bool:
        """Return whether sets made of `rows` rows would hold all labels."""
        return not self._rule.reaches(rows)

    @override
    def query(self, round_number: int) -> SetQuery:
        return self._rule.opening

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
            self.conformity,
            self._thresholds,
            opening.classes,
            self.alpha,
            self.parts_by,
            opening.names,
            guarantee=self._rule.guarantee,
            release=self._rule.release,
            basis=self._rule.basis(self._thresholds),
        )


def chosen(settings: ConformalSettings) -> type[QuantileRule]:
    """Return the rule that the settings name, or the first that can serve.

    Raises InputError if none can.
    """
    quantile = one_of("quantile", settings.quantile, (AUTO, *QUANTILES))
    named = QUANTILES if quantile == AUTO else {quantile: QUANTILES[quantile]}
    causes = list[str]()
    for name, rule in named.items():
        why = next((why for why, there in rule.obstacles(settings).items() if there), None)
        if why is None:
            return rule
        causes.append(f"{name}: {why}")
    raise InputError(f"no rule that finds thresholds can serve here: {'; '.join(causes)}")
