"""A calibrator's file as text, for a question to clients."""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from fedcal.calibrators.base import Calibrator, load
from fedcal.core.errors import InputError
from fedcal.storage.atomic import path_of


def text_of(path: str | Path, classes: int) -> str:
    """Return the checked file of a calibrator for so many classes, as base64 text."""
    calibrator = load(path)
    if calibrator.classes != classes:
        raise InputError(
            f"the calibrator {str(path)!r} is for {calibrator.classes} classes, not for {classes}"
        )
    return base64.b64encode(path_of(path).read_bytes()).decode()


@lru_cache(4)
def of_text(text: str) -> Calibrator:
    """Return the calibrator whose file is this base64 text; raise InputError if invalid."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the calibrator of the question is not base64 text") from None
    return load(BytesIO(content))
