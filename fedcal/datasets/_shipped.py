"""The data sets that come with fedcal: what they are, whose they are, where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import one_of
from fedcal.core.scores import Kind
from fedcal.datasets._arrays import from_arrays
from fedcal.datasets._dataset import Dataset
from fedcal.datasets._shifted import Variant, key_of, parse, unpacked
from fedcal.storage.npz import read_npz

_HERE = Path(__file__).resolve().parent

_CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)


@dataclass(frozen=True)
class Shipped:
    """One shipped data set.

    `rows` counts the fit part, `test_rows` the test part (0: half is held out by seed),
    `clients` the natural clients and `groups` the groups of rows (0: none). `author`, `year` and
    `licence` attribute the numbers; the licence texts stand in the README.md beside this file and
    in LICENSE. `variants` are corruptions and severities of the same rows, which
    `NAME:CORRUPTION:SEVERITY` loads; `NAME` alone is `default`.
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
    variants: tuple[Variant, ...] = ()
    default: Variant | None = None
    groups: int = 0


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
        description="published forecasts of games and their outcomes; a client is league x season, "
        "a group a league",
        input="probs",
        rows=28932,
        test_rows=0,
        classes=2,
        clients=29,
        source="Checking Our Work",
        author="FiveThirtyEight",
        year=2023,
        licence="CC-BY-4.0",
        groups=7,
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
    Shipped(
        name="mnist-shift",
        files=("mnist-shift.npz",),
        description="a CNN on corrupted MNIST test images (fog, severity 5); variants "
        f"NAME:CORRUPTION:SEVERITY with severity 1 or 5 of {', '.join(_CORRUPTIONS)}; and "
        "mnist-shift:none:0",
        input="logits",
        rows=5000,
        test_rows=0,
        classes=10,
        clients=0,
        source="python -m fedcal.experiments.research.shift.mnist",
        author="the fedcal authors; MNIST: Yann LeCun, Corinna Cortes and Christopher J.C. Burges",
        year=2026,
        licence="Apache-2.0",
        variants=(("none", 0), *((c, severity) for severity in (1, 5) for c in _CORRUPTIONS)),
        default=("fog", 5),
    ),
    Shipped(
        name="heart-disease",
        files=("heart-disease.npz",),
        description="a logistic regression from half of Cleveland's patients, on the other half "
        "and on those of three more hospitals; a client is a hospital, a subject a patient",
        input="logits",
        rows=384,
        test_rows=385,
        classes=2,
        clients=4,
        source="python -m fedcal.experiments.research.shipped.hospitals",
        author="the fedcal authors; Heart Disease: Andras Janosi, William Steinbrunn, Matthias "
        "Pfisterer and Robert Detrano",
        year=2026,
        licence="CC-BY-4.0",
    ),
    Shipped(
        name="mmlu-llama",
        files=("mmlu-llama.npz",),
        description="a language model's answers to multiple-choice questions of MMLU; a client is "
        "a subject such as marketing",
        input="logits",
        rows=2886,
        test_rows=0,
        classes=4,
        clients=16,
        source="ConformalLLM",
        author="Bhawesh Kumar, Charlie Lu and others; MMLU: Dan Hendrycks and others",
        year=2023,
        licence="MIT",
    ),
    Shipped(
        name="adult-income",
        files=("adult-income.npz",),
        description="a logistic regression says from census data who earns more than 50,000 "
        "dollars, without being told sex and race; these are the group of a row",
        input="probs",
        rows=16281,
        test_rows=0,
        classes=2,
        clients=0,
        source="python -m fedcal.experiments.research.shipped.adult",
        author="the fedcal authors; Adult: Barry Becker and Ronny Kohavi",
        year=2026,
        licence="CC-BY-4.0",
        groups=10,
    ),
)


def catalogue() -> tuple[Shipped, ...]:
    """What is shipped, the default set first."""
    return _CATALOGUE


def shipped_names() -> list[str]:
    """The names of the shipped sets."""
    return [entry.name for entry in _CATALOGUE]


def shifted(name: str = "mnist-shift") -> tuple[Variant, ...]:
    """Corruptions and severities of a shipped set with variants; ("none", 0) is no shift.

    `load(f"{name}:{corruption}:{severity}")` reads one of them.

    Raises
    ------
    InputError
        If no shipped set of this name has variants.
    """
    found = {entry.name: entry.variants for entry in _CATALOGUE if entry.variants}
    return found[one_of("data set with variants", name, found)]


def is_shipped(name: str) -> bool:
    """Whether `load` takes this for a shipped set or a variant of one, not for a path."""
    return entry_of(name) is not None


def entry_of(name: str) -> Shipped | None:
    """The shipped set that a name belongs to: its own, or NAME:... where it has variants."""
    for entry in _CATALOGUE:
        if name == entry.name or (entry.variants and name.startswith(f"{entry.name}:")):
            return entry
    return None


def load_shipped(entry: Shipped, name: str) -> Dataset:
    """Read one of the shipped sets, by its name or that of a variant."""
    arrays: dict[str, Any] = {}
    for file in entry.files:
        arrays |= read_npz(_HERE / file)
    if entry.default is not None:
        variant = entry.default if name == entry.name else parse(name, entry.name, entry.variants)
        arrays = {"logits": unpacked(arrays[key_of(variant)]), "labels": arrays["labels"]}
    if "log_odds" in arrays:
        arrays["probs"] = _probs_from_log_odds(arrays.pop("log_odds"))
    for column in ("client", "group"):  # numbers, and what they stand for
        if (names := arrays.pop(f"{column}_names", None)) is not None:
            for key in (column, f"test_{column}"):
                if key in arrays:
                    arrays[key] = names[arrays[key]]
    return from_arrays(name=name, **arrays)


def _probs_from_log_odds(log_odds: NDArray[Any]) -> NDArray[np.float64]:
    """(n,) log(p / (1-p)) of class 1, -inf for p = 0, to (n, 2); each tail keeps its precision."""
    x = log_odds.astype(np.float64)
    return np.stack([1 / (1 + np.exp(x)), 1 / (1 + np.exp(-x))], axis=1)
