"""Logits and probabilities: what contradicts a declaration is refused, what agrees is kept."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from refusals import each_is_refused, refused

from fedcal import calibrators, datasets
from fedcal.calibrators import BBQ, TemperatureScaling, WeightedBinning
from fedcal.core.numerics import SURE, logits_from_probs, softmax
from fedcal.core.scores import check_scores
from fedcal.core.shards import Shards

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 90)
Z = 3 * RNG.normal(size=(90, 3)) + 2 * np.eye(3)[LABELS]
P = softmax(Z)
LOOKS = "rows lie in .0, 1. and sum to 1, as probabilities do; declare them as probs"


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_what_contradicts_its_declaration_is_refused(dtype):
    """Of a few rows that is only warned of."""
    for p in (P.astype(dtype), P[:SURE].astype(dtype)):
        each_is_refused(
            [(p, f"^logits: {LOOKS}"), *((np.round(P, k), LOOKS) for k in (1, 2, 3))],
            lambda p: check_scores("logits", "logits", p),
        )
        np.testing.assert_array_equal(check_scores("probs", "probs", p), p)
    each_is_refused(
        [
            (z, r"^probs: .*(must lie in \[0, 1\]|must sum to 1 within)")
            for z in (Z, Z[:1], P * 2, np.log(P), np.zeros((9, 3)))
        ],
        lambda z: check_scores("probs", "probs", z),
    )
    assert len(check_scores("probs", "probs", np.array([[0.33, 0.33, 0.33]]))) == 1  # on the edge
    for rows in range(1, SURE if dtype != np.float16 else 0):
        with pytest.warns(UserWarning, match=LOOKS):
            got = check_scores("logits", "logits", P[:rows].astype(dtype))
        np.testing.assert_array_equal(got, P[:rows].astype(dtype))


def csv(folder: Path) -> None:
    rows = (f"{y},{','.join(map(repr, p))}" for y, p in zip(LABELS, P.tolist(), strict=True))
    (folder / "d.csv").write_text("\n".join(["label,logit_0,logit_1,logit_2", *rows]))
    datasets.load(folder / "d.csv")


def npz_test_part(folder: Path) -> None:
    np.savez(folder / "d.npz", logits=Z, labels=LABELS, test_logits=P, test_labels=LABELS)
    datasets.load(folder / "d.npz")


def parquet(folder: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"label": LABELS, "logits": list(P)})
    pytest.importorskip("pyarrow.parquet").write_table(table, folder / "d.parquet")
    datasets.load(folder / "d.parquet")


DOORS: dict[str, Callable[[Path], object]] = {
    "arrays": lambda _: datasets.from_arrays(logits=P, labels=LABELS),
    "test arrays": lambda _: datasets.from_arrays(
        logits=Z, labels=LABELS, test_logits=P, test_labels=LABELS
    ),
    "csv": csv,
    "npz, test part": npz_test_part,
    "parquet": parquet,
    "shards": lambda _: Shards.from_owner(P, LABELS, LABELS, 3),
    "fit": lambda _: BBQ().fit(P, LABELS),
    "predict": lambda _: BBQ().fit(Z, LABELS).predict_proba(P),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_no_door_takes_probabilities_for_logits(door, tmp_path):
    refused(LOOKS, door, tmp_path)


@pytest.mark.parametrize("make", [TemperatureScaling, BBQ, WeightedBinning])
def test_a_calibrator_takes_what_it_was_fitted_on(make, tmp_path):
    fitted = make().fit(P, LABELS, input="probs")
    want = make().fit(logits_from_probs(P), LABELS).predict_proba(logits_from_probs(P))
    fitted.save(tmp_path / "c.npz")
    for same in (
        fitted,
        copy.copy(fitted),
        copy.deepcopy(fitted),
        pickle.loads(pickle.dumps(fitted)),
        calibrators.load(tmp_path / "c.npz"),
    ):
        assert same.input == "probs"
        np.testing.assert_array_equal(same.predict_proba(P), want)
        np.testing.assert_array_equal(same.calibrated(logits_from_probs(P)), want)
        refused(r"^probs \(this calibrator takes probs\): .*\[0, 1\]", same.predict_proba, Z)
