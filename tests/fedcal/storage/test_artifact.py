"""Parts of a page as data, and files of artifacts that are read with care."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.calibrators import Calibrator, TemperatureScaling, calibrator_of
from fedcal.core.errors import FedcalError, InputError
from fedcal.core.pages import MOST_SERIES, Curve, Intervals, Table, from_json, to_json
from fedcal.metrics import summary
from fedcal.storage.artifact import ARTIFACTS, Artifact, Holdout


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

HOLDOUT = Holdout(np.eye(3), np.full((3, 3), 1 / 3), np.arange(3))


def test_an_artifact_needs_no_more_than_its_arrays(tmp_path):
    one = Count(np.array([1.0, 2.0]))
    assert one.write(tmp_path, "count", HOLDOUT) == ["count.npz"] == list(Count.files())
    assert (Count.read(tmp_path, "count").arrays()["value"] == one.value).all()
    assert one.judge(HOLDOUT) == one.intervals(HOLDOUT) == one.glance(HOLDOUT) == one.record() == {}
    assert one.page() == []
    with pytest.raises(FedcalError, match="yields no calibrator: its artifact has the form count"):
        calibrator_of(one)
    with pytest.raises(TypeError, match="abstract"):
        Artifact()


HEADER = {"format": "fedcal-artifact", "version": 1, "form": "count"}


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "count.npz"
    for header, arrays, words in (
        (None, {}, "is not a fedcal artifact"),
        ({"format": "x"}, {}, "is not a fedcal artifact"),
        ({**HEADER, "form": "auc"}, {}, "is not an artifact of the form 'count'"),
        ({**HEADER, "version": 2}, {}, "has version 2; this fedcal reads version 1"),
        (HEADER, {}, "has no array 'value'"),
        ({**HEADER, "class_names": [0, 1]}, {"value": np.ones(2)}, "must be a list of text"),
        (HEADER, {"value": np.zeros(3)}, "value must have 2 entries"),
    ):
        told = {} if header is None else {"header": np.array(json.dumps(header))}
        np.savez(path, **told, **arrays)
        read = partial(Count.read, tmp_path)
        each_is_refused([("count", words)], read, start=f"count '{path}': ")


def test_a_calibrator_is_an_artifact(tmp_path):
    assert ARTIFACTS["calibrator"] is Calibrator
    one = TemperatureScaling(2.0, 3)
    one.learnt_on("probs")
    written = one.write(tmp_path, "calibrator", HOLDOUT)
    assert sorted(written) == sorted(Calibrator.files())
    assert {p.name for p in tmp_path.iterdir()} == set(written)
    back = Calibrator.read(tmp_path, "calibrator")
    assert (type(back), back.input) == (TemperatureScaling, "probs")
    after = one.calibrated(HOLDOUT.logits)
    judged = one.judge(HOLDOUT)
    assert judged == {
        "before": summary(HOLDOUT.probs, HOLDOUT.labels),
        "after": summary(after, HOLDOUT.labels),
        "score": "confidence",
    }
    assert one.intervals(HOLDOUT) == {"intervals": None}  # of three rows
    assert one.record() == {"temperature": 2.0}
    told = one.glance(HOLDOUT)
    assert told == pytest.approx({k: judged["after"][k] for k in told})
    assert one.write(tmp_path, "round-1") == ["round-1.npz"]


PARTS = [
    Table("Rows", ("bin", "rows"), (("0 to 1", 3), ("1 to 2", 4.5)), "noisy"),
    Curve("ROC", "x, share", "y, share", {"a": ((0.0, 0.0), (1.0, 1.0))}),
    Curve("B", "x", "y", {"a": ((0.2, 0.3),)}, {"a": ((0.1, 0.4),)}, {"diagonal": ((0.0, 0.0),)}),
    Intervals("Sites", "accuracy", {"a": (("one", 0.5, 0.4, 0.6),)}, {"all": 0.5}),
]


def test_parts_through_json():
    text = json.dumps(to_json(PARTS), allow_nan=False)
    assert from_json(json.loads(text)) == PARTS


def test_parts_that_cannot_be_shown_are_refused():
    endless, backwards = "a number is not finite", "an interval ends before it begins"
    tables = [((("a", "b"), ((1,),)), "table 'T': a row does not have 2 entries")]
    tables += [((("a",), ((bad,),)), f"'T': {endless}") for bad in (math.nan, math.inf)]
    each_is_refused(tables, lambda given: Table("T", *given))

    line = {"a": ((0.0, 0.0),)}
    points = {str(k): ((0.0, 0.0),) for k in range(MOST_SERIES + 1)}
    few, no_band = (
        "curve 'C' needs 1 to 16 series with points",
        "the band '.' does not fit its series",
    )
    many = "curve 'C' takes at most 4 references, with points"
    curves: list[Any] = [({"a": ((0.0, bad),)}, f"'C': {endless}") for bad in (math.nan, math.inf)]
    curves += [(series, few) for series in ({}, {"a": ()}, points)]
    each_is_refused(curves, lambda series: Curve("C", "x", "y", series))
    bands: list[Any] = [
        (({"b": ((0.0, 1.0),)},), no_band),
        (({"a": ((0.0, 1.0), (0.0, 1.0))},), no_band),
        (({"a": ((1.0, 0.0),)},), f"'C': {backwards}"),
        (({}, points), many),
    ]
    each_is_refused(bands, lambda given: Curve("C", "x", "y", line, *given))
    intervals = [
        ((), "intervals 'I' need 1 to 16 series with lines"),
        ((("one", 0.5, 0.4, math.inf),), f"'I': {endless}"),
        ((("one", 0.5, 0.6, 0.4),), f"'I': {backwards}"),
    ]
    each_is_refused(intervals, lambda lines: Intervals("I", "x", {"a": lines}))
    others = [None, 3, [3], [{}], [{"part": "table"}], [{"part": "script"}]]
    each_is_refused([(plain, "does not contain parts of a page") for plain in others], from_json)
