"""Trust in the server (it adds the noise), in a secure sum alone, or in no other party."""

import math
from typing import ClassVar

from fedcal.core.types import override
from fedcal.mechanisms import Mechanism
from fedcal.trust.base import OWN_COINS, NoiseBy, Trust, TrustFacts, who_sets_noise


class ExactSums(Trust):
    """Trust model in which the server has exact sums; noise, if any, is added to them once."""

    shared: ClassVar[bool] = False
    replaces: ClassVar[bool] = False

    @classmethod
    def noise_copies(cls, repliers: int, shares: int) -> float:
        """Return 1 for any number of answers."""
        return 1.0

    @classmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """Return False: what arrives at the server is not yet released."""
        return False


class Central(ExactSums):
    """Trust model in which the server sees exact sums, adds noise and is trusted to forget them."""

    name: ClassVar[str] = "central"
    meaning: ClassVar[str] = (
        "central: the server is trusted to add noise to exact sums and to forget them, and each "
        "client's contribution, too, where there is no secure aggregation"
    )
    noise_by: ClassVar[NoiseBy] = "server"
    amplifies: ClassVar[bool] = True

    @classmethod
    def accepts(cls, mechanism: type[Mechanism]) -> bool:
        """Return whether it adds noise to the sum, or draws from exact sums."""
        return mechanism.answers in ("sum", "index")

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
    def against(cls, facts: TrustFacts) -> list[str]:
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
    def server_sees(cls, facts: TrustFacts) -> str:
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
    def counts_on_coins(cls, facts: TrustFacts) -> str:
        """Return the assumption that the sample stays secret."""
        if facts.committee:
            return OWN_COINS
        seen = "the server"
        if facts.summed:
            seen += " and, with masks, against sampled clients, who learn each other's names"
        return f"The epsilon relies on the sample staying secret: it does not hold against {seen}."

    @classmethod
    @override
    def adds(cls, noise: str, facts: TrustFacts) -> str:
        return f"{noise[:1].upper()}{noise[1:]} is added to each sum by the server, once"


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
    def accepts(cls, mechanism: type[Mechanism]) -> bool:
        """Return whether it has no guarantee."""
        return mechanism.answers == "nothing"

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return 0, because there is no noise."""
        return 0

    @classmethod
    def holds(cls, secure_aggregation: str, quorum: float, colluding: int = 0) -> str:
        """Return that there is no guarantee."""
        return "against nobody: exact sums are released"

    @classmethod
    def against(cls, facts: TrustFacts) -> list[str]:
        """Return [], because there is no guarantee."""
        return []

    @classmethod
    def server_sees(cls, facts: TrustFacts) -> str:
        """Return exact sums, and without masks also contributions."""
        if facts.summed:
            return f"The exact sums of all rounds, over {facts.over}, and who answered."
        return (
            "Each client's own contribution, since this run used no secure aggregation, "
            "and so the exact sums of all rounds; and who answered."
        )

    @classmethod
    @override
    def adds(cls, noise: str, facts: TrustFacts) -> str:
        return "No noise is added"


class Local(Trust):
    """Trust model in which each client adds all the noise that it needs before it answers."""

    name: ClassVar[str] = "local"
    meaning: ClassVar[str] = (
        "local: each client adds all the noise that it needs before it answers; no other party "
        "must be trusted"
    )
    noise_by: ClassVar[NoiseBy] = "client"
    shared: ClassVar[bool] = False
    replaces: ClassVar[bool] = True
    amplifies: ClassVar[bool] = False
    why_not_amplified: ClassVar[str] = "the server sees who answers"

    @classmethod
    def accepts(cls, mechanism: type[Mechanism]) -> bool:
        """Return whether it adds noise to an answer, or encodes it."""
        return mechanism.answers in ("sum", "onehot")

    @classmethod
    def noise_copies(cls, repliers: int, shares: int) -> float:
        """Return one noise for each answer."""
        return repliers / shares

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return the draws of one client, which alone hide it."""
        return length

    @classmethod
    def addends(cls, clients: int) -> float:
        """Return the root of the clients, with which the noise of the sum grows."""
        return math.sqrt(clients)

    @classmethod
    def expected(cls, rate: float, clients: int) -> int:
        """Return the number of sampled clients."""
        return max(1, round(rate * clients))

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
    def against(cls, facts: TrustFacts) -> list[str]:
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
    def server_sees(cls, facts: TrustFacts) -> str:
        """Return noisy answers, or with masks their sum."""
        if facts.summed:
            return f"The noisy sum of each round, over {facts.over}, and who answered."
        return (
            "Each client's contribution with all of its noise, which epsilon and delta bound; and "
            "who answered."
        )

    @classmethod
    @override
    def adds(cls, noise: str, facts: TrustFacts) -> str:
        return (
            f"{noise[:1].upper()}{noise[1:]} is added by each client to its own answer, all that "
            "its protection needs; noise_std is for the sum of the expected answers"
        )
