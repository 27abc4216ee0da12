"""Rules that find thresholds of prediction sets: exact ones, and draws."""

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np

from fedcal import units
from fedcal.calibrators.base import text_of
from fedcal.calibrators.conformity import BY, Conformity
from fedcal.clients.questions.conformal import SetGaps, SetQuery, SetRanks
from fedcal.conformal import coverage, levels, page, sets
from fedcal.conformal.levels import OF_CLIENTS, OF_ROWS, Draw, client_clip, sure_coverage
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, override
from fedcal.core.options import Positive, among
from fedcal.mechanisms import Exponential, Gaussian, Mechanism
from fedcal.metrics import score_table
from fedcal.privacy import AUTO, Plan, Question, Range, Release
from fedcal.strategies.base import Misses, Names, Number, Preset, Settings, integer
from fedcal.trust import TRUSTS
from fedcal.units import UNITS


class ConformalSettings(Settings):
    """Settings of prediction sets, independent of the rule that finds their thresholds.

    See `fedcal.strategies.methods.conformal.FedConformal`.
    """

    alpha: Misses = 0.1
    score: str = "lac"
    randomised: bool | None = None
    penalty: Number | None = None
    free: Annotated[int, integer(0)] | None = None
    calibrator: str = ""
    quantile: str = AUTO
    bins: Annotated[int, integer(0, 4096)] = 0
    by: Annotated[str, among(BY)] = "none"
    groups: Names = ()
    rows_per_client: Positive | None = None
    rows_known: bool = False
    preset: Preset = None

    @override
    def paper(self) -> dict[str, Any]:
        private, known = self.federation.private, not self.hides_clients
        return {"quantile": "exponential", "rows_known": known} if private else {}

    @cached_property
    def conformity(self) -> Conformity:
        """Conformity score of labels."""
        text = text_of(self.calibrator, self.federation.classes) if self.calibrator else ""
        randomised = self.score != "lac" if self.randomised is None else self.randomised
        return Conformity(self.score, randomised, self.penalty, self.free, calibrator=text)

    @property
    def asked(self) -> dict[str, Any]:
        """Fields of `SetQuery`: the score, and what has thresholds of its own."""
        score = asdict(self.conformity)
        score["score"] = score.pop("name")
        return {**score, "by": self.parts_by, "groups": score_table.names_text(self.groups)}

    @property
    def parts_by(self) -> str:
        """Kind of part that has its own threshold; named groups have one each."""
        return "group" if self.groups and self.by == "none" else self.by

    @property
    def apart(self) -> bool:
        """True if there are several thresholds."""
        return self.parts_by != "none"

    @property
    def expected(self) -> float:
        """Rows of all clients that are asked, as is publicly taken."""
        f = self.federation
        return (self.rows_per_client or 0.0) * f.clients * f.sampling_rate

    @property
    def by_client(self) -> bool:
        """True if whole clients are protected."""
        return UNITS[self.federation.unit].by_client

    @property
    def one_row_each(self) -> bool:
        """True if one row of each subject counts, because several would be clipped."""
        return self.federation.private and UNITS[self.federation.unit].column is not None

    def check(self) -> None:
        """InputError for wishes that do not go together, or not with this federation."""
        sampled = self.federation.sampling_rate < 1
        if self.rows_known and (self.rows_per_client is None or sampled or self.one_row_each):
            needs = "it needs rows_per_client, all clients in each round, and another unit than one"
            got = f"{needs} of subjects, got unit '{self.federation.unit}'"
            raise InputError(f"rows_known states that the number of rows is public: {got}")


Q = TypeVar("Q", bound=SetQuery)


