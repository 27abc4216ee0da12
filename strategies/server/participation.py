"""Which real sites took part in a run, as far as that is no secret.

Where the epsilon counts on a secret sample, nobody learns who was asked, who answered, or how many
did: only who was never there is told then. Nodes are asked who they are in each round, whoever
is sampled, so that this says nothing of the sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from fedcal.core.printable import listed
from fedcal.secure_aggregation.roster import Roster


@dataclass
class Participation:
    """Sites by their numbers, from 0.

    Attributes
    ----------
    there
        were met, and able to take part
    asked, answered
        round -> sites that were asked, and whose answers are in its sum; {} of a secret sample
    """

    there: set[int] = field(default_factory=set)
    asked: dict[int, list[int]] = field(default_factory=dict)
    answered: dict[int, list[int]] = field(default_factory=dict)

    def note(self, number: int, asked: Iterable[int], answered: Iterable[int]) -> None:
        """Keep which sites were in a round, in place of an earlier try of the same round."""
        self.asked[number], self.answered[number] = sorted(asked), sorted(answered)

    def to_json(self) -> dict[str, Any]:
        """Return the participation as plain values."""
        return {
            "there": sorted(self.there),
            "asked": {str(k): sites for k, sites in self.asked.items()},
            "answered": {str(k): sites for k, sites in self.answered.items()},
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the participation; KeyError, TypeError or ValueError for malformed values."""
        rounds = (
            {int(k): list(map(int, sites)) for k, sites in plain[key].items()}
            for key in ("asked", "answered")
        )
        return cls(set(map(int, plain["there"])), *rounds)

    def to_result(self, names: Sequence[str], *, secret: bool) -> dict[str, Any]:
        """Return the key `sites` of `result.json`.

        Parameters
        ----------
        names
            of all enrolled sites, by number
        secret
            whether the sample of a round is

        Returns
        -------
        dict
            `enrolled`; `answered`, how many sites are in a sum (None = secret); `absent`, names of
            those that took no part; `missed`, name -> rounds that other sites were asked in and did
            not answer.
        """
        in_sums = {site for sites in self.answered.values() for site in sites}
        ever_asked = {site for sites in self.asked.values() for site in sites}
        here = in_sums | (self.there if secret else self.there - ever_asked)
        missed = {
            names[k]: [n for n, of in self.asked.items() if k in set(of) - set(self.answered[n])]
            for k in sorted(in_sums)
        }
        return {
            "enrolled": len(names),
            "answered": None if secret else len(in_sums),
            "absent": [name for k, name in enumerate(names) if k not in here],
            "missed": {name: rounds for name, rounds in missed.items() if rounds},
        }


def names_of(roster: str, clients: int) -> tuple[str, ...]:
    """Return the sites' names by number: the roster's, or "site 3" without a roster."""
    if roster:
        return tuple(site.name for site in Roster.from_text(roster).sites)
    return tuple(f"site {k}" for k in range(clients))


def in_short(sites: Mapping[str, Any], noun: str = "real sites") -> str:
    """Return how many sites took part and which did not: "4 of 5 real sites (not Celle)"."""
    enrolled, absent = sites["enrolled"], sites["absent"]
    if not absent:
        return f"{enrolled} {noun}"
    return f"{enrolled - len(absent)} of {enrolled} {noun} (not {listed(absent)})"


def sentences(sites: Mapping[str, Any] | None) -> list[str]:
    """Return sentences on absent sites and on whose rows a result is about, or []."""
    if sites is None:
        return []
    enrolled, absent = sites["enrolled"], sites["absent"]
    lines = []
    if absent:
        some, asked = enrolled - len(absent), " (the sample of a round is secret)"
        did, secret = ("answered", "") if sites["answered"] is not None else ("were there", asked)
        lines.append(
            f"{some} of the {enrolled} enrolled sites {did}{secret}: {listed(absent)} took no "
            "part. The results and guarantees for the sites' rows hold for the rows of the "
            f"{some} that {did}."
        )
    for name, rounds in sites["missed"].items():
        which = f"round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}"
        lines.append(f"{name} missed {which}.")
    return lines
