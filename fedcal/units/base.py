"""Units of privacy, whose presence in the data a guarantee hides: client, subject, row.

A unit is a class with everything that other modules need from it, and an entry in `UNITS`. What is
said of it (`fedcal.results.statement`) follows from `neighbours` and `per`.
"""

from collections.abc import Mapping
from typing import ClassVar

from fedcal.units.bounding import Per


class Unit:
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
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    plural: ClassVar[str]
    per: ClassVar[Per]
    column: ClassVar[str | None] = None
    whole_client: ClassVar[bool] = False
    neighbours: ClassVar[Mapping[str, str]]

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return the adjacency; `replaces`: a client's rows may become any other rows.

        A part of a client is added or removed in any case: its own client has its rows anyway.
        """
        return "add-remove"


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

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return zero-out, or replacement if a client's answer itself is seen."""
        return "replace" if replaces else "zero-out"


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