class QuantileRule(ABC):
    """Rule that finds thresholds, for one run.

    Attributes
    ----------
    name
        in settings
    needs_rows
        whether it takes a public nominal number of rows
    takes_known
        whether it makes use of a public number of rows
    opening
        the next question; the plan is made for the first one
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
    opening: SetQuery
    plan: Plan
    bound: units.Bound
    prefers: tuple[type[Mechanism], ...]
    rounds: int = 1
    release: page.SetRelease | None = None
    fewest: int | None = None
    counted: tuple[tuple[float, ...], float] = ((), 0.0)

    def __init__(self, settings: ConformalSettings) -> None:
        self.settings, self.alpha = settings, settings.alpha

    @classmethod
    def obstacles(cls, settings: ConformalSettings) -> dict[str, bool]:
        """Return each reason for which it may not serve, and whether it is there."""
        return {"no privacy is requested: use the exact rule": not settings.federation.private}

    def thresholds(self, number: int, *, arcs: bool = False) -> Floats:
        """Return this number of public thresholds for the score; see `Conformity.thresholds`."""
        classes = self.settings.federation.classes
        return self.settings.conformity.thresholds(classes, number, arcs=arcs)

    def ask(self, kind: type[Q], thresholds: Floats, **more: Any) -> Q:
        """Return a question about these thresholds."""
        return kind(self.settings.federation.classes, thresholds, **{**self.settings.asked, **more})

    def bound_by(self, clip: float) -> units.Bound:
        """Return the bound of an answer to the first question; the clip is of whole clients."""
        clips = (clip,) if self.settings.by_client else ()
        return self.opening.bound(self.opening.part(self.settings.federation.unit), clips)

    def planned(self, plan: Plan) -> None:
        """Keep the plan, before anything is asked."""
        self.plan = plan

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

    def basis(self, thresholds: Floats) -> coverage.Basis | None:
        """Return how many rows these thresholds were computed from; None if unknown.

        Where single rows are protected the nominal number is not used: a simulation may have taken
        it from the rows.
        """
        f = self.settings.federation
        rows, std = self.counted
        if not rows and f.private and self.settings.by_client:
            rows = (self.settings.expected,)
        if len(rows) != len(thresholds) or not any(rows):
            return None
        return coverage.Basis(rows, std, not f.private, self.fewest, self.noun)

    @property
    def whose(self) -> str:
        """Return the end of a sentence: whom a threshold of pooled rows or subjects is for."""
        subject = "a subject that is exchangeable with all clients' subjects taken together."
        one = f"for one row, drawn at random, of {subject}"
        return one if self.settings.one_row_each else page.ANY_ROW

    @property
    def noun(self) -> str:
        """Noun for what counts once: subjects or rows."""
        return "subjects" if self.settings.one_row_each else "rows"

    def clipped(self, clip: float, why: str) -> tuple[str, str]:
        """Return the guarantee under a clip with its worst case, and what it assumes.

        The worst case is known for one threshold.
        """
        settings, sure = self.settings, None
        if not settings.apart and settings.rows_per_client is not None:
            sure = sure_coverage(clip, settings.rows_per_client, self.alpha)
        return (
            page.if_not_clipped(self.promise, sure, settings.rows_per_client),
            f"An assumption: what clipping to {clip:.4g} rows cuts off clients that have far more "
            f"misses than others, near the threshold, is a small part of all rows{why}; coverage "
            "may be lower by that part. No release tells it.",
        )

    @property
    def promise(self) -> str:
        """Coverage that is proven, as a sentence."""
        return page.of_whom(self.alpha, self.settings.parts_by, self.whose)

    @property
    @abstractmethod
    def guarantee(self) -> tuple[str, ...]:
        """Sentences that state what is proven about coverage, and under which assumptions."""


POINTS = 100
"""Thresholds of a round: six rounds find a score up to 1e-12, which scores are rounded to."""


class Exact(QuantileRule):
    """The ceil((n + 1) (1 - alpha))-th smallest score of each part (Papadopoulos et al. 2002).

    Each round asks for the sums at thresholds between the last one that is too low and the first
    one that is not; of several parts all thresholds are asked of all.
    """

    name = "exact"
    rounds = 6
    opening: SetGaps

    def __init__(self, settings: ConformalSettings) -> None:
        super().__init__(settings)
        # whole numbers of rows, which the ring adds up exactly
        self.opening = self.ask(SetGaps, np.array([0.5, 1.0]), need=0.0)
        parts = self.opening.parts
        self._low, self._high = np.full(parts, -1.0), np.ones(parts)
        self._each = max(POINTS // parts, 16)
        self.fewest = math.ceil(round((1.0 - self.alpha) / self.alpha, 9))
        self._ask()
        self.bound, self.prefers = units.Bound(self.opening.lengths()), (Gaussian,)

    @classmethod
    @override
    def obstacles(cls, settings: ConformalSettings) -> dict[str, bool]:
        sampled = settings.federation.sampling_rate < 1
        return {
            "it releases exact sums, and the run promises privacy": settings.federation.private,
            "its rounds look ever closer at the same rows, and sampling takes others": sampled,
            "its number of thresholds is not open to choice": bool(settings.bins),
        }

    def _ask(self) -> None:
        """Take thresholds between low and high, of every part."""
        between = [
            np.linspace(max(low, 0.0), high, self._each + 1)[0 if low < 0 else 1 :]
            for low, high in zip(self._low, self._high, strict=True)
        ]
        thresholds = np.unique(np.concatenate([*between, [1.0]]))
        self.opening = replace(self.opening, thresholds=thresholds)

    def questions(self) -> tuple[Question, ...]:
        """Return questions for sums at any thresholds."""
        most = len(self._low) * (self._each + 1) + 1
        longest = replace(self.opening, thresholds=np.linspace(0.0, 1.0, most))
        return (Question.like(longest, (1, self.rounds), thresholds=Range(0.0, 1.0, 1, most)),)

    def learn(self, release: Release) -> Floats:
        """Return the first threshold with enough rows below it."""
        thresholds = self.opening.thresholds
        sums = release.values.reshape(self.opening.parts, -1)
        rows = np.round(sums[:, -1])  # at 1 all are in
        self.counted = tuple(rows.tolist()), 0.0
        levels = [self._level(int(n)) for n in rows]
        for part, each in enumerate(sums):
            enough = np.flatnonzero(each >= levels[part] - 1e-6 * min(1.0, abs(levels[part])))
            if not len(enough):
                self._low[part] = self._high[part] = 1.0
                continue
            first = int(enough[0])
            self._high[part] = thresholds[first]
            self._low[part] = thresholds[first - 1] if first else self._low[part]
        self._ask()
        return self._high.copy()

    def _level(self, rows: int) -> float:
        """Return the sum that a threshold must reach; if it exceeds the rows, all labels are in."""
        return (rows + 1) * (1.0 - self.alpha)

    def reaches(self, rows: float | None) -> bool:
        """Return whether the rank exists in a part with as many rows as the others."""
        each = int((rows or 0.0) / len(self._low))
        return self._level(each) <= each

    @property
    @override
    def whose(self) -> str:
        return "for a row that is exchangeable with the clients' rows."

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Guarantee of split conformal prediction."""
        return (self.promise,)


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
    @override
    def obstacles(cls, settings: ConformalSettings) -> dict[str, bool]:
        trust, asked = str(settings.federation.trust), settings.federation.mechanism
        unseen = not TRUSTS[trust].accepts(Exponential)
        other = asked not in (AUTO, Exponential.name)
        return super().obstacles(settings) | {
            "it draws one threshold, and by asks for several": settings.apart,
            f"under trust '{trust}' the server does not have the exact sums": unseen,
            f"it draws by '{Exponential.name}', not by '{asked}'": other,
        }

    def learn(self, release: Release) -> Floats:
        """Return the drawn threshold, or all labels if public numbers say that rows are too few."""
        drawn = float(self.opening.thresholds[int(release.values[0])])
        return np.array([drawn if self.enough else sets.ALL_LABELS])

    def too_few(self, rows: float, noun: str, more: str = "") -> list[str]:
        """Return the sentence that sets hold all labels, if they do."""
        small = f"this budget is too small for a share of {1 - self.alpha:.4g}{more}."
        line = f"Sets hold all labels: with {rows:,.6g} {noun} {small}"
        return [] if self.enough else [line]


