"""Result files: all of them or none, and nothing in them that privacy forbids."""

from __future__ import annotations

import json
import os
import shutil
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
    """Write a run into the folder `out`, `result.json` last.

    Everything is written beside `out` first and then moved file by file, so a full disk or an
    interrupt leaves what was there before.
    """
    draft = _draft_beside(out)
    try:
        _write_all(result, draft)
        out.mkdir(exist_ok=True)
        for name in sorted(p.name for p in draft.iterdir() if p.name != "result.json"):
            os.replace(draft / name, out / name)
        os.replace(draft / "result.json", out / "result.json")
    except OSError as e:
        raise InputError(f"cannot write results to {out}: {e.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_out(out: Path) -> None:
    """Refuse, before any work, a folder that cannot be written."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file, not a folder")
    shutil.rmtree(_draft_beside(out), ignore_errors=True)


def _draft_beside(out: Path) -> Path:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
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
