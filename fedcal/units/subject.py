"""All rows of one subject at one client: a patient at a hospital, say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedcal.units.base import PartOfClient
from fedcal.units.bounding import Per


class Subject(PartOfClient):
    """All rows that carry one subject's number at one client (column `subject`)."""

    name: ClassVar[str] = "subject"
    meaning: ClassVar[str] = (
        "subject: all rows of one subject (a patient, say) at one client; who is at k clients is k "
        "subjects unless ids are agreed"
    )
    plural: ClassVar[str] = "subjects"
    per: ClassVar[Per] = "subject"
    column: ClassVar[str | None] = "subject"
    neighbours: ClassVar[Mapping[str, str]] = {
        "add-remove": "adding or removing all rows of one subject at one client"
    }
    worlds: ClassVar[Mapping[str, str]] = {
        "add-remove": "add-remove: two worlds that differ in all rows of one subject at one client "
        "being there or not; the number of clients is public"
    }
    curators: ClassVar[tuple[str, ...]] = (
        "It says nothing against a subject's own client, which has its rows and is trusted "
        "with them.",
    )
    in_short: ClassVar[str] = (
        "; its own client knows the subject's rows, and who is at k clients has k times the epsilon"
    )
    own_client: ClassVar[tuple[str, str] | None] = (
        "a subject's own client",
        "All its rows, exactly: it is trusted with them.",
    )

    @classmethod
    def limits(cls, more: str) -> list[str]:
        """Not for whole clients, nor for people at several."""
        return [
            "The epsilon is for all rows of one subject at one client. A client with m subjects "
            f"has m times the epsilon{more}: it does not protect whole clients.",
            "A person at two sites is two subjects, unless the sites have agreed on ids and each "
            "subject's rows lie at one of them: somebody at k sites has k times the epsilon"
            f"{more}.",
        ]

    @classmethod
    def covered(cls, more: str) -> str:
        """Several subjects add up."""
        return (
            "A subject is one number in the column `subject` of one client: a person with rows "
            "under k numbers, or at k clients, has k times the epsilon"
            f"{more}, and what a client is like as a whole may show."
        )
