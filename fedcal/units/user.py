"""All rows of one client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedcal.units.base import Unit
from fedcal.units.bounding import Per


class User(Unit):
    """All rows of one client together."""

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
        "zero-out": "zero-out: two worlds that differ in one client's rows being there or not; the "
        "number of clients is public",
        "replace": "replace: two worlds that differ in all rows of one client being others",
    }
    curators: ClassVar[tuple[str, ...]] = ()
    in_short: ClassVar[str] = ""
    own_client: ClassVar[tuple[str, str] | None] = None

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Zero-out, or replacement where a client's answer itself is seen."""
        return "replace" if replaces else "zero-out"

    @classmethod
    def limits(cls, more: str) -> list[str]:
        """It is for the client as a whole."""
        return []

    @classmethod
    def covered(cls, more: str) -> str:
        """Several clients add up."""
        return (
            f"A user is one client: somebody with rows at k clients has k times the epsilon{more}."
        )
