"""What every kind of calibrator does, for few and many classes; and what `load` refuses."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.calibrators import (
    BBQ,
    Calibrator,
    EntropyTemperature,
    HistogramBinning,
    Identity,
    MatrixScaling,
    OrderPreservingMLP,
    OrderPreservingVector,
    ScoreLogistic,
    ScoreMap,
    TemperatureScaling,
    TopLabelBinning,
    TopLabelLogistic,
    VectorScaling,
    WeightedBinning,
    load,
)
from fedcal.calibrators.base import kinds
from fedcal.calibrators.order_preserving import OrderPreserving
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.errors import InputError
from fedcal.numerics import softmax

KINDS: dict[str, Callable[[], Calibrator]] = {
    "identity": Identity,
    "temperature": TemperatureScaling,
    "entropy": EntropyTemperature,
    "vector": VectorScaling,
    "matrix": MatrixScaling,
    "order-preserving vector": OrderPreservingVector,
    "order-preserving MLP": OrderPreservingMLP,
    "histogram": HistogramBinning,
    "bbq": BBQ,
    "weighted histogram, all": lambda: WeightedBinning(HistogramBinning(), rows="all"),
    "weighted bbq, changed": lambda: WeightedBinning(BBQ(), rows="changed"),
    "top label": TopLabelBinning,
    "top label logistic": TopLabelLogistic,
    "score binning": lambda: ScoreMap(how="binning"),
    "score isotonic": ScoreMap,
    "score bbq": lambda: ScoreMap(how="bbq"),
    "score platt": ScoreLogistic,
    "score beta": lambda: ScoreLogistic(how="beta"),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
every_classes = pytest.mark.parametrize("classes", [2, 3, 10, 40])


def rows(classes: int, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident logits, and labels that they are often right about."""
    rng = np.random.default_rng([classes, seed])
    labels = rng.integers(0, classes, n)
    logits = rng.normal(scale=2, size=(n, classes))
    logits[np.arange(n), labels] += 4
    return logits, labels


@cache
def fitted_once(make: Callable[[], Calibrator], classes: int) -> Calibrator:
    return make().fit(*rows(classes))


def fitted(make: Callable[[], Calibrator], classes: int) -> Calibrator:
    calibrator = copy(fitted_once(make, classes))
    if isinstance(calibrator, WeightedBinning):  # weights that matter
        weights = np.linspace(0.2, 0.9, len(calibrator.weights))
        calibrator = WeightedBinning(calibrator.base, weights, calibrator.rows)
    return calibrator


def test_every_kind_is_here() -> None:
    assert {make().kind for make in KINDS.values()} == set(kinds())


# --- predictions ------------------------------------------------------------------------------


@every_kind
@every_classes
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4, 1e90])
def test_predictions_are_distributions(
    make: Callable[[], Calibrator], classes: int, scale: float
) -> None:
    logits = rows(classes, seed=1)[0] * (scale / 30)
    proba = fitted(make, classes).predict_proba(logits)
    assert proba.shape == logits.shape
    assert proba.dtype == np.float64
    assert ((proba >= 0) & (proba <= 1)).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=0, atol=1e-12)


@every_kind
@every_classes
def test_a_row_is_predicted_alike_alone_and_among_others(
    make: Callable[[], Calibrator], classes: int
) -> None:
    calibrator, logits = fitted(make, classes), rows(classes, n=70, seed=1)[0]
    together = calibrator.predict_proba(logits)
    for block in (1, 7, 64):
        parts = [calibrator.predict_proba(logits[i : i + block]) for i in range(0, 70, block)]
        np.testing.assert_array_equal(np.concatenate(parts), together)
    assert calibrator.predict_proba(np.zeros((0, classes))).shape == (0, classes)


@every_kind
def test_fit_returns_itself_and_leaves_its_input_alone(make: Callable[[], Calibrator]) -> None:
    logits, labels = rows(10)
    before = logits.copy(), labels.copy()
    calibrator = make()
    assert calibrator.fit(logits, labels) is calibrator
    assert calibrator.classes == 10
    calibrator.predict_proba(logits)
    np.testing.assert_array_equal(logits, before[0])
    np.testing.assert_array_equal(labels, before[1])


