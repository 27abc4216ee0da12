"""Trust in the server: it adds the noise after the secure sum."""

from __future__ import annotations

from typing import ClassVar

from fedcal.mechanisms import Mechanism
from fedcal.trust.base import OWN_COINS, Facts, NoiseBy
from fedcal.trust.whole import ExactSums


class Central(ExactSums):
    """The server sees exact sums, adds noise to them, and is trusted to forget them."""

    name: ClassVar[str] = "central"
    meaning: ClassVar[str] = (
        "central: the server is trusted to add noise to exact sums and to forget them, and each "
        "client's contribution, too, where there is no secure aggregation"
    )
    noise_by: ClassVar[NoiseBy] = "server"
    amplifies: ClassVar[bool] = True
    why_not_amplified: ClassVar[str] = ""

    @classmethod
    def takes(cls, law: type[Mechanism]) -> bool:
        """Noise on the sum, and draws that need exact sums."""
        return law.answers in ("sum", "index")

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """One for each number."""
        return length

    @classmethod
    def holds(cls, secure_aggregation: str, quorum: float, colluding: int = 0) -> str:
        """Everyone but the server."""
        exact = "each client's contribution, and so exact sums,"
        if secure_aggregation != "none":
            exact = "exact sums"
        return f"against everyone but the server, which sees {exact} and is trusted to forget them"

    @classmethod
    def against(cls, facts: Facts) -> list[str]:
        """Everyone but the server."""
        if facts.committee:
            return [
                "The server sees the exact sums. It is trusted to add the noise and to forget "
                "them, which no site can verify; everyone else sees releases only."
            ]
        server = (
            "the exact sums" if facts.summed else f"{facts.contribution}, and so the exact sums,"
        )
        said = f"The server sees {server} and is trusted to forget them; everyone else sees "
        return [f"{said}releases only."]

    @classmethod
    def server_sees(cls, facts: Facts) -> str:
        """Exact sums, which it forgets."""
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
        """Who was sampled stays secret."""
        if facts.committee:
            return OWN_COINS
        seen = "the server"
        if facts.summed:
            seen += " and, with masks, against sampled clients, who learn each other's names"
        return (
            "The epsilon counts on who was sampled staying secret: it does not hold against "
            f"{seen}."
        )

    @classmethod
    def adds(cls, noise: str, facts: Facts) -> str:
        """The server, once."""
        return f"{noise[:1].upper()}{noise[1:]} is added to each sum by the server, once"
