"""`fedcal site recalibrate`: a release, the site's own rows, a verdict, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused, refused
from sklearn.linear_model import LogisticRegression

from fedcal import calibrators, datasets
from fedcal.cli.main import exit_code_of
from fedcal.core.numerics import softmax
from fedcal.metrics import nll
from fedcal.personal import releases
from fedcal.run.simulation import evaluate
from fedcal.sites.at_home import recalibrate

pytestmark = pytest.mark.usefixtures("quick_figures")


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Releases of the four hospitals, and each hospital's file."""
    folder = tmp_path_factory.mktemp("hospitals")
    data: Any = datasets.load("heart-disease")
    three = {"client": np.arange(384) % 3, "class_names": ["well", "sick"]}
    named = datasets.from_arrays(logits=data.logits, labels=data.labels, **three)
    runs: dict[str, tuple[Any, dict[str, Any]]] = {
        "exact": (data, {"by": "site"}),
        "private": (data, {"by": "site", "epsilon": 1.0, "unit": "subject"}),
        "confidence": (data, {"by": "site", "score": "confidence"}),
        "named": (named, {"by": "site"}),
        "whole": (data, {}),
    }
    for name, (rows, options) in runs.items():
        evaluate(rows, partition="natural", out=folder / name, report=False, **options)
    for k, name in enumerate(data.client_names):
        own = data.client == k
        about = {"labels": data.labels[own], "subject": data.subject[own]}
        np.savez(folder / f"{name}.npz", logits=data.logits[own], **about)
    return folder


def recalibrated(home: Path, rows: str, release: str = "private", **options: Any) -> Any:
    return recalibrate(home / release / "release.npz", str(home / rows), **options)


def test_a_site_gets_verdict_calibrator_and_report_and_nobody_else(home, tmp_path, capsys):
    out = tmp_path / "mine"
    words = ["site", "recalibrate", "--release", str(home / "private" / "release.npz")]
    words += [str(home / "longbeach.npz"), "--site", "longbeach", "--out", str(out)]
    assert exit_code_of(words) == 0
    output = capsys.readouterr()
    result = json.loads((out / "result.json").read_text("utf-8"))
    assert (output.out.splitlines()[0], output.err) == (result["verdict"], "")
    start = "Recalibrate: your model says 37 points too low on average; with this calibrator "
    assert result["verdict"].startswith(f"{start}log loss falls from 1.02 to 0.5")
    assert (result["schema"], out.stat().st_mode & 0o777) == (1, 0o700)
    assert exit_code_of(["report", str(out)]) == 0
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    page = (out / "report.html").read_text("utf-8")
    assert result["verdict"] in page
    assert "Nothing has left" in page
    (out / "report.html").unlink()
    assert exit_code_of(["report", str(out)]) == 0
    assert (out / "report.html").read_text("utf-8") == page
    assert exit_code_of(words) == 2  # its results are replaced on request alone
    assert exit_code_of([*words, "--overwrite"]) == 0
    with np.load(home / "longbeach.npz") as rows:
        probs = calibrators.load(out / "calibrator.npz").predict_proba(rows["logits"])
        assert nll(probs, rows["labels"]) < 0.56 < nll(softmax(rows["logits"]), rows["labels"])


def test_own_numbers_are_exact_and_a_subject_counts_once(home, tmp_path):
    with np.load(home / "hungary.npz") as file:
        rows = dict(file)
    own = recalibrated(home, "hungary.npz").content["own"]
    x, y = np.diff(rows["logits"])[:, 0], rows["labels"]
    p = 1 / (1 + np.exp(-x))
    fit = LogisticRegression(C=np.inf, tol=1e-10).fit(x[:, None], y)
    expected = {"rows": len(y), "events": y.sum(), "mean score": p.mean()}
    expected |= {"score minus outcome": (p - y).mean(), "log loss": nll(softmax(rows["logits"]), y)}
    expected |= {"its standard error": (p - y).std(ddof=1) / np.sqrt(len(y))}
    expected |= {"calibration slope": fit.coef_[0, 0], "rate of the outcome": y.mean()}
    assert {k: own[k] for k in expected} == pytest.approx(expected, rel=1e-5)
    np.savez(tmp_path / "twice.npz", **{k: np.repeat(v, 2, axis=0) for k, v in rows.items()})
    once, twice = (recalibrated(home, f) for f in ("hungary.npz", str(tmp_path / "twice.npz")))
    assert (twice.content["own"]["rows"], twice.content["own"]["subjects"]) == (2 * len(y), len(y))
    same = {k: own[k] for k in own if k != "rows"}
    assert {k: twice.content["own"][k] for k in same} == pytest.approx(same)
    for a, b in zip(once.content["priors"].values(), twice.content["priors"].values(), strict=True):
        assert a["parameters"] == pytest.approx(b["parameters"], abs=1e-6)
        assert a["chance of harm"] == pytest.approx(b["chance of harm"], abs=1e-6)


