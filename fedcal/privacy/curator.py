"""The spine: ask -> bounded contributions -> secure sum -> mechanism -> ledger -> release.

**Formal guarantee.**
Unit, adjacency and trust are the plan's; the number of enrolled clients, the method and its
parameters are public. All releases of one `Curator` together are (plan.epsilon, plan.delta)-DP,
against

* `central`: everyone but the server, which sees exact sums and is trusted to forget them;
* `distributed`: everyone, the server too, if at least `plan.shares` of those that answer are
  honest (add their share and keep it to themselves) and the secure aggregation shows the server
  nothing but the sum; under the protocol (`fedcal.clients.site.party`) that is so if no more than
  `plan.federation.colluding` sites work with the server or leave out their noise;
* `local`: everyone, whatever the others do. Of one row (unit "example") its own site knows all.

Clients of a simulation add the noise that a question names, and answer as often as they are asked.
Real sites believe no question: `fedcal.clients.site.guard` and `fedcal.clients.site.guard`.

(`secagg`: no noise, no differential privacy: the server sees exact sums.) Because

* each request carries the plan's own bound, to which every client clips (`bounding`);
* the noise takes its scale from that same bound, never from a message;
* each round is released at most once, in order, and at most `plan.rounds` of them;
* the ledger is charged before anybody can see the sum: before contributions are added up and
  unmasked. A refusal stops the round, and what was charged stays spent, whatever fails later;
* a distributed round with fewer answers than the quorum is not added up at all;
* a round is opened once: no client answers twice. Where a process goes on with another's run, the
  round that was open is asked again: of its first answers nobody saw a release, and real sites
  answer with the same words.

A round in which nobody was sampled still releases its noise (who took part is secret); a round
in which clients were asked and nobody answered releases nothing, and neither does one whose noisy
sum honest clients cannot have made (`check_plausible`).
"""

import secrets
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedcal.core.checks import InputError, PrivacyError, RoundFailed, needed, same
from fedcal.core.numerics import Floats, Integers, Purpose, Words, key_of, stream
from fedcal.mechanisms import Source
from fedcal.privacy.agreement import request_under
from fedcal.privacy.ledger import Entry, Ledger
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.query import Query, Request, fits
from fedcal.secure_aggregation.fixed_point import MOST_ROWS


@dataclass(frozen=True)
class OpenRound:
    """A round that is under way: the request and the clients that get it."""

    request: Request
    clients: Integers

    @property
    def round(self) -> int:
        """Number of the round, from 1."""
        return self.request.round


@dataclass(frozen=True)
class Release:
    """Public result of a round.

    Attributes
    ----------
    values
        (length,) noisy sums, exact ones without privacy, or (1,) the drawn index
    std
        (length,) noise std of each value; zeros without privacy; empty for a drawn index
    """

    round: int
    kind: str
    values: Floats
    std: Floats


