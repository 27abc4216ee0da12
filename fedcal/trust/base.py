"""What a trust model is: who adds the noise, and so whom it protects against.

A trust model is a file: a class with everything that the rest of the house asks about it, and a row
in `TRUSTS`. What is missing is found at import. Sentences stand beside what they speak of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedcal.mechanisms import Mechanism

NoiseBy = Literal["server", "client", "nobody"]


@dataclass(frozen=True)
class Facts:
    """What sentences about a run speak of.

    Attributes
    ----------
    clients, quorum
        enrolled, and fewest that must answer
    contribution
        what a client sends, in words
    secure_aggregation
        one of `fedcal.secure_aggregation.SECURE_AGGREGATION`
    wholes
        whole noises in the sum if everybody answers
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
        """Whether the server sees sums of contributions alone."""
        return self.secure_aggregation != "none"

    @property
    def over(self) -> str:
        """What a sum that the server sees is taken over."""
        if self.committee is None:
            return "masked contributions"
        return f"{self.quorum} or more contributions"


class Trust(ABC):
    """One trust model.

    Attributes
    ----------
    name
        on the command line and in files
    meaning
        a line for who reads a report
    noise_by
        who adds noise
    shared
        whether a client's noise is a share of the whole
    replaces
        whether a client's rows may become any others, not only none, in a neighbouring input
    amplifies
        whether sampling can hide from those it protects against who took part
    asks_everyone
        whether every client answers every round, and a secret coin of its own says
        whether its rows count
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
    asks_everyone: ClassVar[bool]
    why_not_amplified: ClassVar[str]
    client_sees: ClassVar[str]

    # -- numbers --------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def takes(cls, law: type[Mechanism]) -> bool:
        """Whether the mechanism can work under this model."""

    @classmethod
    @abstractmethod
    def quorum(cls, share: float, clients: int) -> int:
        """Fewest answers that a round is released with, of the share that the federation names."""

    @classmethod
    @abstractmethod
    def shares(cls, quorum: int) -> int:
        """How many clients' noise makes the whole."""

    @classmethod
    @abstractmethod
    def noises(cls, repliers: int, shares: int) -> float:
        """How many whole noises lie in the sum of so many answers: its variance in theirs."""

    @classmethod
    @abstractmethod
    def addends(cls, clients: int) -> float:
        """How many answers' truncation counts against the noise: the grid is so much finer.

        Each addend is truncated toward zero by less than a step, so the sum of K is off by less
        than K steps, and its noise grows as the model says.
        """

    @classmethod
    @abstractmethod
    def expected(cls, rate: float, clients: int) -> int:
        """Answers that the stated noise std is for."""

    @classmethod
    @abstractmethod
    def draws(cls, length: int, clients: int) -> int:
        """Draws of noise in a round on whose error the guarantee of one unit rests."""

    @classmethod
    @abstractmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """Whether the first question spends the budget: what a client answers is out."""

    # -- words ----------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def holds(cls, secure_aggregation: str, quorum: float, colluding: int = 0) -> str:
        """Against whom a guarantee holds, in half a sentence; `quorum` is a share."""

    @classmethod
    @abstractmethod
    def against(cls, facts: Facts) -> list[str]:
        """Against whom it holds and what it counts on, in whole sentences."""

    @classmethod
    @abstractmethod
    def what_spends(cls, rounds: int) -> str:
        """What the epsilon is of: "All 3 releases together are", say."""

    @classmethod
    @abstractmethod
    def server_sees(cls, facts: Facts) -> str:
        """What the server sees of a private run."""

    @classmethod
    @abstractmethod
    def counts_on_coins(cls, facts: Facts) -> str:
        """What amplification by sampling counts on; for models that amplify."""

    @classmethod
    @abstractmethod
    def adds(cls, noise: str, facts: Facts) -> str:
        """Who adds the noise to what, in a sentence without its dot."""


OWN_COINS = (
    "Every client answers every round and counts its rows in by a secret coin of its own: the "
    "epsilon counts on that coin, which nobody else sees, the server neither."
)


def who_sets_noise(facts: Facts) -> str:
    """Where clients add noise: whether a server could ask for less of it, or for more answers."""
    if facts.real:
        return (
            "Each site makes the plan by itself, draws its own noise, answers a round once and "
            "books the run: a server that asks for less noise, or asks again, gets nothing more."
        )
    return (
        "These clients answer whatever they are asked. Real sites make the plan by "
        "themselves, draw their own noise and answer a round once."
    )


def _up_to(sites: int) -> str:
    return "one of the sites" if sites == 1 else f"up to {sites} of the sites"


def about_committee(facts: Facts) -> list[str]:
    """Who opens sums under the protocol of secure aggregation; nothing without it."""
    if facts.committee is None:
        return []
    size, threshold = facts.committee
    who = f"any {threshold} of the {size} members of a committee"
    if size == threshold:
        who = f"all {size} members of a committee, none of whom may be absent,"
    alone, more = "The server", "a site that works with it"
    if facts.colluding:
        alone, more = f"The server together with {_up_to(facts.colluding)}", "more"
    trusted = (
        "That counts on the keys in federation.toml being the sites' own, and on sites whose "
        "records are not set back to an earlier state."
    )
    simulated = (
        "In this simulation the server and all sites are one process: it shows the protocol and "
        "what it costs, and protects nobody."
    )
    return [
        f"Contributions are added up by a protocol among the sites: {who} open one sum a round, "
        f"of {facts.quorum} or more contributions. {alone} learns nothing else of the others' "
        f"contributions; with {more} it may.",
        trusted if facts.real else simulated,
    ]


def spent_by_releases(rounds: int) -> str:
    """Where releases, and nothing before them, are seen by those it protects against."""
    return "The one release is" if rounds == 1 else f"All {rounds} releases together are"
