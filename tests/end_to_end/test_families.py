"""What yields no calibrator: files that take each other's place, and who refuses it."""

import json
from typing import Any

import numpy as np
import pytest
from made_up import scored

from fedcal.core.errors import FedcalError, InputError
from fedcal.experiments import compare, plan, simulate
from fedcal.experiments.cli.main import _run
from fedcal.experiments.planner.candidates import candidates
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.report import write_report
from fedcal.experiments.runs.comparison.grid import read_grid
from fedcal.experiments.runs.estimator import FederatedCalibrator
from fedcal.privacy.federation import Federation
from fedcal.strategies import STRATEGIES
from fedcal.strategies.settings import calibrating

pytestmark = pytest.mark.usefixtures("quick_figures")
OTHERS = tuple(name for name in STRATEGIES if name not in calibrating())
ASKED: dict[str, Any] = {"method": "evaluate", "clients": 8, "set": {"bins": 6}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    logits, labels = scored(2, 400, 3, 1.0, 1.5)
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    np.savez(path, logits=2 * logits, labels=labels)
    return path


@pytest.mark.filterwarnings("ignore:.*which is replaced")
def test_one_folder_for_runs_of_two_families(data, tmp_path):
    """What an earlier run of another family left does not stay beside this one's files."""
    simulate(data, out=tmp_path / "alone", **ASKED)
    own = {p.name for p in (tmp_path / "alone").iterdir()}
    out = tmp_path / "both"
    simulate(data, out=out, clients=8)
    (out / "mine.npz").write_bytes(b"")
    simulate(data, out=out, overwrite=True, **ASKED)
    assert {p.name for p in out.iterdir()} == own | {"mine.npz"}
    page = (out / "report.html").read_text("utf-8")
    assert _run(["report", str(out), "--quiet"]) == 0
    assert (out / "report.html").read_text("utf-8") == page
    simulate(data, out=out, clients=8, overwrite=True)
    there = {p.name for p in out.iterdir()}
    assert "calibrator.npz" in there
    assert not there & {"release.npz", "page.json", "curve-1.svg"}


def test_a_page_of_something_else_is_refused(data, tmp_path):
    simulate(data, out=tmp_path, **ASKED)
    table: dict[str, Any] = {"part": "table", "title": "", "columns": ["a"], "rows": [[]]}
    curve = {"part": "curve", "title": "", "x": "", "y": "", "note": "", "series": {}}
    parts = [{"schema": 1, "parts": [part]} for part in ({"part": "script"}, table, curve)]
    for page in ({}, [], {"schema": 2, "parts": []}, {"schema": 1}, *parts):
        (tmp_path / "page.json").write_text(json.dumps(page))
        with pytest.raises(InputError, match=r"page\.json") as caught:
            write_report(tmp_path)
        assert "\n" not in str(caught.value)


def test_what_is_no_calibrator_is_not_applied(data, tmp_path, capsys):
    result = simulate(data, out=tmp_path, **ASKED)
    command = ["apply", "--calibrator", str(tmp_path / "release.npz"), "--data", str(data)]
    assert _run([*command, "--out", str(tmp_path / "probs.npy")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "release.npz': is not a fedcal calibrator" in line
    for name in ("calibrator", "before", "after", "intervals", "reliability", "test_probs"):
        with pytest.raises(
            FedcalError, match="yields no calibrator: its artifact has the form rel"
        ):
            getattr(result, name)


@pytest.mark.parametrize(
    ("methods", "metrics", "said"),
    [
        (["conformal", "conformal[alpha=0.3]"], {"coverage", "set_size"}, "alpha 0.3 FedConformal"),
        (["evaluate[bins=12]", "evaluate[bins=6]"], {"accuracy", "ece_width"}, "how well each is"),
    ],
)
def test_a_comparison_of_another_family(data, tmp_path, methods, metrics, said):
    grid = {"epsilon": ["inf", 8.0], "clients": 8, "seeds": 2, "jobs": 1, "unit": "example"}
    found = compare(data, method=methods, out=tmp_path, **grid)
    assert said in found.headline
    assert not found.failures
    assert all(metrics <= line["after"].keys() for line in found.cells)
    asked = {**ASKED, "method": methods[0].partition("[")[0], "set": {}, "unit": "example"}
    if asked["method"] == "evaluate":
        asked["set"] = {"bins": 12}
        alone = simulate(data, seed=1, **asked).metrics["accuracy"]["value"]
    else:
        alone = simulate(data, seed=1, **asked).after["coverage"]
    assert found.cells[0]["after"][min(metrics)]["values"][1] == alone
    assert compare(data, method=methods, out=tmp_path, resume=True, **grid).cells == found.cells
    assert found.cells[0]["label"] in (tmp_path / "report.html").read_text("utf-8")
    with pytest.raises(InputError, match="methods of one family: none belongs to 'calibrate'"):
        compare(data, method=["none", *methods])


def test_a_comparison_of_evaluations_that_noise_hides(data, tmp_path):
    asked = {"epsilon": 0.001, "clients": 8, "seeds": 2, "jobs": 1, "out": tmp_path}
    found = compare(data, method="evaluate", unit="example", **asked)
    assert [line["after"] for line in found.cells] == [{}]
    assert "Released metrics" in found.headline
    assert found.cells[0]["label"] in (tmp_path / "report.html").read_text("utf-8")


def test_comparisons_plans_and_estimators_are_of_methods_that_calibrate(data):
    for grid in (read_grid(), read_grid({"method": "all"})):
        assert not {v.method for v in grid.method} & {*OTHERS}
        assert {v.method for v in grid.method} >= set(calibrating())
    facts = PublicFacts(Federation(100, 2, epsilon=1.0), 50.0, "dirichlet:0.1")
    found, refused = candidates(facts)
    assert not ({c.method for c in found} | {name for name, _ in refused}) & {*OTHERS}
    for method in ("dp-fedavg", "fedsgd"):
        why = f"compare takes methods that .* sets, and {method} belongs to the family 'train'"
        with pytest.raises(InputError, match=why):
            compare(data, method=f"none,{method}", clients=8, seeds=1)
        with pytest.raises(InputError, match="the planner takes methods that calibrate"):
            plan(clients=100, rows_per_client=50, classes=10, methods=[method])
        with pytest.raises(InputError, match="FederatedCalibrator takes methods that calibrate"):
            FederatedCalibrator(method, clients=2).fit(3 * np.eye(4), [0, 1, 2, 3])
