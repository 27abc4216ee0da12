"""Three hooks, and the Flower plumbing once.

A calibration strategy says what to ask (`query`), learns from what was released (`update`) and
tells what it knows (`result`). Everything else is shared: `open_round` samples clients and
stamps the plan's bound on the query, `charge_round` charges the ledger, `close_round` adds the
noise.
Flower's own `Strategy.start` and the inline engine drive the same object.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcal.bounding import Bound
from fedcal.calibrators import Calibrator
from fedcal.checks import one_of
from fedcal.errors import FedcalError, InputError, RoundFailed
from fedcal.privacy.federation import Federation
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.plan import EXACT_GRID, Plan
from fedcal.queries import Query
from fedcal.release import Asked, Curator, Release
from fedcal.secure_aggregation import owed, unmask
from fedcal.types import Integers, Words
from fedcal.units import UNITS

WHO, ANSWER, REVEAL = "query.who", "query.answer", "query.reveal"
"""Flower message types: which site is this node; a contribution; seeds shared with dropouts."""

CLIP = 0.5
"""Bound of one client's update where means of updates are asked for; Maddock et al., A.3.2."""

_LEAST_CLIP = 1024 * EXACT_GRID

ABSENT = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)
"""Error replies of Flower itself: the node is gone. Every other error is the client's own."""


def exact_norms(plan: Plan, bound: Bound, clip: float | None) -> tuple[float, ...]:
    """Without privacy a `clip` bounds a client's influence all the same (Maddock et al., A.3.5).

    Returns
    -------
    tuple of float
        The bound's norms; () with privacy, where the plan has them, and without a clip.
    """
    if plan.private or clip is None:
        return ()
    if clip < _LEAST_CLIP:
        raise InputError(
            f"clip = {clip:g} is lost on the grid of exact sums: without privacy it must be at "
            f"least {_LEAST_CLIP:g}"
        )
    return bound.norms


