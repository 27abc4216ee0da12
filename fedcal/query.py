"""What goes from the server to a client: the question, and the bound that travels with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcal import accounting
from fedcal.bounding import Bound
from fedcal.checks import one_of
from fedcal.errors import InputError
from fedcal.mechanisms import MECHANISMS, Noise
from fedcal.secure_aggregation import Ring
from fedcal.streams import check_seed, key_of
from fedcal.types import Floats

Scalar = bool | int | float | str
Param = Scalar | Floats
"""A parameter of a statistic: a scalar, or a vector of parameters (size,) float64."""

Field = Scalar | bytes | list[int] | list[float] | list[str] | list[bytes] | list[bool]


@dataclass(frozen=True)
class Ask:
    """What a strategy wants to know in a round; the plan turns it into a `Query`.

    Attributes
    ----------
    kind : name of a client statistic
    params : the statistic's parameters
    lengths : block lengths of the answer
    everyone : ask all enrolled clients, not this round's sample (no privacy only)
    norms : what each block is clipped to where there is no privacy; () = nothing is. With privacy
        the plan says it
    """

    kind: str
    lengths: tuple[int, ...]
    params: Mapping[str, Param] = field(default_factory=dict)
    everyone: bool = False
    norms: tuple[float, ...] = ()


@dataclass(frozen=True)
class Query:
    """A question with its bound and its ring: all a client needs to answer.

    Nothing that a client sends is believed about its own bound: the client clips to `bound`,
    and the mechanism takes its sensitivity from the same field of the plan.

    Attributes
    ----------
    noise : what each client adds to its answer (trust `distributed`, `local`); None = nothing
    rate : each client's rows take part with this probability, by its own coin (`distributed`)
    seed : of a simulated client's noise and coin; a real site takes none from a message
    """

    kind: str
    params: Mapping[str, Param]
    bound: Bound
    ring: Ring
    round: int
    noise: Noise | None = None
    rate: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        accounting.check_rate(self.rate)
        if self.seed is not None:
            check_seed(self.seed)
        if self.noise is not None and sum(self.noise.lengths) != self.bound.length:
            raise InputError(
                f"noise for {sum(self.noise.lengths)} numbers does not fit an answer of "
                f"{self.bound.length}"
            )

    def to_fields(self) -> dict[str, Field]:
        """Flat scalars and lists, fit for a Flower `ConfigRecord`; `from_fields` reads them."""
        fields: dict[str, Field] = {
            "kind": self.kind,
            "round": self.round,
            "lengths": list(self.bound.lengths),
            "norms": list(self.bound.norms),
            "rule": self.bound.rule,
            "clients": self.ring.clients,
            "grid": self.ring.grid,
            "headroom": self.ring.headroom,
        }
        if self.bound.order != 2:
            fields["order"] = self.bound.order
        if self.bound.per != "client":
            fields["per"] = self.bound.per
        if self.noise is not None:
            fields["noise"] = self.noise.mechanism
            fields["noise-lengths"] = list(self.noise.lengths)
            fields["noise-scales"] = list(self.noise.scales)
            fields["noise-shares"] = self.noise.shares
        if self.rate < 1:
            fields["rate"] = self.rate
        if self.seed is not None:
            fields["seed"] = self.seed
        for key, value in self.params.items():
            fields[f"param.{key}"] = value.tolist() if isinstance(value, np.ndarray) else value
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Query:
        """The query that `to_fields` wrote; InputError if a field is missing or makes no sense."""
        try:
            return cls(
                kind=str(fields["kind"]),
                params={
                    k.removeprefix("param."): _param(v)
                    for k, v in fields.items()
                    if k.startswith("param.")
                },
                bound=Bound(
                    tuple(int(n) for n in fields["lengths"]),
                    tuple(float(c) for c in fields["norms"]),
                    fields["rule"],
                    fields.get("order", 2),
                    fields.get("per", "client"),
                ),
                ring=Ring(int(fields["clients"]), float(fields["grid"]), int(fields["headroom"])),
                round=int(fields["round"]),
                noise=_noise(fields),
                rate=float(fields.get("rate", 1.0)),
                seed=int(fields["seed"]) if "seed" in fields else None,
            )
        except KeyError as missing:
            raise InputError(f"a query has no field {missing}") from None
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("a field of a query holds something else than it should") from None

    @property
    def question(self) -> str:
        """What is asked, without how it travels: part of the key of seeded noise."""
        return key_of(self.kind, self.params)

    @property
    def key(self) -> str:
        """The question and all that the noise on its answer follows from, but the round.

        The same noise on two answers, or at two scales, would give both away.
        """
        ring, noise = self.ring, self.noise
        return key_of(
            self.question,
            self.bound.key,
            (ring.clients, ring.grid, self.rate),
            None if noise is None else (noise.mechanism, noise.lengths, noise.scales, noise.shares),
        )

    @property
    def payload_bytes(self) -> int:
        """Bytes of the question: 8 per number, 1 per character."""
        return sum(
            len(v) if isinstance(v, str) else 8 * len(v) if isinstance(v, list) else 8
            for v in self.to_fields().values()
        )


def _noise(fields: Mapping[str, Any]) -> Noise | None:
    if "noise" not in fields:
        return None
    return Noise(
        MECHANISMS[one_of("noise", fields["noise"], MECHANISMS)],
        tuple(int(n) for n in fields["noise-lengths"]),
        tuple(float(s) for s in fields["noise-scales"]),
        int(fields["noise-shares"]),
    )


def _param(value: Any) -> Param:
    """A scalar as it is; a list as the vector that it was."""
    if not isinstance(value, list):
        scalar: Scalar = value
        return scalar
    try:
        return np.array(value, np.float64)
    except (TypeError, ValueError):
        raise InputError("a vector in a query holds something else than numbers") from None
