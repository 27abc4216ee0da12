"""Laws of every kind of calibrator, for few and many classes; and what `load` refuses.

The kinds are the registry's (`kinds()`), and those whose options compute something else.
"""

import json
import math
from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import scored
from refusals import each_is_refused, refused

from fedcal import calibrators
from fedcal.calibrators.base import kinds
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.core.numerics import softmax

Make = Callable[[], calibrators.Calibrator]
KINDS: dict[str, Make] = dict(kinds()) | {
    "weighted bbq, changed": lambda: calibrators.WeightedBinning(calibrators.BBQ(), rows="changed"),
    "score beta": lambda: calibrators.ScoreLogistic(how="beta"),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
every_classes = pytest.mark.parametrize("classes", [2, 40])


def rows(classes: int, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return scored(classes, n, [classes, seed], scale=2)


@cache
def fitted_once(make: Make, classes: int) -> calibrators.Calibrator:
    return make().fit(*rows(classes))


def fitted(make: Make, classes: int) -> calibrators.Calibrator:
    calibrator = copy(fitted_once(make, classes))
    if isinstance(calibrator, calibrators.WeightedBinning):  # weights that matter
        shape = calibrator.base.table.shape[: 1 + (calibrator.rows == "all")]
        weights = np.linspace(0.2, 0.9, math.prod(shape)).reshape(shape)
        calibrator = calibrators.WeightedBinning(calibrator.base, weights, calibrator.rows)
    return calibrator


@every_kind
@every_classes
def test_predictions_are_distributions_row_by_row(make, classes):
    for scale in (1e-4, 300.0, 1e89):
        logits = rows(classes, seed=1)[0] * scale
        proba = fitted(make, classes).predict_proba(logits)
        assert (proba.shape, proba.dtype) == (logits.shape, np.float64)
        assert ((proba >= 0) & (proba <= 1)).all()
        np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=0, atol=1e-12)
    calibrator, logits = fitted(make, classes), rows(classes, n=70, seed=1)[0]
    together = calibrator.predict_proba(logits)
    for block in (1, 7):
        parts = [calibrator.predict_proba(logits[i : i + block]) for i in range(0, 70, block)]
        np.testing.assert_array_equal(np.concatenate(parts), together)
    assert calibrator.predict_proba(np.zeros((0, classes))).shape == (0, classes)


@every_kind
def test_fits_are_alike_whatever_the_input_looks_like_and_leave_it_alone(make):
    """Lists, single precision, other memory orders; a second fit forgets the first."""
    logits, labels = rows(3)
    logits = logits.astype(np.float32).astype(np.float64)
    before = logits.copy(), labels.copy()
    calibrator = make()
    assert calibrator.fit(logits, labels) is calibrator
    assert calibrator.classes == 3
    expected = calibrator.predict_proba(logits)
    np.testing.assert_array_equal(logits, before[0])
    np.testing.assert_array_equal(labels, before[1])
    calibrator.fit(*rows(5, seed=3))
    for z in (logits.tolist(), logits.astype(np.float32), np.asfortranarray(logits)):
        got = calibrator.fit(z, labels.astype(np.uint8)).predict_proba(z)
        np.testing.assert_array_equal(got, expected)


def test_many_parameters_start_as_the_model_itself():
    for cls in kinds().values():
        for classes in (2, 40):
            z = rows(classes, seed=1)[0]
            if issubclass(cls, ParametricScaling):
                proba = cls(None, classes).predict_proba(z)
                np.testing.assert_allclose(proba, softmax(z), rtol=1e-13)


BAD_ROWS: list[Any] = [
    ([[0.0, np.nan, 1.0]], [0], "^logits"),
    ([[1.0], [2.0]], [0, 1], "^logits"),  # one class
    (np.zeros((0, 3)), [], "rows >= 1"),
    (np.zeros((3, 3)), [0, 1, 3], "labels"),
]


@every_kind
def test_bad_rows_are_refused(make):
    refused("is not fitted", make().predict_proba, rows(3)[0])
    each_is_refused(
        [((z, y), message) for z, y, message in BAD_ROWS], lambda given: make().fit(*given)
    )
    calibrator = fitted(make, 3)
    table = [(z, "^logits .this calibrator takes logits.: ") for z, *_ in BAD_ROWS[:2]]
    table.append((rows(4)[0], "this calibrator must be 3, got 4"))
    each_is_refused(table, calibrator.predict_proba)


@every_kind
@every_classes
def test_a_file_gives_the_calibrator_back_bit_for_bit(make, classes, tmp_path):
    calibrator, path = fitted(make, classes), tmp_path / "c.npz"
    path.write_text("what was there")
    calibrator.input = "probs"
    calibrator.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]  # no draft is left
    back = calibrators.load(path)
    assert type(back) is type(calibrator)
    assert (back.classes, back.input) == (classes, "probs")
    p = softmax(rows(classes, seed=1)[0])
    np.testing.assert_array_equal(back.predict_proba(p), calibrator.predict_proba(p))
    for name, array in calibrator.arrays().items():
        np.testing.assert_array_equal(back.arrays()[name], array)


