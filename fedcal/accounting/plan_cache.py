"""Noise multipliers of earlier searches, one small JSON file each.

The folder is `FEDCAL_CACHE`, else `XDG_CACHE_HOME/fedcal`, else `~/.cache/fedcal`. Nothing in it is
trusted: `accounting` checks each entry before it uses it. Errors of the folder are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from importlib import metadata
from pathlib import Path


def folder() -> Path | None:
    """Return the folder of earlier searches; None without a home directory."""
    for variable, below in (("FEDCAL_CACHE", "."), ("XDG_CACHE_HOME", "fedcal")):
        if value := os.environ.get(variable):
            return Path(value) / below
    try:
        return Path.home() / ".cache" / "fedcal"
    except RuntimeError:  # no home
        return None


def plan_key(epsilon: float, delta: float, rounds: int, rate: float) -> dict[str, object]:
    """Return all that a search depends on."""
    try:
        version = metadata.version("dp-accounting")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return {
        "plan": "poisson gaussian, zero-out",
        "epsilon": epsilon,
        "delta": delta,
        "rounds": rounds,
        "rate": rate,
        "dp_accounting": version,
    }


def _file(key: dict[str, object]) -> Path | None:
    home = folder()
    if home is None:
        return None
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    return home / f"plan-{name}.json"


def read(key: dict[str, object]) -> float | None:
    """Return the cached multiplier of ``key``, unchecked; None if there is none."""
    file = _file(key)
    if file is None:
        return None
    try:
        with file.open("rb") as stream:
            entry = json.loads(stream.read(4096))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or {k: entry.get(k) for k in key} != key:
        return None
    multiplier = entry.get("multiplier")
    return multiplier if isinstance(multiplier, float) else None


def write(key: dict[str, object], multiplier: float) -> None:
    """Cache the result of a search atomically; a folder without write access is ignored."""
    file = _file(key)
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".plan-")
    except OSError:
        return
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({**key, "multiplier": multiplier}, stream)
        os.replace(name, file)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
