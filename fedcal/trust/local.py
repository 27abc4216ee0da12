"""Trust in no other party: each client adds all of its noise."""

from __future__ import annotations

import math
from typing import ClassVar

from fedcal.core.types import override
from fedcal.mechanisms import Mechanism
from fedcal.trust.base import Facts, NoiseBy, who_sets_noise
from fedcal.trust.whole import WholeNoise


class Local(WholeNoise):
    """Trust model in which each client adds all the noise that it needs before it answers."""

    name: ClassVar[str] = "local"
    meaning: ClassVar[str] = (
        "local: each client adds all the noise that it needs before it answers; no other party "
        "must be trusted"
    )
    noise_by: ClassVar[NoiseBy] = "client"
    replaces: ClassVar[bool] = True
    amplifies: ClassVar[bool] = False
    why_not_amplified: ClassVar[str] = "the server sees who answers"

    @classmethod
    def accepts(cls, law: type[Mechanism]) -> bool:
        """Return whether it adds noise to an answer, or encodes it."""
        return law.answers in ("sum", "onehot")

    @classmethod
    def noises(cls, repliers: int, shares: int) -> float:
        """Return one noise for each answer."""
        return repliers / shares

    @classmethod
    def addends(cls, clients: int) -> float:
        """Return the root of the clients, with which the noise of the sum grows."""
        return math.sqrt(clients)

    @classmethod
    def expected(cls, rate: float, clients: int) -> int:
        """Return the number of sampled clients."""
        return max(1, round(rate * clients))

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return the draws of one client, which alone hide it."""
        return length

    @classmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """Return True: a client's answer is disclosed."""
        return True

    @classmethod
    def holds(cls, secure_aggregation: str, quorum: float, colluding: int = 0) -> str:
        """Return everyone, whatever other clients do."""
        return "against everyone, the server too, whatever other clients do"

    @classmethod
    @override
    def against(cls, facts: Facts) -> list[str]:
        return [
            "Each client adds all of its noise before it answers: this holds against everyone, the "
            "server too, whatever other clients do and however many fail to answer.",
            who_sets_noise(facts),
        ]

    @classmethod
    def what_spends(cls, rounds: int) -> str:
        """Return a client's answers as the subject of the epsilon."""
        if rounds == 1:
            return "The one answer of a client is"
        return f"All {rounds} answers of a client together are"

    @classmethod
    def server_sees(cls, facts: Facts) -> str:
        """Return noisy answers, or with masks their sum."""
        if facts.summed:
            return f"The noisy sum of each round, over {facts.over}, and who answered."
        return (
            "Each client's contribution with all of its noise, which epsilon and delta bound; and "
            "who answered."
        )

    @classmethod
    def counts_on_coins(cls, facts: Facts) -> str:
        """Return "", because nothing is amplified."""
        return ""

    @classmethod
    @override
    def adds(cls, noise: str, facts: Facts) -> str:
        return (
            f"{noise[:1].upper()}{noise[1:]} is added by each client to its own answer, all that "
            "its protection needs; noise_std is for the sum of the expected answers"
        )
