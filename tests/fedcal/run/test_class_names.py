"""Names of classes go all the way: options, terminal, result, files, `apply`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from fedcal import compare, metrics, simulate
from fedcal.calibrators import TemperatureScaling, load
from fedcal.cli.main import main

pytestmark = pytest.mark.usefixtures("quick_figures")

NAMES = ("cat", "dog", "bird")
ROWS = 300


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, ROWS)
    z = 2.0 * rng.normal(size=(ROWS, 3))
    z[np.arange(ROWS), y] += 4.0
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), y


def write(path: Path, order: tuple[str, ...] = NAMES, *, named: bool = True) -> Path:
    p, y = rows()
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        heads = order if named else range(len(order))
        lines.writerow(["label", *(f"prob_{name}" for name in heads)])
        for label, row in zip(y, p, strict=True):
            lines.writerow([NAMES[label], *(row[NAMES.index(name)] for name in order)])
    return path


def command(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    assert isinstance(left.value.code, int)
    return left.value.code


def test_names_are_kept_from_the_columns_to_what_is_applied(tmp_path, capsys):
    data, run = write(tmp_path / "named.csv"), tmp_path / "run"
    assert command("simulate", "--data", data, "--clients", "5", "--out", run) == 0
    assert "classes: cat, dog, bird\n" in capsys.readouterr().out
    assert json.loads((run / "result.json").read_text())["class_names"] == [*NAMES]
    assert ">cat:" in (run / "report.html").read_text()
    calibrator = load(run / "calibrator.npz")
    assert calibrator.class_names == NAMES

    other, out = write(tmp_path / "other.csv", ("bird", "cat", "dog")), tmp_path / "out.csv"
    apply = ("apply", "--calibrator", run / "calibrator.npz", "--data", other, "--out")
    assert command(*apply, out) == 0
    head, *lines = csv.reader(out.read_text().splitlines())
    applied = np.array([line[1:] for line in lines], np.float64)
    assert head == ["label", "prob_bird", "prob_cat", "prob_dog"]
    expected = calibrator.predict_proba(rows()[0])[:, [2, 0, 1]]
    np.testing.assert_array_equal(applied, expected)
    assert {line.partition(",")[0] for line in out.read_text().splitlines()[1:]} == {*NAMES}
    assert command(*apply, tmp_path / "out.npz") == 0
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["class_names"].tolist() == ["bird", "cat", "dog"]
        y = rows()[1]
        assert (arrays["labels"] == np.array(NAMES)[y]).all()
    capsys.readouterr()
    other.write_text("prob_cat,prob_cow,prob_bird\n.2,.3,.5\n.1,.1,.8\n.7,.1,.2\n")
    assert command(*apply, tmp_path / "none.csv") == 2
    assert "for the classes cat, cow, bird, not cat, dog, bird" in capsys.readouterr().err
    assert not (tmp_path / "none.csv").exists()


def test_names_and_the_positive_class_are_options_of_every_run(tmp_path):
    p, y = rows()
    unnamed = write(tmp_path / "x.csv", named=False)
    said = simulate(unnamed, class_names="cat,dog,bird", clients=5)
    assert said.class_names == NAMES
    plain = simulate({"probs": p, "labels": y}, clients=5)
    assert plain.class_names is None
    assert plain.before["accuracy"] == pytest.approx(said.before["accuracy"], abs=0.02)
    run = {"clients": 5, "seeds": 1, "method": "fedtemp", "epsilon": "inf", "jobs": 1}
    table = compare(unnamed, class_names="cat,dog,bird", **run)
    assert all(row["before"]["accuracy"] > 0.8 for row in table.rows)

    two = y < 2
    score, labels = p[two, 0] / p[two, :2].sum(axis=1), y[two]
    asked = {"probs": score, "labels": np.array(["bad", "good"])[labels]}
    how = {"method": "evaluate", "clients": 5}
    bad = simulate(asked, positive="bad", class_names="good,bad", **how).metrics
    with pytest.warns(UserWarning, match="the wrong way round: rows of good have lower"):
        simulate(asked, positive="good", class_names="bad,good", **how)
    turned = simulate(asked, positive="good", class_names="good,bad", **how)
    # recall of the one is specificity of the other, and both are right
    assert bad["roc_auc"]["value"] > 0.95
    assert turned.metrics["roc_auc"]["value"] > 0.95
    assert bad["recall"]["value"] == pytest.approx(turned.metrics["specificity"]["value"])
    assert turned.class_names == ("bad", "good")


def test_one_probability_of_two_classes_will_do_wherever_rows_are_taken():
    pytest.importorskip("sklearn")
    from fedcal.run.estimator import FederatedCalibrator

    p, y = rows()
    kept = y < 2
    score, labels = p[kept, 1] / p[kept, :2].sum(axis=1), y[kept]
    both = np.stack([1 - score, score], axis=1)
    assert metrics.summary(score, labels) == metrics.summary(both, labels)
    pooled = TemperatureScaling().fit(score, labels, input="probs")
    np.testing.assert_array_equal(pooled.predict_proba(score), pooled.predict_proba(both))
    names = np.array(["healthy", "sick"])
    fitted = FederatedCalibrator(input="probs", clients=3).fit(score, names[labels])
    np.testing.assert_array_equal(fitted.predict_proba(score), fitted.predict_proba(both))
    assert fitted.calibrator_.class_names == ("healthy", "sick")