def each_file_is_refused(path: Path, kind: str, table: list[tuple[Any, str]]) -> None:
    """Each change of the arrays in a calibrator's file is refused in a line that names the file."""
    fitted(KINDS[kind], 3).save(path)
    with np.load(path, allow_pickle=False) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}

    def load(change: dict[str, Any]) -> calibrators.Calibrator:
        np.savez(path, **{k: v for k, v in (arrays | change).items() if v is not None})
        return calibrators.load(path)

    each_is_refused([(change, f"{path}.*{message}") for change, message in table], load)


def test_another_header_is_refused(tmp_path):
    header = {"format": "fedcal-calibrator", "version": 1, "kind": "temperature", "input": "probs"}
    headers: list[tuple[Any, str]] = [
        (header | {"kind": ["temperature"]}, "unknown kind of calibrator"),
        (header | {"input": "pixels"}, "unknown input 'pixels'"),
        *((other, "is not a fedcal calibrator") for other in ([], {})),
    ]
    table = [({"header": np.array(json.dumps(one))}, message) for one, message in headers]
    table += [({"header": None}, "is not a fedcal calibrator")]
    each_file_is_refused(tmp_path / "c.npz", "temperature", table)
    refused("cannot be read: No such file", calibrators.load, tmp_path / "none.npz")


TABLES = [np.full((3, 128), x) for x in (np.nan, -0.1, 1.5)]
MISFITS: dict[str, dict[str, list[Any]]] = {
    "temperature": {"temperature": [-1.0, np.nan, np.ones(2), "hot"]},
    "vector": {"w": [np.zeros(7), np.full(6, np.nan), np.full(6, "a")], "classes": [2, 0]},
    "order-preserving-vector": {"w": [np.full(6, 1e101)]},
    "order-preserving-mlp": {"w": [np.zeros(4610), np.full(4611, np.nan)]},
    "histogram-binning": {"table": [*TABLES, np.ones(3), np.ones((4, 128))], "classes": [2, 0]},
    "weighted bbq, changed": {
        "weights": [np.ones(2), np.full(3, 1.5)],
        "rows": ["none"],
        "base": ["temperature"],
    },
    "top-label-binning": {"values": [np.full(15, 1.5), np.ones((3, 15))]},
    "score-logistic": {
        "w": [np.array([1.0, -1.0, 0.0]), np.full(3, np.nan)],
        "limits": [np.array([0.0, 0.5]), np.array([0.5, 0.4]), np.ones(1)],
        "classes": [0],
        "how": ["isotonic"],
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_that_are_missing_or_do_not_fit_are_refused(kind, tmp_path):
    table = [
        ({name: np.array(value)}, "")
        for name, values in MISFITS.get(kind, {}).items()
        for value in values
    ]
    missing = fitted(KINDS[kind], 3).arrays()
    table += [({name: None}, f"has no array '{name}'") for name in missing]
    each_file_is_refused(tmp_path / "c.npz", kind, table)
