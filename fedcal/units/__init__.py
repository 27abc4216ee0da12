"""Units of privacy, and their registry."""

from fedcal.core.imports import registry
from fedcal.units.bounding import Example, Subject, Unit, User

__all__ = ["UNITS", "Example", "Subject", "Unit", "User"]

UNITS: dict[str, type[Unit]] = registry(User, Subject, Example)
"""Name on the command line and in files -> unit, the largest first."""
