"""Result files: all of them or none, and nothing in them that privacy forbids."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.errors import InputError

if TYPE_CHECKING:
    from experiments.simulation import SimulationResult


def to_json(value: Any) -> str:
    """Strict JSON, two spaces; ValueError for NaN and infinity."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def save_result(result: SimulationResult, out: Path) -> None:
    """Write a run into the folder `out`: all files, or what was there before.

    Everything is written to a hidden folder in `out` first and then moved file by file, so a
    full disk or an interrupt changes nothing. Who kills the process between two moves finds no
    `result.json`: it goes first and comes last.
    """
    missing = [p for p in (out, *out.parents) if not p.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=out) as draft:
            new, old = Path(draft, "new"), Path(draft, "old")
            new.mkdir()
            old.mkdir()
            _write_all(result, new)
            _swap(out, new, old)
    except OSError as e:
        raise InputError(f"cannot write results to {out}: {e.strerror}") from None
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()  # only if nothing was written


def _swap(out: Path, new: Path, old: Path) -> None:
    """Move the files of `new` into `out`, those they replace into `old`; undone on an error."""
    names = sorted((p.name for p in new.iterdir()), key=lambda name: name == "result.json")
    there = [name for name in reversed(names) if (out / name).exists()]
    moves = [(out / n, old / n) for n in there] + [(new / n, out / n) for n in names]
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            os.replace(source, target)
            done.append((source, target))
    except BaseException:
        for source, target in reversed(done):
            os.replace(target, source)
        raise


def check_out(out: Path) -> None:
    """Refuse, before any work, a folder that cannot be written; nothing is left there."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file, not a folder")
    try:
        there = next(p for p in (out, *out.parents) if p.exists())
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=there):
            pass
    except OSError as e:
        raise InputError(f"cannot write results to {out}: {e.strerror}") from None


def _write_all(result: SimulationResult, folder: Path) -> None:
    (folder / "result.json").write_text(to_json(result.to_json()), "utf-8")
    (folder / "config.toml").write_text(result.config.to_toml(), "utf-8")
    lines = (json.dumps(r, allow_nan=False) for r in result.rounds)
    (folder / "rounds.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    reliability = {k: v.to_json() for k, v in result.reliability.items()}
    (folder / "reliability.json").write_text(to_json(reliability), "utf-8")
    np.save(folder / "test_probs.npy", result.test_probs, allow_pickle=False)
    result.calibrator.save(folder / "calibrator.npz")
