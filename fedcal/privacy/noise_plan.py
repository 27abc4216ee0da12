"""The plan of a run as the server goes by it: whom it asks, and what its releases are.

A process that only answers questions does not load this module.
"""

import hashlib
import math
from collections.abc import Callable

import numpy as np

from fedcal.core.numerics import Floats, Integers, Purpose, stream
from fedcal.mechanisms import Sum, samplers
from fedcal.mechanisms.noise_distribution import NoiseDistribution
from fedcal.privacy.agreed_plan import AgreedPlan
from fedcal.privacy.privacy import Federation as Federation  # also found here
from fedcal.trust import TRUSTS
from fedcal.units import UNITS, Bound, Unit


class Plan(AgreedPlan):
    """Frozen plan of every round of a run; see `making.make_plan`."""

    @property
    def multiplier(self) -> float:
        """Gaussian noise std per unit of L2 sensitivity (0 without)."""
        return self.mechanism.multiplier

    @property
    def protected(self) -> type[Unit]:
        """Unit whose presence the guarantee hides."""
        return UNITS[self.unit]

    def unanswered(self, std: Floats) -> bool:
        """Return whether a private release with noise of this std holds no client's answer.

        So it is where clients add the noise (trust `local`) and nobody was asked. Such a release
        says nothing; exact sums and drawn indices always say something.
        """
        return self.private and len(std) > 0 and not std.any()

    @property
    def secret_sample(self) -> bool:
        """True if only the server may learn which clients were asked, and how many."""
        secret = self.model.amplifies and not self.asks_everyone
        return self.private and self.federation.sampling_rate < 1 and secret

    @property
    def amplifying_rate(self) -> float:
        """The sampling rate that the epsilon counts on; 1 = on none."""
        return self.row_rate if self.row_rate < 1 else amplifying_rate(self.federation)

    def std_of_sum(self, repliers: int) -> Floats:
        """Noise std of each coordinate of the sum of so many answers, shape (length,)."""
        if self.bound is None:
            return np.zeros(0)
        copies = self.noise_copies(repliers)
        return self.mechanism.std(self._scales(), copies, self.bound, self.grid)

    def noise_distribution(self, std: float) -> NoiseDistribution:
        """Return the law of the noise of a released number, with this std by the answers to it."""
        if self.bound is None or not std or not self.mechanism.tailed:
            return NoiseDistribution()
        one = float(self.mechanism.std(self._scales(), 1.0, self.bound, self.grid).max())
        noise_copies = float(f"{(std / one) ** 2:.12g}")
        return NoiseDistribution(True, noise_copies, self.grid / std if self.on_integers else 0.0)

    def sum_of(
        self, bound: Bound, repliers: int, costs: Callable[[Floats], Floats | None] | None = None
    ) -> Sum:
        """Return the sum of so many answers, each clipped to `bound`; see `Query.costs`."""
        std, noise_copies = self.std_of_sum(repliers), self.noise_copies(repliers)
        return Sum(self.ring, bound, self.diameter, repliers, std, noise_copies, costs)

    @property
    def noise_std(self) -> tuple[float, ...] | None:
        """Noise std of the released sum, one per block; None if nothing is added to a sum.

        Under trust `distributed` and `local` that of a round that all expected clients answer.
        """
        if self.mechanism.answers == "index":
            return None
        if self.bound is None:
            return (0.0,)
        asked = self.model.expected(self.federation.sampling_rate, self.clients)
        std = self.std_of_sum(math.ceil(asked / self.parts))
        return tuple(float(s) for s in std[self.bound.firsts])

    @property
    def std_of_draw(self) -> float:
        """Noise std of a sum, with clients clipped to 1, that says as much as a drawn index."""
        return math.sqrt(8.0) * self.diameter / self.mechanism.epsilon

    @property
    def answers(self) -> float:
        """Answers of a round times the root of the rounds, by which their mean gains."""
        return self.clients * self.federation.sampling_rate * math.sqrt(self.rounds)

    @property
    def mask_seed(self) -> int:
        """Seed of the simulated masks, which clients get instead of `seed`.

        With `seed` they could subtract the noise. This hides it no better than a hash hides a
        small number: one more reason why seeded runs protect nobody.
        """
        return self._hashed("masks")

    @property
    def client_seed(self) -> int:
        """Seed of simulated clients' own coins and noise; as `mask_seed`, and another number."""
        return self._hashed("clients")

    def _hashed(self, what: str) -> int:
        digest = hashlib.sha256(f"fedcal {what} {self.federation.seed}".encode()).digest()
        return int.from_bytes(digest[:7], "little")

    @property
    def event(self) -> str:
        """The run in one line, for the ledger."""
        of = self.mechanism.event + (", each of other clients" if self.parts > 1 else "")
        drawn = f"Poisson({self.federation.sampling_rate!r})"
        if self.cohort and not self.asks_everyone:
            drawn = f"{round(self.share_asked * self.clients)} of {self.clients} clients"
        if self.row_rate < 1:
            drawn = f"Poisson rows({self.row_rate!r})"
        return f"{self.rounds} x {drawn} of {of}"

    @property
    def share_asked(self) -> float:
        """Share of the clients asked in a round; with independent coins the expected one."""
        if self.asks_everyone:
            return 1.0
        if self.cohort:
            return max(1, round(self.federation.sampling_rate * self.clients)) / self.clients
        return self.federation.sampling_rate / self.parts

    def sample(self, round_number: int) -> Integers:
        """Return the clients asked in a round: each with probability `sampling_rate`.

        Under trust `distributed`, and under the protocol, everybody is asked: all noise is needed,
        and whether a client's rows take part is its own coin (`Query.rate`), which nobody sees.
        """
        facts = self.federation
        if self.parts > 1:  # a permutation by chance, which need not be secret
            order = stream(facts.seed, Purpose.SAMPLING, 0, "parts").permutation(self.clients)
            return np.flatnonzero(order % self.parts == round_number - 1)
        if facts.sampling_rate == 1.0 or self.asks_everyone:
            return np.arange(self.clients)
        if self.cohort:  # no secret: a seed draws it, wherever noise would come from
            number = round(self.share_asked * self.clients)
            drawn = stream(facts.seed, Purpose.SAMPLING, round_number, "training")
            return np.sort(drawn.permutation(self.clients)[:number])
        if facts.noise_source == "system":
            heads = samplers.bernoulli(facts.sampling_rate, self.clients, samplers.system_words)
            return np.flatnonzero(heads)
        draws = stream(facts.seed, Purpose.SAMPLING, round_number).random(self.clients)
        return np.flatnonzero(draws < facts.sampling_rate)


def amplifying_rate(federation: Federation) -> float:
    """Return the sampling rate if it amplifies privacy, else 1; see `making.make_plan`."""
    amplifies = TRUSTS[str(federation.trust)].amplifies and UNITS[federation.unit].by_client
    return federation.sampling_rate if amplifies else 1.0
