"""`fedcal check`: a verdict on labelled scores at home, without Flower."""

import json
import subprocess
import sys

import numpy as np
import pytest

from fedcal.cli.main import exit_code_of

HEAVY = "flwr grpc torch ray pandas sqlalchemy"


def written(path, factor, rows=2000, shift=0.0):
    """Scores whose log-odds are `factor` times, and `shift` above, what they should be."""
    rng = np.random.default_rng(0)
    z = rng.normal(0, 1.5, rows)
    labels = rng.random(rows) < 1 / (1 + np.exp(-z))
    scores = 1 / (1 + np.exp(-factor * z - shift))
    lines = (f"{int(y)},{s!r}" for y, s in zip(labels, scores.tolist(), strict=True))
    path.write_text("\n".join(["label,score", *lines]))
    return str(path)


@pytest.mark.parametrize(
    ("about", "verdict"),
    [
        ({"factor": 1}, "No miscalibration is shown by 2,000 rows"),
        ({"factor": 2}, "Not calibrated: the model is too sure, calibration slope 0.5"),
        ({"factor": 0.5}, "Not calibrated: the model is not sure enough, calibration slope 2.0"),
        ({"factor": -1}, "Scores run against the outcomes"),
        ({"factor": 1, "shift": -1}, "points too low"),
        ({"factor": 2, "rows": 15}, "Whether this model is calibrated cannot be told from 15 rows"),
    ],
)
def test_the_verdict_is_that_of_the_scores(tmp_path, capsys, about, verdict):
    assert exit_code_of(["check", written(tmp_path / "s.csv", **about), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert verdict in record["verdict"]
    if (fit := record["temperature"]) and about["factor"] > 0 and not about.get("shift"):
        assert abs(fit["log"] - np.log(about["factor"])) < 3 * fit["standard_error"]
        assert 0.02 < fit["standard_error"] < 0.06


def test_it_writes_a_report_for_this_user_alone_and_imports_no_flower(tmp_path):
    data, out = written(tmp_path / "s.csv", 2), tmp_path / "home"
    code = (
        f"import sys; from fedcal.cli.main import exit_code_of as run; run(['check', {data!r}, "
        f"'--out', {str(out)!r}]); print(*sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "█│" in printed
    assert not {*printed.split()} & {*HEAVY.split()}
    assert {"result.json", "report.html", "curve-1.png"} <= {path.name for path in out.iterdir()}
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    assert exit_code_of(["check", data, "--out", str(out)]) == 2
