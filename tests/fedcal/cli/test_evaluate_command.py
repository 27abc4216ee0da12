"""`fedcal evaluate` and `fedcal.evaluate`: what is read, what a result holds, what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal import evaluate, simulate
from fedcal.cli.main import exit_code_of
from fedcal.core.checks import FedcalError
from fedcal.core.numerics import softmax
from fedcal.run.rereading import check_comparable, read_release

pytestmark = pytest.mark.usefixtures("quick_figures")

ROWS, CLIENTS = 3000, 6
PRIVATE: dict[str, Any] = {"epsilon": 1.0, "unit": "example", "partition": "natural"}


def arrays(**more: Any) -> dict[str, Any]:
    """Two classes, too sure; the last client has few rows, the group "b" is a tenth of them."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 2, ROWS)
    logits = rng.normal(size=(ROWS, 2)) + 1.5 * np.eye(2)[labels]
    client = rng.integers(0, CLIENTS - 1, ROWS)
    client[:7] = CLIENTS - 1
    return {
        "logits": 2 * logits,
        "labels": labels,
        "client": np.array([f"ward {k}" for k in client]),
        "group": np.where(np.arange(ROWS) % 10 == 0, "b", "a"),
        **more,
    }


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, **arrays())
    return path


def test_a_result_holds_metrics_and_groups(tmp_path):
    exact = evaluate(arrays(), by="site", partition="natural").judged["groups"]
    result = evaluate(arrays(), by="site", out=tmp_path, **PRIVATE)
    told = json.loads((tmp_path / "result.json").read_text("utf-8"))
    for value in told["metrics"].values():
        assert {"value", "low", "high", "sampling", "noise", "binning"} <= set(value)
    assert set(told["groups"]) == {f"ward {k}" for k in range(CLIENTS)}
    small = told["groups"].pop(f"ward {CLIENTS - 1}")  # suppressed by its noisy count: no number
    assert small == {"suppressed": True}
    for name, group in told["groups"].items():
        for metric in ("accuracy", "gap"):
            quarter_summary, truth = (
                group["metrics"][metric],
                exact[name]["metrics"][metric]["value"],
            )
            assert quarter_summary["low"] <= truth <= quarter_summary["high"]
    assert result.privacy["epsilon"] == 1


def test_two_models_or_two_sides_of_a_calibrator_are_compared(tmp_path):
    given = arrays()
    better = given["logits"] + 2 * np.eye(2)[given["labels"]]
    told = evaluate({**given, "other_logits": better}).to_json()
    assert told["metrics_other"]["accuracy"]["value"] > told["metrics"]["accuracy"]["value"]
    assert told["metrics_difference"]["accuracy"]["low"] > 0

    simulate(given, method="pooled-temperature", out=tmp_path, report=False)
    told = evaluate(given, calibrator=tmp_path / "calibrator.npz", partition="iid").to_json()
    before, after, difference = (told[f"metrics{k}"] for k in ("", "_after", "_difference"))
    assert abs(before["gap"]["value"] - after["gap"]["value"]) < 0.01
    assert after["log_loss"]["value"] < before["log_loss"]["value"]
    assert difference["log_loss"]["value"] < 0
    same = difference["accuracy"]  # a temperature changes no prediction
    assert same["value"] == 0
    assert same["low"] == -same["high"] >= -0.001  # of other rows some might have moved


def test_another_method_s_files_are_no_evaluation_and_no_release(file, tmp_path, capsys):
    out = tmp_path / "other"
    result = simulate(file, method="pooled-temperature", out=out, report=False)
    with pytest.raises(FedcalError, match="evaluates nothing"):
        _ = result.metrics
    assert exit_code_of(["evaluate", "--config", str(out / "config.toml"), "--quiet"]) == 2
    capsys.readouterr()
    for path in (file, out / "calibrator.npz", tmp_path / "none.npz"):
        _, line = again(capsys, path, code=2)
        assert str(path) in line


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    options: dict[str, Any] = {"partition": "iid", "epsilon": 2.0, "unit": "example"}
    evaluate(arrays(), out=folder, overwrite=True, report=False, **options)
    return folder / "release.npz"


