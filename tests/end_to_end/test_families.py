"""What yields no calibrator: files that take each other's place, and who refuses it."""

from typing import Any

import numpy as np
import pytest
from made_up import scored

from fedcal import compare, simulate
from fedcal.cli.main import exit_code_of
from fedcal.core.checks import FedcalError, InputError

pytestmark = pytest.mark.usefixtures("quick_figures")
ASKED: dict[str, Any] = {"method": "evaluate", "clients": 8, "set": {"bins": 6}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    logits, labels = scored(2, 400, 3, 1.0, 1.5)
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    np.savez(path, logits=2 * logits, labels=labels)
    return path


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
    assert exit_code_of(["report", str(out), "--quiet"]) == 0
    assert (out / "report.html").read_text("utf-8") == page
    simulate(data, out=out, clients=8, overwrite=True)
    there = {p.name for p in out.iterdir()}
    assert "calibrator.npz" in there
    assert not there & {"release.npz", "page.json", "curve-1.svg"}


def test_what_is_no_calibrator_is_not_applied(data, tmp_path, capsys):
    result = simulate(data, out=tmp_path, **ASKED)
    command = ["apply", "--calibrator", str(tmp_path / "release.npz"), "--data", str(data)]
    assert exit_code_of([*command, "--out", str(tmp_path / "probs.npy")]) == 2
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
        (
            ["evaluate[bins=12]", "evaluate[bins=6]"],
            {"accuracy", "classwise_ece_width"},
            "how well each is",
        ),
    ],
)
def test_a_comparison_of_another_family(data, tmp_path, methods, metrics, said):
    grid = {"epsilon": ["inf", 8.0], "clients": 8, "seeds": 2, "jobs": 1, "unit": "example"}
    found = compare(data, method=methods, out=tmp_path, **grid)
    assert said in found.verdict
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
