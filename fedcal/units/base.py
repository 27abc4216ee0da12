"""What a unit of privacy is: whose presence a guarantee hides.

A unit is a file: a class with everything that the rest of the house asks about it, and a row in
`UNITS`. What is missing is found at import. Sentences stand beside what they speak of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from fedcal.units.bounding import Per


class Unit(ABC):
    """One unit.

    Attributes
    ----------
    name
        on the command line and in files
    meaning
        a line for who reads a report
    plural
        of what it protects, in words
    per
        the part of a client's answer that is clipped by itself, where the answer is a sum over
        rows: all of it, each subject's part, or each row's
    column
        of the data that says which rows of a client are of one unit; None = needs none
    whole_client
        whether it is all rows of a client, so that sampling clients amplifies it and a
        nominal number of a client's rows sets a bound
    neighbours
        adjacency -> what makes two inputs neighbours, in words
    worlds
        adjacency -> the same for who reads a report
    curators
        who is trusted with single rows, in whole sentences
    in_short
        what a table of guarantees adds for this unit, half a sentence; "" = nothing
    own_client
        who sees the unit's rows as they are, and what of them; None = nobody
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
        """Which inputs are neighbours; `replaces`: a client's rows may become any others."""

    @classmethod
    @abstractmethod
    def limits(cls, more: str) -> list[str]:
        """What the epsilon is for, in whole sentences; `more` is " and more delta" or ""."""

    @classmethod
    @abstractmethod
    def covered(cls, more: str) -> str:
        """What more than one unit of a person costs, a sentence."""


class PartOfClient(Unit):
    """A unit that is a part of a client, whose own client has all its rows in any case."""

    whole_client: ClassVar[bool] = False

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """One more or less, under every trust model: its own client has it anyway."""
        return "add-remove"
