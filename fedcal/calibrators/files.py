"""Reading calibrators back: versioned, no pickle, every parameter checked."""

from __future__ import annotations

import json
from pathlib import Path

from fedcal.calibrators.base import FORMAT, VERSION, Calibrator, kinds
from fedcal.checks import one_of
from fedcal.errors import InputError
from fedcal.npz import read_npz
from fedcal.scores import KINDS


def load(path: str | Path) -> Calibrator:
    """The calibrator that `save` wrote.

    Raises
    ------
    InputError
        If the file cannot be read, is no calibrator, is of a later version, or holds parameters
        that do not fit together.
    """
    try:
        return _load(Path(path))
    except InputError as e:
        raise InputError(f"calibrator {str(path)!r}: {e}") from None


def _load(path: Path) -> Calibrator:
    arrays = read_npz(path)
    try:
        header = json.loads(str(arrays.pop("header")))
        if header["format"] != FORMAT:
            raise KeyError(FORMAT)
        found, kind, source = header["version"], header["kind"], header["input"]
    except (KeyError, TypeError, ValueError):
        raise InputError("is no fedcal calibrator") from None
    if found != VERSION:
        raise InputError(f"has version {found!r}; this fedcal reads version {VERSION}")
    cls = kinds()[one_of("kind of calibrator", kind, kinds())]
    try:
        calibrator = cls.from_arrays(arrays)
    except KeyError as e:
        raise InputError(f"has no array {e}") from None
    except (TypeError, ValueError) as e:
        raise InputError(" ".join(str(e).split())) from None
    calibrator.input = one_of("input", source, KINDS)
    return calibrator
