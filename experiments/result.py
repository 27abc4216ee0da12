"""What a simulation gives back, and the files it leaves."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import fedcal
from fedcal.calibrators import Calibrator
from fedcal.datasets import Dataset
from fedcal.errors import FedcalError
from fedcal.experiments.config import Config
from fedcal.experiments.files import to_json, write_folder
from fedcal.metrics import Reliability, accuracy, classwise_ece, ece, metric_intervals, nll
from fedcal.metrics.bootstrap import FEWEST
from fedcal.types import Floats, Integers

_MOST_JUDGED = 24
_JUDGED_ENTRIES = 2 * 10**7  # probabilities computed for them, in all


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
    given : what was asked for, and so does this: what follows from other values is left out
    seconds : of the federated rounds (or the pooled fit); None where who is sampled is secret
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
    given: Config
    seconds: float | None
    versions: dict[str, str]
    rounds: list[dict[str, Any]] = field(repr=False)
    reliability: dict[str, Reliability] = field(repr=False)
    test_probs: Floats = field(repr=False)
    data: Dataset = field(repr=False)
    history: list[Calibrator] = field(repr=False)

    @cached_property
    def intervals(self) -> dict[str, Any] | None:
        """95 % intervals over test rows: see `fedcal.metrics.metric_intervals`.

        None of fewer than `fedcal.metrics.bootstrap.FEWEST` test rows: resampling them would
        promise what they cannot tell.
        """
        before, labels = self._test()
        if len(labels) < FEWEST:
            return None
        return metric_intervals(before, self.test_probs, labels, seed=self.config.seed)

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
            "intervals": self.intervals,
            "privacy": self.privacy,
            "communication": self.communication,
            "seconds": self.seconds,
            "versions": self.versions,
        }

    def judged_rounds(self) -> list[dict[str, Any]]:
        """`rounds` with the key `test`: metrics of the calibrator after that release.

        At most 24 rounds are judged, and fewer of large test sets; always the last one. Like
        all test metrics they are exact, for the researcher's eyes.
        """
        _, labels = self._test()
        logits, last = self.data.test_logits, len(self.history) - 1
        if last < 0 or logits is None or len(self.rounds) != len(self.history):
            return self.rounds
        most = min(_MOST_JUDGED, max(2, _JUDGED_ENTRIES // self.test_probs.size))
        chosen = set(np.unique(np.linspace(0, last, min(most, last + 1)).round()).astype(int))
        records = []
        for k, (record, calibrator) in enumerate(zip(self.rounds, self.history, strict=True)):
            if k in chosen:
                p = self.test_probs if k == last else calibrator.calibrated(logits)
                scores = {f.__name__: f(p, labels) for f in (ece, classwise_ece, nll, accuracy)}
                record = {**record, "test": scores}
            records.append(record)
        return records

    def _test(self) -> tuple[Floats, Integers]:
        """Probabilities before any calibration, and labels, of the test rows."""
        if self.data.test_probs is None or self.data.test_labels is None:
            raise FedcalError(f"{self.data.name} has no test rows")
        return self.data.test_probs, self.data.test_labels

    def _repr_html_(self) -> str:
        from fedcal.experiments.report import result_card

        return result_card(self.to_json(), self.reliability)

    def save(self, out: str | Path) -> None:
        """Write `result.json` and its companions into the folder `out`; all of them or none.

        Figures of an earlier run there that this one does not draw go.
        """
        from fedcal.experiments.figures import NAMES

        write_folder(Path(out), self._write, stale=NAMES)

    def _write(self, folder: Path) -> None:
        def text(name: str, content: str) -> None:
            (folder / name).write_text(content, "utf-8")

        text("result.json", to_json(self.to_json()))
        text("config.toml", self.given.to_toml())
        rounds = (json.dumps(r, allow_nan=False) for r in self.judged_rounds())
        text("rounds.jsonl", "".join(f"{line}\n" for line in rounds))
        text("reliability.json", to_json({k: v.to_json() for k, v in self.reliability.items()}))
        np.save(folder / "test_probs.npy", self.test_probs, allow_pickle=False)
        self.calibrator.save(folder / "calibrator.npz")
        from fedcal.experiments.report import write_report

        write_report(folder)


def versions() -> dict[str, str]:
    """Versions of what computed a result."""
    found = {"fedcal": fedcal.__version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", "flwr", "dp-accounting"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # pragma: no branch
            found[package] = "unknown"
    return found