class Curator:
    """Opens and closes the rounds of one run under one plan.

    Parameters
    ----------
    plan
        frozen before anything is asked
    ledger
        where a private run's budget is kept; None = a ledger of its own, capped at the
        plan's epsilon
    masked
        whether the server sees nothing but sums of contributions

    Attributes
    ----------
    run
        name of the run for sites and ledger
    opened
        number of the last round that was opened; 0 = none was
    releases
        how many there are
    """

    def __init__(self, plan: Plan, ledger: Ledger | None = None, *, masked: bool = True) -> None:
        self.plan = plan
        self.releases = 0
        self.opened = 0
        self.run = secrets.token_hex(8)
        self._ledger = ledger
        self._masked = masked
        self._reserved = False
        self._open: OpenRound | None = None
        self._charged: tuple[OpenRound, int] | None = None
        self._paid: frozenset[int] = frozenset()  # rounds that were charged before a restart

    def open(self, round_number: int, query: Query, norms: tuple[float, ...] = ()) -> OpenRound:
        """Stamp the plan's bound on the question and sample the round's clients.

        Parameters
        ----------
        norms
            what each block is clipped to where there is no privacy; () = nothing is. With
            privacy the plan says it
        """
        if round_number != self.releases + 1 or round_number > self.plan.rounds:
            raise PrivacyError(
                f"round {round_number} cannot be opened after {self.releases} of the "
                f"{self.plan.rounds} releases that the plan was made for"
            )
        if round_number <= self.opened:
            # Whatever became of it: two answers with fresh noise each are two releases.
            raise PrivacyError(f"round {round_number} was already asked: no client answers twice")
        plan = self.plan
        if plan.private:
            if plan.bound is None or query.everyone or not fits(plan.bound, query):
                raise PrivacyError(
                    f"the query '{query.kind}' is not the one that the plan was made for"
                )
            if plan.on_integers and not query.counts_integers(plan.bound.per):
                raise PrivacyError(f"the query '{query.kind}' adds fractions to noise on integers")
            self._reserve()
        request = request_under(plan, query, round_number, norms)
        drawn = request.noise is not None or request.rate < 1 or plan.row_rate < 1
        if drawn and plan.federation.noise_source == "seeded":
            request = replace(request, seed=plan.client_seed)
        clients = np.arange(plan.clients) if query.everyone else plan.sample(round_number)
        self._open = OpenRound(request, clients)
        self.opened = round_number
        return self._open

    def resume(self, run: str, releases: int) -> None:
        """Go on with a run that another process began; `replay` then what was released.

        Parameters
        ----------
        run
            its name
        releases
            how many were made: all that anybody has seen

        Raises
        ------
        InputError
            If the ledger does not know the run as one of this plan, or has charged more rounds
            than those and the one that was open when it stopped.
        """
        self.run = run
        if self._ledger is None or not self.plan.private:
            return
        entry = next((one for one in self._ledger.entries() if one.run == run), None)
        if entry is None and not releases:
            return  # given back when the run stopped: it is reserved anew
        why = f"{releases} releases are known (is it another ledger?)"
        entry = needed(f"the ledger's reservation for run {run}", entry, why)
        plan = self.plan
        own = (plan.epsilon, plan.delta, plan.rounds, plan.unit)
        reserved = (entry.epsilon, entry.delta, entry.releases, entry.unit)
        same(f"plan of the ledger's reservation for run {run}", reserved, own)
        if not set(range(1, releases + 1)) <= set(entry.charged) <= set(range(1, releases + 2)):
            raise InputError(
                f"the ledger has charged rounds {list(entry.charged)} of run {run}, and "
                f"{releases} releases are known: this is not its last checkpoint"
            )
        self._reserved, self._paid = True, frozenset(entry.charged)

    def skip(self, releases: int) -> None:
        """Count releases of an earlier process that the method has learnt from already."""
        if self.opened:
            raise PrivacyError("the number of releases must be set before the first query")
        self.releases = self.opened = releases

    def replay(self, asked: OpenRound, release: Release) -> None:
        """Close an open round by what an earlier process released of it; nothing is charged."""
        drawn = self.plan.mechanism.answers == "index"
        saved = (asked is self._open, release.kind, len(release.values))
        length = 1 if drawn else asked.request.bound.length
        what = f"saved state of round {asked.round}, to belong to this run,"
        same(what, saved, (True, asked.request.query.kind, length))
        self._open = None
        self.releases += 1

    def charge(self, asked: OpenRound, repliers: int) -> None:
        """Charge the ledger for a round whose answers are there and not added up yet.

        Parameters
        ----------
        repliers
            how many clients answered

        Raises
        ------
        RoundFailed
            If nobody who was asked answered, or so few that their noise would be less than
            promised. The round is over, and nothing is spent that was not before.
        BudgetExceeded, InputError
            If the ledger refuses or fails; nothing may be added up then.
        """
        if asked is not self._open:
            raise PrivacyError(f"round {asked.round} is not open: each round is released once")
        self._open = None
        if len(asked.clients) and not repliers:
            self.abandon()  # how many were asked stays secret: it is not in the message
            raise RoundFailed(
                f"round {asked.round}: clients were sampled and none answered; nothing was released"
            )
        if len(asked.clients) and repliers < self.plan.quorum:
            self.abandon()
            needs = "the noise was planned for" if self.plan.model.shared else "a secure sum needs"
            raise RoundFailed(
                f"round {asked.round}: {repliers} of {self.plan.clients} clients answered, {needs} "
                f"at least {self.plan.quorum}; nothing was released"
            )
        if self.plan.private and self._ledger is not None and asked.round not in self._paid:
            self._ledger.charge(self.run, asked.round)
        self._charged = (asked, repliers)

    def close(self, asked: OpenRound, total: Words) -> Release:
        """Release the sum of a charged round through the plan's mechanism.

        Parameters
        ----------
        total
            (length,) sum of the encoded contributions of those that `charge` counted, mod 2**64

        Raises
        ------
        RoundFailed
            If honest clients cannot have made it (`check_plausible`). The round stays
            charged.
        """
        if self._charged is None or asked is not self._charged[0]:
            raise PrivacyError(f"round {asked.round} was not charged: each round is released once")
        repliers = self._charged[1]
        self._charged = None
        self.releases += 1
        request, plan = asked.request, self.plan
        source = partial(self._source, asked)
        if plan.model.noise_by == "server" and plan.noise is not None:
            total = request.ring.add(total, plan.noise.draw(source()))
        of = plan.sum_of(request.bound, repliers, request.query.costs)
        values, std = plan.mechanism.release(request.ring.decode(total), of, source)
        check_plausible(total, plan, request)
        return Release(asked.round, request.query.kind, values, std)

    def abandon(self) -> None:
        """Give a reservation back if nothing was charged under it; otherwise it stays spent.

        Under trust `local`, and where the server sees each client's share of noise, the first
        question spends it: what a client answers is out.
        """
        self._open = self._charged = None
        model = self.plan.model
        if model.noise_by == "client" and not (model.shared and self._masked):
            return
        if self._reserved and self._ledger is not None:
            self._ledger.cancel(self.run)  # refuses once a round is charged
            self._reserved = False

    def _source(self, asked: OpenRound) -> Source:
        """Return the server's own randomness in a round."""
        if self.plan.federation.noise_source == "system":
            return None
        # The plan and the question are part of the key: the same noise on two answers, or at two
        # scales, would give both away.
        what = key_of(self.plan.key, asked.request.query.noise_key)
        return stream(self.plan.federation.seed, Purpose.NOISE, asked.round, what)

    def _reserve(self) -> None:
        if self._reserved:
            return
        if self._ledger is None:
            self._ledger = Ledger(None, self.plan.epsilon, self.plan.delta or None)
        plan = self.plan
        words = plan.mechanism.name, plan.unit, plan.adjacency, plan.event
        self._ledger.reserve(Entry(self.run, plan.epsilon, plan.delta, plan.rounds, *words))
        self._reserved = True


