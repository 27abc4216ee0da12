"""One row of one client, replaced by another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedcal.units import Example


class Entry(Example):
    """The content of one row; its presence is public."""

    name: ClassVar[str] = "entry"
    meaning: ClassVar[str] = (
        "entry: the content of one row of one client; a client of m rows has m times the epsilon"
    )
    neighbours: ClassVar[Mapping[str, str]] = {
        "replace": "replacing one row by any other (each client's number of rows is public)"
    }

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return "replace" under every trust model."""
        return "replace"