@every_kind
def test_lists_single_precision_and_other_memory_orders_are_taken(
    make: Callable[[], Calibrator],
) -> None:
    logits, labels = rows(3)
    logits = logits.astype(np.float32).astype(np.float64)
    want = make().fit(logits, labels).predict_proba(logits)
    for z in (logits.tolist(), logits.astype(np.float32), np.asfortranarray(logits)):
        got = make().fit(z, labels.astype(np.uint8)).predict_proba(z)
        np.testing.assert_array_equal(got, want)


@every_kind
@pytest.mark.parametrize("classes", [3, 10])
def test_fitting_again_forgets_the_first_fit(make: Callable[[], Calibrator], classes: int) -> None:
    twice = make().fit(*rows(5, seed=3)).fit(*rows(classes))
    once = make().fit(*rows(classes))
    z = rows(classes, seed=1)[0]
    np.testing.assert_array_equal(twice.predict_proba(z), once.predict_proba(z))


def test_an_overconfident_model_is_helped_by_each_of_them() -> None:
    logits, labels = rows(3, n=20_000)
    logits *= 3
    fresh, truth = rows(3, n=20_000, seed=1)
    fresh *= 3

    def loss(calibrator: Calibrator) -> float:
        return float(((calibrator.predict_proba(fresh) - np.eye(3)[truth]) ** 2).sum(1).mean())

    before = loss(Identity(3))
    for make in KINDS.values():
        if not isinstance(make(), Identity):
            assert loss(make().fit(logits, labels)) < before - 0.001


def test_those_with_many_parameters_start_as_the_model_itself() -> None:
    for cls in kinds().values():
        if issubclass(cls, ParametricScaling):
            for classes in (2, 3, 10, 100):
                z = rows(classes)[0]
                proba = cls(None, classes).predict_proba(z)
                np.testing.assert_allclose(proba, softmax(z), rtol=1e-13)


def test_those_that_keep_the_order_never_change_a_prediction() -> None:
    for cls in kinds().values():
        if issubclass(cls, OrderPreserving):
            for classes in (2, 3, 10, 40):
                z = rows(classes, seed=1)[0]
                z[::7] = np.round(z[::7])  # ties
                proba = fitted_once(cls, classes).predict_proba(z)
                np.testing.assert_array_equal(proba.argmax(axis=1), z.argmax(axis=1))


# --- refusals ---------------------------------------------------------------------------------


def refused(action: Callable[[], object], *words: str) -> None:
    with pytest.raises(InputError) as error:
        action()
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert word in text


@every_kind
def test_an_unfitted_calibrator_predicts_nothing(make: Callable[[], Calibrator]) -> None:
    refused(lambda: make().predict_proba(rows(3)[0]), "is not fitted")


@every_kind
@every_classes
def test_another_number_of_classes_is_refused(make: Callable[[], Calibrator], classes: int) -> None:
    calibrator = fitted(make, classes)
    wrong = rows(classes + 1)[0]
    refused(lambda: calibrator.predict_proba(wrong), f"for {classes} classes", str(classes + 1))


BAD_LOGITS = {
    "nan": [[0.0, np.nan, 1.0]],
    "inf": [[0.0, np.inf, 1.0]],
    "minus inf": [[0.0, 1.0, -np.inf]],
    "flat": [0.0, 1.0, 2.0],
    "deep": [[[0.0, 1.0, 2.0]]],
    "ragged": [[0.0, 1.0, 2.0], [0.0]],
    "text": [["a", "b", "c"]],
    "one class": [[1.0], [2.0]],
}


@every_kind
@pytest.mark.parametrize("bad", BAD_LOGITS.values(), ids=BAD_LOGITS.keys())
def test_bad_logits_are_refused(make: Callable[[], Calibrator], bad: Any) -> None:
    calibrator = fitted(make, 3)
    refused(lambda: calibrator.predict_proba(bad), "logits (this calibrator takes logits): ")
    refused(lambda: make().fit(bad, np.zeros(1, int)), "logits: ")


@every_kind
@pytest.mark.parametrize(
    "labels", [[0, 1], [0, 1, 3], [-1, 0, 1], [0.0, 1.0, 2.0], [[0, 1, 2]], ["0", "1", "2"]]
)
def test_bad_labels_are_refused(make: Callable[[], Calibrator], labels: Any) -> None:
    refused(lambda: make().fit(np.zeros((3, 3)), labels), "labels must")
    refused(lambda: make().fit(np.zeros((0, 3)), np.zeros(0, int)), "logits: no rows")


