"""What a simulation gives back, and the files it leaves."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import fedcal
from experiments.config import Config
from experiments.files import to_json, write_folder
from fedcal.calibrators import Calibrator
from fedcal.datasets import Dataset
from fedcal.metrics import Reliability
from fedcal.types import Floats


@dataclass(frozen=True)
class SimulationResult:
    """A fitted calibrator, what it is worth on test rows, and what it cost.

    Attributes
    ----------
    calibrator : ready for `predict_proba` and `save`
    before, after : metrics on the test rows, as fractions. For the researcher's eyes: they are
        exact numbers about test rows, not private releases
    privacy : unit, adjacency, trust, epsilon, delta, mechanism, noise_std, ...
    communication : payload bytes per client over the whole run, rounds
    config : resolved; running it again gives the same bits
    seconds : of the federated rounds (or the pooled fit)
    rounds : one record per release
    data : what was calibrated; its test part is what `before` and `after` are about
    history : the calibrator after each release
    """

    calibrator: Calibrator
    before: dict[str, float]
    after: dict[str, float]
    privacy: dict[str, Any]
    communication: dict[str, Any]
    config: Config
    seconds: float
    versions: dict[str, str]
    rounds: list[dict[str, Any]] = field(repr=False)
    reliability: dict[str, Reliability] = field(repr=False)
    test_probs: Floats = field(repr=False)
    data: Dataset = field(repr=False)
    history: list[Calibrator] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The content of `result.json`: strict JSON, no NaN and no infinity."""
        config = self.config.to_dict()
        if math.isinf(self.config.epsilon):
            config["epsilon"] = "inf"
        return {
            "schema": 1,
            "method": self.config.method,
            "config": config,
            "before": self.before,
            "after": self.after,
            "privacy": self.privacy,
            "communication": self.communication,
            "seconds": self.seconds,
            "versions": self.versions,
        }

    def save(self, out: str | Path) -> None:
        """Write `result.json` and its companions into the folder `out`; all of them or none."""
        write_folder(Path(out), self._write)

    def _write(self, folder: Path) -> None:
        def text(name: str, content: str) -> None:
            (folder / name).write_text(content, "utf-8")

        text("result.json", to_json(self.to_json()))
        text("config.toml", self.config.to_toml())
        text("rounds.jsonl", "".join(f"{json.dumps(r, allow_nan=False)}\n" for r in self.rounds))
        text("reliability.json", to_json({k: v.to_json() for k, v in self.reliability.items()}))
        np.save(folder / "test_probs.npy", self.test_probs, allow_pickle=False)
        self.calibrator.save(folder / "calibrator.npz")


def versions() -> dict[str, str]:
    """Versions of what computed a result."""
    found = {"fedcal": fedcal.__version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", "flwr", "dp-accounting"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # pragma: no branch
            found[package] = "unknown"
    return found
