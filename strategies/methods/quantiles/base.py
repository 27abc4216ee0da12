"""What a way of finding thresholds is: what it asks, and what it makes of the answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedcal.calibrators.as_text import text_of
from fedcal.conformal.aims import KINDS, Aim, aim_of
from fedcal.conformal.basis import Basis
from fedcal.conformal.conformity import BY, Conformity
from fedcal.conformal.grids import thresholds
from fedcal.conformal.levels.crossing import sure_coverage
from fedcal.conformal.pages.promises import if_not_clipped
from fedcal.conformal.pages.reported import Reported
from fedcal.conformal.set_release import ANY_ROW, Goal, Promise, SetRelease
from fedcal.conformal.sets import ALL_LABELS
from fedcal.core.checks import one_of, positive, unused, whole
from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.mechanisms import MECHANISMS, Exponential, Mechanism
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.queries.conformal import SetQuery
from fedcal.queries.declared import Question
from fedcal.queries.evaluation import names_text
from fedcal.trust import TRUSTS
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

WEIGH = ("rows", "clients")

MOST_ROWS = 10**7
"""Of a threshold, where the fewest that it needs are looked for."""


@dataclass(frozen=True)
class Wanted:
    """Settings of prediction sets, independent of the rule that finds their thresholds.

    Attributes
    ----------
    federation
        public facts and budget
    others
        see `fedcal.strategies.methods.conformal.FedConformal`
    """

    federation: Federation
    _: KW_ONLY
    alpha: float = 0.1
    score: str = "lac"
    randomised: bool = False
    penalty: float | None = None
    free: int | None = None
    score_seed: int | None = None
    calibrator: str = ""
    quantile: str = AUTO
    bins: int = 0
    by: str = "none"
    groups: Sequence[str] = ()
    guarantee: str = "marginal"
    confidence: float = 0.9
    target: Sequence[float] = ()
    source: Sequence[float] = ()
    costs: Sequence[float] = ()
    among: Sequence[int] = ()
    report: Sequence[str] = ()
    weigh: str = WEIGH[0]
    rows_per_client: float | None = None
    rows_known: bool = False

    @cached_property
    def goal(self) -> Goal:
        """Coverage that the sets promise."""
        promise: Promise = self.guarantee  # type: ignore[assignment]  # checked by the goal
        return Goal(positive("alpha", self.alpha), promise, self.confidence)

    @cached_property
    def aim(self) -> Aim | None:
        """Weights of rows by their label; None if all rows weigh the same."""
        lists = {kind: getattr(self, kind) for kind in KINDS}
        return aim_of(self.federation.classes, self.source, **lists)

    @cached_property
    def conformity(self) -> Conformity:
        """Conformity score of labels."""
        classes, seed = self.federation.classes, self.score_seed or 0
        text = text_of(self.calibrator, classes) if self.calibrator else ""
        return Conformity(self.score, self.randomised, self.penalty, self.free, seed, text)

    @property
    def asked(self) -> dict[str, Any]:
        """Fields of `SetQuery`: the score, and what has thresholds of its own."""
        score = asdict(self.conformity)
        score["score"] = score.pop("name")
        return {**score, "by": self.parts_by, "groups": names_text(self.groups)}

    @property
    def parts_by(self) -> str:
        """Kind of part that has its own threshold; named groups have one each."""
        return "group" if self.groups and self.by == "none" else self.by

    @property
    def average(self) -> bool:
        """True if clients count equally, whatever their number of rows."""
        return self.weigh != WEIGH[0]

    @property
    def apart(self) -> bool:
        """True if there are several thresholds."""
        return self.parts_by != "none"

    def check(self) -> None:
        """InputError for wishes that do not go together, or not with this federation."""
        federation = self.federation
        one_of("by", self.by, BY)
        one_of("weigh", self.weigh, WEIGH)
        if self.guarantee == "marginal" and self.confidence != 0.9:
            unused("it is for guarantee 'pac'", confidence=self.confidence)
        if self.rows_per_client is not None:
            positive("rows_per_client", self.rows_per_client)
        whole("bins", self.bins, 0, 4096)
        whole_clients = federation.private and UNITS[federation.unit].whole_client
        pac = self.goal.promise == "pac"
        if self.average and federation.private and not whole_clients:
            raise InputError("weigh = 'clients' counts clients: it needs unit 'user'")
        if self.average and pac:
            raise InputError(
                "guarantee 'pac' is about rows that are drawn one by one: it does not go with "
                "weigh = 'clients'"
            )
        if self.aim is not None and (self.apart or self.average or pac):
            raise InputError(
                f"{self.aim.kind} needs by = 'none', weigh = 'rows' and guarantee 'marginal'"
            )
        if self.report and self.apart:
            raise InputError("report is for one threshold: it needs by = 'none'")
        if self.report and whole_clients:
            raise InputError(
                "report would need noise that hides all rows of a client, and a site has no "
                "others: it needs unit 'example' or 'subject'"
            )
        if self.rows_known and (self.rows_per_client is None or federation.sampling_rate < 1):
            raise InputError(
                "rows_known needs rows_per_client, and all clients in each round: it states that "
                "the number of rows is public"
            )
        if self.rows_known and federation.private and UNITS[federation.unit].column is not None:
            raise InputError(
                f"rows_known is of rows: with unit '{federation.unit}' one row of each counts, "
                "and their number is private"
            )


class QuantileRule(ABC):
    """A way of finding thresholds, for one run.

    Attributes
    ----------
    name
        in settings
    needs_rows
        whether it takes a public nominal number of rows
    takes_known
        whether it makes use of a public number of rows
    opening
        the first question, which the plan is made for
    plan
        once it is made
    bound
        of a client's answer, or of a row's
    prefers
        mechanisms, best first
    rounds
        how often it asks
    takes_aim, takes_report
        whether it serves where rows count by their label, and releases coverage by group
    """

    name: ClassVar[str]
    needs_rows: ClassVar[bool] = False
    takes_known: ClassVar[bool] = False
    takes_aim: ClassVar[bool] = False
    takes_report: ClassVar[bool] = False
    opening: SetQuery
    plan: Plan
    bound: Bound
    prefers: tuple[type[Mechanism], ...]
    rounds: int = 1

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        self.federation, self.wanted = federation, wanted

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Why it cannot serve; "" = it can. All but the exact rule are for privacy."""
        return "" if federation.private else "no privacy is requested: use the exact rule"

    @property
    def expected(self) -> float:
        """Rows of all clients that are asked, as is publicly taken."""
        return (self.wanted.rows_per_client or 0.0) * self.asked

    @property
    def asked(self) -> float:
        """Clients that are asked."""
        return self.federation.clients * self.federation.sampling_rate

    @property
    def whole_client(self) -> bool:
        """True if whole clients are protected."""
        return UNITS[self.federation.unit].whole_client

    def thresholds(self, number: int, *, arcs: bool = False) -> Floats:
        """So many public thresholds that suit the score; see `fedcal.conformal.grids`."""
        w = self.wanted
        conformity = Conformity(w.score, w.randomised, w.penalty, w.free)
        return thresholds(conformity, self.federation.classes, number, arcs=arcs)

    @property
    def one_row_each(self) -> bool:
        """True if one row of each subject counts, because several would be clipped."""
        return self.federation.private and UNITS[self.federation.unit].column is not None

    def planned(self, plan: Plan) -> None:
        """Keep the plan, before anything is asked."""
        self.plan = plan

    def query(self, number: int) -> SetQuery | None:
        """Return the question of a round, here the first one; None if nothing is left to ask."""
        return self.opening

    def questions(self) -> tuple[Question, ...]:
        """Declare what rounds may ask; see `Method.questions`. Here the first one in all rounds."""
        first = self.query(1)
        return () if first is None else (Question.like(first, (1, self.rounds)),)

    @abstractmethod
    def learn(self, release: Release) -> Floats:
        """Thresholds after a release, (parts,)."""

    @property
    def release(self) -> SetRelease | None:
        """Counts that thresholds for any other alpha can be read from; None = there are none."""
        return None

    def reaches(self, rows: float | None) -> bool:
        """Return whether some sets are smaller than all labels, by public numbers.

        Parameters
        ----------
        rows
            total number of rows; None = not declared
        """
        return True

    def basis(self, thresholds: Floats) -> Basis | None:
        """Return how many rows these thresholds were computed from; None if unknown."""
        rows, std = self.counted()
        if self.wanted.aim is not None or len(rows) != len(thresholds):
            return None
        fewest = None
        if self.noun != "clients" and (thresholds >= ALL_LABELS).any():
            fewest = self._fewest(len(rows))
        return Basis(rows, std, not self.federation.private, fewest, self.noun)

    def counted(self) -> tuple[tuple[float, ...], float]:
        """Return the rows behind each threshold and the std of their noise; () if unknown.

        They are public, or as released. Where single rows are protected the nominal number is
        not used: a simulation may have taken it from the rows.
        """
        rows = self.asked if self.noun == "clients" else self.expected
        public = self.whole_client and not self.wanted.apart
        return (rows,) if rows and public else (), 0.0

    @property
    def whose(self) -> str:
        """Whom a threshold is for, where rows or subjects are pooled: the end of a sentence."""
        if not self.one_row_each:
            return ANY_ROW
        return (
            "for one row, drawn at random, of a subject that is exchangeable with all clients' "
            "subjects taken together."
        )

    @property
    def noun(self) -> str:
        """Noun for what counts once: clients, subjects or rows."""
        if self.wanted.average or (self.whole_client and self.opening.once):
            return "clients"
        return "subjects" if self.one_row_each else "rows"

    def _fewest(self, parts: int) -> int | None:
        """Return the least number of rows of a part that allows a threshold; None if none does."""

        def enough(rows: int) -> bool:
            return self.reaches(float(rows * parts))

        if enough(0) or not enough(MOST_ROWS):  # it does not depend on them
            return None
        return 1 + bisect_left(range(1, MOST_ROWS), True, key=enough)

    @property
    def reported(self) -> Reported | None:
        """Coverage of groups, as released; None = it is not, or not yet."""
        return None

    def if_not_clipped(self, promise: str, clip: float) -> str:
        """Return a promise with the condition that clipping sets, and the worst case.

        That is known where all rows count alike, for one threshold, in the mean over releases.
        """
        wanted, sure = self.wanted, None
        alike = wanted.aim is None and not wanted.apart
        if alike and wanted.rows_per_client is not None and wanted.goal.promise == "marginal":
            sure = sure_coverage(clip, wanted.rows_per_client, wanted.goal.alpha)
        return if_not_clipped(promise, sure, wanted.rows_per_client)

    @property
    @abstractmethod
    def guarantee(self) -> tuple[str, ...]:
        """Sentences that state what is proven about coverage, and under which assumptions."""