class Crossing(Drawn):
    """Exponential mechanism on the cost of the crossing (`fedcal.conformal.levels`; ours).

    Privacy: epsilon-DP, delta = 0; trust `central`. Unit "user" (zero-out): each of a client's
    centred counts is clipped to +-C; unit "example" (add/remove): a row adds alpha or takes
    1 - alpha, and nothing is clipped; unit "subject": one of a subject's rows counts, drawn by a
    hash. How many rows there are is not released.
    """

    name = "crossing"
    needs_rows = True
    opening: SetGaps

    def __init__(self, settings: ConformalSettings) -> None:
        super().__init__(settings)
        need = 1.0 - self.alpha
        self._clip = max(1.0 - need, need)
        if settings.by_client:
            self._clip = client_clip(settings.rows_per_client or 1.0, self.alpha)
        spacing = OF_CLIENTS if settings.by_client else OF_ROWS
        scale = 2.0 * self._clip / settings.federation.epsilon
        self._draw = Draw.of(self.alpha * settings.expected, scale, spacing)
        if settings.bins:
            all_tilt = self._draw.tilt * self._draw.candidates
            self._draw = Draw(settings.bins, all_tilt / settings.bins)
        at, once = self.thresholds(self._draw.candidates), settings.one_row_each
        self.opening = self.ask(SetGaps, at, once=once, need=need)
        self.bound = self.bound_by(self._clip)

    def planned(self, plan: Plan) -> None:
        """Compute the level from the epsilon of the draw."""
        scale = 2.0 * max(self.bound.norms) * plan.diameter / plan.mechanism.epsilon
        self.slack = self._draw.slack(scale)
        self.enough = self.reaches(self.settings.expected)
        self.fewest = math.ceil(self.slack / self.alpha)
        level, tilt = self.opening.need + self.slack, self._draw.tilt * scale
        self.opening = replace(self.opening, level=level, tilt=float(tilt))

    @override
    def reaches(self, rows: float | None) -> bool:
        return self.slack <= self.alpha * ((rows or 0.0) + 1.0)

    @property
    @override
    def guarantee(self) -> tuple[str, ...]:
        more = f"; {self.fewest:,} {self.noun} would do"
        lines = self.too_few(self.settings.expected, self.noun, more)
        promise, clipped = self.promise, list[str]()
        if self.settings.by_client:
            promise, *clipped = self.clipped(self._clip, " (0.0001 to 0.002 on the shipped data)")
        lines += [promise, f"This counts on at least {self.fewest:,} {self.noun} in all.", *clipped]
        if self.settings.by_client:
            lines.append("A client that is not among these may be covered less often.")
        return tuple(lines)


