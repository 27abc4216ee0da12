"""Parts of a page as data, and files of artifacts that are read with care."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pytest

from fedcal.artifact import ARTIFACTS, Artifact, Holdout
from fedcal.calibrators import Calibrator, TemperatureScaling, calibrator_of
from fedcal.errors import FedcalError, InputError
from fedcal.metrics import summary
from fedcal.pages import MOST_SERIES, Curve, Intervals, Table, from_json, to_json


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
    with pytest.raises(FedcalError, match="yields no calibrator: its artifact is of form count"):
        calibrator_of(one)
    with pytest.raises(TypeError, match="abstract"):
        Artifact()


HEADER = {"format": "fedcal-artifact", "version": 1, "form": "count"}


@pytest.mark.parametrize(
    ("header", "arrays", "match"),
    [
        (None, {}, "is no fedcal artifact"),
        ({"format": "x"}, {}, "is no fedcal artifact"),
        ({**HEADER, "form": "auc"}, {}, "is no artifact of the form 'count'"),
        ({**HEADER, "version": 2}, {}, "has version 2; this fedcal reads version 1"),
        (HEADER, {}, "has no array 'value'"),
        ({**HEADER, "class_names": [0, 1]}, {"value": np.ones(2)}, "must be a list of text"),
        (HEADER, {"value": np.zeros(3)}, "value must have 2 entries"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, header, arrays, match):
    told = {} if header is None else {"header": np.array(json.dumps(header))}
    np.savez(tmp_path / "count.npz", **told, **arrays)
    with pytest.raises(InputError, match=match) as caught:
        Count.read(tmp_path, "count")
    assert str(caught.value).startswith(f"count '{tmp_path / 'count.npz'}': ")
    assert "\n" not in str(caught.value)


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
    Curve(
        "Reliability",
        "x, share",
        "y, share",
        {"a": ((0.2, 0.3),)},
        bands={"a": ((0.1, 0.4),)},
        references={"diagonal": ((0.0, 0.0), (1.0, 1.0))},
    ),
    Intervals("Sites", "accuracy", {"a": (("one", 0.5, 0.4, 0.6),)}, {"all": 0.5}),
]


def test_parts_through_json():
    text = json.dumps(to_json(PARTS), allow_nan=False)
    assert from_json(json.loads(text)) == PARTS


def test_parts_that_cannot_be_shown_are_refused():
    with pytest.raises(InputError, match="table 'T': a row has not 2 entries"):
        Table("T", ("a", "b"), ((1,),))
    for bad in (math.nan, math.inf):
        with pytest.raises(InputError, match="'T': a number to show is not finite"):
            Table("T", ("a",), ((bad,),))
        with pytest.raises(InputError, match="'C': a number to show is not finite"):
            Curve("C", "x", "y", {"a": ((0.0, bad),)})
    many = {str(k): ((0.0, 0.0),) for k in range(MOST_SERIES + 1)}
    for series in ({}, {"a": ()}, many):
        with pytest.raises(InputError, match="curve 'C' needs 1 to 16 series with points"):
            Curve("C", "x", "y", series)
    line = {"a": ((0.0, 0.0),)}
    for bands in ({"b": ((0.0, 1.0),)}, {"a": ((0.0, 1.0), (0.0, 1.0))}):
        with pytest.raises(InputError, match=r"curve 'C': the band '.' fits no series"):
            Curve("C", "x", "y", line, bands)
    with pytest.raises(InputError, match="curve 'C' takes at most 4 references, with points"):
        Curve("C", "x", "y", line, references={str(k): ((0.0, 0.0),) for k in range(5)})
    with pytest.raises(InputError, match="intervals 'I' need 1 to 16 series with lines"):
        Intervals("I", "x", {"a": ()})
    with pytest.raises(InputError, match="'I': a number to show is not finite"):
        Intervals("I", "x", {"a": (("one", 0.5, 0.4, math.inf),)})
    for backwards in (
        lambda: Curve("I", "x", "y", line, {"a": ((1.0, 0.0),)}),
        lambda: Intervals("I", "x", {"a": (("one", 0.5, 0.6, 0.4),)}),
    ):
        with pytest.raises(InputError, match="'I': an interval ends before it begins"):
            backwards()


@pytest.mark.parametrize("plain", [None, 3, [3], [{}], [{"part": "table"}], [{"part": "script"}]])
def test_plain_values_of_something_else_are_refused(plain):
    with pytest.raises(InputError, match="holds no parts of a page"):
        from_json(plain)
