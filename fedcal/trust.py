"""Trust models, by name: which party adds the noise, and whom it protects against.

A trust model is a `Trust` in `TRUSTS`. Its words are in `fedcal.results.statement`, and follow from
`noise_by` and `shared`.
"""

import math
from dataclasses import dataclass
from typing import Literal

from fedcal.mechanisms import Mechanism
from fedcal.mechanisms.base import Answers


@dataclass(frozen=True)
class Trust:
    """Trust model: which party adds the noise, and whom the guarantee protects against.

    Attributes
    ----------
    name
        on the command line and in files
    meaning
        line of description in a report
    answers
        kinds of answers of the mechanisms that can work under it
    noise_by
        party that adds noise
    shared
        whether a client's noise is a share of the complete noise, which a quorum completes
    replaces
        whether a client's rows may become any other rows, not only none, in a neighbouring input
    amplifies
        whether sampling can hide from those it protects against who took part
    asks_everyone
        whether every client answers every round, and a secret coin of its own decides whether its
        rows count
    """

    name: str
    meaning: str
    answers: tuple[Answers, ...]
    noise_by: Literal["server", "client", "nobody"]
    shared: bool = False
    replaces: bool = False
    amplifies: bool = False
    asks_everyone: bool = False

    def accepts(self, mechanism: type[Mechanism]) -> bool:
        """Return whether the mechanism can work under this model."""
        return mechanism.answers in self.answers

    @property
    def alone(self) -> bool:
        """True if each client adds all the noise that it needs."""
        return self.noise_by == "client" and not self.shared

    def quorum(self, share: float, clients: int) -> int:
        """Return the fewest answers for a release, from the minimum fraction of clients."""
        return max(1, math.ceil(share * clients)) if self.shared else 1

    def shares(self, quorum: int) -> int:
        """Return the number of clients whose noise adds up to the complete noise."""
        return quorum if self.shared else 1

    def noise_copies(self, repliers: int, shares: int) -> float:
        """Return how many copies of the complete noise a sum holds, in units of its variance.

        More answers than the quorum bring more noise; a server adds it once.
        """
        return repliers / shares if self.noise_by == "client" else 1.0

    def addends(self, clients: int) -> float:
        """Return the number of answers whose truncation counts against the noise; it sets the grid.

        Each addend is truncated toward zero by less than a step, so the sum of K is off by less
        than K steps; where each client adds all noise, that of the sum grows with the root of K.
        """
        return math.sqrt(clients) if self.alone else float(clients)

    def expected(self, rate: float, clients: int) -> int:
        """Return the number of answers that the stated noise std is for."""
        return max(1, round(rate * clients)) if self.alone else clients

    def draws(self, length: int, clients: int) -> int:
        """Return the draws of noise in a round whose error affects the guarantee of one unit.

        They are those of all clients' shares, or of the one party that adds all of it.
        """
        return 0 if self.noise_by == "nobody" else length * (clients if self.shared else 1)


SecAgg = Trust(
    "secagg",
    "secagg: no party adds noise; the server learns exact sums, and each client's "
    "contribution, too, where there is no secure aggregation",
    answers=("nothing",),
    noise_by="nobody",
)
Central = Trust(
    "central",
    "central: the server is trusted to add noise to exact sums and to forget them, and each "
    "client's contribution, too, where there is no secure aggregation",
    answers=("sum", "index"),
    noise_by="server",
    amplifies=True,
)
Distributed = Trust(
    "distributed",
    "distributed: each client adds a share of the noise; with secure aggregation the server "
    "learns noisy sums only, without it each client's contribution with its share",
    answers=("sum",),
    noise_by="client",
    shared=True,
    amplifies=True,
    asks_everyone=True,
)
Local = Trust(
    "local",
    "local: each client adds all the noise that it needs before it answers; no other party "
    "must be trusted",
    answers=("sum", "onehot"),
    noise_by="client",
    replaces=True,  # and sampling amplifies nothing: the server sees who answers
)

TRUSTS = {trust.name: trust for trust in (SecAgg, Central, Distributed, Local)}
"""Name on the command line and in files -> trust model."""

NOISY = {name: trust for name, trust in TRUSTS.items() if trust.noise_by != "nobody"}
"""Trust models under which a finite epsilon is possible."""
