"""Parts of a page as data, and files of artifacts that are read with care."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
from refusals import each_is_refused

from fedcal.core.checks import InputError
from fedcal.core.pages import Curve, Intervals, Table, from_json, to_json
from fedcal.storage.artifact import Artifact


@dataclass(frozen=True)
class Count(Artifact):
    """The least that an artifact needs; `form` is set without being registered."""

    value: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        return {"value": self.value}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        if arrays["value"].shape != (2,):
            raise InputError("value must have 2 entries")
        return cls(arrays["value"])


Count.form = "count"

HEADER = {"format": "fedcal-artifact", "version": 1, "form": "count"}


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "count.npz"
    for header, arrays, words in (
        (None, {}, "is not a fedcal artifact"),
        ({"format": "x"}, {}, "is not a fedcal artifact"),
        ({**HEADER, "form": "auc"}, {}, "form of the artifact must be 'count', got 'auc'"),
        ({**HEADER, "version": 2}, {}, "version of the file must be 1, got 2"),
        (HEADER, {}, "has no array 'value'"),
        ({**HEADER, "class_names": 5}, {"value": np.ones(2)}, "must be a list of names"),
        (HEADER, {"value": np.zeros(3)}, "value must have 2 entries"),
    ):
        told = {} if header is None else {"header": np.array(json.dumps(header))}
        np.savez(path, **told, **arrays)
        read = partial(Count.read, tmp_path)
        each_is_refused([("count", words)], read, start=f"count '{path}': ")


PARTS = [
    Table("Rows", ("bin", "rows"), (("0 to 1", 3), ("1 to 2", 4.5)), "noisy"),
    Curve("ROC", "x, share", "y, share", {"a": ((0.0, 0.0), (1.0, 1.0))}),
    Curve("B", "x", "y", {"a": ((0.2, 0.3),)}, {"a": ((0.1, 0.4),)}, {"diagonal": ((0.0, 0.0),)}),
    Intervals("Sites", "accuracy", {"a": (("one", 0.5, 0.4, 0.6),)}, {"all": 0.5}),
]


def test_parts_through_json():
    text = json.dumps(to_json(PARTS), allow_nan=False)
    assert from_json(json.loads(text)) == PARTS
