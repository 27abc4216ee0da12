"""What a way of finding thresholds is: what it asks, and what it makes of the answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedcal.conformal.aims import Aim
from fedcal.conformal.basis import Basis
from fedcal.conformal.conformity import Conformity
from fedcal.conformal.grids import thresholds
from fedcal.conformal.levels.crossing import sure_coverage
from fedcal.conformal.pages.promises import if_not_clipped
from fedcal.conformal.pages.reported import Reported
from fedcal.conformal.set_release import Goal, SetRelease
from fedcal.conformal.sets import ALL_LABELS
from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.mechanisms import Mechanism
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.queries.conformal import SetQuery
from fedcal.queries.declared import Question
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

MOST_ROWS = 10**7
"""Of a threshold, where the fewest that it needs are looked for."""


@dataclass(frozen=True)
class Wanted:
    """What the user wants of sets, whatever finds their thresholds.

    Attributes
    ----------
    goal
        how often labels are to be in sets
    score
        fields of `SetQuery`: the score, and what has thresholds of its own
    rows
        public nominal rows of a client; None = nobody said
    known
        whether that times the clients is exactly the number of rows, and public
    bins
        thresholds that are looked at; 0 = as the rule likes
    average
        clients count equally, whatever their rows
    aim
        how rows count by their label; None = all alike
    report
        JSON list of the groups of rows that coverage is released of; "" = none
    """

    goal: Goal
    score: Mapping[str, Any]
    rows: float | None
    known: bool
    bins: int
    average: bool
    aim: Aim | None = None
    report: str = ""

    def check(self, federation: Federation) -> None:
        """InputError for wishes that do not go together, or not with this federation."""
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
                f"{self.aim.kind} goes with by = 'none', weigh = 'rows' and guarantee 'marginal'"
            )
        if self.report and self.apart:
            raise InputError("report is of one threshold: it goes with by = 'none'")
        if self.report and whole_clients:
            raise InputError(
                "report would need noise that hides all rows of a client, and a site has no "
                "others: it goes with units 'example' and 'subject'"
            )
        if self.known and (self.rows is None or federation.sampling_rate < 1):
            raise InputError(
                "rows_known needs rows_per_client, and all clients in each round: it says that "
                "the number of rows is public"
            )
        if self.known and federation.private and UNITS[federation.unit].column is not None:
            raise InputError(
                f"rows_known is of rows: with unit '{federation.unit}' one row of each counts, and "
                "how many there are is private"
            )

    @property
    def apart(self) -> bool:
        """Whether there are several thresholds."""
        return bool(self.score.get("by", "none") != "none")


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
    bound: Bound
    prefers: tuple[type[Mechanism], ...]
    rounds: int = 1

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        self.federation, self.wanted = federation, wanted

    @classmethod
    @abstractmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Why it cannot serve; "" = it can."""

    @property
    def expected(self) -> float:
        """Rows of all clients that are asked, as is publicly taken."""
        return (self.wanted.rows or 0.0) * self.asked

    @property
    def asked(self) -> float:
        """Clients that are asked."""
        return self.federation.clients * self.federation.sampling_rate

    @property
    def whole_client(self) -> bool:
        """Whether whole clients are protected."""
        return UNITS[self.federation.unit].whole_client

    def thresholds(self, number: int, *, arcs: bool = False) -> Floats:
        """So many public thresholds that suit the score; see `fedcal.conformal.grids`."""
        names = ("randomised", "penalty", "free")
        score = {name: self.wanted.score[name] for name in names if name in self.wanted.score}
        conformity = Conformity(str(self.wanted.score.get("score", "lac")), **score)
        return thresholds(conformity, self.federation.classes, number, arcs=arcs)

    @property
    def one_row_each(self) -> bool:
        """Whether one row of each subject counts: several of them would be clipped."""
        return self.federation.private and UNITS[self.federation.unit].column is not None

    def planned(self, plan: Plan) -> None:  # noqa: B027  few need to know
        """Hear the plan, before anything is asked."""

    @abstractmethod
    def query(self, number: int) -> SetQuery | None:
        """The question of a round; None = there is nothing left to ask."""

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
        """Whether some sets are not of all labels, by public numbers.

        Parameters
        ----------
        rows
            in all; None = nobody said
        """
        return True

    def basis(self, thresholds: Floats) -> Basis | None:
        """How many rows these thresholds were made of; None = nobody knows."""
        rows, std = self.counted()
        if self.wanted.aim is not None or len(rows) != len(thresholds):
            return None
        fewest = None
        if self.noun != "clients" and (thresholds >= ALL_LABELS).any():
            fewest = self._fewest(len(rows))
        return Basis(rows, std, not self.federation.private, fewest, self.noun)

    def counted(self) -> tuple[tuple[float, ...], float]:
        """Rows of each threshold, and the std of their noise; () = nobody knows.

        They are public, or as released. Where single rows are protected the nominal number is
        nobody's: a simulation may have taken it from the rows.
        """
        rows = self.asked if self.noun == "clients" else self.expected
        told = self.whole_client and not self.wanted.apart
        return (rows,) if rows and told else (), 0.0

    @property
    def noun(self) -> str:
        """What is counted once each."""
        if self.wanted.average or (self.whole_client and self.opening.once):
            return "clients"
        return "subjects" if self.one_row_each else "rows"

    def _fewest(self, parts: int) -> int | None:
        """The least rows of a part with which a threshold is possible; None = no number is."""

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
        if alike and wanted.rows is not None and wanted.goal.promise == "marginal":
            sure = sure_coverage(clip, wanted.rows, wanted.goal.alpha)
        return if_not_clipped(promise, sure, wanted.rows)

    @property
    @abstractmethod
    def guarantee(self) -> tuple[str, ...]:
        """What is proven of coverage, and what is assumed, in sentences."""


def all_labels(query: SetQuery) -> Floats:
    """Thresholds of all parts that every score is below."""
    return np.ones(query.parts)


def draws_of(plan: Plan, std: float) -> float:
    """How many whole draws are in noise of this std."""
    return float((std / float(plan.std_of_sum(plan.shares).max())) ** 2)
