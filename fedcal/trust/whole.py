"""What trust models share whose noise comes whole, or not at all: no answer waits for others."""

from __future__ import annotations

from typing import ClassVar

from fedcal.trust.base import Trust, spent_by_releases


class WholeNoise(Trust):
    """One answer is enough for a round: its sum has all of its noise in any case."""

    shared: ClassVar[bool] = False
    asks_everyone: ClassVar[bool] = False
    client_sees: ClassVar[str] = ""

    @classmethod
    def quorum(cls, share: float, clients: int) -> int:
        """One."""
        return 1

    @classmethod
    def shares(cls, quorum: int) -> int:
        """Each draw is a whole."""
        return 1


class ExactSums(WholeNoise):
    """The server has exact sums of all clients: noise, if there is any, is added to them once."""

    replaces: ClassVar[bool] = False

    @classmethod
    def noises(cls, repliers: int, shares: int) -> float:
        """One, whoever answered."""
        return 1.0

    @classmethod
    def addends(cls, clients: int) -> float:
        """All clients: the noise does not grow with them."""
        return float(clients)

    @classmethod
    def expected(cls, rate: float, clients: int) -> int:
        """The noise is the same for any number."""
        return clients

    @classmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """What arrives at the server is not released yet."""
        return False

    @classmethod
    def what_spends(cls, rounds: int) -> str:
        """Its releases."""
        return spent_by_releases(rounds)
