"""The data sets that come with fedcal: what they are, whose they are, where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.datasets._dataset import Dataset, Kind, from_arrays
from fedcal.npz import read_npz

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Shipped:
    """One shipped data set.

    `rows` counts the fit part, `test_rows` the test part (0: half is held out by seed),
    `clients` the natural clients (0: none). `author`, `year` and `licence` attribute the
    numbers; the licence texts stand in the README.md beside this file and in LICENSE.
    """

    name: str
    files: tuple[str, ...]
    description: str
    input: Kind
    rows: int
    test_rows: int
    classes: int
    clients: int
    source: str
    author: str
    year: int
    licence: str


_CATALOGUE = (
    Shipped(
        name="resnet110-cifar10",
        files=("resnet110-cifar10.npz",),
        description="ResNet-110 on CIFAR-10: logits of the validation and the test images",
        input="logits",
        rows=5000,
        test_rows=10000,
        classes=10,
        clients=0,
        source="NN_calibration",
        author="Markus Kängsepp",
        year=2018,
        licence="MIT",
    ),
    Shipped(
        name="densenet-cifar100",
        files=("densenet-cifar100-fit.npz", "densenet-cifar100-test.npz"),
        description="DenseNet-BC-100 on CIFAR-100: log-probabilities of the test images, in halves",
        input="logits",
        rows=5000,
        test_rows=5000,
        classes=100,
        clients=0,
        source="netcal calibration-framework",
        author="Ruhr West University of Applied Sciences and e:fs TechHub GmbH",
        year=2022,
        licence="Apache-2.0",
    ),
    Shipped(
        name="imdb-binary",
        files=("imdb-binary.npz",),
        description="IMDB film reviews, positive or negative: cross-validated probabilities",
        input="probs",
        rows=25000,
        test_rows=0,
        classes=2,
        clients=0,
        source="label-errors",
        author="Curtis G. Northcutt, Anish Athalye and Jonas Mueller (Cleanlab)",
        year=2021,
        licence="Apache-2.0",
    ),
    Shipped(
        name="game-forecasts",
        files=("game-forecasts.npz",),
        description="published forecasts of games and their outcomes; a client is league x season",
        input="probs",
        rows=28932,
        test_rows=0,
        classes=2,
        clients=29,
        source="Checking Our Work",
        author="FiveThirtyEight",
        year=2023,
        licence="CC-BY-4.0",
    ),
    Shipped(
        name="mnist-cnn",
        files=("mnist-cnn.npz",),
        description="a CNN on MNIST, trained by FedAvg under label skew; clients as in training",
        input="logits",
        rows=7011,
        test_rows=7011,
        classes=10,
        clients=100,
        source="fedcal train",
        author="the fedcal authors; MNIST: Yann LeCun, Corinna Cortes and Christopher J.C. Burges",
        year=2026,
        licence="Apache-2.0",
    ),
)


def catalogue() -> tuple[Shipped, ...]:
    """What is shipped, the default set first."""
    return _CATALOGUE


def shipped_names() -> str:
    """The names of the shipped sets, for messages."""
    return ", ".join(entry.name for entry in _CATALOGUE)


def load_shipped(entry: Shipped) -> Dataset:
    """Read one of the shipped sets."""
    arrays: dict[str, NDArray[Any]] = {}
    for file in entry.files:
        arrays |= read_npz(_HERE / file)
    if "log_odds" in arrays:
        arrays["probs"] = _probs_from_log_odds(arrays.pop("log_odds"))
    if "client_names" in arrays:
        arrays["client"] = arrays.pop("client_names")[arrays["client"]]
    return from_arrays(
        name=entry.name,
        logits=arrays.get("logits"),
        probs=arrays.get("probs"),
        labels=arrays["labels"],
        client=arrays.get("client"),
        test_logits=arrays.get("test_logits"),
        test_labels=arrays.get("test_labels"),
    )


def _probs_from_log_odds(log_odds: NDArray[Any]) -> NDArray[np.float64]:
    """(n,) log(p / (1-p)) of class 1, -inf for p = 0, to (n, 2); each tail keeps its precision."""
    x = log_odds.astype(np.float64)
    return np.stack([1 / (1 + np.exp(x)), 1 / (1 + np.exp(-x))], axis=1)
