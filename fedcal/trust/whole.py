"""What trust models share whose noise comes whole, or not at all: no answer waits for others."""

from __future__ import annotations

from typing import ClassVar

from fedcal.trust.base import Trust


class WholeNoise(Trust):
    """One answer is enough for a round: its sum has all of its noise in any case."""

    shared: ClassVar[bool] = False
    asks_everyone: ClassVar[bool] = False

    @classmethod
    def quorum(cls, share: float, clients: int) -> int:
        """One."""
        return 1

    @classmethod
    def shares(cls, quorum: int) -> int:
        """Each draw is a whole."""
        return 1

    @classmethod
    def client_sees(cls) -> str:
        """Nothing more."""
        return ""
