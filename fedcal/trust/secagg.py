"""Trust in a secure sum alone: no noise, no differential privacy."""

from __future__ import annotations

from typing import ClassVar

from fedcal.core.types import override
from fedcal.mechanisms import Mechanism
from fedcal.trust.base import Facts, NoiseBy
from fedcal.trust.whole import ExactSums


class SecAgg(ExactSums):
    """Trust model without noise: the server learns exact sums."""

    name: ClassVar[str] = "secagg"
    meaning: ClassVar[str] = (
        "secagg: no party adds noise; the server learns exact sums, and each client's "
        "contribution, too, where there is no secure aggregation"
    )
    noise_by: ClassVar[NoiseBy] = "nobody"
    amplifies: ClassVar[bool] = False
    why_not_amplified: ClassVar[str] = "there is no noise"

    @classmethod
    def accepts(cls, law: type[Mechanism]) -> bool:
        """Return whether it has no guarantee."""
        return law.answers == "nothing"

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return 0, because there is no noise."""
        return 0

    @classmethod
    def holds(cls, secure_aggregation: str, quorum: float, colluding: int = 0) -> str:
        """Return that there is no guarantee."""
        return "against nobody: exact sums are released"

    @classmethod
    def against(cls, facts: Facts) -> list[str]:
        """Return [], because there is no guarantee."""
        return []

    @classmethod
    def server_sees(cls, facts: Facts) -> str:
        """Return exact sums, and without masks also contributions."""
        if facts.summed:
            return f"The exact sums of all rounds, over {facts.over}, and who answered."
        return (
            "Each client's own contribution, since this run used no secure aggregation, "
            "and so the exact sums of all rounds; and who answered."
        )

    @classmethod
    def counts_on_coins(cls, facts: Facts) -> str:
        """Return "", because nothing is amplified."""
        return ""

    @classmethod
    @override
    def adds(cls, noise: str, facts: Facts) -> str:
        return "No noise is added"