class CalibrationStrategy(Strategy):
    """A Flower strategy that fits a calibrator over a federation.

    Privacy, of every method: `plan` says what is protected (`unit`), from whom (`trust`), which
    inputs are neighbours (`adjacency`) and what noise follows. A method says only what is clipped
    to which public bound. Where a client's answer is a sum over its rows, unit "example" clips each
    row's part of it instead; elsewhere one row may move a clipped answer by twice the bound, and
    the noise is doubled. With unit "user" it is doubled under trust `local`, where a client's rows
    may become any others.

    Parameters
    ----------
    plan : frozen privacy plan; it owns the number of rounds, because the noise depends on it
    ledger : where a private run's budget is charged; None = one of its own
    secure_aggregation : "masks" (the server sees masked vectors and their sum) or "none"

    Attributes
    ----------
    releases : what was released so far
    bytes_up, bytes_down : payload that one client is expected to send and get, so far. An
        expectation over the sampling: who was really asked stays secret
    on_release : called after each release
    norms : what each block of an answer is clipped to without privacy; () = nothing is
    unavailable : in a simulation, round -> clients that drop out: they are sampled, and Flower
        sends them nothing
    """

    name: ClassVar[str]
    most_noise: ClassVar[float] = 0.5
    """Noise std of a released sum over the most that all clients can add to it: above this a
    private run hardly ever makes the model better (see `fedcal.strategies.enough`)."""
    least_rows: ClassVar[int] = 0
    """Rows in all, and of each client, below which no run does so; 0 = what any method needs."""
    least_rows_each: ClassVar[int] = 0
    norms: tuple[float, ...] = ()

    def __init__(
        self, plan: Plan, *, ledger: Ledger | None = None, secure_aggregation: str = "masks"
    ) -> None:
        one_of("secure aggregation", secure_aggregation, ("masks", "none"))
        self.plan = plan
        self.secure_aggregation = secure_aggregation
        self.releases: list[Release] = []
        self.bytes_up = self.bytes_down = 0.0
        self.on_release: Callable[[Release], None] | None = None
        self.unavailable: Callable[[int], Integers] | None = None
        self._curator = Curator(plan, ledger, masked=secure_aggregation == "masks")
        self._sites: dict[int, int] = {}
        self._asked: Asked | None = None
        self._grid: Grid | None = None
        self._timeout = 3600.0

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Whether a run needs a nominal `rows_per_client`, if the method knows it at all.

        For unit "example" the bound of a row is known, and `clip` gives a client's: a number that
        tells of rows is asked for only where it must be. Where it is not needed it may stand all
        the same, and does nothing: it is a fact about the federation, not a knob.
        """
        whole = UNITS[federation.unit].whole_client
        return federation.private and whole and settings.get("clip") is None

    # -- the three hooks ------------------------------------------------------------------

    @abstractmethod
    def query(self, round_number: int) -> Query | None:
        """What to ask in this round; None if there is nothing left to ask."""

    @abstractmethod
    def update(self, release: Release) -> None:
        """Learn from a released sum."""

    @abstractmethod
    def result(self) -> Calibrator:
        """The calibrator as known so far."""

    # -- the shared round -----------------------------------------------------------------

    def open_round(self, round_number: int) -> Asked | None:
        """The round's query and its clients, or None if the strategy is done."""
        query = self.query(round_number)
        if query is None:
            return None
        asked = self._curator.open(round_number, query, self.norms)
        everybody = query.everyone or self.plan.model.asks_everyone
        share = 1.0 if everybody else self.plan.sampling_rate
        self.bytes_up += share * 8 * asked.request.bound.length
        self.bytes_down += share * asked.request.payload_bytes
        return asked

    def charge_round(self, asked: Asked, repliers: int) -> None:
        """Charge the ledger for a round, before its `repliers` answers are added up or unmasked.

        Raises
        ------
        RoundFailed
            If nobody answered, or their noise would be less than promised; nothing is released.
        BudgetExceeded, InputError
            If the ledger refuses or fails; nothing may be added up.
        """
        self._curator.charge(asked, repliers)

    def close_round(self, asked: Asked, total: Words) -> Release:
        """Release the sum of a charged round's encoded contributions and learn from it."""
        release = self._curator.close(asked, total)
        self.releases.append(release)
        self.update(release)
        if self.on_release is not None:
            self.on_release(release)
        return release

    def divisor(self, release: Release) -> float:
        """What makes a mean of a released sum: with privacy the public q K.

        Under every trust model: also under `local`, where everybody may know who answered, dropouts
        then shorten a step and never lengthen one. Without privacy, how many clients with rows are
        in the sum: the release's last number.
        """
        if self.plan.private:
            return self.plan.sampling_rate * self.plan.clients
        return float(release.values[-1])

    def abandon(self) -> None:
        """The run failed: what was reserved for it is given back, if nothing of it was spent."""
        self._curator.abandon()

    # -- Flower ---------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Flower's loop over the plan's rounds.

        Raises
        ------
        InputError
            If `num_rounds` is given and is not the plan's.
        RoundFailed
            If a client raised an error, or nobody of those asked answered.
        """
        if num_rounds not in (None, self.plan.rounds):
            raise InputError(
                f"num_rounds = {num_rounds}, but the privacy plan was made for {self.plan.rounds}"
            )
        self._timeout = timeout
        try:
            return super().start(
                grid,
                initial_arrays or ArrayRecord(),
                self.plan.rounds,
                timeout,
                train_config,
                evaluate_config,
                evaluate_fn,
            )
        except BaseException:
            self.abandon()
            raise

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message with the query to each sampled client."""
        self._grid = grid
        self._asked = asked = self.open_round(server_round)
        if asked is None:
            return []
        self._meet(grid)
        content = {
            "query": ConfigRecord(asked.request.to_fields()),
            "context": ConfigRecord(asked.request.context_fields()),
        }
        if self.secure_aggregation == "masks":
            content["masking"] = ConfigRecord(
                {"seed": self.plan.mask_seed, "cohort": asked.clients.tolist()}
            )
        gone = set() if self.unavailable is None else set(self.unavailable(server_round).tolist())
        return [
            _message(content, self._sites[k], ANSWER, server_round)
            for k in asked.clients.tolist()
            if k in self._sites and k not in gone
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Sum the contributions, unmask dropouts, release."""
        asked = self._asked
        if asked is None:
            return None, None
        with self._discreet(server_round):
            sent = self._contributions(asked, replies)
        self.charge_round(asked, len(sent))
        total = np.zeros(asked.request.bound.length, np.uint64)
        for words in sent.values():
            total += words
        if self.secure_aggregation == "masks" and sent:
            with self._discreet(server_round):
                total = self._unmasked(asked, total, set(sent))
        self.close_round(asked, total)
        arrays = {k: Array(v) for k, v in self.result().arrays().items()}
        return ArrayRecord(arrays), None

    @contextmanager
    def _discreet(self, server_round: int) -> Iterator[None]:
        """With privacy: who was sampled, and what a client writes of its rows, reach no log."""
        try:
            yield
        except FedcalError:
            if not self.plan.private:
                raise
            raise RoundFailed(
                f"round {server_round}: a sampled client failed or sent what cannot be used; "
                "nothing was released (its own log says why)"
            ) from None

    def _contributions(self, asked: Asked, replies: Iterable[Message]) -> dict[int, Words]:
        """What each client that answered sent, masked or not: site -> words."""
        sent: dict[int, Words] = {}
        for site, reply in self._answers(replies):
            if site in sent or site not in asked.clients:
                raise RoundFailed(f"round {asked.round}: site {site} answered out of turn")
            sent[site] = _contribution(reply, site, asked.request.bound.length)
        return sent

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: metrics over clients are releases of their own."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Nothing beyond Flower's own lines: the plan is in the result."""

    def _meet(self, grid: Grid) -> None:
        """Learn which site each new node is; node ids are random and mean nothing.

        A site whose node is gone may come back as another one.
        """
        nodes = list(grid.get_node_ids())
        self._sites = {site: node for site, node in self._sites.items() if node in set(nodes)}
        known = set(self._sites.values())
        new = [node for node in nodes if node not in known]
        for site, node, clients in ask_who(grid, new, self._timeout) if new else []:
            if not 0 <= site < self.plan.clients or site in self._sites:
                raise RoundFailed(f"a node says it is site {site}, which cannot be")
            if clients not in (None, self.plan.clients):
                raise RoundFailed(
                    f"site {site} deals the data to {clients} clients, not {self.plan.clients}"
                )
            self._sites[site] = node

    def _answers(self, replies: Iterable[Message]) -> Iterable[tuple[int, Message]]:
        """Replies by site. A missing node is a dropout; a client's error stops the run."""
        site_of = {node: site for site, node in self._sites.items()}
        for reply in replies:
            site = site_of.get(reply.metadata.src_node_id, -1)
            if not reply.has_error():
                yield site, reply
            elif reply.error.code not in ABSENT:
                raise RoundFailed(f"site {site} answered with an error: {reason(reply)}")

    def _unmasked(self, asked: Asked, total: Words, alive: set[int]) -> Words:
        """Ask survivors for the round seeds that they share with dropouts, and take them off."""
        cohort = asked.clients.tolist()
        debts = owed(set(cohort) - alive, cohort, self.plan.mask_seed, asked.round)
        if not debts:
            return total
        if self._grid is None:
            raise RoundFailed("dropouts cannot be unmasked without the grid")
        masking = {"seed": self.plan.mask_seed, "cohort": cohort, "round": asked.round}
        asking = [
            _message(
                {"masking": ConfigRecord({**masking, "dropped": list(gone)})},
                self._sites[site],
                REVEAL,
                asked.round,
            )
            for site, gone in debts.items()
        ]
        answers = self._grid.send_and_receive(asking, timeout=self._timeout)
        revealed = {site: _seeds(reply, site) for site, reply in self._answers(answers)}
        return unmask(total, revealed, len(total), debts)


class Who(NamedTuple):
    """What a node says of itself.

    Attributes
    ----------
    site : from 0
    node : Flower's random number
    clients : to how many a site of a simulation deals the data of the run config; None = its
        rows come from elsewhere
    """

    site: int
    node: int
    clients: int | None


def ask_who(grid: Grid, nodes: list[int], timeout: float) -> Iterable[Who]:
    """Who each of the nodes is that answers.

    Raises
    ------
    RoundFailed
        If one fails to say it.
    """
    asking = [_message({}, node, WHO, 0) for node in nodes]
    for reply in grid.send_and_receive(asking, timeout=timeout):
        if not reply.has_error():
            yield _who(reply)
        elif reply.error.code not in ABSENT:
            raise RoundFailed(f"a node cannot say which site it is: {reason(reply)}")


def _message(content: dict[str, ConfigRecord], node: int, kind: str, group: int) -> Message:
    records: dict[str, Any] = dict(content)
    return Message(RecordDict(records), dst_node_id=node, message_type=kind, group_id=str(group))


def reason(reply: Message) -> str:
    """Why a client failed, in one line: the end of its text, which is a traceback under Ray."""
    lines = [line.strip() for line in str(reply.error.reason).splitlines() if line.strip()]
    last = lines[-1] if lines else "no reason given"
    return last.rpartition("occurred. Message: ")[2].removesuffix("'>")[:300]


_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, EOFError)


def _who(reply: Message) -> Who:
    """What a node says of itself."""
    try:
        said: Mapping[str, Any] = reply.content.config_records["who"]
        clients = int(said["clients"]) if "clients" in said else None
        return Who(int(said["site"]), reply.metadata.src_node_id, clients)
    except _UNREADABLE:
        raise RoundFailed("a node does not say which site it is") from None


def _seeds(reply: Message, site: int) -> dict[int, bytes]:
    """The seeds that a survivor tells; `unmask` checks that they are those asked for."""
    try:
        record = reply.content.config_records["seeds"]
        return {int(k): v for k, v in record.items() if isinstance(v, bytes)}
    except _UNREADABLE:
        raise RoundFailed(f"site {site} sent seeds that cannot be read") from None


def _contribution(reply: Message, site: int, length: int) -> Words:
    """The words of an answer; nothing else in the message is looked at."""
    try:
        words = reply.content.array_records["answer"]["words"].numpy()
    except _UNREADABLE:
        raise RoundFailed(f"site {site} sent no words that can be read") from None
    if words.dtype != np.uint64 or words.shape != (length,):
        raise RoundFailed(
            f"site {site} sent {words.dtype} of shape {words.shape}, not uint64 of ({length},)"
        )
    return words
