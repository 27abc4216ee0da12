"""A small experiment of two parts, and what it runs on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcal.experiments.studies import registry

SMALL = """
[small]
title = "Small"
about = "Two parts on a small network."
networks = ["imdb-binary"]
seeds = 2
reference = "pooled temperature"
notes = ["A note."]
plots = [
  { title = "by rounds", part = "paper", x = "rounds", y = "classwise_ece" },
  { title = "accuracy", part = "paper", x = "partition", y = "accuracy" },
]

[small.claims]
weighted-keeps = ""
newton-reaches-pooled = ""
fedcal-worst = ""
newton-ratio = ""

[[small.parts]]
name = "paper"
block = "The paper's"
rounds = 2
sampling-rate = 0.5

[small.parts.methods]
"Base" = "none"
"FedBBQ" = "fedbbq[weighting=none]"
"FedBBQ all weight" = "fedbbq[weighting=all]"

[[small.parts]]
name = "ours"
block = "Ours"

[small.parts.methods]
"FedNewton" = "fednewton"
"pooled temperature" = "pooled-temperature"
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
    studies = tmp_path / "studies"
    studies.mkdir()
    (studies / "small.toml").write_text(SMALL)
    monkeypatch.setattr(registry, "FOLDER", studies)
    monkeypatch.setattr(registry, "EXPERIMENTS", {"small": "small"})
    return "small"
