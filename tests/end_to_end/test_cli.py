"""The command `fedcal`: what it prints, what it returns."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import strict

from fedcal import calibrators, datasets
from fedcal.experiments.cli.main import COMMANDS, _run, load_command
from fedcal.metrics import summary

pytestmark = pytest.mark.usefixtures("quick_figures")

CONSOLE_SCRIPT = Path(sys.executable).with_name("fedcal")

Run = tuple[int, str, str]


def rows(n: int = 240, classes: int = 3, seed: int = 5) -> dict[str, Any]:
    """Overconfident logits, labels and seven natural clients."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), labels] += 1.0
    return {"logits": 3 * logits, "labels": labels, "client": np.arange(n) % 7}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a data set in it; the terminal is plain and wide enough."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    np.savez("data.npz", **rows())
    return tmp_path


@pytest.fixture
def fedcal_says(capsys):
    def run(*arguments: str) -> Run:
        code = _run(list(arguments))
        out, err = capsys.readouterr()
        lines = err.splitlines(keepends=True)  # the rows here are few, which is said, see below
        return code, out, "".join(line for line in lines if TOO_LITTLE not in line)

    return run


TOO_LITTLE = "fedcal: warning: unlikely to help: "


GIVEN: dict[str, Any] = {
    **{"method": "fedtemp", "clients": 11, "partition": "dirichlet:0.5", "rounds": 3},
    **{"sampling-rate": 0.9, "epsilon": 4.0, "delta": 1e-3, "trust": "distributed"},
    **{"unit": "user", "mechanism": "gaussian", "quorum": 0.5, "noise-source": "seeded"},
    **{"secure-aggregation": "masks", "dropout": 0.1, "seed": 7, "cap": 9.0, "engine": "inline"},
}


def test_options_reach_the_run(fedcal_says, folder):
    words = [word for name, value in GIVEN.items() for word in (f"--{name}", str(value))]
    more = ("--data", "data.npz", "--ledger", "l.db")
    settings = ("--set", "clip=0.25", "--set", "average=temperature")
    code, out, _ = fedcal_says("simulate", *words, *more, *settings, "--json")
    assert code == 0
    assert strict(out)["config"] == {
        **{name.replace("-", "_"): value for name, value in GIVEN.items()},
        **{"data": str(folder / "data.npz"), "ledger": str(folder / "l.db")},
        "set": {"clip": 0.25, "average": "temperature"},
    }


@pytest.fixture
def fitted(folder, fedcal_says):
    fedcal_says("simulate", "--data", "data.npz", "--method", "fedbbq", "--out", "run", "--quiet")
    return folder / "run" / "calibrator.npz"


@pytest.mark.parametrize("labelled", [True, False])
def test_apply(fedcal_says, fitted, folder, labelled):
    fresh = {
        k: v for k, v in rows(50, seed=6).items() if k == "logits" or (labelled and k == "labels")
    }
    np.savez("fresh.npz", **fresh)
    out_file = "probs.npz"  # others: tests/experiments/cli/test_apply_forms.py
    arguments = ("apply", "--calibrator", str(fitted), "--data", "fresh.npz", "--out", out_file)
    code, out, err = fedcal_says(*arguments)
    assert (code, err) == (0, "")
    assert "50 rows calibrated by weighted-binning" in out
    assert ("before: accuracy %" in out) is labelled
    assert sorted(os.listdir(folder)) == sorted(["data.npz", "fresh.npz", out_file, "run"])
    with np.load(out_file, allow_pickle=False) as arrays:
        assert set(arrays) == {"probs", *(["labels"] if labelled else [])}
        probs = arrays["probs"]
    assert np.array_equal(probs, calibrators.load(fitted).predict_proba(fresh["logits"]))
    if labelled:
        assert datasets.load(out_file).labels.tolist() == fresh["labels"].tolist()

    code, out, err = fedcal_says(*arguments, "--json")
    assert (code, out) == (2, "")
    assert f"--out {out_file} exists: --overwrite replaces it" in err
    code, out, _ = fedcal_says(*arguments, "--json", "--overwrite")
    said = strict(out)
    assert (code, said["rows"], said["out"]) == (0, 50, out_file)
    assert ("after" in said) is labelled
    if labelled:
        assert said["after"] == pytest.approx(summary(probs, fresh["labels"]))
    assert fedcal_says(*arguments, "--quiet", "--overwrite")[:2] == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_the_help_are_taken(fedcal_says, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "160")
    words = name.split()
    _, out, _ = fedcal_says(*words, "--help")
    examples = [line for line in out.splitlines() if line.startswith(f" fedcal {name} ")]
    assert examples
    for example in examples:
        load_command(name).make_context(name, shlex.split(example)[1 + len(words) :])


def command(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(CONSOLE_SCRIPT), *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_the_console_script_works_in_an_empty_folder(tmp_path):
    done = command(tmp_path, "simulate", "--epsilon", "1", "--out", "o", "--json")
    progress = [line for line in done.stderr.splitlines() if line.startswith("fedcal: fednewton")]
    assert (done.returncode, done.stderr.splitlines()) == (0, progress)  # on a busy machine
    said = strict(done.stdout)
    assert said["privacy"]["epsilon"] == 1.0
    assert said == strict((tmp_path / "o" / "result.json").read_text("utf-8"))


@pytest.mark.parametrize("words", [("--version",), ("datasets",)])
def test_the_command_runs_where_warnings_are_errors(tmp_path, words):
    """With the pinned versions: typer imports what click deprecates."""
    strictly = [sys.executable, "-W", "error", "-m", "fedcal", *words]
    done = subprocess.run(strictly, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
