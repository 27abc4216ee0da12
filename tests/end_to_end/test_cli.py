"""The command `fedcal`: what it prints, what it returns."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import strict

from fedcal.cli.main import COMMANDS, exit_code_of, load_command

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
def fedcal_says(capsys):
    def run(*arguments: str) -> Run:
        code = exit_code_of(list(arguments))
        out, err = capsys.readouterr()
        lines = err.splitlines(keepends=True)  # the rows here are few, which is said, see below
        return code, out, "".join(line for line in lines if TOO_LITTLE not in line)

    return run


TOO_LITTLE = "fedcal: warning: unlikely to help: "


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
