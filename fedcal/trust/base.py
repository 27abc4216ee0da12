"""Base class of trust models: which party adds the noise, and whom it protects against.

A trust model is a class with everything that other modules need from it, and an entry
in `TRUSTS`. A missing method raises an error at import. Sentences stand beside the code they
describe.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedcal.mechanisms import Mechanism

NoiseBy = Literal["server", "client", "nobody"]


@dataclass(frozen=True)
class TrustFacts:
    """Facts of a run that sentences depend on.

    Attributes
    ----------
    clients, quorum
        number enrolled, and fewest that must answer
    contribution
        a client's message, in words
    secure_aggregation
        one of `fedcal.secure_aggregation.SECURE_AGGREGATION`
    wholes
        copies of the complete noise in the sum if every client answers
    committee, colluding
        as in `fedcal.privacy.noise_plan.Plan`
    real
        whether sites took part, not the clients of a simulation
    """

    clients: int
    quorum: int
    contribution: str
    secure_aggregation: str = "none"
    wholes: float = 1.0
    committee: tuple[int, int] | None = None
    colluding: int = 0
    real: bool = False

    @property
    def summed(self) -> bool:
        """Condition that the server sees only sums of contributions."""
        return self.secure_aggregation != "none"

    @property
    def over(self) -> str:
        """Contributions in a sum that the server sees, in words."""
        if self.committee is None:
            return "masked contributions"
        return f"{self.quorum} or more contributions"


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
    why_not_amplified
        reason in words, where `amplifies` is False
    client_sees
        what a client sees beside the server's questions; "" = nothing
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    noise_by: ClassVar[NoiseBy]
    shared: ClassVar[bool]
    replaces: ClassVar[bool]
    amplifies: ClassVar[bool]
    asks_everyone: ClassVar[bool] = False
    why_not_amplified: ClassVar[str] = ""
    client_sees: ClassVar[str] = ""

    # -- numbers --------------------------------------------------------------------------

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

    # -- words ----------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def holds(cls, secure_aggregation: str, quorum: float, colluding: int = 0) -> str:
        """Return whom a guarantee protects against, in half a sentence; `quorum` is a fraction."""

    @classmethod
    @abstractmethod
    def against(cls, facts: TrustFacts) -> list[str]:
        """Return whom it protects against and under which assumptions, in sentences."""

    @classmethod
    def what_spends(cls, rounds: int) -> str:
        """Return the subject of the epsilon, such as "All 3 releases together are"."""
        return "The one release is" if rounds == 1 else f"All {rounds} releases together are"

    @classmethod
    @abstractmethod
    def server_sees(cls, facts: TrustFacts) -> str:
        """Return what the server sees of a private run, in sentences."""

    @classmethod
    def counts_on_coins(cls, facts: TrustFacts) -> str:
        """Return the assumption of amplification by sampling; for models that amplify."""
        return ""

    @classmethod
    @abstractmethod
    def adds(cls, noise: str, facts: TrustFacts) -> str:
        """Return which party adds the noise to what, in a sentence without its full stop."""


OWN_COINS = (
    "Every client answers every round, and a secret coin of its own decides whether its rows "
    "count: the epsilon relies on that coin, which no one else sees, not even the server."
)


def who_sets_noise(facts: TrustFacts) -> str:
    """Return whether a server could ask clients for less noise, or for more answers."""
    if facts.real:
        return (
            "Each site computes the plan itself, draws its own noise, answers a round once and "
            "books the run: a server that asks for less noise, or asks again, gets nothing more."
        )
    return (
        "These clients answer every request. Real sites compute the plan themselves, draw their "
        "own noise and answer a round once."
    )


def _up_to(sites: int) -> str:
    return "one of the sites" if sites == 1 else f"up to {sites} of the sites"


def about_committee(facts: TrustFacts) -> list[str]:
    """Return who opens sums under the secure aggregation protocol; [] without it."""
    if facts.committee is None:
        return []
    size, threshold = facts.committee
    who = f"any {threshold} of the {size} members of a committee"
    if size == threshold:
        who = f"all {size} members of a committee, none of which may be absent,"
    alone, more = "The server", "a site that works with it"
    if facts.colluding:
        alone, more = f"The server together with {_up_to(facts.colluding)}", "more"
    trusted = (
        "This relies on the keys in federation.toml being the sites' own, and on no site's records "
        "being reset to an earlier state."
    )
    simulated = (
        "In this simulation the server and all sites are one process: it shows the protocol and "
        "its cost, and protects nobody."
    )
    return [
        f"Contributions are added up by a protocol among the sites: {who} open one sum a round, "
        f"of {facts.quorum} or more contributions. {alone} learns nothing else about the others' "
        f"contributions; with {more} it may.",
        trusted if facts.real else simulated,
    ]
