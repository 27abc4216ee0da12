"""The privacy of a run as its options say it: budget, unit, trust model, mechanism, sampling.

The public facts of a federation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fedcal.core import options
from fedcal.core.checks import BudgetExceeded, InputError, fraction, integer, interval, unused
from fedcal.mechanisms import MECHANISMS, PRIVATE
from fedcal.secure_aggregation.roster import check_committee, colluding
from fedcal.trust import NOISY, TRUSTS, Central, SecAgg
from fedcal.units import UNITS, User

QUORUM = 0.9
"""Share of the clients that must answer a round under trust `distributed`."""

MOST_ROUNDS = 100_000
"""More is a slip of the pen: a run of that size would take days."""

AUTO = "auto"
"""The mechanism that a method prefers."""

_TOLERANCE = 1e-9  # of the cap: ten runs of 0.1 fit a cap of 1


Rounds = Annotated[int, options.within(1, MOST_ROUNDS)] | None
Rate = Annotated[float, lambda _, value: fraction("the sampling rate", value, "(]")]
Epsilon = Annotated[float, interval("(0, inf]", "a number > 0 (inf: no privacy)")]


@dataclass(frozen=True, kw_only=True)
class Privacy(options.Options):
    """Privacy options of a federation. All of them are public.

    Attributes
    ----------
    epsilon
        budget of the whole run for each unit; inf = no differential privacy
    delta
        its failure probability; must be > 0 for Gaussian noise
    unit
        what is protected: "user", all rows of one client, "subject", all rows of one subject
        at one client, or "example", one row
    trust
        who adds the noise: "secagg" (nobody), "central" (the server, after the secure sum),
        "distributed" (each client a share, the sum has all of it) or "local" (each client all of
        it); None = the one of the first two that fits epsilon
    mechanism
        one of `fedcal.mechanisms`, or "auto", what the method prefers
    quorum
        under trust "distributed", and under the protocol of secure aggregation, the share of the
        clients that must answer a round: noise shares are sized so that these alone make all of it
    noise_source
        "seeded" (simulation, repeatable) or "system" (the operating system's generator)
    rounds
        rounds of queries; None = the method's default
    sampling_rate
        each client takes part in a round with this probability (Poisson)
    seed
        of sampling and noise. Seeded noise protects nobody who knows the seed
    """

    rounds: Rounds = options.option(
        None, options.DATA, "Number of rounds", unset="the method's", axis=True
    )
    sampling_rate: Rate = options.option(
        1.0, options.DATA, "Probability that a client takes part in a round", axis=True
    )
    epsilon: Epsilon = options.option(
        math.inf, options.PRIVACY, "Privacy budget of the complete run for each unit", axis=True
    )
    delta: Annotated[float, interval("[0, 1)")] = options.option(
        1e-5, options.PRIVACY, "Probability that the privacy bound fails", axis=True
    )
    unit: Annotated[str, options.among(UNITS)] = options.option(
        User.name,
        options.PRIVACY,
        " | ".join(unit.meaning.partition(";")[0] for unit in UNITS.values()),
        axis=True,
    )
    trust: Annotated[str, options.among(TRUSTS)] | None = options.option(
        None,
        options.PRIVACY,
        "Who adds noise: secagg: no party | central: the server | distributed: each client a "
        "share | local: each client all of it",
        unset="secagg at epsilon inf, else central",
        axis=True,
    )
    mechanism: Annotated[str, options.among((AUTO, *PRIVATE))] = options.option(
        AUTO,
        options.PRIVACY,
        f"auto | {' | '.join(PRIVATE)}",
        unset="auto: what suits method and trust model",
        axis=True,
    )
    quorum: Annotated[float, interval("(0, 1]")] = options.option(
        QUORUM,
        options.PRIVACY,
        "Trust distributed, protocol: fraction of the clients that must answer a round",
    )
    noise_source: Annotated[str, options.among(("seeded", "system"))] = options.option(
        "seeded", options.PRIVACY, "seeded: repeatable | system: the operating system's"
    )
    seed: options.Seed = options.option(
        0, options.RUNNING, "Random seed for partition, sampling and noise"
    )

    @property
    def private(self) -> bool:
        """True if the run is differentially private."""
        return math.isfinite(self.epsilon)

    def check_quorum(self, protocol: bool) -> None:
        """Refuse a share where no quorum is asked for."""
        shared = [name for name, model in TRUSTS.items() if model.shared]
        if self.trust not in shared and not protocol and self.quorum != QUORUM:
            home = " or ".join(f"'{name}'" for name in shared)
            why = f"it is for trust {home}, and for the secure aggregation 'protocol'"
            unused(why, quorum=self.quorum)


def check_caps(
    name: str,
    run: str,
    asked: tuple[float, float],
    spent: Sequence[tuple[float, float]],
    caps: tuple[float, float],
) -> None:
    """Refuse a charge that would take a sum of epsilons, or of deltas, above its cap.

    Parameters
    ----------
    name
        Of the books, for the message.
    run
        What asks for it.
    asked
        Its epsilon and delta.
    spent
        Those of all earlier ones.
    caps
        Of the sum of epsilons and of that of deltas; they may be exceeded by 1e-9 of themselves.

    Raises
    ------
    BudgetExceeded
        One line that says how much is spent and how much was asked for.
    """
    for i, what in enumerate(("epsilon", "delta")):
        before = math.fsum(charge[i] for charge in spent)
        if math.fsum((before, asked[i])) > caps[i] * (1 + _TOLERANCE):
            raise BudgetExceeded(
                f"{name}: {what} {before:g} of {caps[i]:g} is spent, "
                f"run {run!r} asks for {asked[i]:g} more"
            )


MOST_CLIENTS = 10_000_000
"""More is a slip of the pen: a run of that size would take all memory there is."""


@dataclass(frozen=True)
class Federation(Privacy):
    """Clients and privacy options. All of it is public.

    Attributes
    ----------
    clients
        enrolled clients K
    classes
        classes c of the model
    committee, threshold
        of the protocol of secure aggregation: members, and how many of them open a sum; 0 = no
        such protocol
    colluding
        sites that may tell the server all they know, and still it learns nothing but sums with
        all of their noise
    """

    clients: Annotated[int, options.within(1, MOST_CLIENTS)]
    classes: Annotated[int, options.within(2)]
    committee: int = field(default=0, kw_only=True)
    threshold: int = field(default=0, kw_only=True)
    colluding: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        trust = self.trust or (Central if self.private else SecAgg).name
        if self.private != (trust in NOISY):
            exact = f"no noise, so epsilon cannot be finite; use --trust {Central.name}"
            noisy = f"noise; give a finite epsilon or use {SecAgg.name}"
            raise InputError(f"trust '{trust}' adds {exact if self.private else noisy}")
        object.__setattr__(self, "trust", trust)
        if self.committee:
            integer("committee", self.committee, 2, self.clients)
            check_committee(self.committee, self.threshold)
            integer("colluding", self.colluding, 0, colluding(self.committee, self.threshold))
        else:
            unused(
                "there is no committee",
                threshold=self.threshold or None,
                colluding=self.colluding or None,
            )

    def fewest(self, parts: int = 1) -> int:
        """Fewest contributions in a secure sum over one of so many parts of the clients.

        Raises
        ------
        InputError
            If so few that a sum hides nobody among those who are honest.
        """
        least = math.ceil(self.quorum * (self.clients // parts))  # of the smallest part
        if (honest := least - self.colluding) < 2:
            raise InputError(
                f"a secure sum of {least} contributions, {self.colluding} of which may be from "
                f"sites that collude with the server, leaves {max(honest, 0)} honest: at least 2 "
                "are needed; use a larger quorum, more clients, or fewer colluding ones"
            )
        return least


FIELDS: Mapping[str, type[Any]] = {
    name.replace("_", "-"): kind
    for name, kind in options.flat_kinds(Federation).items()
    if name != "seed"
}
"""Fields that a server and its sites agree on, all but the seed, under dashed names."""


def order_of(federation: Federation) -> Literal[1, 2]:
    """Return the order of the norm that a run bounds: L1 if the user wants Laplace noise."""
    return 2 if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order
