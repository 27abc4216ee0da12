"""What a run takes, from end to end: frames, tensors, kinds of scores, names of classes."""

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import halves
from refusals import refused

from fedcal import calibrators, datasets, prediction_sets, simulate
from fedcal.cli.apply import command as apply_command
from fedcal.cli.main import exit_code_of
from fedcal.clients.site.sources import site_rows
from fedcal.core.checks import InputError, TooLittle
from fedcal.core.numerics import Floats, Kind, softmax
from fedcal.datasets import Dataset
from fedcal.metrics import summary
from fedcal.run.config import POOLED
from fedcal.run.load import load_any

pytestmark = pytest.mark.usefixtures("quick_figures")

ROWS, NAMES = 300, ("cat", "dog", "bird")
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, ROWS)
Z = 2 * RNG.normal(size=(ROWS, 3)) + 4 * np.eye(3)[Y]
P = softmax(Z)
SCORES: dict[Kind, Floats] = {"logits": Z, "probs": P}
LOOKS_LIKE_PROBS = "declare them as probs"


def frame(**more: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    scores = {f"logit_{j}": Z[:, j] for j in range(3)}
    return pandas.DataFrame({"label": Y, **scores, **more})


def same(found: Dataset) -> bool:
    return np.array_equal(found.scores, Z) and np.array_equal(found.labels, Y)


def test_frames_pairs_and_tensors_are_read():
    torch = pytest.importorskip("torch")
    assert same(load_any((Z, Y)))
    assert same(load_any((torch.tensor(Z, requires_grad=True), torch.tensor(Y))))
    assert same(load_any(frame().astype({"label": "Int64"})))
    refused("unknown column 'age'", load_any, frame(age=1))
    counted = simulate((Z, Y), clients=3, method="fedbbq", set={"bins_exponent": np.int64(3)})
    assert json.dumps(counted.config.set) == '{"bins_exponent": 3}'


def test_prediction_sets_are_the_method_conformal(tmp_path):
    data, few = (Z, Y), {"clients": 3, "partition": "iid"}
    simulate(data, **few).calibrator.save(tmp_path / "c.npz")
    asked = {"alpha": 0.3, "score": "raps", "by": "class"}
    made: Any = {"calibrator": tmp_path / "c.npz", "set": {"penalty": 0.02}, **asked}
    sets = prediction_sets(data, **few, **made)
    settings = asked | {"penalty": 0.02, "calibrator": str(tmp_path / "c.npz")}
    same = simulate(data, **few, method="conformal", set=settings)
    assert sets.config == same.config
    np.testing.assert_array_equal(sets.sets.thresholds, same.sets.thresholds)
    conflict = {"config": sets.config, "alpha": 0.1}
    refused("alpha has no effect here: config", prediction_sets, data, **conflict)


def both_parts(kind: Kind) -> dict[str, Any]:
    scores = SCORES[kind]
    return {kind: scores, "labels": Y, f"test_{kind}": scores, "test_labels": Y}


FITTED_ON: dict[str, Kind] = {"fednewton": "logits", "fedbbq": "probs", "pooled-bbq": "logits"}


@pytest.mark.parametrize(("method", "kind"), FITTED_ON.items())
def test_apply_predict_proba_and_the_run_agree_on_logits_or_probabilities(method, kind, tmp_path):
    scores = SCORES[kind]
    out = tmp_path / "run"
    result = simulate(both_parts(kind), method=method, clients=10, out=out, report=False)
    assert {result.calibrator.input, *(c.input for c in result.history)} == {kind}
    found = result.calibrator.predict_proba(scores)
    np.testing.assert_allclose(found, result.test_probs, rtol=0, atol=1e-11)
    np.savez(tmp_path / "new.npz", **{kind: scores})
    saved, file = out / "calibrator.npz", str(tmp_path / "new.npz")
    apply_command(saved, file, tmp_path / "p.npy", quiet=True, json=False)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), found)
    np.testing.assert_array_equal(calibrators.load(saved).predict_proba(scores), found)
    other: Kind = "probs" if kind == "logits" else "logits"
    with pytest.raises(InputError, match=LOOKS_LIKE_PROBS if kind == "logits" else r"\[0, 1\]"):
        result.calibrator.predict_proba(SCORES[other])
    if method == "fednewton":  # the declaration does not change what is learnt
        again = simulate(both_parts(other), clients=10).calibrator
        learnt = result.calibrator.arrays()["temperature"]
        assert again.arrays()["temperature"] == pytest.approx(learnt, rel=1e-6)