def test_swapped_labels_are_refused_and_a_slope_below_0_by_chance_is_not(home, tmp_path):
    rows, file = dict(np.load(home / "cleveland.npz")), str(tmp_path / "rows.npz")
    np.savez(file, **rows | {"labels": 1 - rows["labels"]})
    why = r"scores run against outcomes: AUC 0\.\d\d \(0\.\d\d to 0\.\d\d\).* classes swapped"
    refused(why, recalibrated, home, file, site="cleveland")
    below, output = [], []
    for seed in (0, 1, 2):  # the true slope is 0
        rng = np.random.default_rng(seed)
        made = {"logits": rng.normal(size=(60, 2)), "labels": rng.integers(0, 2, 60)}
        np.savez(file, **made)
        found = recalibrated(home, file).content
        below.append(found["own"]["calibration slope"] < 0)
        output.append(any("0 or above" in line for line in found["statement"]))
    assert below == output
    assert 0 < sum(below) < 3


def test_a_prior_leaves_the_site_out_and_a_name_that_is_off_is_reported(home):
    each = [
        recalibrated(home, "hungary.npz", "exact", site=s).content for s in ("hungary", "Hungry")
    ]
    assert [list(one["priors"])[1] for one in each] == ["from 3 sites", "from 4 sites"]
    assert "no site 'Hungry': this one is taken as new." in each[1]["statement"][1]
    assert len(each[0]["statement"]) == 1  # a site that was in it is not new


def test_a_gate_that_refuses_keeps_the_model(home, monkeypatch):
    monkeypatch.setattr(releases, "MOST_RISK", -1.0)
    kept = recalibrated(home, "switzerland.npz")
    assert kept.content["verdict"].startswith(
        "Keep the model as it is: with 61 subjects and this prior"
    )
    assert (kept.calibrator.kind, kept.calibrator.classes) == ("identity", 2)


def test_few_rows_and_sure_rows_have_an_answer(home, tmp_path):
    z = np.array([[0.0, 2.0], [0.0, 1.0], [1.0, 0.0]])
    for name, rows in {
        "one row": {"logits": z[:1], "labels": [1]},
        "one class": {"logits": z, "labels": [1, 1, 1]},
        "sure": {"probs": np.eye(2)[[1, 0, 0]], "labels": [0, 1, 1]},
    }.items():
        np.savez(tmp_path / "rows.npz", **rows)  # type: ignore[arg-type]
        found = recalibrated(home, str(tmp_path / "rows.npz"), "exact")
        assert all(np.isfinite(t["log loss"]) for t in found.content["priors"].values()), name
        found.save(tmp_path / name)
        assert np.isfinite(found.calibrator.predict_proba(rows.get("probs", np.eye(2) * 9))).all()


def test_what_does_not_fit_is_refused(home, tmp_path):
    rng = np.random.default_rng(0)
    made: dict[str, dict[str, Any]] = {
        "three": {"logits": rng.normal(size=(9, 3)), "labels": np.arange(9) % 3},
        "other": {"logits": rng.normal(size=(9, 2)), "labels": np.arange(9) % 2},
    }
    for name, rows in made.items():
        np.savez(tmp_path / f"{name}.npz", **rows)
    np.savez(tmp_path / "swapped.npz", **made["other"], class_names=["sick", "well"])
    at = {name: home / name / "release.npz" for name in ("exact", "whole", "confidence", "named")}
    table: list[tuple[tuple[Path, str, tuple[str, ...] | None], str]] = [
        ((at["exact"], "three", None), r"is of 2 classes .* of 3 .*the same"),
        ((at["named"], "other", ("sick", "well")), r"\(well, sick\).*\(sick, well\).*same order"),
        ((at["whole"], "other", None), "by site"),
        ((at["confidence"], "other", None), "got 'confidence'"),
    ]
    each_is_refused(table, lambda t: recalibrate(t[0], str(tmp_path / f"{t[1]}.npz"), None, t[2]))
    # columns that have names are read by them, in the order of the release
    both = [recalibrate(at["named"], str(tmp_path / f"{n}.npz")) for n in ("other", "swapped")]
    assert both[0].calibrator.class_names == both[1].calibrator.class_names == ("well", "sick")
    assert both[0].content["own"]["mean score"] == pytest.approx(
        1 - both[1].content["own"]["mean score"]
    )
