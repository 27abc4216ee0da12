"""Units of privacy, each in its own file, and their registry."""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.units.base import Unit
from fedcal.units.example import Example
from fedcal.units.subject import Subject
from fedcal.units.user import User

__all__ = ["UNITS", "Example", "Subject", "Unit", "User"]

UNITS: dict[str, type[Unit]] = registry(User, Subject, Example)
"""Name on the command line and in files -> unit, the largest first."""
