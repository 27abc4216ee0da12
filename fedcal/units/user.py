"""All rows of one client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedcal.core.types import override
from fedcal.units.base import Unit
from fedcal.units.bounding import Per


class User(Unit):
    """All rows of one client together as the unit."""

    name: ClassVar[str] = "user"
    meaning: ClassVar[str] = "user: all rows of one client together"
    plural: ClassVar[str] = "users"
    per: ClassVar[Per] = "client"
    column: ClassVar[str | None] = None
    whole_client: ClassVar[bool] = True
    neighbours: ClassVar[Mapping[str, str]] = {
        "zero-out": "removing all rows of one client",
        "replace": "replacing all rows of one client by any others",
    }
    worlds: ClassVar[Mapping[str, str]] = {
        "zero-out": "zero-out: two worlds that differ in whether the rows of one client are "
        "present; the number of clients is public",
        "replace": "replace: two worlds in which all rows of one client are different",
    }
    curators: ClassVar[tuple[str, ...]] = ()
    in_short: ClassVar[str] = ""
    own_client: ClassVar[tuple[str, str] | None] = None

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return zero-out, or replacement if a client's answer itself is seen."""
        return "replace" if replaces else "zero-out"

    @classmethod
    def limits(cls, more: str) -> list[str]:
        """Return [], because the epsilon is for the complete client."""
        return []

    @classmethod
    @override
    def covered(cls, more: str) -> str:
        return (
            f"A user is one client: a person with rows at k clients has k times the epsilon{more}."
        )
