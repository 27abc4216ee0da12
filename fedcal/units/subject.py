"""All rows of one subject at one client, such as a patient at a hospital."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedcal.core.types import override
from fedcal.units.base import PartOfClient
from fedcal.units.bounding import Per


class Subject(PartOfClient):
    """All rows with one subject's number at one client (column `subject`) as the unit."""

    name: ClassVar[str] = "subject"
    meaning: ClassVar[str] = (
        "subject: all rows of one subject (such as a patient) at one client; a person at k clients "
        "is k subjects unless ids are agreed"
    )
    plural: ClassVar[str] = "subjects"
    per: ClassVar[Per] = "subject"
    column: ClassVar[str | None] = "subject"
    neighbours: ClassVar[Mapping[str, str]] = {
        "add-remove": "adding or removing all rows of one subject at one client"
    }
    worlds: ClassVar[Mapping[str, str]] = {
        "add-remove": "add-remove: two worlds that differ in whether the rows of one subject at "
        "one client are present; the number of clients is public"
    }
    curators: ClassVar[tuple[str, ...]] = (
        "It gives no protection against a subject's own client, which has its rows and is trusted "
        "with them.",
    )
    in_short: ClassVar[str] = (
        "; its own client knows the subject's rows, and a person at k clients has k times the "
        "epsilon"
    )
    own_client: ClassVar[tuple[str, str] | None] = (
        "a subject's own client",
        "All its rows, exactly: it is trusted with them.",
    )

    @classmethod
    def limits(cls, more: str) -> list[str]:
        """Return that complete clients, and people at several clients, are not protected."""
        return [
            "The epsilon is for all rows of one subject at one client. A client with m subjects "
            f"has m times the epsilon{more}: it does not protect whole clients.",
            "A person at two sites is two subjects, unless the sites have agreed on ids and each "
            "subject's rows lie at one of them: a person at k sites has k times the epsilon"
            f"{more}.",
        ]

    @classmethod
    @override
    def covered(cls, more: str) -> str:
        return (
            "A subject is one number in the column `subject` of one client: a person with rows "
            "under k numbers, or at k clients, has k times the epsilon"
            f"{more}, and properties of a client as a whole may show."
        )
