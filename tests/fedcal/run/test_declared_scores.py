"""Logits or probabilities, from end to end: what was fitted on decides what is taken."""

from typing import Any

import numpy as np
import pytest
from refusals import refused

from fedcal import calibrators, datasets
from fedcal.clients.site.sources import site_rows
from fedcal.core.checks import InputError
from fedcal.core.numerics import Kind, softmax
from fedcal.run.comparison import compare
from fedcal.run.simulation import simulate

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 600)
Z = 4 * RNG.normal(size=(600, 3)) + 4 * np.eye(3)[LABELS]
P = softmax(Z)
SCORES: dict[Kind, np.ndarray] = {"logits": Z, "probs": P}
LOOKS = "declare them as probs"


def whole(kind: Kind) -> dict[str, np.ndarray]:
    scores = SCORES[kind]
    return {kind: scores, "labels": LABELS, f"test_{kind}": scores, "test_labels": LABELS}


FITTED_ON: dict[str, Kind] = {
    **{"fednewton": "logits", "fedbbq": "probs", "fedtemp": "probs", "none": "logits"},
    **{"pooled-temperature": "probs", "pooled-bbq": "logits"},
}


@pytest.mark.parametrize(("method", "kind"), FITTED_ON.items())
def test_apply_predict_proba_and_the_run_agree(method, kind, tmp_path):
    from fedcal.cli.apply import command as apply_command

    scores = SCORES[kind]
    data = whole(kind)
    result = simulate(data, method=method, clients=10, out=tmp_path / "run", report=False)
    assert result.calibrator.input == kind
    assert {c.input for c in result.history} <= {kind}
    got = result.calibrator.predict_proba(scores)
    np.testing.assert_allclose(got, result.test_probs, rtol=0, atol=1e-11)
    np.savez(tmp_path / "new.npz", **{kind: scores})
    saved = tmp_path / "run" / "calibrator.npz"
    file = str(tmp_path / "new.npz")
    apply_command(saved, file, tmp_path / "p.npy", quiet=True, json=False)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), got)
    np.testing.assert_array_equal(calibrators.load(saved).predict_proba(scores), got)
    other: Kind = "probs" if kind == "logits" else "logits"
    with pytest.raises(InputError, match=LOOKS if kind == "logits" else r"\[0, 1\]"):
        result.calibrator.predict_proba(SCORES[other])
    if method == "fednewton":  # the declaration does not change what is learnt
        same = simulate(whole(other), clients=10).calibrator
        learnt = result.calibrator.arrays()["temperature"]
        assert same.arrays()["temperature"] == pytest.approx(learnt, rel=1e-6)


def test_no_run_takes_one_for_the_other(tmp_path):
    np.savez(tmp_path / "p.npz", logits=P, labels=LABELS)
    wrong: list[tuple[Any, str]] = [
        ({"logits": P, "labels": LABELS}, LOOKS),
        ({"logits": Z, "labels": LABELS, "test_logits": P, "test_labels": LABELS}, LOOKS),
        ({"probs": Z, "labels": LABELS}, r"\[0, 1\]"),
        (tmp_path / "p.npz", LOOKS),
    ]
    for data, match in wrong:
        refused(match, simulate, data, clients=3)
        refused(match, compare, data=[data], method=["none"])


def test_a_site_refuses_a_run_that_calls_its_rows_something_else():
    run = {"data": "imdb-binary", "partition": "iid", "clients": 7, "seed": 0}
    kind = datasets.load("imdb-binary").input
    assert site_rows({**run, "input": kind}, {"partition-id": 0}).input == kind
    other = "probs" if kind == "logits" else "logits"
    with pytest.raises(InputError, match=f"input of the run must be '{kind}', got '{other}'"):
        site_rows({**run, "input": other}, {"partition-id": 0})
