"""A method over Flower's messages: who is asked, what is sent, masks and dropouts."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcal.core import flower_internals, naming
from fedcal.core.checks import FedcalError, InputError, RoundFailed, same
from fedcal.core.numerics import Words
from fedcal.privacy import Plan, wire
from fedcal.privacy.curator import OpenRound
from fedcal.privacy.query import Asked
from fedcal.privacy.wire import asked_records, facts_of
from fedcal.secure_aggregation import messages
from fedcal.secure_aggregation.masking import unmask
from fedcal.strategies.method import Method
from fedcal.strategies.server import participation
from fedcal.strategies.server.collector import Collector, Content, SecureRounds
from fedcal.strategies.server.participation import message

ANSWER, RESULT = "query.answer", "query.result"
"""Flower message types: a contribution; what the run has learned, for a site to keep."""

REPLY_S, SLOWEST = 30.0, 12_500
"""Seconds in which the rest of a reply comes once it has begun, and those for each so many bytes.
Flower waits three minutes for a reply whose site was cut off in the middle, and takes no other."""

log = logging.getLogger("flwr")  # Flower shows its own logger to who started the run


class _Ending(logging.Filter):
    """Drops Flower's own final results, which have no place for a release, and the run's time."""

    ended = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line comes before them."""
        self.ended |= record.getMessage().startswith("Strategy execution finished")
        return not self.ended


