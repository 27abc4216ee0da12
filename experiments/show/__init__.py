"""How results are shown: tables, and figures, for a terminal, a page or a program."""

from __future__ import annotations
