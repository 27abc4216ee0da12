"""A small experiment of two parts, and what it runs on."""

from pathlib import Path

import numpy as np
import pytest

from experiments.studies import spec
from experiments.studies.run import reproduce

SMALL = """
[small]
title = "Small"
about = "Two parts on a small network."
networks = ["imdb-binary"]
seeds = 2
notes = ["A note."]

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


@pytest.fixture(scope="session")
def data_file(tmp_path_factory):
    """Writes a data file of three classes with a test part; gives its path."""
    folder = tmp_path_factory.mktemp("data")

    def write(name: str, n: int = 400) -> str:
        rng = np.random.default_rng(5)
        labels = rng.integers(0, 3, n)
        logits = 3 * rng.normal(size=(n, 3)) + 3 * np.eye(3)[labels]
        fit, test = slice(n // 2), slice(n // 2, None)
        arrays = {"logits": logits[fit], "labels": labels[fit]}
        arrays |= {"test_logits": logits[test], "test_labels": labels[test]}
        np.savez(folder / name, **arrays)
        return str(folder / name)

    return write


@pytest.fixture(scope="session")
def network(data_file):
    return data_file("net.npz")


def _known(folder: Path, patch: pytest.MonkeyPatch) -> str:
    (folder / "small.toml").write_text(SMALL)
    patch.setattr(spec, "FOLDER", folder)
    patch.setitem(spec.EXPERIMENTS, "small", "small")
    return "small"


@pytest.fixture
def small(tmp_path_factory, monkeypatch):
    """The name of the small experiment, which is in the table."""
    return _known(tmp_path_factory.mktemp("studies"), monkeypatch)


@pytest.fixture(scope="session")
def ran(network, tmp_path_factory):
    """The small experiment, run once, and the folder of its files."""
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        name = _known(tmp_path_factory.mktemp("studies"), patch)
        return reproduce(name, networks=[network], jobs=1, out=out), out
