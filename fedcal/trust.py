"""Trust models, and their registry: which party adds the noise, and whom it protects against.

A trust model is a class with everything that other modules need from it, and an entry in `TRUSTS`.
A missing method raises an error at import. Its words are in `fedcal.experiments.runs.statement`,
and follow from `noise_by` and `shared`.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from fedcal.core.registry import registry
from fedcal.mechanisms import Mechanism

NoiseBy = Literal["server", "client", "nobody"]


class Trust(ABC):
    """Trust model: which party adds the noise, and whom the guarantee protects against.

    What decides how much noise a guarantee needs, and when it is spent, has no default: a model
    that lacks it is refused at import.

    Attributes
    ----------
    name
        on the command line and in files
    meaning
        line of description in a report
    noise_by
        party that adds noise
    shared
        whether a client's noise is a share of the complete noise
    replaces
        whether a client's rows may become any other rows, not only none, in a neighbouring input
    amplifies
        whether sampling can hide from those it protects against who took part
    asks_everyone
        whether every client answers every round, and a secret coin of its own decides whether its
        rows count
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    noise_by: ClassVar[NoiseBy]
    shared: ClassVar[bool]
    replaces: ClassVar[bool]
    amplifies: ClassVar[bool]
    asks_everyone: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def accepts(cls, mechanism: type[Mechanism]) -> bool:
        """Return whether the mechanism can work under this model."""

    @classmethod
    def quorum(cls, share: float, clients: int) -> int:
        """Return the fewest answers for a release, from the minimum fraction of clients."""
        return 1

    @classmethod
    def shares(cls, quorum: int) -> int:
        """Return the number of clients whose noise adds up to the complete noise."""
        return 1

    @classmethod
    @abstractmethod
    def noise_copies(cls, repliers: int, shares: int) -> float:
        """Return how many copies of the complete noise a sum holds, in units of its variance."""

    @classmethod
    def addends(cls, clients: int) -> float:
        """Return the number of answers whose truncation counts against the noise; it sets the grid.

        Each addend is truncated toward zero by less than a step, so the sum of K is off by less
        than K steps, and its noise grows as the model says.
        """
        return float(clients)

    @classmethod
    def expected(cls, rate: float, clients: int) -> int:
        """Return the number of answers that the stated noise std is for."""
        return clients

    @classmethod
    @abstractmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return the draws of noise in a round whose error affects the guarantee of one unit."""

    @classmethod
    @abstractmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """Return whether the first question spends the budget, because its answer is disclosed."""


class ExactSums(Trust):
    """Trust model in which the server has exact sums; noise, if any, is added to them once."""

    shared: ClassVar[bool] = False
    replaces: ClassVar[bool] = False

    @classmethod
    def noise_copies(cls, repliers: int, shares: int) -> float:
        """Return 1 for any number of answers."""
        return 1.0

    @classmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """Return False: what arrives at the server is not yet released."""
        return False


class Central(ExactSums):
    """Trust model in which the server sees exact sums, adds noise and is trusted to forget them."""

    name: ClassVar[str] = "central"
    meaning: ClassVar[str] = (
        "central: the server is trusted to add noise to exact sums and to forget them, and each "
        "client's contribution, too, where there is no secure aggregation"
    )
    noise_by: ClassVar[NoiseBy] = "server"
    amplifies: ClassVar[bool] = True

    @classmethod
    def accepts(cls, mechanism: type[Mechanism]) -> bool:
        """Return whether it adds noise to the sum, or draws from exact sums."""
        return mechanism.answers in ("sum", "index")

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return one draw for each number."""
        return length


class SecAgg(ExactSums):
    """Trust model without noise: the server learns exact sums."""

    name: ClassVar[str] = "secagg"
    meaning: ClassVar[str] = (
        "secagg: no party adds noise; the server learns exact sums, and each client's "
        "contribution, too, where there is no secure aggregation"
    )
    noise_by: ClassVar[NoiseBy] = "nobody"
    amplifies: ClassVar[bool] = False

    @classmethod
    def accepts(cls, mechanism: type[Mechanism]) -> bool:
        """Return whether it has no guarantee."""
        return mechanism.answers == "nothing"

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return 0, because there is no noise."""
        return 0


class Distributed(Trust):
    """Trust model in which each client adds a share of the noise; a quorum completes it."""

    name: ClassVar[str] = "distributed"
    meaning: ClassVar[str] = (
        "distributed: each client adds a share of the noise; with secure aggregation the server "
        "learns noisy sums only, without it each client's contribution with its share"
    )
    noise_by: ClassVar[NoiseBy] = "client"
    shared: ClassVar[bool] = True
    replaces: ClassVar[bool] = False
    amplifies: ClassVar[bool] = True
    asks_everyone: ClassVar[bool] = True

    @classmethod
    def accepts(cls, mechanism: type[Mechanism]) -> bool:
        """Return whether it adds noise, which can be drawn in shares."""
        return mechanism.answers == "sum"

    @classmethod
    def quorum(cls, share: float, clients: int) -> int:
        """Return the fraction of all clients, rounded up."""
        return max(1, math.ceil(share * clients))

    @classmethod
    def shares(cls, quorum: int) -> int:
        """Return the quorum."""
        return quorum

    @classmethod
    def noise_copies(cls, repliers: int, shares: int) -> float:
        """Return the ratio of answers to shares: more answers than the quorum bring more noise."""
        return repliers / shares

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return the draws of all clients' shares."""
        return length * clients

    @classmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """Return True without masks: the server sees contributions with a share of the noise."""
        return not masked


class Local(Trust):
    """Trust model in which each client adds all the noise that it needs before it answers."""

    name: ClassVar[str] = "local"
    meaning: ClassVar[str] = (
        "local: each client adds all the noise that it needs before it answers; no other party "
        "must be trusted"
    )
    noise_by: ClassVar[NoiseBy] = "client"
    shared: ClassVar[bool] = False
    replaces: ClassVar[bool] = True
    amplifies: ClassVar[bool] = False  # the server sees who answers

    @classmethod
    def accepts(cls, mechanism: type[Mechanism]) -> bool:
        """Return whether it adds noise to an answer, or encodes it."""
        return mechanism.answers in ("sum", "onehot")

    @classmethod
    def noise_copies(cls, repliers: int, shares: int) -> float:
        """Return one noise for each answer."""
        return repliers / shares

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return the draws of one client, which alone hide it."""
        return length

    @classmethod
    def addends(cls, clients: int) -> float:
        """Return the root of the clients, with which the noise of the sum grows."""
        return math.sqrt(clients)

    @classmethod
    def expected(cls, rate: float, clients: int) -> int:
        """Return the number of sampled clients."""
        return max(1, round(rate * clients))

    @classmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """Return True: a client's answer is disclosed."""
        return True


TRUSTS: dict[str, type[Trust]] = registry(SecAgg, Central, Distributed, Local)
"""Name on the command line and in files -> trust model."""

NOISY = {name: trust for name, trust in TRUSTS.items() if trust.noise_by != "nobody"}
"""Trust models under which a finite epsilon is possible."""
