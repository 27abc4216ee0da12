"""Packages that only some features need, and code that users name: imported where used."""

import importlib
import os
import sys
from typing import Any

from fedcal.core.errors import InputError


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'fedcal[{extra}]'"


def absent(package: str, extra: str, purpose: str) -> InputError:
    """Return the error for a missing package that `purpose` needs."""
    return InputError(
        f"{purpose} needs the package {package}, which is not installed: {install(extra)}"
    )


def need(module: str, extra: str, purpose: str) -> Any:
    """Import `module`, or InputError that says what it is for and which extra installs it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        lacks = isinstance(error, ModuleNotFoundError) and (error.name or "")
        if lacks and lacks.partition(".")[0] == package:
            raise absent(package.replace("_", "-"), extra, purpose) from None
        why = str(error).partition("\n")[0]
        raise InputError(f"{purpose}: {package} cannot be imported: {why}") from None


def named(option: str, text: str) -> Any:
    """Import `module:name` from the working directory or what is installed; or InputError."""
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as e:  # noqa: BLE001  it is the user's own code
        raise InputError(f"{option} {text} failed: {type(e).__name__}: {e}") from None
    finally:
        sys.path.remove(os.getcwd())
