"""Packages that only some features need, and code that users name: imported where used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from fedcal.core.errors import InputError


def need(module: str, extra: str, purpose: str) -> Any:
    """Import `module`, or InputError that says what it is for and which extra installs it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == package:
            raise InputError(
                f"{purpose} needs the package {package.replace('_', '-')}, which is not installed: "
                f"pip install 'fedcal[{extra}]'"
            ) from None
        raise InputError(f"{purpose}: {package} lacks the package {error.name}") from None
    except ImportError as error:
        raise InputError(
            f"{purpose}: {package} cannot be imported: {str(error).partition(chr(10))[0]}"
        ) from None


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
