"""Trust in nobody else: each client adds all of its noise."""

from __future__ import annotations

import math
from typing import ClassVar

from fedcal.mechanisms import Mechanism
from fedcal.trust.base import Facts, NoiseBy, who_sets_noise
from fedcal.trust.whole import WholeNoise


class Local(WholeNoise):
    """Each client adds all the noise that it needs before it answers."""

    name: ClassVar[str] = "local"
    meaning: ClassVar[str] = (
        "local: each client adds all the noise that it needs before it answers; nobody else "
        "must be trusted"
    )
    noise_by: ClassVar[NoiseBy] = "client"
    replaces: ClassVar[bool] = True
    amplifies: ClassVar[bool] = False
    why_not_amplified: ClassVar[str] = "the server sees who answers"

    @classmethod
    def takes(cls, law: type[Mechanism]) -> bool:
        """Noise on an answer, and answers that are encoded."""
        return law.answers in ("sum", "onehot")

    @classmethod
    def noises(cls, repliers: int, shares: int) -> float:
        """One with each answer."""
        return repliers / shares

    @classmethod
    def addends(cls, clients: int) -> float:
        """The noise of the sum grows with the root of the clients."""
        return math.sqrt(clients)

    @classmethod
    def expected(cls, rate: float, clients: int) -> int:
        """Those that are sampled."""
        return max(1, round(rate * clients))

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """One client's own draws hide it."""
        return length

    @classmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """What a client answers is out."""
        return True

    @classmethod
    def holds(cls, secure_aggregation: str, quorum: float, colluding: int = 0) -> str:
        """Everyone."""
        return "against everyone, the server too, whatever other clients do"

    @classmethod
    def against(cls, facts: Facts) -> list[str]:
        """Everyone."""
        return [
            "Each client adds all of its noise before it answers: this holds against everyone, the "
            "server too, whatever other clients do and however many fail to answer.",
            who_sets_noise(facts),
        ]

    @classmethod
    def what_spends(cls, rounds: int) -> str:
        """A client's answers."""
        if rounds == 1:
            return "The one answer of a client is"
        return f"All {rounds} answers of a client together are"

    @classmethod
    def server_sees(cls, facts: Facts) -> str:
        """Noisy answers, or with masks their sum."""
        if facts.summed:
            return f"The noisy sum of each round, over {facts.over}, and who answered."
        return (
            "Each client's contribution with all of its noise, which epsilon and delta bound; and "
            "who answered."
        )

    @classmethod
    def counts_on_coins(cls, facts: Facts) -> str:
        """Nothing is claimed."""
        return ""

    @classmethod
    def adds(cls, noise: str, facts: Facts) -> str:
        """Each client, to its own answer."""
        return (
            f"{noise[:1].upper()}{noise[1:]} is added by each client to its own answer, all that "
            "its protection needs; noise_std is that of the sum of the answers that are expected"
        )