def again(
    capsys: pytest.CaptureFixture[str], release: Path, *options: str, code: int = 0
) -> tuple[str, str]:
    assert exit_code_of(["evaluate", "--release", str(release), *options]) == code
    return capsys.readouterr()


def test_a_release_is_read_again_at_another_threshold(release, capsys):
    def read(*options: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(again(capsys, release, *options, "--json")[0])
        return told

    first = json.loads((release.parent / "result.json").read_text("utf-8"))
    same = read()
    assert same["metrics"] == first["metrics"]
    assert same["statement"] == first["privacy"]["statement"]
    other = read("--threshold", "0.75")
    assert other["metrics"]["precision"]["value"] > first["metrics"]["precision"]["value"]


SEVERAL: dict[str, Any] = {"epsilon": 20.0, "unit": "example", "partition": "natural"}
SUBJECTS = {"subject": np.arange(ROWS) // 3}


@pytest.fixture(scope="module")
def last_year(tmp_path_factory):
    out = tmp_path_factory.mktemp("last") / "out"
    evaluate(arrays(**SUBJECTS), by="site", out=out, report=False, **SEVERAL)
    return out / "release.npz"


@pytest.mark.parametrize(
    ("options", "differences"),
    [
        (
            {"unit": "subject", "bins": 120},
            [
                "weighting (each row counts once, now each subject counts once",
                "unit (example, now subject)",
                "buckets (256, now 136 with other edges)",
            ],
        ),
        ({"unit": "subject", "rows_per_subject": 3}, ["unit (example, now subject)"]),
        (
            {"unit": "user", "set": {"edges": "equi-depth"}},
            ["unit (example, now user)", "buckets (256, now 240 with other edges)"],
        ),
        (
            {"score": "confidence", "calibrator": True, "probs": True},
            [
                "score (positive, now confidence)",
                "calibrator (without, now with one)",
                "scores (logits, now probabilities)",
            ],
        ),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_refused_by_name(last_year, tmp_path, options, differences):
    given, rows = {**SEVERAL, **options}, arrays(**SUBJECTS)
    if given.pop("probs", False):
        rows["probs"] = softmax(rows.pop("logits"))
    if given.pop("calibrator", False):
        simulate(rows, method="pooled-temperature", out=tmp_path / "fit", report=False)
        given["calibrator"] = tmp_path / "fit" / "calibrator.npz"
    evaluate(rows, out=tmp_path / "now", report=False, **given)
    with pytest.raises(FedcalError) as refused:
        check_comparable(*map(read_release, (last_year, tmp_path / "now" / "release.npz")))
    for difference in differences:
        assert difference in str(refused.value)


@pytest.mark.parametrize(("classes", "of"), [(2, "of the positive class"), (3, "minus accuracy")])
def test_every_page_means_one_gap_of_the_same_rows(tmp_path, classes, of):
    rng = np.random.default_rng(4)
    y, client = rng.integers(0, classes, 600), np.repeat(["a", "b"], 300)
    sure = np.where(client == "a", 3, 1)[:, None]
    z = rng.normal(size=(600, classes)) + np.eye(classes)[y] * sure
    half = {"logits": z, "labels": y, "client": client}
    given = half | {f"test_{k}": v for k, v in half.items()}
    simulated = simulate(given, method="none", partition="natural", out=tmp_path / "s")
    evaluate(given, partition="natural", out=tmp_path / "e")
    by_group = evaluate(given, by="site", partition="natural", out=tmp_path / "g")
    p = softmax(z)
    gap = p[:, 1] - y if classes == 2 else p.max(axis=1) - (p.argmax(axis=1) == y)
    for name in ("a", "b"):
        truth = gap[client == name].mean()
        assert simulated.judged["clients_change"]["sites"][name]["before"] == pytest.approx(truth)
        found = by_group.judged["groups"][name]["metrics"]["gap"]
        assert found["value"] == pytest.approx(truth, abs=found["binning"] + 1e-6)
    for folder in "eg":
        page = (tmp_path / folder / "report.html").read_text("utf-8")
        assert of in page
        assert ("confidence minus" if classes == 2 else "positive class") not in page