_ROUNDED = 1.0 + 2.0**-40
"""Room for what floats lose of sums and of their limits."""


def honest_range(plan: Plan, request: Request) -> tuple[Floats, Floats]:
    """Least and largest value of each number of a sum with its noise, (length,) each.

    A contribution that is masked may be any integers modulo 2**64: masks hide whether a client has
    clipped, and the ring bounds nothing. What can be said of a sum of K answers is

    * each number is at most K times what one client may add to it: the norm of its block where a
      client's answer is clipped, and where each row (or subject) is, what `Ring.limit` or 2**31
      rows let a client add. Of answers that are a single 1 among zeros, it is at most K;
    * it is not negative where the question cannot be answered so (`Query.signed`);
    * the noise in it leaves this range by no more than its tail (`Mechanism.tail`), which each
      number exceeds with probability < 2**-60, and one of 2**20 numbers with < 2**-40.

    K are the enrolled clients, because who was sampled may be secret.

    Returns
    -------
    tuple
        In the statistic's units; infinite where nothing is bounded.
    """
    bound, ring = request.bound, request.ring
    if plan.mechanism.answers == "onehot":
        one = np.ones(bound.length)
    elif not bound.finite:
        one = np.full(bound.length, np.inf)
    elif bound.per == "client":
        one = bound.scale
    else:
        one = np.minimum(ring.limit * ring.grid, MOST_ROWS * bound.scale)
    most = plan.clients * one
    signed = request.query.signed and plan.mechanism.answers != "onehot"
    least = -most if signed else np.zeros_like(most)
    tail = np.zeros_like(most)
    if plan.mechanism.answers == "sum" and plan.noise is not None:
        scales = plan.grid * np.repeat(plan.noise.scales, plan.noise.lengths)
        tail = scales * plan.tail
    return (least - tail) * _ROUNDED, (most + tail) * _ROUNDED


def check_plausible(total: Words, plan: Plan, request: Request) -> None:
    """Refuse a sum that honest clients cannot have made.

    **Guarantee.** Looking at a sum is a release of it. So only what is about to be released is
    looked at: the sum with all of its noise, after the ledger was charged. Whether it is refused is
    then post-processing, and costs nothing more. Of candidates of which one is drawn
    (`exponential`) the exact sums are nobody's to see, and nothing is checked.

    Honest clients are never refused (but for the tail). Liars are stopped only beyond the range: up
    to it they may move a sum as far as all K clients together, and nobody can tell which of them
    did. With exact sums and no bound a signed number may be anything:
    `docs/guide/trust-models.md#secure-aggregation` has figures.

    Parameters
    ----------
    total
        (length,) words of the ring, with all noise that the release will have

    Raises
    ------
    RoundFailed
        If a number is out of range. The message has no value of it.
    """
    if plan.mechanism.answers == "index":
        return
    sums = request.ring.decode(total)
    least, most = honest_range(plan, request)
    if ((sums < least) | (sums > most)).any():
        raise RoundFailed(
            f"round {request.round}: {plan.clients} clients within their bound cannot make this "
            "sum, so some client exceeded its bound; nothing is released, and what was charged "
            "stays spent"
        )
