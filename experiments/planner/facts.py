"""The public facts that a plan is made from. No row of anybody is among them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from fedcal.core.checks import positive
from fedcal.core.errors import InputError
from fedcal.partition import PARTITIONS, DrawnPartition, parse
from fedcal.privacy.federation import Federation

MOST_CLASSES = 2_000


@dataclass(frozen=True)
class PublicFacts:
    """A federation and what is publicly known of its rows.

    Attributes
    ----------
    federation
        clients, classes, budget, unit, trust, ...; `rounds` None = the planner's choice
    rows_per_client
        m, a public *nominal* number, not a count of anybody's rows
    partition
        how rows lie with clients, as `--partition` takes it
    """

    federation: Federation
    rows_per_client: float
    partition: str = "dirichlet:0.1"

    def __post_init__(self) -> None:
        positive("rows_per_client", self.rows_per_client)
        if self.federation.classes > MOST_CLASSES:
            raise InputError(f"a plan is made for at most {MOST_CLASSES:,} classes")
        _ = self.dealing

    @property
    def dealing(self) -> DrawnPartition:
        """Partition, one of those that do not depend on data."""
        partition = parse(self.partition)
        if not isinstance(partition, DrawnPartition):
            allowed = [name for name, p in PARTITIONS.items() if issubclass(p, DrawnPartition)]
            raise InputError(
                f"partition '{partition.name}' needs data, and a plan looks at none; allowed: "
                f"{', '.join(allowed)}"
            )
        return partition

    def but(self, **changes: Any) -> PublicFacts:
        """Return the same facts with other fields of the federation."""
        return replace(self, federation=replace(self.federation, **changes))

    def to_json(self) -> dict[str, Any]:
        """Plain values; epsilon is "inf" without privacy."""
        f = self.federation
        return {
            "clients": f.clients,
            "rows_per_client": self.rows_per_client,
            "classes": f.classes,
            "epsilon": f.epsilon if f.private else "inf",
            "delta": f.delta,
            "unit": f.unit,
            "trust": f.trust,
            "sampling_rate": f.sampling_rate,
            "rounds": f.rounds,
            "quorum": f.quorum,
            "mechanism": f.mechanism,
            "partition": self.partition,
        }

    def __str__(self) -> str:
        f = self.federation
        budget = f"epsilon {f.epsilon:g}" if math.isfinite(f.epsilon) else "no privacy"
        return (
            f"{f.clients:,} clients, {self.rows_per_client:g} rows each, {f.classes} classes, "
            f"{budget}, unit {f.unit}, trust {f.trust}"
        )
