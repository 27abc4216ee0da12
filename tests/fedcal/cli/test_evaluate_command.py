"""`fedcal evaluate` and `fedcal.evaluate`: what is read, what a result holds, what is refused."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import scored

from fedcal import datasets, evaluate, simulate
from fedcal.cli.main import exit_code_of

pytestmark = pytest.mark.usefixtures("quick_figures")

ROWS, CLIENTS = 3000, 6
PRIVATE: dict[str, Any] = {"epsilon": 20.0, "unit": "example", "partition": "natural"}


def arrays() -> dict[str, Any]:
    """Rows of two classes, with scores that are too extreme."""
    logits, labels = scored(2, ROWS, 7, 2.0, 3.0)
    ids = {"client": np.arange(ROWS) % CLIENTS, "subject": np.arange(ROWS) // 3}
    return {"logits": logits, "labels": labels, **ids}


@pytest.fixture(scope="module")
def calibrator(tmp_path_factory):
    out = tmp_path_factory.mktemp("calibrator") / "out"
    simulate(arrays(), method="pooled-temperature", out=out, report=False)
    return out / "calibrator.npz"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    out = tmp_path_factory.mktemp("release") / "out"
    evaluate(arrays(), by="site", out=out, report=False, **PRIVATE)
    return out / "release.npz"


def again(
    capsys: pytest.CaptureFixture[str], release: Path, *options: str, code: int = 0
) -> tuple[str, str]:
    assert exit_code_of(["evaluate", "--release", str(release), *options]) == code
    return capsys.readouterr()


def test_a_release_is_read_again_at_another_threshold(release, capsys):
    def read(*options: str) -> Any:
        return json.loads(again(capsys, release, *options, "--json")[0])

    first = json.loads((release.parent / "result.json").read_text("utf-8"))
    same, other = read(), read("--threshold", "0.75")
    assert same["metrics"] == first["metrics"]
    assert same["statement"] == first["privacy"]["statement"]
    assert other["metrics"]["precision"]["value"] > first["metrics"]["precision"]["value"]


def test_another_method_s_files_are_no_evaluation_and_no_release(calibrator, capsys):
    config = str(calibrator.with_name("config.toml"))
    assert exit_code_of(["evaluate", "--config", config, "--quiet"]) == 2
    capsys.readouterr()
    for path in (calibrator, calibrator.with_name("none.npz")):
        _, line = again(capsys, path, code=2)
        assert str(path) in line


NUMBERS = ("0_1", "１", "1_0.5", "infinity")
SIMULATE = "simulate --data mnist-cnn --no-report"
STUDY = "study init s.toml --classes x,y"
PLACES = (
    f"{SIMULATE} --epsilon {{}}",
    f"{SIMULATE} --partition shards:{{}}",
    f"{SIMULATE} --epsilon 1 --set rows_per_client={{}}",
    "compare --data mnist-cnn --method none --epsilon 1,{} --out out",
    "train --data mnist-features --model mlp:{} --out out",
    f"{STUDY} --sites a={{}},b,c --server h:1",
    f"{STUDY} --sites a,b,c --server h:{{}}",
)


def test_a_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for k, place in enumerate(PLACES):
        number = NUMBERS[k % len(NUMBERS)]
        code = exit_code_of(shlex.split(place.format(number)))
        shown = capsys.readouterr()
        assert (code, shown.out) == (2, ""), place
        assert re.match(f"fedcal: error: .*{re.escape(number)}", shown.err), place
        assert not [*tmp_path.iterdir()], place


@pytest.mark.parametrize(("kind", "separator"), [("label", ","), ("prob_1", ";")])
def test_a_table(kind, separator, tmp_path, capsys):
    path = tmp_path / "x.csv"
    for number in NUMBERS:
        cells = {"label": "1", "prob_0": "0", "prob_1": "1"} | {kind: number}
        lines = [[*cells], ["0", "1", "0"], [*cells.values()]]
        path.write_text("\n".join(map(separator.join, lines)), "utf-8")
        assert exit_code_of(["evaluate", "--data", str(path)]) == 2
        assert repr(number) in capsys.readouterr().err


def test_names_that_are_no_numbers_stay_names(tmp_path):
    names = ("0_1", "01", "１", "--2")
    rows = [f"{k % 2},.{k % 2 + 3},{name}" for k, name in enumerate(names)]
    (tmp_path / "x.csv").write_text("\n".join(["label,score,client", *rows]), "utf-8")
    assert set(datasets.load(tmp_path / "x.csv").client_names) == set(names)
    groups = ["²", "--1", "-1", "1"]
    scores = {"probs": np.full((4, 2), 0.5), "labels": [0, 1, 0, 1]}
    np.savez(tmp_path / "x.npz", **scores, client=sorted(names), group=groups)
    assert datasets.in_blocks(tmp_path / "x.npz").group_names == ("--1", "-1", "1", "²")


VERDICTS = {
    1.0: "No miscalibration is shown by 3,000 rows",
    2.0: "the model is too sure, calibration slope 0.5",
    0.5: "the model is not sure enough, calibration slope ",
    -1.0: "Scores run against the outcomes",
    3.0: "cannot be told from 15 rows",
}


@pytest.mark.parametrize("factor", VERDICTS)
def test_check_gives_the_verdict_that_scores_deserve(tmp_path, capsys, factor):
    logits, labels = scored(2, 15 if factor == 3 else ROWS, 7, 1.0, 1.0)
    np.savez(tmp_path / "s.npz", logits=factor * logits, labels=labels)
    exit_code_of(["check", f"{tmp_path}/s.npz", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert VERDICTS[factor] in record["verdict"]
    assert ("too extreme" in record["verdict"]) == (factor == 2)
    assert (exit_code_of(["check", "", "b.csv"]), "--data" in capsys.readouterr().err) == (2, False)
    if fit := record["temperature"]:
        assert abs(fit["log"] - np.log(factor)) < 3 * fit["standard_error"] < 0.2
