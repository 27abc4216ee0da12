"""Base class of units of privacy, whose presence in the data a guarantee hides.

A unit is a file: a class with everything that other modules need from it, and an entry in
`UNITS`. A missing method raises an error at import. Sentences stand beside the code they describe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

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
    column: ClassVar[str | None]
    whole_client: ClassVar[bool]
    neighbours: ClassVar[Mapping[str, str]]
    worlds: ClassVar[Mapping[str, str]]
    curators: ClassVar[tuple[str, ...]]
    in_short: ClassVar[str]
    own_client: ClassVar[tuple[str, str] | None]

    @classmethod
    @abstractmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return the adjacency; `replaces`: a client's rows may become any other rows."""

    @classmethod
    @abstractmethod
    def limits(cls, more: str) -> list[str]:
        """Return what the epsilon is for, in sentences; `more` is " and more delta" or ""."""

    @classmethod
    @abstractmethod
    def covered(cls, more: str) -> str:
        """Return the cost of more than one unit of a person, in a sentence."""


class PartOfClient(Unit):
    """Unit that is a part of a client, which has all its rows in any case."""

    whole_client: ClassVar[bool] = False

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return add-remove under every trust model: the unit's own client knows it anyway."""
        return "add-remove"
