"""Trust in a quorum of clients: each adds a share of the noise."""

import math
from typing import ClassVar

from fedcal.core.types import override
from fedcal.mechanisms import Mechanism
from fedcal.trust.base import OWN_COINS, NoiseBy, Trust, TrustFacts, who_sets_noise

_SIMULATED_MASKS = (
    "Secure aggregation is simulated here: its masks follow from the seed, so anyone who knows the "
    "seed sees each client's contribution with its share of the noise only."
)


class Distributed(Trust):
    """Trust model in which each client adds a share of the noise; a quorum completes it."""

    name: ClassVar[str] = "distributed"
    meaning: ClassVar[str] = (
        "distributed: each client adds a share of the noise; with secure aggregation the server "
        "learns noisy sums only, without it each client's contribution with its share"
    )
    noise_by: ClassVar[NoiseBy] = "client"
    shared: ClassVar[bool] = True
    replaces: ClassVar[bool] = False
    amplifies: ClassVar[bool] = True
    asks_everyone: ClassVar[bool] = True
    client_sees: ClassVar[str] = (
        " Its own share of the noise, which is in every sum that it took part in."
    )

    @classmethod
    def accepts(cls, mechanism: type[Mechanism]) -> bool:
        """Return whether it adds noise, which can be drawn in shares."""
        return mechanism.answers == "sum"

    @classmethod
    def quorum(cls, share: float, clients: int) -> int:
        """Return the fraction of all clients, rounded up."""
        return max(1, math.ceil(share * clients))

    @classmethod
    def shares(cls, quorum: int) -> int:
        """Return the quorum."""
        return quorum

    @classmethod
    def noise_copies(cls, repliers: int, shares: int) -> float:
        """Return the ratio of answers to shares: more answers than the quorum bring more noise."""
        return repliers / shares

    @classmethod
    def draws(cls, length: int, clients: int) -> int:
        """Return the draws of all clients' shares."""
        return length * clients

    @classmethod
    def spent_when_asked(cls, masked: bool) -> bool:
        """Return True without masks: the server sees contributions with a share of the noise."""
        return not masked

    @classmethod
    def holds(cls, secure_aggregation: str, quorum: float, colluding: int = 0) -> str:
        """Return everyone, or everyone but the server if it sees contributions."""
        if secure_aggregation == "protocol":
            friends = f" with up to {colluding} sites that work with it" if colluding else ""
            return (
                f"against everyone, the server too{friends}, where {100 * quorum:g} % of the "
                "clients answer"
            )
        honest = f"where {100 * quorum:g} % of the clients answer and are honest"
        if secure_aggregation == "none":
            return f"against everyone but the server (no secure aggregation), {honest}"
        return (
            f"against everyone, the server too, {honest} and the secure aggregation shows nothing "
            "but sums"
        )

    @classmethod
    def against(cls, facts: TrustFacts) -> list[str]:
        """Return the assumptions of noise in shares."""
        quorum, clients = facts.quorum, facts.clients
        honest = (
            f"at least {quorum:,} of the {clients:,} clients answer and are honest (add their "
            "share of the noise and keep it secret)"
        )
        if clients == 1:
            honest = "the one client answers and is honest (adds its noise and keeps it secret)"
        if facts.committee:
            return [*_under_protocol(facts), who_sets_noise(facts)]
        if facts.summed:
            sentences = [
                "Each client adds a share of the noise. This holds against everyone, the server "
                f"too, if the secure aggregation shows nothing but the sum and {honest}.",
                _SIMULATED_MASKS,
            ]
        else:
            sentences = [
                "Each client adds a share of the noise, but this run used no secure aggregation: "
                f"the server sees each client's contribution with 1/{quorum} of the noise's "
                "variance, and this does not hold against it. It holds against everyone else if "
                f"{honest}."
            ]
        if clients > quorum:
            sentences.append(
                "Each client knows its own share, so an attacking client does not count as honest: "
                f"of {clients:,} clients up to {clients - quorum:,} in all may fail to answer or "
                "work together against the others."
            )
        elif clients > 1:
            sentences.append(
                "Each client knows its own share: with a quorum of all clients, against a client "
                f"only {quorum - 1} of {quorum} parts of the noise's variance are left. A smaller "
                "quorum allows for that."
            )
        sentences.append(
            f"A round with fewer than {quorum} answers is not released: dropouts never leave less "
            "noise than planned."
        )
        return [*sentences, who_sets_noise(facts)]

    @classmethod
    def server_sees(cls, facts: TrustFacts) -> str:
        """Return noisy sums, or without masks contributions with single shares."""
        if facts.summed:
            return f"The noisy sum of each round, over {facts.over}, and who answered."
        return (
            "Each client's contribution with its share of the noise, since this run used no secure "
            "aggregation, and so the noisy sums; and who answered. No epsilon bounds what a single "
            "share hides."
        )

    @classmethod
    def counts_on_coins(cls, facts: TrustFacts) -> str:
        """Return the assumption that the clients' coins stay secret."""
        return OWN_COINS

    @classmethod
    @override
    def adds(cls, noise: str, facts: TrustFacts) -> str:
        return (
            f"Each client adds a share of {noise} to its answer. "
            f"{facts.quorum - facts.colluding} shares make all of it; those of all "
            f"{facts.clients:,} clients have {math.sqrt(facts.wholes):.4g} times its std "
            "(noise_std)"
        )


def _under_protocol(facts: TrustFacts) -> list[str]:
    """Return the assumptions of noise in shares if the protocol shows only sums."""
    quorum, honest = facts.quorum, facts.quorum - facts.colluding
    friends = (
        f"as long as no more than {facts.colluding} of the sites work with it or leave out "
        "their noise"
    )
    if not facts.colluding:
        friends = "as long as no site works with it or leaves out its noise"
    sentences = [
        f"Each client adds a share of the noise, and any {honest} shares make all of it. This "
        f"holds against everyone, the server too, {friends}.",
        f"A round with fewer than {quorum} contributions is not opened: dropouts never leave "
        "less noise than planned.",
    ]
    if not facts.colluding:
        sentences.append(
            "Each client knows its own share: against a client only "
            f"{quorum - 1} of {quorum} parts of the noise's variance are left. A "
            "committee that tolerates a site that works with the server allows for that."
        )
    return sentences