class ExponentialQuantile(Drawn):
    """The paper's rule (`fedcal.conformal.levels`), with all labels where q~ >= 1.

    Privacy: epsilon-DP, delta = 0; trust `central`. Unit "example": a row added or removed; as a
    row raises every cost by 0 to 1, the draw spends only epsilon/2 of what is charged, and the
    whole where a row is replaced. Unit "user": one row of each counts, drawn by a hash, and n is
    the number of clients. Public: n, and so the level q~; of subjects it is private.
    """

    name = "exponential"
    takes_known = True
    opening: SetRanks

    def __init__(self, settings: ConformalSettings) -> None:
        super().__init__(settings)
        f, by_client = settings.federation, settings.by_client
        self._n = max(round(f.clients if by_client else settings.expected), 1)
        bins = settings.bins or levels.best_bins(self._n, f.epsilon, self.alpha)
        at = levels.thresholds(min(bins, score_table.MOST_BUCKETS))
        self.opening = self.ask(SetRanks, at, once=by_client)
        self.bound = self.bound_by(1.0)

    @classmethod
    @override
    def obstacles(cls, settings: ConformalSettings) -> dict[str, bool]:
        unit, sampled = UNITS[settings.federation.unit], settings.federation.sampling_rate < 1
        private, unknown = unit.column is not None, not (unit.by_client or settings.rows_known)
        return super().obstacles(settings) | {
            "its n must be public, and sampling hides it": sampled,
            f"its n must be public, and how many {unit.plural} there are is not": private,
            "its n must be public: --set rows_known=true, rows_per_client=...": unknown,
        }

    def planned(self, plan: Plan) -> None:
        """gamma* and q~, by the epsilon of the draw."""
        m, epsilon = len(self.opening.thresholds), plan.mechanism.epsilon
        gamma = levels.best_gamma(self._n, m, epsilon, self.alpha)
        self.level = levels.inflated_level(self._n, m, epsilon, self.alpha, gamma)
        self.enough = self.level < 1
        if self.enough:
            self.opening = replace(self.opening, quantile=float(self.level))

    @override
    def reaches(self, rows: float | None) -> bool:
        return self.enough

    @property
    @override
    def whose(self) -> str:
        if not self.settings.by_client:
            return super().whose
        return "for one row, drawn at random, of a unit that is exchangeable with these."

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Theorem 2 of the paper."""
        whom = "clients, all of which have a row" if self.settings.by_client else "rows"
        return (
            *self.too_few(self._n, "rows"),
            self.promise,
            f"The number of {whom}, {self._n:,}, was treated as public and exact: with another "
            "number this does not hold.",
        )
