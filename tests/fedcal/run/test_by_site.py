"""Calibration at each site: a wrong slope behind a mean gap of 0, and harm behind a pooled gain."""

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from fedcal import evaluate, simulate
from fedcal.cli.main import exit_code_of
from fedcal.evaluation import Histogram, cox

pytestmark = pytest.mark.usefixtures("quick_figures")

SITES = ("Aachen", "Basel", "Celle", "Davos", "Essen")
PRIVATE: dict[str, Any] = {"epsilon": 1.0, "unit": "example", "partition": "natural"}


def hospitals(slope: dict[str, float], intercept: dict[str, float], rows: int) -> dict[str, Any]:
    """Rows of two classes whose log odds are intercept + slope * those of the model."""
    rng = np.random.default_rng(3)
    site = np.repeat(SITES, rows)
    z = rng.normal(0, 2, len(site))
    odds = [intercept.get(s, 0.0) + slope.get(s, 1.0) * x for s, x in zip(site, z, strict=True)]
    labels = (rng.random(len(site)) < expit(odds)).astype(np.int64)
    return {"probs": np.stack([1 - expit(z), expit(z)], axis=1), "labels": labels, "client": site}


def too_low_but_for_one() -> dict[str, Any]:
    return hospitals({}, {site: -0.3 if site == "Davos" else 0.9 for site in SITES}, 2000)


def test_a_slope_of_a_third_is_found_behind_a_mean_gap_of_none(tmp_path, capsys):
    given = hospitals({"Celle": 0.35}, {}, 2000)
    told = evaluate(given, by="site", out=tmp_path, **PRIVATE).to_json()
    celle = told["groups"]["Celle"]["metrics"]
    assert celle["gap"]["low"] < 0 < celle["gap"]["high"]
    slope = celle["calibration_slope"]
    assert 0.1 < slope["low"] < 0.35 < slope["high"] < 0.6
    assert celle["classwise_ece"]["low"] > 0.08
    found = told["groups_calibration"]["metrics"]
    assert found["not_calibrated"] == ["Celle"]
    tests = told["tests"]["metrics"]
    assert tests["groups_cox"]["p_value"] < 1e-4
    page = (tmp_path / "report.html").read_text("utf-8")
    said = f"1 of 5 groups is not calibrated: Celle (scores too extreme, slope {slope['value']:.2f}"
    assert said in page
    assert all(f"Reliability, {site}</h2>" in page for site in SITES)
    assert exit_code_of(["evaluate", "--release", str(tmp_path / "release.npz")]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_calibrator_of_a_release_is_judged_at_each_site(tmp_path, capsys):
    given = too_low_but_for_one()
    evaluate(given, by="site", out=tmp_path / "run", report=False, **PRIVATE)
    capsys.readouterr()
    made, release = tmp_path / "platt.npz", tmp_path / "run" / "release.npz"
    again = ["evaluate", "--release", str(release), "--calibrate", "platt", "--out", str(made)]
    assert exit_code_of([*again, "--json"]) == 0
    assert "groups_change" not in json.loads(capsys.readouterr().out)
    run = evaluate(given, by="site", calibrator=made, partition="natural").to_json()
    assert run["groups_change"]["worse"] == ["Davos"]
    assert sorted(run["groups_change"]["better"]) == ["Aachen", "Basel", "Celle", "Essen"]
    assert abs(run["metrics_after"]["gap"]["value"]) < 0.02
    assert abs(run["metrics"]["gap"]["value"]) > 0.09


def test_a_simulation_tells_which_clients_a_calibrator_harmed(tmp_path, capsys):
    rows = tmp_path / "rows.npz"
    np.savez(rows, **too_low_but_for_one())
    command = ["simulate", "--data", str(rows), "--partition", "natural", "--method", "fedbbq"]
    assert exit_code_of([*command, "--out", str(tmp_path / "run")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    said = "grew by more than chance at 1 of 5 clients (Davos, "
    assert said in shown
    assert said in (page := (tmp_path / "run" / "report.html").read_text("utf-8"))
    assert "Gap of each client, before and after</h3>" in page
    told = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["clients_change"]
    assert told["worse"] == ["Davos"]
    assert told["score"] == "positive"
    assert told["sites"]["Davos"]["after"] > 0.08
    idle = simulate(too_low_but_for_one(), method="none", partition="natural").to_json()
    assert idle["clients_change"]["worse"] == idle["clients_change"]["better"] == []


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_cox_s_test_is_fair_and_sees_slopes_through_noise(noise):
    rng = np.random.default_rng(5)
    edges = np.linspace(0, 1, 61)

    def p_value(slope: float) -> float:
        z = rng.normal(0, 2, 1500)
        hit = rng.random(1500) < expit(slope * z)
        exact = [np.histogram(expit(z[hit == k]), edges)[0] for k in (False, True)]
        counts = np.array(exact) + noise * rng.standard_normal((2, 60))
        return cox(Histogram(edges, counts, noise * np.eye(60))).p_value

    assert np.mean([p_value(1.0) < 0.05 for _ in range(300)]) < 0.085
    assert np.mean([p_value(0.6) < 0.05 for _ in range(50)]) > 0.9