# --- files ------------------------------------------------------------------------------------


@every_kind
@every_classes
def test_a_file_gives_the_calibrator_back_bit_for_bit(
    make: Callable[[], Calibrator], classes: int, tmp_path: Path
) -> None:
    calibrator, path = fitted(make, classes), tmp_path / "c.npz"
    calibrator.input = "probs"
    calibrator.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]  # no draft is left
    back = load(path)
    assert type(back) is type(calibrator)
    assert (back.classes, back.input) == (classes, "probs")
    p = softmax(rows(classes, seed=1)[0])
    np.testing.assert_array_equal(back.predict_proba(p), calibrator.predict_proba(p))
    for name, array in calibrator.arrays().items():
        np.testing.assert_array_equal(back.arrays()[name], array)


@every_kind
def test_a_file_holds_plain_arrays_and_a_version(
    make: Callable[[], Calibrator], tmp_path: Path
) -> None:
    path = tmp_path / "c.npz"
    calibrator = fitted(make, 3)
    calibrator.save(str(path))
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    assert all(a.dtype.kind in "fiU" for a in arrays.values())
    header = json.loads(str(arrays["header"]))
    assert header == {
        "format": "fedcal-calibrator",
        "version": 1,
        "kind": calibrator.kind,
        "classes": 3,
        "input": "logits",
    }


def rewrite(path: Path, header: Any = None, **changes: Any) -> None:
    """Change the arrays of a calibrator's file (None: remove), or fields of its header."""
    with np.load(path, allow_pickle=False) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    if isinstance(header, dict):
        arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | header))
    elif header is not None:
        arrays["header"] = np.array(header)
    arrays |= changes
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str], Path]:
    def save(kind: str) -> Path:
        path = tmp_path / "c.npz"
        fitted(KINDS[kind], 3).save(path)
        return path

    return save


