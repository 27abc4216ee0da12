"""All rows of one subject at one client: a patient at a hospital, say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedcal.units.base import Unit
from fedcal.units.bounding import Per


class Subject(Unit):
    """All rows that carry one subject's number at one client (column `subject`)."""

    name: ClassVar[str] = "subject"
    meaning: ClassVar[str] = (
        "subject: all rows of one subject (a patient, say) at one client; who is at k clients is k "
        "subjects unless ids are agreed"
    )
    plural: ClassVar[str] = "subjects"
    per: ClassVar[Per] = "subject"
    column: ClassVar[str | None] = "subject"
    whole_client: ClassVar[bool] = False
    neighbours: ClassVar[Mapping[str, str]] = {
        "add-remove": "adding or removing all rows of one subject at one client"
    }
    worlds: ClassVar[Mapping[str, str]] = {
        "add-remove": "add-remove: two worlds that differ in all rows of one subject at one client "
        "being there or not; the number of clients is public",
    }

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """One subject more or less, under every trust model: its own client has its rows anyway."""
        return "add-remove"

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
    def curators(cls) -> list[str]:
        """Its own client."""
        return [
            "It says nothing against a subject's own client, which has its rows and is trusted "
            "with them."
        ]

    @classmethod
    def in_short(cls) -> str:
        """Subjects add up."""
        return (
            "; its own client knows the subject's rows, and who is at k clients has k times the "
            "epsilon"
        )

    @classmethod
    def own_client(cls) -> tuple[str, str] | None:
        """All of it."""
        return "a subject's own client", "All its rows, exactly: it is trusted with them."

    @classmethod
    def covered(cls, more: str) -> str:
        """Several subjects add up."""
        return (
            "A subject is one number in the column `subject` of one client: a person with rows "
            "under k numbers, or at k clients, has k times the epsilon"
            f"{more}, and what a client is like as a whole may show."
        )
