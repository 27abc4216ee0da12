"""Trust in the server: it adds the noise after the secure sum."""

from __future__ import annotations

from typing import ClassVar

from fedcal.core.types import override
from fedcal.mechanisms import Mechanism
from fedcal.trust.base import OWN_COINS, Facts, NoiseBy
from fedcal.trust.whole import ExactSums


class Central(ExactSums):
    """Trust model in which the server sees exact sums, adds noise and is trusted to forget them."""

    name: ClassVar[str] = "central"
    meaning: ClassVar[str] = (
        "central: the server is trusted to add noise to exact sums and to forget them, and each "
        "client's contribution, too, where there is no secure aggregation"
    )
    noise_by: ClassVar[NoiseBy] = "server"
    amplifies: ClassVar[bool] = True
    why_not_amplified: ClassVar[str] = ""

    @classmethod
    def accepts(cls, law: type[Mechanism]) -> bool:
        """Return whether it adds noise to the sum, or draws from exact sums."""
        return law.answers in ("sum", "index")

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return one draw for each number."""
        return length

    @classmethod
    @override
    def holds(cls, secure_aggregation: str, quorum: float, colluding: int = 0) -> str:
        exact = "each client's contribution, and so exact sums,"
        if secure_aggregation != "none":
            exact = "exact sums"
        return f"against everyone but the server, which sees {exact} and is trusted to forget them"

    @classmethod
    @override
    def against(cls, facts: Facts) -> list[str]:
        if facts.committee:
            return [
                "The server sees the exact sums. It is trusted to add the noise and to forget "
                "them, which no site can verify; everyone else sees releases only."
            ]
        server = (
            "the exact sums" if facts.summed else f"{facts.contribution}, and so the exact sums,"
        )
        return [
            f"The server sees {server} and is trusted to forget them; everyone else sees releases "
            "only."
        ]

    @classmethod
    def server_sees(cls, facts: Facts) -> str:
        """Return the exact sums, which the server forgets."""
        if facts.summed:
            return (
                f"The exact sum of each round, over {facts.over}, and who answered. It is trusted "
                "to add the noise and to forget the sum."
            )
        what = facts.contribution
        return (
            f"{what[:1].upper()}{what[1:]}, since this run used no secure "
            "aggregation, and so the exact sums. It is trusted to add the noise and to forget them."
        )

    @classmethod
    def counts_on_coins(cls, facts: Facts) -> str:
        """Return the assumption that the sample stays secret."""
        if facts.committee:
            return OWN_COINS
        seen = "the server"
        if facts.summed:
            seen += " and, with masks, against sampled clients, who learn each other's names"
        return f"The epsilon relies on the sample staying secret: it does not hold against {seen}."

    @classmethod
    @override
    def adds(cls, noise: str, facts: Facts) -> str:
        return f"{noise[:1].upper()}{noise[1:]} is added to each sum by the server, once"
