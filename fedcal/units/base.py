"""Units of privacy, whose presence in the data a guarantee hides: client, subject, row.

A unit is a class with everything that other modules need from it, and an entry in
`UNITS`. A missing method raises an error at import. Sentences stand beside the code they describe.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from fedcal.core.types import override
from fedcal.units.bounding import Per


class Unit(ABC):
    """Unit of privacy, whose presence in the data a guarantee hides.

    Attributes
    ----------
    name
        on the command line and in files
    meaning
        line of description in a report
    plural
        name of the protected units, in the plural
    per
        part of a client's answer that is clipped by itself, where the answer is a sum over rows:
        all of it, each subject's part, or each row's
    column
        column of the data that assigns a client's rows to units; None = needs none
    whole_client
        whether it is all rows of a client, so that sampling clients amplifies it and a nominal
        number of a client's rows sets a bound
    neighbours
        adjacency -> difference of two neighbouring inputs, in words
    worlds
        adjacency -> the same for readers of a report
    curators
        parties that are trusted with single rows, in sentences
    in_short
        addition for this unit in a table of guarantees, half a sentence; "" = nothing
    own_client
        party that sees the unit's rows as they are, and what it sees; None = no party
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    plural: ClassVar[str]
    per: ClassVar[Per]
    column: ClassVar[str | None] = None
    whole_client: ClassVar[bool] = False
    neighbours: ClassVar[Mapping[str, str]]
    worlds: ClassVar[Mapping[str, str]]
    curators: ClassVar[tuple[str, ...]] = ()
    in_short: ClassVar[str] = ""
    own_client: ClassVar[tuple[str, str] | None] = None

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return the adjacency; `replaces`: a client's rows may become any other rows.

        A part of a client is added or removed in any case: its own client has its rows anyway.
        """
        return "add-remove"

    @classmethod
    def limits(cls, more: str) -> list[str]:
        """Return what the epsilon is not for, in sentences; `more` is " and more delta" or ""."""
        return []

    @classmethod
    @abstractmethod
    def covered(cls, more: str) -> str:
        """Return the cost of more than one unit of a person, in a sentence."""


class User(Unit):
    """All rows of one client together as the unit."""

    name: ClassVar[str] = "user"
    meaning: ClassVar[str] = "user: all rows of one client together"
    plural: ClassVar[str] = "users"
    per: ClassVar[Per] = "client"
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

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return zero-out, or replacement if a client's answer itself is seen."""
        return "replace" if replaces else "zero-out"

    @classmethod
    @override
    def covered(cls, more: str) -> str:
        return (
            f"A user is one client: a person with rows at k clients has k times the epsilon{more}."
        )


class Subject(Unit):
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


class Example(Unit):
    """One row of one client as the unit."""

    name: ClassVar[str] = "example"
    meaning: ClassVar[str] = (
        "example: one row of one client; a client of m rows has m times the epsilon"
    )
    plural: ClassVar[str] = "rows"
    per: ClassVar[Per] = "row"
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
