"""What a way of finding thresholds is: what it asks, and what it makes of the answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

from fedcal.calibrators.base import text_of
from fedcal.clients.questions.conformal import SetQuery
from fedcal.conformal.basis import Basis
from fedcal.conformal.label_shift import LabelShift, shift_of
from fedcal.conformal.levels.levels import sure_coverage
from fedcal.conformal.page import if_not_clipped, of_whom
from fedcal.conformal.set_release import ANY_ROW, SetRelease
from fedcal.core.checks import one_of, positive, whole
from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.mechanisms import Mechanism
from fedcal.metrics.conformity import BY, Conformity
from fedcal.metrics.score_table import names_text
from fedcal.privacy.curator import Release
from fedcal.privacy.declared import Question
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.units import UNITS
from fedcal.units.bounding import Bound


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
    target: Sequence[float] = ()
    source: Sequence[float] = ()
    rows_per_client: float | None = None
    rows_known: bool = False

    @cached_property
    def shift(self) -> LabelShift | None:
        """Label shares where sets are used; None = those of the clients' rows."""
        return shift_of(self.federation.classes, self.target, self.source)

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
    def apart(self) -> bool:
        """True if there are several thresholds."""
        return self.parts_by != "none"

    def check(self) -> None:
        """InputError for wishes that do not go together, or not with this federation."""
        federation = self.federation
        if positive("alpha", self.alpha) >= 1:
            raise InputError(f"alpha must be in (0, 1), got {self.alpha:g}")
        one_of("by", self.by, BY)
        if self.rows_per_client is not None:
            positive("rows_per_client", self.rows_per_client)
        whole("bins", self.bins, 0, 4096)
        if self.shift is not None and self.apart:
            raise InputError("target is for one threshold: it needs by = 'none'")
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
    takes_known, takes_shift
        whether it makes use of a public number of rows, and of label shares
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
    release
        counts that thresholds for any other alpha can be read from; None = there are none
    fewest
        rows of a part that a threshold needs; None = unknown
    counted
        released number of rows behind each threshold, () if there is none, and the std of its noise
    """

    name: ClassVar[str]
    needs_rows: ClassVar[bool] = False
    takes_known: ClassVar[bool] = False
    takes_shift: ClassVar[bool] = True
    opening: SetQuery
    plan: Plan
    bound: Bound
    prefers: tuple[type[Mechanism], ...]
    rounds: int = 1
    release: SetRelease | None = None
    fewest: int | None = None
    counted: tuple[tuple[float, ...], float] = ((), 0.0)

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        self.federation, self.wanted = federation, wanted

    @classmethod
    def obstacles(cls, federation: Federation, wanted: Wanted) -> dict[str, bool]:
        """Return each reason for which it may not serve, and whether it is there."""
        shifted = wanted.shift is not None and not cls.takes_shift
        return {
            "no privacy is requested: use the exact rule": not federation.private,
            "its rows count alike, whatever their label, and target asks for more": shifted,
        }

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Why it cannot serve; "" = it can."""
        obstacles = cls.obstacles(federation, wanted).items()
        return next((why for why, there in obstacles if there), "")

    @property
    def alpha(self) -> float:
        """Share of rows whose label may be missing."""
        return self.wanted.alpha

    @property
    def expected(self) -> float:
        """Rows of all clients that are asked, as is publicly taken."""
        f = self.federation
        return (self.wanted.rows_per_client or 0.0) * f.clients * f.sampling_rate

    @property
    def whole_client(self) -> bool:
        """True if whole clients are protected."""
        return UNITS[self.federation.unit].whole_client

    def thresholds(self, number: int, *, arcs: bool = False) -> Floats:
        """So many public thresholds that suit the score; see `Conformity.thresholds`."""
        return self.wanted.conformity.thresholds(self.federation.classes, number, arcs=arcs)

    @property
    def one_row_each(self) -> bool:
        """True if one row of each subject counts, because several would be clipped."""
        return self.federation.private and UNITS[self.federation.unit].column is not None

    def planned(self, plan: Plan) -> None:
        """Keep the plan, before anything is asked."""
        self.plan = plan

    def query(self, number: int) -> SetQuery:
        """Return the question of a round, here the first one."""
        return self.opening

    def questions(self) -> tuple[Question, ...]:
        """Declare what rounds may ask; see `Method.questions`. Here the first one in all rounds."""
        return (Question.like(self.opening, (1, self.rounds)),)

    @abstractmethod
    def learn(self, release: Release) -> Floats:
        """Thresholds after a release, (parts,)."""

    @abstractmethod
    def reaches(self, rows: float | None) -> bool:
        """Return whether some sets are smaller than all labels, by public numbers.

        Parameters
        ----------
        rows
            total number of rows; None = not declared
        """

    def basis(self, thresholds: Floats) -> Basis | None:
        """Return how many rows these thresholds were computed from; None if unknown.

        Where single rows are protected the nominal number is not used: a simulation may have taken
        it from the rows.
        """
        f = self.federation
        rows, std = self.counted
        if not rows and f.private and self.whole_client:
            rows = (f.clients * f.sampling_rate if self.noun == "clients" else self.expected,)
        if self.wanted.shift is not None or len(rows) != len(thresholds) or not any(rows):
            return None
        return Basis(rows, std, not f.private, self.fewest, self.noun)

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
        if self.whole_client and self.opening.once:
            return "clients"
        return "subjects" if self.one_row_each else "rows"

    def clipped(self, clip: float, why: str) -> tuple[str, str]:
        """Return the guarantee under a clip with its worst case, and what it assumes.

        The worst case is known for one threshold, where all rows count alike.
        """
        wanted, sure = self.wanted, None
        if wanted.shift is None and not wanted.apart and wanted.rows_per_client is not None:
            sure = sure_coverage(clip, wanted.rows_per_client, self.alpha)
        return (
            if_not_clipped(self.promise, sure, wanted.rows_per_client),
            f"An assumption: what clipping to {clip:.4g} rows cuts off clients that have far more "
            f"misses than others, near the threshold, is a small part of all rows{why}; coverage "
            "may be lower by that part. No release tells it.",
        )

    @property
    def promise(self) -> str:
        """Coverage that is proven, as a sentence."""
        return of_whom(self.alpha, self.wanted.parts_by, self.whose, self.wanted.shift)

    @property
    @abstractmethod
    def guarantee(self) -> tuple[str, ...]:
        """Sentences that state what is proven about coverage, and under which assumptions."""
