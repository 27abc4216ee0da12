"""Base classes of trust models without shares of noise: no answer depends on others."""

from __future__ import annotations

from typing import ClassVar

from fedcal.core.types import override
from fedcal.trust.base import Trust, spent_by_releases


class WholeNoise(Trust):
    """Trust model in which the sum of a round has all of its noise with any number of answers."""

    shared: ClassVar[bool] = False
    asks_everyone: ClassVar[bool] = False
    client_sees: ClassVar[str] = ""

    @classmethod
    def quorum(cls, share: float, clients: int) -> int:
        """Return 1, because one answer is enough."""
        return 1

    @classmethod
    def shares(cls, quorum: int) -> int:
        """Return 1, because each draw is complete."""
        return 1


class ExactSums(WholeNoise):
    """Trust model in which the server has exact sums; noise, if any, is added to them once."""

    replaces: ClassVar[bool] = False

    @classmethod
    def noises(cls, repliers: int, shares: int) -> float:
        """Return 1 for any number of answers."""
        return 1.0

    @classmethod
    def addends(cls, clients: int) -> float:
        """Return all clients: the noise does not grow with their number."""
        return float(clients)

    @classmethod
    def expected(cls, rate: float, clients: int) -> int:
        """Return all clients: the noise is the same for any number of answers."""
        return clients

    @classmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """Return False: what arrives at the server is not yet released."""
        return False

    @classmethod
    @override
    def what_spends(cls, rounds: int) -> str:
        return spent_by_releases(rounds)