@every_kind
@pytest.mark.parametrize(
    ("header", "word"),
    [
        ({"version": 2}, "has version 2; this fedcal reads version 1"),
        ({"version": "1"}, "has version '1'"),
        ({"kind": "quantum"}, "unknown kind of calibrator 'quantum'"),
        ({"kind": ["temperature"]}, "unknown kind of calibrator"),
        ({"input": "pixels"}, "unknown input 'pixels'"),
        ({"format": "fedcal-result"}, "is no fedcal calibrator"),
        ("[]", "is no fedcal calibrator"),
        ("{", "is no fedcal calibrator"),
        ("{}", "is no fedcal calibrator"),
    ],
)
def test_another_header_is_refused(
    make: Callable[[], Calibrator], header: Any, word: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.npz"
    fitted(make, 3).save(path)
    rewrite(path, header)
    refused(lambda: load(path), str(path), word)


@every_kind
def test_a_missing_array_is_named(make: Callable[[], Calibrator], tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    calibrator = fitted(make, 3)
    for name in calibrator.arrays():
        calibrator.save(path)
        rewrite(path, **{name: None})
        refused(lambda: load(path), str(path), f"has no array '{name}'")


NAN_TABLE = np.full((3, 128), np.nan)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("temperature", {"temperature": np.array(-1.0)}),
        ("temperature", {"temperature": np.array(0.0)}),
        ("temperature", {"temperature": np.array(np.nan)}),
        ("temperature", {"temperature": np.array(np.inf)}),
        ("temperature", {"temperature": np.ones(2)}),
        ("temperature", {"temperature": np.array("hot")}),
        ("temperature", {"classes": np.array(-3)}),
        ("identity", {"classes": np.array(-3)}),
        ("vector", {"w": np.zeros(7)}),
        ("vector", {"w": np.full(6, np.nan)}),
        ("vector", {"w": np.full(6, "a")}),
        ("vector", {"classes": np.array(2)}),
        ("vector", {"classes": np.array(0)}),
        ("matrix", {"w": np.zeros((3, 4))}),
        ("matrix", {"w": np.full(12, np.inf)}),
        ("matrix", {"classes": np.array(-3)}),
        ("order-preserving vector", {"w": np.zeros(5)}),
        ("order-preserving vector", {"w": np.full(6, 1e101)}),
        ("order-preserving vector", {"classes": np.array(4)}),
        ("order-preserving MLP", {"w": np.zeros(4610)}),
        ("order-preserving MLP", {"w": np.full(4611, np.nan)}),
        ("histogram", {"table": NAN_TABLE}),
        ("histogram", {"table": np.full((3, 128), np.inf)}),
        ("histogram", {"table": np.full((3, 128), -0.1)}),
        ("histogram", {"table": np.full((3, 128), 1.5)}),
        ("histogram", {"table": np.ones(3)}),
        ("histogram", {"table": np.ones((4, 128))}),
        ("histogram", {"table": np.full((3, 2), "a")}),
        ("histogram", {"classes": np.array(2)}),
        ("histogram", {"classes": np.array(0)}),
        ("bbq", {"table": NAN_TABLE}),
        ("weighted bbq, changed", {"table": NAN_TABLE}),
        ("weighted bbq, changed", {"weights": np.ones(2)}),
        ("weighted bbq, changed", {"weights": np.full(3, 1.5)}),
        ("weighted bbq, changed", {"weights": np.full(3, np.nan)}),
        ("weighted bbq, changed", {"rows": np.array("none")}),
        ("weighted bbq, changed", {"base": np.array("temperature")}),
        ("top label", {"values": np.full(15, np.nan)}),
        ("top label", {"values": np.full(15, 1.5)}),
        ("top label", {"values": np.ones((3, 15))}),
        ("top label", {"values": np.zeros(0)}),
        ("top label", {"values": np.full(15, "a")}),
        ("top label", {"classes": np.array(1)}),
        ("score isotonic", {"values": np.full(240, 0.5)}),
        ("score isotonic", {"edges": np.linspace(0, 0.9, 20)}),
        ("score isotonic", {"edges": np.full(1, np.nan)}),
        ("score isotonic", {"score": np.array("positive")}),
        ("score isotonic", {"how": np.array("platt")}),
        ("score platt", {"w": np.array([1.0, -1.0, 0.0])}),
        ("score platt", {"w": np.full(3, np.nan)}),
        ("score platt", {"w": np.full(3, "a")}),
        ("score platt", {"limits": np.array([0.0, 0.5])}),
        ("score platt", {"limits": np.array([0.5, 0.4])}),
        ("score platt", {"limits": np.ones(1)}),
        ("score platt", {"classes": np.array(0)}),
        ("score platt", {"how": np.array("isotonic")}),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    kind: str, changes: dict[str, Any], saved: Callable[[str], Path]
) -> None:
    path = saved(kind)
    rewrite(path, **changes)
    refused(lambda: load(path), str(path))


def test_a_pickle_in_a_file_is_not_opened(saved: Callable[[str], Path]) -> None:
    path = saved("temperature")
    with np.load(path) as file:
        arrays = dict(file)
    arrays["temperature"] = np.array([Bomb()], dtype=object)
    np.savez(path, **arrays)
    refused(lambda: load(path), str(path), "objects (pickles)")


class Bomb:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return pytest.fail, ("unpickled",)


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("kind", ["temperature", "bbq"])
def test_a_truncated_file_is_refused(kind: str, keep: float, saved: Callable[[str], Path]) -> None:
    path = saved(kind)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep if keep > 1 else keep * (len(content) - 1))])
    refused(lambda: load(path), str(path))


def test_a_damaged_file_is_refused(saved: Callable[[str], Path]) -> None:
    path = saved("bbq")
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("table.npy").header_offset + 300
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(bytes(content))
    refused(lambda: load(path), str(path))


def test_what_is_no_calibrator_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, logits=np.zeros((2, 3)), labels=np.zeros(2))
    refused(lambda: load(data), str(data), "is no fedcal calibrator")
    text = tmp_path / "text.npz"
    text.write_text("T = 2")
    refused(lambda: load(text), str(text), "is not an intact .npz file")
    refused(lambda: load(tmp_path / "none.npz"), "cannot be read: No such file")
    refused(lambda: load(tmp_path), str(tmp_path), "cannot be read")


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    calibrator = Identity(3)
    refused(lambda: calibrator.save(tmp_path / "no" / "c.npz"), "cannot write")
    (tmp_path / "folder").mkdir()
    refused(lambda: calibrator.save(tmp_path / "folder"), "cannot write")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_saving_replaces_an_earlier_file(saved: Callable[[str], Path]) -> None:
    path = saved("bbq")
    TemperatureScaling(2.0, 3).save(path)
    back = load(path)
    z = rows(3)[0]
    np.testing.assert_array_equal(back.predict_proba(z), softmax(z / 2))
