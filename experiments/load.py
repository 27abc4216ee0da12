"""Rows from whatever Python users have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcal import datasets
from fedcal.datasets import Dataset
from fedcal.errors import InputError


def load_any(data: Any) -> Dataset:
    """A `Dataset` from whatever `simulate` takes as `data`; InputError for anything else."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (str, Path)):
        return datasets.load(data)
    if type(data).__module__.partition(".")[0] == "datasets":  # Hugging Face's, not imported here
        return datasets.from_huggingface(data)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return datasets.from_frame(data)
    if not isinstance(data, Mapping):
        raise InputError(
            "data must be a name, a path, a Dataset, a data frame, or arrays as "
            f'{{"logits": (n, c), "labels": (n,)}}; got {type(data).__name__}'
        )
    if "labels" not in data or not set(data) <= {*datasets.KEYS, "name"}:
        raise InputError(
            f"arrays need logits or probs, and labels; allowed are {', '.join(datasets.KEYS)}; "
            f"got {', '.join(map(str, data))}"
        )
    return datasets.from_arrays(**data)
