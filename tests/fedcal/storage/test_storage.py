"""Files of artifacts, parts of a page as data, and lock files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Self

import numpy as np
import pytest
from refusals import each_is_refused, refused

from fedcal.core.checks import InputError
from fedcal.core.pages import Curve, Intervals, Table, from_json, to_json
from fedcal.storage.artifact import Artifact
from fedcal.storage.atomic import locked


@dataclass(frozen=True)
class Count(Artifact):
    """The least that an artifact needs; `form` is set without being registered."""

    value: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        return {"value": self.value}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(arrays["value"])


Count.form = "count"

HEADER = {"format": "fedcal-artifact", "version": 1, "form": "count"}


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "count.npz"
    for header, arrays, words in (
        ({"format": "x"}, {}, "is not a fedcal artifact"),
        ({**HEADER, "form": "auc"}, {}, "form of the artifact must be 'count', got 'auc'"),
        ({**HEADER, "version": 2}, {}, "version of the file must be 1, got 2"),
        (HEADER, {}, "has no array 'value'"),
        ({**HEADER, "class_names": 5}, {"value": np.ones(2)}, "must be a list of names"),
    ):
        np.savez(path, header=np.array(json.dumps(header)), **arrays)
        read = partial(Count.read, tmp_path)
        each_is_refused([("count", words)], read, start=f"count '{path}': ")


def test_parts_through_json():
    parts = [
        Table("Rows", ("bin", "rows"), (("0 to 1", 3), ("1 to 2", 4.5)), "noisy"),
        Curve("B", "x", "y", {"a": ((0.2, 0.3),)}, {"a": ((0.1, 0.4),)}, {"line": ((0.0, 0.0),)}),
        Intervals("Sites", "accuracy", {"a": (("one", 0.5, 0.4, 0.6),)}, {"all": 0.5}),
    ]
    assert from_json(json.loads(json.dumps(to_json(parts), allow_nan=False))) == parts


def test_one_holds_a_lock_and_others_are_refused_or_wait(tmp_path):
    path, seen = tmp_path / "lock", []

    def wait():
        with locked(path, "taken", wait=True):
            seen.append("waited")

    with locked(path, "taken"):
        with pytest.raises(InputError, match="taken"), locked(path, "taken"):
            pass
        other = Thread(target=wait)
        other.start()
        other.join(0.2)
        assert other.is_alive()
    other.join(10)
    assert seen == ["waited"]
    refused("cannot write", locked(tmp_path / "no" / "lock", "").__enter__)
