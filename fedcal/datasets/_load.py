"""`load`: a shipped name or a path to one data set."""

from __future__ import annotations

from pathlib import Path

from fedcal.datasets._csv import read_csv
from fedcal.datasets._dataset import Dataset, from_arrays
from fedcal.datasets._shipped import catalogue, load_shipped, shipped_names
from fedcal.errors import InputError, NotBuiltYet
from fedcal.npz import read_npz

_KEYS = ("logits", "probs", "labels", "client", "test_logits", "test_probs", "test_labels")
_SUFFIXES = (".npz", ".csv", ".csv.gz", ".parquet")


def load(name_or_path: str | Path, *, labels_required: bool = True) -> Dataset:
    """Read a shipped data set by name, or a file.

    Parameters
    ----------
    name_or_path
        A shipped name (see `catalogue`; it wins over a file of that name), or the path of

        * `.npz` with `logits` or `probs` (n, c), `labels` (n,), optional `client` (n,),
          `test_logits` or `test_probs` (m, c) and `test_labels` (m,);
        * `.csv` or `.csv.gz` with columns `label`, optional `client`, and `logit_0..`,
          `prob_0..` or, for two classes, `score`: the probability of class 1.
    labels_required
        False lets the labels be missing (`Dataset.labelled` is then False).

    Raises
    ------
    NotBuiltYet
        A `.parquet` file.
    InputError
        Anything else that is not allowed, in one line that begins with the path; see
        `from_arrays` for what arrays must satisfy.
    """
    text = str(name_or_path)
    for entry in catalogue():
        if entry.name == text:
            return load_shipped(entry)
    path = Path(name_or_path).expanduser()
    shown = repr(text if len(text) <= 200 else "..." + text[-200:])
    suffix = next((end for end in _SUFFIXES if path.name.lower().endswith(end)), None)
    if suffix == ".parquet":
        raise NotBuiltYet("reading parquet files")
    try:
        is_file, is_there = path.is_file(), path.exists()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise InputError(f"{shown}: {error.strerror}") from None
    if not is_there and suffix is None:
        raise InputError(
            f"unknown data set {shown}; shipped: {shipped_names()}; "
            "or the path of a .npz, .csv or .csv.gz file"
        )
    if not is_file:
        raise InputError(f"{shown}: {'is not a file' if is_there else 'no such file'}")
    if suffix is None:
        raise InputError(f"{shown}: unknown kind of file; allowed: .npz, .csv, .csv.gz")
    try:
        if suffix == ".npz":
            arrays = read_npz(path)
            for key in arrays:
                if key not in _KEYS:
                    allowed = ", ".join(_KEYS)
                    raise InputError(f"unknown key {key[:80]!r}; allowed: {allowed}")
            arguments = {key: arrays.get(key) for key in _KEYS}
        else:
            arguments = read_csv(path, labels_required)
        return from_arrays(name=path.name, labels_required=labels_required, **arguments)
    except InputError as error:
        raise InputError(f"{shown}: {error}") from None
