"""What earlier versions had, and what to use instead."""

import tomllib
from pathlib import Path
from typing import NoReturn

from fedcal.core.errors import InputError

REMOVED: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Name -> what to use instead."""


def check_kept(name: str) -> None:
    """Raise InputError for a name that was removed; it says what to use instead."""
    if name in REMOVED:
        raise InputError(f"{name} was removed in 0.3: {REMOVED[name]}")


def refuse(module: str, name: str) -> NoReturn:
    """Raise for a name that a module lacks: InputError if it was removed, else AttributeError."""
    check_kept(f"{module}.{name}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
