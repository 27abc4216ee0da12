"""Three hooks, and the round once: a method without Flower.

A method says what to ask (`query`), learns from what was released (`update`) and tells what it
knows (`result`). Everything else is shared: `open_round` samples clients and stamps the plan's
bound on the query, `charge_round` charges the ledger, `close_round` adds the noise. Each engine
drives the same object.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from fedcal.core.checks import InputError, PrivacyError, one_of
from fedcal.core.numerics import Floats, Integers, Words
from fedcal.privacy import Federation, Ledger, Plan, Query, Question, Range, wire
from fedcal.privacy.curator import Curator, OpenRound, Release
from fedcal.privacy.query import check_question
from fedcal.secure_aggregation import SECURE_AGGREGATION
from fedcal.storage.artifact import Artifact
from fedcal.units import UNITS

Family = Literal["calibrate", "evaluate", "conformal", "personal", "train"]
"""Purpose of a method. Comparison and plan rank methods that calibrate."""


class Method(ABC):
    """Questions that a server asks a federation, and what it learns from the sums.

    Privacy, of every method: `plan` says what is protected (`unit`), from whom (`trust`), which
    inputs are neighbours (`adjacency`) and what noise follows. A method says only what is clipped
    to which public bound. Where a client's answer is a sum over its rows, unit "example" clips each
    row's part of it instead, and unit "subject" each subject's; elsewhere one row may move a
    clipped answer by twice the bound, and the noise is doubled. With unit "user" it is doubled
    under trust `local`, where a client's rows may become any others.

    Parameters
    ----------
    plan
        frozen privacy plan; it owns the number of rounds, because the noise depends on it
    ledger
        where a private run's budget is charged; None = one of its own
    secure_aggregation
        "protocol" (sites add up among themselves: the server sees sums), "masks" (simulated: the
        server sees masked vectors and their sum) or "none"

    Attributes
    ----------
    releases
        what was released so far
    resumed
        how many of them by an earlier process
    bytes_up, bytes_down
        payload that one client is expected to send and get, so far (what the protocol of secure
        sums adds is not in it). An expectation over the sampling: the clients that
        were asked stay secret
    on_release
        called after each release
    norms
        what each block of an answer is clipped to without privacy; () = nothing is
    unavailable
        in a simulation, round -> clients that drop out: they are sampled, and do not
        answer
    """

    name: ClassVar[str]
    family: ClassVar[Family]
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    """Settings, small enough for tests, that between them reach every branch of the method."""
    norms: tuple[float, ...] = ()
    exact_only: ClassVar[bool] = False
    """True if a budget is refused: with noise it made models worse."""
    instead: ClassVar[str] = ""
    """Names of methods to use with a budget, where it is refused."""
    one_place: ClassVar[bool] = False
    """True if one client with all rows is a usual federation for it."""
    keeps_releases: ClassVar[bool] = True
    """True if all releases of a run are kept: there are few, and they are short."""

    def __init__(
        self, plan: Plan, *, ledger: Ledger | None = None, secure_aggregation: str = "masks"
    ) -> None:
        one_of("secure aggregation", secure_aggregation, SECURE_AGGREGATION)
        if (secure_aggregation == "protocol") != bool(plan.committee):
            needs = "needs a committee of sites, and a committee needs it"
            raise InputError(f"secure aggregation 'protocol' {needs}")
        self.plan = plan
        self.secure_aggregation = secure_aggregation
        self.releases: list[Release] = []
        self.resumed = 0
        self.bytes_up = self.bytes_down = 0.0
        self.on_release: Callable[[Release], None] | None = None
        self.unavailable: Callable[[int], Integers] = lambda round_number: np.zeros(0, np.int64)
        self._curator = Curator(plan, ledger, masked=secure_aggregation != "none")

    def charge_to(self, ledger: Ledger | None) -> None:
        """Charge another ledger, before anything is asked; None = one of its own.

        Raises PrivacyError if something was asked: what was charged for it would be forgotten.
        """
        if self._curator.opened:
            raise PrivacyError("a run that has asked something keeps its ledger")
        self._curator = Curator(self.plan, ledger, masked=self.secure_aggregation != "none")

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Return whether a run needs the public nominal `rows_per_client`.

        For unit "example" the bound of a row is known, and `clip` gives a client's bound, so the
        number is required only where noise depends on it. Elsewhere it is accepted and has no
        effect: it is a fact about the federation, not a parameter.
        """
        clipped = UNITS[federation.unit].by_client and settings.get("clip") is None
        return federation.private and clipped and not cls.exact_only

    def hopeless(self, rows: float | None) -> bool:
        """Return whether a run on `rows` rows in total is useless, by public numbers."""
        return False

    # -- the three hooks ------------------------------------------------------------------

    @abstractmethod
    def query(self, round_number: int) -> Query | None:
        """Return the question of this round, or None if there is nothing left to ask."""

    @abstractmethod
    def update(self, release: Release) -> None:
        """Learn from a released sum."""

    @abstractmethod
    def result(self) -> Artifact:
        """Return the artifact learned so far."""

    # -- the shared round -----------------------------------------------------------------

    def questions(self) -> tuple[Question, ...]:
        """Declare every query that a round may ask, by settings and public facts alone.

        It is the same before anything is learned and after: a site makes the method by itself, and
        answers nothing else. The first round's query in all rounds, but for what is `moving`, if
        not overridden.
        """
        query = self.query(1)
        rounds = 1, self.plan.rounds
        return () if query is None else (Question.like(query, rounds, **self.moving()),)

    def moving(self) -> Mapping[str, Range]:
        """Parameters of the query that change from round to round, and their ranges."""
        return {}

    @cached_property
    def _declared(self) -> tuple[Question, ...]:
        return self.questions()

    def open_round(self, round_number: int) -> OpenRound | None:
        """Return the round's query and its clients, or None if the method is done.

        Raises InputError if the method does not declare the query: no real site would answer it.
        """
        query = self.query(round_number)
        if query is None:
            return None
        if round_number <= self.plan.rounds:  # the curator refuses later ones
            check_question(self._declared, round_number, query)
        asked = self._curator.open(round_number, query, self.norms)
        share = 1.0 if query.everyone else self.plan.share_asked
        self.bytes_up += share * 8 * asked.request.bound.length
        self.bytes_down += share * wire.payload_bytes(asked.request)
        return asked

    def charge_round(self, asked: OpenRound, repliers: int) -> None:
        """Charge the ledger for a round, before its `repliers` answers are added up or unmasked.

        Raises
        ------
        RoundFailed
            If no client answered, or the noise would be less than promised; nothing is released.
        BudgetExceeded, InputError
            If the ledger refuses or fails; nothing may be added up.
        """
        self._curator.charge(asked, repliers)

    def close_round(self, asked: OpenRound, total: Words) -> Release:
        """Release the sum of a charged round's encoded contributions and learn from it."""
        release = self._curator.close(asked, total)
        self._released(release)
        return release

    def _released(self, release: Release) -> None:
        if self.keeps_releases:
            self.releases.append(release)
        self.update(release)
        if self.on_release is not None:
            self.on_release(release)

    @property
    def released(self) -> int:
        """Number of releases so far, by this process or an earlier one."""
        return self._curator.releases

    @property
    def run(self) -> str:
        """Name of the run for sites and ledger."""
        return self._curator.run

    def resume(self, run: str, releases: Sequence[Release]) -> None:
        """Go on with a run that another process began, after what it has released.

        Raises InputError if the ledger, or what was released, does not belong to such a run.
        """
        self._curator.resume(run, len(releases))
        for release in releases:
            asked = self.open_round(release.round)
            if asked is None:
                raise InputError(f"round {release.round} of run {run} is not one of this method's")
            self._curator.replay(asked, release)
            self._released(release)
        self.resumed = len(releases)

    def resume_after(self, run: str, releases: int) -> None:
        """Go on with such a run after so many releases, which the method has learnt from already.

        Raises InputError if the ledger does not belong to such a run.
        """
        self._curator.resume(run, releases)
        self._curator.skip(releases)
        self.resumed = releases

    def state(self) -> dict[str, Floats] | None:
        """All that later rounds depend on, where releases are not kept; else None."""
        return None

    def restore(self, run: str, state: Mapping[str, Floats]) -> None:
        """Go on with a run that another process began, from the `state` of that process."""
        raise NotImplementedError(f"{self.name} continues from its releases")

    def round_record(self, round_number: int) -> dict[str, Any]:
        """Return plain values to record about a finished round, beside the release itself."""
        return {}

    def at_limits(self) -> list[str]:
        """Return a sentence where what was learned is at an end of the range that was searched."""
        return self.result().at_limits()

    def divisor(self, release: Release) -> float:
        """Return the number that turns a released sum into a mean; with privacy the public q K.

        This holds under every trust model. Under `local`, where it may be known which clients
        answered, dropouts then shorten a step and never lengthen one. Without privacy it is the
        number of clients with rows in the sum: the release's last number.
        """
        if self.plan.private:
            return self.plan.federation.sampling_rate * self.plan.clients
        return float(release.values[-1])

    def abandon(self) -> None:
        """Return the budget reserved for a failed run, if none of it was spent."""
        self._curator.abandon()
