"""A small experiment of two parts, and what it runs on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcal.experiments.reproduce import registry, spec

SMALL = """
title = "Small"
about = "Two parts on a small network."
networks = ["imdb-binary"]
seeds = 2
reference = "pooled temperature"
claims = ["weighted-keeps", "newton-reaches-pooled", "fedcal-worst", "newton-ratio"]
notes = ["A note."]

[[parts]]
name = "paper"
block = "The paper's"
rounds = 2
sampling-rate = 0.5
methods = [
  { method = "none", title = "Base" },
  { method = "fedbbq[weighting=none]", title = "FedBBQ" },
  { method = "fedbbq[weighting=all]", title = "FedBBQ all weight" },
]

[[parts]]
name = "ours"
block = "Ours"
methods = [
  { method = "fednewton", title = "FedNewton" },
  { method = "pooled-temperature", title = "pooled temperature" },
]

[[plots]]
title = "by rounds"
part = "paper"
x = "rounds"
y = "classwise_ece"

[[plots]]
title = "accuracy"
part = "paper"
x = "partition"
y = "accuracy"
"""


@pytest.fixture
def data_file(tmp_path: Path) -> Callable[..., str]:
    """Writes a data file of three classes with a test part; gives its path."""

    def write(name: str, own_clients: bool = False, n: int = 400) -> str:
        rng = np.random.default_rng(5)
        labels = rng.integers(0, 3, n)
        logits = 3 * rng.normal(size=(n, 3)) + 3 * np.eye(3)[labels]
        fit, test = slice(n // 2), slice(n // 2, None)
        arrays = {"logits": logits[fit], "labels": labels[fit]}
        arrays |= {"test_logits": logits[test], "test_labels": labels[test]}
        if own_clients:
            arrays["client"] = np.arange(n // 2) % 7
        np.savez(tmp_path / name, **arrays)  # type: ignore[arg-type]
        return str(tmp_path / name)

    return write


@pytest.fixture
def network(data_file: Callable[..., str]) -> str:
    return data_file("net.npz")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the small experiment, which is in the table."""
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "small.toml").write_text(SMALL)
    monkeypatch.setattr(spec, "CONFIGS", configs)
    monkeypatch.setattr(registry, "EXPERIMENTS", ("small",))
    return "small"
