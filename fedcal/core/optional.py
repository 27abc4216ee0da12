"""Packages that only some features need: imported where used, missed in one line."""

from __future__ import annotations

import importlib
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