def test_a_site_takes_no_scores_of_another_kind():
    run = {"data": "imdb-binary", "partition": "iid", "clients": 7, "seed": 0}
    kind = datasets.load("imdb-binary").input
    other = "probs" if kind == "logits" else "logits"
    with pytest.raises(InputError, match=f"input of the run must be '{kind}', got '{other}'"):
        site_rows({**run, "input": other}, {"partition-id": 0})


def write(path: Path, order: tuple[str, ...] = NAMES) -> Path:
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["label", *(f"prob_{name}" for name in order)])
        for label, row in zip(Y, P, strict=True):
            lines.writerow([NAMES[label], *(row[NAMES.index(name)] for name in order)])
    return path


def test_names_are_kept_from_the_columns_to_what_is_applied(tmp_path, capsys):
    data, run = write(tmp_path / "named.csv"), tmp_path / "run"
    simulate(data, clients=5, out=run)
    assert json.loads((run / "result.json").read_text())["class_names"] == [*NAMES]
    assert ">cat:" in (run / "report.html").read_text()
    calibrator = calibrators.load(run / "calibrator.npz")
    assert calibrator.class_names == NAMES

    other, out = write(tmp_path / "other.csv", ("bird", "cat", "dog")), tmp_path / "out.csv"
    apply = ["apply", "--calibrator", str(run / "calibrator.npz"), "--data", str(other), "--out"]
    assert exit_code_of([*apply, str(out)]) == 0
    head, *lines = csv.reader(out.read_text().splitlines())
    assert head == ["label", "prob_cat", "prob_dog", "prob_bird"]
    assert [line[0] for line in lines] == [NAMES[label] for label in Y]
    applied = np.array([line[1:] for line in lines], np.float64)
    np.testing.assert_array_equal(applied, calibrator.predict_proba(P))
    assert exit_code_of([*apply, str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["class_names"].tolist() == [*NAMES]
    other.write_text("prob_cat,prob_cow,prob_bird\n.2,.3,.5\n.1,.1,.8\n.7,.1,.2\n")
    assert exit_code_of([*apply, str(tmp_path / "none.csv")]) == 2
    assert "for the classes cat, cow, bird, not cat, dog, bird" in capsys.readouterr().err


def test_names_and_the_positive_class_are_options_of_every_run():
    two = Y < 2
    score, labels = P[two, 0] / P[two, :2].sum(axis=1), Y[two]
    data = {"probs": score, "labels": np.array(["bad", "good"])[labels]}
    how = {"method": "evaluate", "clients": 5}
    bad = simulate(data, positive="bad", class_names="good,bad", **how).metrics
    with pytest.warns(UserWarning, match="the wrong way round: rows of good have lower"):
        simulate(data, positive="good", class_names="bad,good", **how)
    turned = simulate(data, positive="good", class_names="good,bad", **how)
    # recall of the one is specificity of the other, and both are right
    assert bad["roc_auc"]["value"] > 0.95
    assert turned.metrics["roc_auc"]["value"] > 0.95
    assert bad["recall"]["value"] == pytest.approx(turned.metrics["specificity"]["value"])
    assert turned.class_names == ("bad", "good")


HALVES = halves(3, 240, 5, 1.0)
PRIVATE: dict[str, Any] = {"method": "fednewton", "epsilon": 1.0, "clients": 40, "seed": 3}


@pytest.mark.parametrize("method", ["fedtemp", "fedbbq", "fedmatrix", *POOLED])
def test_the_result_is_about_the_test_rows(method):
    data, result = HALVES, simulate(HALVES, method=method, clients=20)
    probs = result.calibrator.predict_proba(data["test_logits"])
    assert probs.tobytes() == result.test_probs.tobytes()
    assert result.after == pytest.approx(summary(probs, data["test_labels"]))
    identity = calibrators.Identity().fit(data["logits"], data["labels"])
    before = identity.predict_proba(data["test_logits"])
    assert result.before == pytest.approx(summary(before, data["test_labels"]))
    if method not in ("none", "fedtemp"):  # local optima make it worse
        assert result.after["nll"] < result.before["nll"]


def test_a_delta_from_one_over_clients_on_is_warned_of():
    for delta, warned in ((1 / 40, True), (0.0249, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", TooLittle)
            simulate(HALVES, **PRIVATE, delta=delta)
        assert ["below 1/clients" in str(w.message) for w in caught] == [True] * warned
    simulate(HALVES, clients=20, delta=0.5)  # without privacy a warning would be an error
