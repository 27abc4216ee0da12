"""Noise multipliers of earlier searches, one small JSON file each.

The folder is `FEDCAL_CACHE`, else `XDG_CACHE_HOME/fedcal`, else `~/.cache/fedcal`. Nothing in it is
trusted: `accounting` checks each entry before it uses it. Errors of the folder are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from importlib import metadata
from pathlib import Path

from fedcal.core.errors import FedcalError
from fedcal.storage.atomic import whole_file


def plan_key(epsilon: float, delta: float, rounds: int, rate: float) -> dict[str, object]:
    """Return all that a search depends on."""
    try:
        version = metadata.version("dp-accounting")
    except metadata.PackageNotFoundError:
        version = "unknown"
    plan = {"epsilon": epsilon, "delta": delta, "rounds": rounds, "rate": rate}
    return {"plan": "poisson gaussian, zero-out", **plan, "dp_accounting": version}


def _file(key: dict[str, object]) -> Path:
    """Return the file of a search; RuntimeError without a home directory."""
    own, shared = os.environ.get("FEDCAL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    caches = Path(shared) if shared else Path.home() / ".cache" if not own else Path()
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    return (Path(own) if own else caches / "fedcal") / f"plan-{name}.json"


def read(key: dict[str, object]) -> float | None:
    """Return the cached multiplier of ``key``, unchecked; None if there is none."""
    try:
        with _file(key).open("rb") as stream:
            entry = json.loads(stream.read(4096))
        multiplier, fits = entry["multiplier"], {k: entry[k] for k in key} == key
    except (OSError, ValueError, TypeError, KeyError, RuntimeError):
        return None
    return multiplier if fits and isinstance(multiplier, float) else None


def write(key: dict[str, object], multiplier: float) -> None:
    """Cache the result of a search atomically; a folder without write access is ignored."""
    with contextlib.suppress(OSError, RuntimeError, FedcalError):
        file = _file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as stream:
            stream.write(json.dumps({**key, "multiplier": multiplier}).encode())
