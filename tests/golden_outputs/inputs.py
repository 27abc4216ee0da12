"""Small data files for the cells, the same bytes at both commits; needs numpy alone."""

import csv
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]


def scores(rows: int, classes: int) -> Arrays:
    """Logits of a classifier that is too sure of itself, and labels; every fifth row is wrong."""
    i = np.arange(rows * classes, dtype=np.float64)
    logits = (4.0 * np.sin(i * 12.9898) + 2.0 * np.cos(i * 4.1414)).reshape(-1, classes)
    wrong = np.arange(rows) % 5 == 0
    best = logits.argmax(axis=1)
    return {"logits": logits, "labels": np.where(wrong, (best + 1) % classes, best)}


def split(rows: int, classes: int = 4, **more: np.ndarray) -> Arrays:
    """As many rows to fit on as to test on."""
    whole = scores(2 * rows, classes)
    fit = {name: array[:rows] for name, array in whole.items()}
    return fit | {f"test_{name}": array[rows:] for name, array in whole.items()} | more


def stripes(rows: int, size: int) -> Arrays:
    """Images of three classes: where a bright stripe lies."""
    y = np.arange(rows) * 7 % 3
    x = (np.arange(rows * size * size) * 2654435761 % 120).reshape(rows, size, size)
    for row, label in enumerate(y):
        x[row, :, label * 2 : label * 2 + 2] += 100
    return {"x": x.astype(np.uint8), "y": y.astype(np.uint8)}


def write(folder: Path) -> None:
    """All files."""
    plain = split(180)
    probs = np.exp(plain["logits"])
    probs /= probs.sum(axis=1, keepdims=True)
    files: dict[str, Arrays] = {
        "plain": plain,
        "subjects": split(180, subject=np.arange(180) // 4),
        "own-clients": split(180, client=np.arange(180) % 7),
        "fog": split(1550, 3),
        "snow": split(1555, 3),
        "three": split(180, 3),
        "images": stripes(300, 8),
        "unlabelled": {"logits": plain["logits"]},
        "probs": {"probs": probs, "labels": plain["labels"]},
    }
    folder.mkdir()
    for name, arrays in files.items():
        np.savez(folder / f"{name}.npz", **arrays)
    with (folder / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["label", *(f"logit_{k}" for k in range(4))])
        pairs = zip(plain["labels"].tolist(), plain["logits"].tolist(), strict=True)
        table.writerows([label, *row] for label, row in pairs)
    (folder / "simulate.toml").write_text(
        'method = "fedbin"\nclients = 15\n[set]\nbins_exponent = 3\n'
    )
    (folder / "compare.toml").write_text('method = ["none", "acct"]\nseeds = 1\nepsilon = [1.0]\n')
    (folder / "train.toml").write_text("rounds = 2\nclients = 5\n")
