"""The public facts of a federation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from fedcal.core.checks import InputError, unused, whole
from fedcal.core.fields import within
from fedcal.core.options import flat_kinds, read_fields
from fedcal.mechanisms import MECHANISMS
from fedcal.privacy.privacy import AUTO, Privacy
from fedcal.secure_aggregation.committee import check_committee, colluding
from fedcal.trust import NOISY, TRUSTS, Central, SecAgg
from fedcal.units import UNITS

MOST_CLIENTS = 10_000_000
"""More is a slip of the pen: a run of that size would take all memory there is."""


@dataclass(frozen=True)
class Federation(Privacy):
    """Clients, and what may be learned from them. All of it is public.

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

    clients: Annotated[int, within(1, MOST_CLIENTS)]
    classes: Annotated[int, within(2)]
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
            whole("committee", self.committee, 2, self.clients)
            check_committee(self.committee, self.threshold)
            whole("colluding", self.colluding, 0, colluding(self.committee, self.threshold))
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

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], nodes: int = 0, classes: int = 0) -> Self:
        """Return the federation that `to_fields` wrote; other keys are ignored.

        Raises InputError if a key is missing or its value is not allowed.

        Parameters
        ----------
        nodes, classes
            what `clients` = 0 and `classes` = 0 stand for
        """
        made = cls(**read_fields(cls, fields, clients=nodes, classes=classes))
        made.check_quorum(made.committee > 0)
        return made


FIELDS: Mapping[str, type[Any]] = {
    name.replace("_", "-"): kind for name, kind in flat_kinds(Federation).items() if name != "seed"
}
"""What a server and its sites agree on: the fields but for the seed, under dashed names."""


def order_of(federation: Federation) -> Literal[1, 2]:
    """Return the order of the norm that a run bounds: L1 if the user wants Laplace noise."""
    return 2 if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order


def amplifying_rate(federation: Federation) -> float:
    """Return the sampling rate if it amplifies privacy, else 1; see `making.make_plan`."""
    amplifies = TRUSTS[str(federation.trust)].amplifies and UNITS[federation.unit].whole_client
    return federation.sampling_rate if amplifies else 1.0
