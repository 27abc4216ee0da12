"""One row of one client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedcal.core.types import override
from fedcal.units.base import PartOfClient
from fedcal.units.bounding import Per


class Example(PartOfClient):
    """One row of one client as the unit."""

    name: ClassVar[str] = "example"
    meaning: ClassVar[str] = (
        "example: one row of one client; a client of m rows has m times the epsilon"
    )
    plural: ClassVar[str] = "rows"
    per: ClassVar[Per] = "row"
    column: ClassVar[str | None] = None
    neighbours: ClassVar[Mapping[str, str]] = {
        "add-remove": "adding or removing one row",
        "zero-out": "emptying the place of one row",
    }
    worlds: ClassVar[Mapping[str, str]] = {
        "add-remove": "add-remove: two worlds that differ in whether one row is present; the "
        "number of clients is public",
        "zero-out": "zero-out: two worlds that differ in whether the place of one row is empty, "
        "which adds nothing; the number of clients is public",
    }
    curators: ClassVar[tuple[str, ...]] = (
        "It gives no protection against a row's own client, which has the row and is trusted with "
        "it.",
    )
    in_short: ClassVar[str] = (
        "; its own client knows the row, and a client of m rows has m times the epsilon"
    )
    own_client: ClassVar[tuple[str, str] | None] = (
        "a row's own client",
        "All its rows, exactly: it is trusted with them.",
    )

    @classmethod
    def limits(cls, more: str) -> list[str]:
        """Return that complete clients are not protected."""
        return [
            "The epsilon is for one row. A client, or a person, with m rows has m times the "
            f"epsilon{more}: it does not protect whole clients."
        ]

    @classmethod
    @override
    def covered(cls, more: str) -> str:
        return (
            "An example is one row: a client, or a person, with k rows has k times the epsilon"
            f"{more}, and properties of a client as a whole may show."
        )