class Drawn(QuantileRule):
    """A rule whose threshold is drawn by the exponential mechanism.

    Attributes
    ----------
    enough
        whether public numbers allow for sets that do not hold all labels
    """

    prefers = (Exponential,)
    enough: bool

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Return why the rule cannot serve; it draws one threshold where sums are seen."""
        if why := super().refuses(federation, wanted):
            return why
        if wanted.apart:
            return "it draws one threshold, and by asks for several"
        if not TRUSTS[str(federation.trust)].accepts(Exponential):
            return f"under trust '{federation.trust}' the server does not have the exact sums"
        return ""

    def learn(self, release: Release) -> Floats:
        """Return the drawn threshold, or all labels if public numbers say that rows are too few."""
        drawn = float(self.opening.thresholds[int(release.values[0])])
        return np.array([drawn if self.enough else ALL_LABELS])


class Noisy(QuantileRule):
    """A rule that reads thresholds from noisy counts of rows."""

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Return why the rule cannot serve; it adds noise to sums, and does not count clients."""
        if why := super().refuses(federation, wanted):
            return why
        if federation.mechanism != AUTO and MECHANISMS[federation.mechanism].answers != "sum":
            return f"it releases sums, which '{federation.mechanism}' does not make noisy"
        if wanted.average:
            return "it counts rows, and weigh = 'clients' counts clients"
        return ""

    @property
    def std(self) -> float:
        """Standard deviation of the noise of a sum, as planned."""
        return float(max(self.plan.noise_std or (0.0,)))


def all_labels(query: SetQuery) -> Floats:
    """Thresholds of all parts that every score is below."""
    return np.ones(query.parts)