class FlowerTransport(Method, Strategy):
    """A method as a Flower strategy, which carries its questions and the answers.

    Attributes
    ----------
    tolerant
        real sites: one that fails, or does not answer in time, is a dropout. Otherwise it stops
        the run; only a node that is gone is a dropout
    without_unready
        a real site that says that it cannot take part is a dropout. Otherwise it stops a run that
        has released nothing, tolerant or not
    terms
        digest of the job and its plan, by which sites with a guard know what they have accepted
    class_digest
        of the names of the classes; "" = what the first site says. A site with other classes
        stops the run before anything is asked
    scores
        how many classes they have, and whether they are logits or probs; 0 = not known
    model
        that `start` was given: clients of a Flower app score their rows by it
    roster
        Flower's number of each node that was met -> the client's number. Sites that do not know
        theirs are numbered as they come
    names
        number of a Flower app's client -> its SuperNode's name, or which partition or node it is
    secure
        the protocol of secure aggregation, where the run is under it
    took_part
        which sites did, so far
    """

    def __init__(self, plan: Plan, **options: Any) -> None:
        super().__init__(plan, **options)
        self.tolerant = self.without_unready = False
        self.terms = self.class_digest = ""
        self.scores: tuple[int, str | None] = (0, None)
        self.model: ArrayRecord | None = None
        self.roster, self._sites = dict[int, int](), dict[int, int]()
        self.names, self._unscored = dict[int, str](), set[int]()
        self._passed: set[int] = set()  # nodes that cannot take part
        self._guarded: set[int] = set()  # nodes that take all but the question from their terms
        self._unsure: set[int] = set()  # nodes of real sites that may be unable to
        self.secure: SecureRounds | None = None
        self.took_part = participation.Participation()
        self._asked: OpenRound | None = None
        self._grid: Grid  # of the run, once it has started
        self._timeout = 3600.0

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float = 3600,
        *args: Any,
        **options: Any,
    ) -> Result:
        """Run Flower's loop over the plan's rounds, or over the remaining ones of a resumed run.

        Raises
        ------
        InputError
            If `num_rounds` is given and is not the plan's.
        RoundFailed
            If a client raised an error that is no dropout, or too few of those asked answered.
        """
        planned = self.plan.rounds
        if num_rounds is not None:
            same("num_rounds, for which the privacy plan was made,", num_rounds, planned)
        self._timeout, self.model = timeout, initial_arrays or None
        ending = _Ending()
        log.addFilter(ending)
        try:
            rounds, arrays = planned - self.resumed, initial_arrays or ArrayRecord()
            result = super().start(grid, arrays, rounds, timeout, *args, **options)
        except BaseException:
            self.abandon()
            raise
        finally:
            log.removeFilter(ending)
        log.info("Final results:")
        plan, seen = self.plan, f"exact sums, trust {self.plan.trust}"
        if self.model is not None:  # of clients that mask nothing
            seen = "the server sees each client's sums"
        spent = f"no privacy: {seen}"
        if plan.private:
            budget = f"epsilon {plan.epsilon:g}, delta {plan.delta:g}"
            spent = f"spent: {budget} for each {plan.unit}, trust {plan.trust}"
        for line in (*self.result().lines(), spent):
            log.info("\t%s", line)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message with the query to each sampled client."""
        self._grid = grid
        self._asked = asked = self.open_round(self.resumed + server_round)
        if asked is None:
            return []
        if self.tolerant:
            flower_internals.limit_pulls(REPLY_S + 8 * asked.request.bound.length / SLOWEST)
        self.discover_nodes(grid)
        content = {
            "query": ConfigRecord(wire.to_fields(asked.request)),
            "context": ConfigRecord(facts_of(asked.request.query) | {"private": self.plan.private}),
        }
        question = Asked(asked.request.query, asked.round, self.run, self.terms)
        guarded = {name: ConfigRecord(of) for name, of in asked_records(question).items()}
        self._check_ready(grid, guarded, asked.round)
        self.took_part.there |= set(self._sites)
        if self.secure is not None:
            self.secure.enrol(self._sites, self._ask)
            guarded |= _records(self.secure.content)
        if self.secure_aggregation == "masks":
            content["masking"] = guarded["masking"] = ConfigRecord({"seed": self.plan.mask_seed})
        waits = asked.round, self._timeout
        gone = set(self.unavailable(asked.round).tolist())
        there = (k for k in asked.clients.tolist() if k in self._sites and k not in gone)
        if not self.plan.secret_sample:
            some = len(self._sampled(asked)), self.plan.clients
            log.info("configure_train: Sampled %s nodes (out of %s)", *some)
        return [
            message(guarded if node in self._guarded else content, node, ANSWER, *waits)
            for node in map(self._sites.__getitem__, there)
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Sum the contributions, take masks off, release."""
        asked = self._asked
        if asked is None:
            return None, None
        self.close_round(asked, self._total(asked, replies))
        return ArrayRecord({k: Array(v) for k, v in self.result().arrays().items()}), None

    def _total(self, asked: OpenRound, replies: Iterable[Message]) -> Words:
        """Return the sum of the contributions; the round is charged before they are added up."""
        if self.secure is not None:
            return self._secure_total(self.secure, asked, replies)
        with self._hide_private_errors(asked.round):
            sent = self._contributions(asked, replies)
        self.charge_round(asked, len(sent))
        total = np.zeros(asked.request.bound.length, np.uint64)
        for words in sent.values():
            total += words
        if self.secure_aggregation == "masks":
            total = unmask(total, sent, self.plan.mask_seed, asked.round)
        return total

    def _secure_total(
        self, secure: SecureRounds, asked: OpenRound, replies: Iterable[Message]
    ) -> Words:
        collector, number = Collector(secure.roster, secure.job, asked.request), asked.round
        for site, reply in self._texts(replies).items():
            if not collector.add(site, reply) and not self.tolerant:
                raise RoundFailed(f"round {number}: {self._called(site)} sent what cannot be used")
        with self._hide_private_errors(number):
            there = secure.settle(collector, number)
        self._tell_answered(asked, collector.contributions)
        self.charge_round(asked, there)
        return secure.total(collector, number, self._sites, self._ask)

    def _ask(self, kind: str, content: Mapping[int, Content], number: int) -> dict[int, bytes]:
        """Ask some sites something in the protocol, and wait: what they said."""
        asking = [
            message(_records(asked), self._sites[site], kind, number, self._timeout)
            for site, asked in content.items()
        ]
        return self._texts(self._grid.send_and_receive(asking, timeout=self._timeout))

    def _texts(self, replies: Iterable[Message]) -> dict[int, bytes]:
        """Return the sites' replies in the protocol, as bytes; unreadable ones are left out."""
        texts = {}
        for site, reply in self._answers(replies):
            with suppress(participation.UNREADABLE):
                text = reply.content.config_records[messages.REPLY][messages.REPLY]
                if isinstance(text, bytes) and site >= 0:
                    texts[site] = text
        return texts

    @contextmanager
    def _hide_private_errors(self, number: int) -> Iterator[None]:
        """Keep the sample, and a client's text about its rows, out of logs if there is privacy."""
        try:
            yield
        except FedcalError:
            if not self.plan.private:
                raise
            why = "a sampled client failed or sent what cannot be used; no sum was released"
            raise RoundFailed(f"round {number}: {why} (see its own log)") from None

    def _contributions(self, asked: OpenRound, replies: Iterable[Message]) -> dict[int, Words]:
        """Return each answering client's contribution, masked or not: site -> words."""
        sent: dict[int, Words] = {}
        for site, reply in self._answers(replies):
            if site in sent or site not in asked.clients:
                raise RoundFailed(f"round {asked.round}: {self._called(site)} answered out of turn")
            try:
                sent[site] = _contribution(reply, site, asked.request.bound.length)
            except RoundFailed:
                if not self.tolerant:
                    raise
        self._tell_answered(asked, sent)
        return sent

    def _tell_answered(self, asked: OpenRound, answered: Collection[int]) -> None:
        """Record and log which clients answered, where that is not secret."""
        if self.plan.secret_sample:
            return
        sampled = self._sampled(asked)
        self.took_part.note(asked.round, sampled, answered)
        some = len(answered), len(sampled) - len(answered)
        log.info("aggregate_train: Received %s results and %s failures", *some)
        if missing := [k for k in sampled if k not in answered]:
            log.warning(
                "fedcal: round %d: %d of %d clients answered%s",
                *(asked.round, len(answered), len(sampled)),
                f", not {naming.listed([*map(self._called, missing)])}" if self.tolerant else "",
            )

    def _sampled(self, asked: OpenRound) -> list[int]:
        return [k for k in asked.clients.tolist() if k not in self._unscored]

    def configure_evaluate(self, *args: Any, **options: Any) -> Iterable[Message]:
        """Nothing: metrics over clients are releases of their own."""
        return []

    def aggregate_evaluate(self, *args: Any, **options: Any) -> None:
        """Nothing: there is no evaluation round."""

    def summary(self) -> None:
        """Nothing beyond Flower's own lines: the plan is in the result."""

    def discover_nodes(self, grid: Grid) -> None:
        """Learn which site each new node is; node ids are random and mean nothing.

        A site whose node is gone may come back as another one.
        """
        nodes = set(grid.get_node_ids())
        self._sites = {site: node for site, node in self._sites.items() if node in nodes}
        new = sorted(nodes - set(self._sites.values()) - self._passed)
        if new:
            asked = grid, new, self._timeout, self.tolerant, self.model, self.plan.private
            self.assign_sites(participation.ask_node_info(*asked))

    def _check_ready(self, grid: Grid, content: dict[str, ConfigRecord], number: int) -> None:
        """Ask real sites that are new whether they can take part.

        One that cannot is passed over, if it may be: a policy or a column that does not fit is no
        dropout. One that does not answer misses the round, and is asked again before the next.
        """
        new = {node: site for site, node in self._sites.items() if node in self._unsure}
        if not new:
            return
        names = {node: self._called(site) for node, site in new.items()}
        late = self.tolerant and self.released > 0
        stop = not (late or self.without_unready)
        ready = participation.ask_ready(grid, names, content, number, self._timeout, stop=stop)
        self._unsure -= ready.keys()
        for node, site in new.items():
            if not ready.get(node, False):
                del self._sites[site]
        self._passed |= {node for node, can in ready.items() if not can}

    def _called(self, site: int) -> str:
        """Return a site's name in the federation, or its number."""
        known = self.secure is not None and 0 <= site < len(self.secure.roster.sites)
        if self.secure and known:
            return self.secure.roster.sites[site].name
        return self.names.get(site, f"site {site}")

    def assign_sites(self, nodes: Iterable[participation.NodeInfo]) -> None:
        """Give the sites behind these nodes numbers, and refuse those with other classes.

        Once there are releases, one that cannot take part stops nothing: it is passed over.

        Raises
        ------
        InputError
            If a site has other classes than the job, or than a site before it.
        RoundFailed
            If a node says it is a site that cannot be, or there are too many.
        """
        # those that know their number first: the others get what is free
        for info in sorted(nodes, key=lambda info: info.site is None):
            try:
                site = self._number_of(info)
                self._check(info, site)
            except (InputError, RoundFailed) as e:
                if not self.tolerant or not self.released:
                    raise
                log.warning("fedcal: a site that came late is passed over: %s", e)
                self._passed.add(info.node)
                continue
            if info.site is None and info.digest is None:
                taken = info.name in {**self.names, site: ""}.values()  # a partition of two nodes
                self.names[site] = info.name + f" of node {info.node}" * taken
            self.roster[info.node] = site
            if info.error:
                does = "counts as without rows" if self.plan.private else "is not asked"
                log.warning("fedcal: %s %s: %s", self._called(site), does, info.error)
            if info.error and not self.plan.private:
                self._passed.add(info.node)
                self._unscored.add(site)
                continue
            self._sites[site] = info.node
            if info.digest is not None:
                self._guarded.add(info.node)
                if info.site is None:  # a real one, not one simulated
                    self._unsure.add(info.node)

    def _number_of(self, info: participation.NodeInfo) -> int:
        """Return a client's number: its own, its earlier one, or the first free one."""
        enrolled = self.plan.clients
        own = info.site if self.secure is None else info.place
        if own is not None:
            if not 0 <= own < enrolled or own in self._sites:
                same = "" if self.secure is None else ": has it another federation file?"
                raise RoundFailed(f"a node says it is site {own}, which cannot be{same}")
            return own
        if self.secure is not None:
            why = "it has accepted no study"
            raise RoundFailed(f"a site does not say which one of the federation it is: {why}")
        if not self.tolerant:
            raise RoundFailed("a node does not say which site it is")
        if info.node in self.roster:
            return self.roster[info.node]
        free = sorted(set(range(enrolled)) - set(self.roster.values()))
        if not free:
            clients = f"the {enrolled} clients that the plan was made for"
            raise RoundFailed(f"there are more sites than {clients}")
        return free[0]

    def _check(self, info: participation.NodeInfo, site: int) -> None:
        """Refuse a site that deals other data, or has other classes."""
        if info.clients not in (None, self.plan.clients):
            to = f"{info.clients} clients, not {self.plan.clients}"
            raise RoundFailed(f"{self._called(site)} deals the data to {to}")
        if self.scores[0] and info.classes and (info.classes, info.input) != self.scores:
            both = (info.classes, info.input), self.scores
            has, expected = (f"{kind} of {classes} classes" for classes, kind in both)
            same(f"rows of {self._called(site)}", has, expected)
        if info.digest is None:
            return
        self.class_digest = self.class_digest or info.digest
        what = f"digest of the classes of {self._called(site)} (all need the same --class-names)"
        same(what, info.digest, self.class_digest)

    def _answers(self, replies: Iterable[Message]) -> Iterable[tuple[int, Message]]:
        """Yield replies by site.

        A missing node is a dropout; a client's error stops the run, or is a dropout, too.
        """
        site_of = {node: site for site, node in self._sites.items()}
        for reply in replies:
            site = site_of.get(reply.metadata.src_node_id, -1)
            if not reply.has_error():
                yield site, reply
            elif reply.error.code not in participation.ABSENT:
                why = f"{self._called(site)} answered with an error: {participation.reason(reply)}"
                if not self.tolerant:
                    raise RoundFailed(why)
                if not self.plan.private:
                    log.warning("fedcal: %s", why)


def _records(content: Content) -> dict[str, ConfigRecord]:
    """Plain values as Flower carries them."""
    return {name: ConfigRecord({**values}) for name, values in content.items()}


def _contribution(reply: Message, site: int, length: int) -> Words:
    """Return the words of an answer; nothing else in the message is read."""
    try:
        words = np.asarray(reply.content.array_records["answer"]["words"].numpy())
    except participation.UNREADABLE:
        raise RoundFailed(f"site {site} sent no words that can be read") from None
    if words.dtype != np.uint64 or words.shape != (length,):
        got = f"{words.dtype} of shape {words.shape}"
        raise RoundFailed(f"site {site} sent {got}, not uint64 of ({length},)")
    return words
