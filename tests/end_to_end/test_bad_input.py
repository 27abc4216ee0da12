"""Bad input: one clear line, exit 2, nothing on stdout, nothing written. Failures: exit 1."""

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal import compare, simulate
from fedcal.calibrators import TemperatureScaling
from fedcal.cli.main import exit_code_of
from fedcal.clients.questions.temperature import TemperatureNewton
from fedcal.core.checks import InputError
from fedcal.privacy.ledger import Ledger

pytestmark = pytest.mark.usefixtures("quick_figures")

Disk = dict[str, bytes | None]


def rows(n: int = 120, classes: int = 3) -> dict[str, Any]:
    """Logits and labels without clients of their own."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), labels] += 1.0
    return {"logits": 3 * logits, "labels": labels}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with `data.npz` in it."""
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", **rows())
    return tmp_path


def disk(folder: Path) -> Disk:
    return {
        str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes()
        for p in sorted(folder.rglob("*"))
    }


def without_too_little(err: str) -> list[str]:
    """Lines on stderr, but for the warning that these few rows deserve."""
    return [line for line in err.splitlines() if "too little data or budget" not in line]


RUN = ("simulate", "--data", "data.npz")


@pytest.fixture
def refused(folder, capsys):
    """Run a command that must be refused in one line that holds these words, and change nothing."""

    def run(*arguments: str, code: int = 2, says: Sequence[str] = ()) -> None:
        before = disk(folder)
        capsys.readouterr()
        returned = exit_code_of(list(arguments))
        out, err = capsys.readouterr()
        assert disk(folder) == before, arguments
        assert (returned, out) == (code, ""), arguments
        assert err.endswith("\n")
        (line,) = without_too_little(err)
        assert line.startswith("fedcal: error: ")
        assert len(line) > len("fedcal: error: ") + 10
        assert [word for word in says if word not in line] == [], line

    return run


def test_rows_that_name_no_subject_are_refused_before_anything_is_asked(tmp_path):
    book, missing = tmp_path / "budget.db", "unit 'subject' needs a column subject"
    asked: dict[str, Any] = {"clients": 3, "unit": "subject"}
    for method in ("fednewton", "acct"):
        with pytest.raises(InputError, match=missing):
            simulate(rows(), method=method, ledger=book, epsilon=1.0, **asked)
        assert not book.exists()
    with pytest.raises(InputError, match=missing):
        compare(rows(), method="fednewton", epsilon="inf,1", **asked)
    exact = simulate(rows(), epsilon=math.inf, **asked)  # nothing is promised to anybody
    assert exact.privacy["epsilon"] is None


@pytest.fixture
def earlier(folder, capsys):
    """What a successful run left in `run`."""
    assert (
        exit_code_of(["simulate", "--data", "data.npz", "--seed", "1", "--out", "run", "--quiet"])
        == 0
    )
    return disk(folder)


def test_an_earlier_result_stays_when_a_later_run_fails(refused, earlier):
    for options, code in (("--dropout 1", 1), ("--epsilon 0", 2), ("--partition natural", 2)):
        refused(*RUN, "--out", "run", "--overwrite", *options.split(), code=code)
        refused(*RUN, "--out", "run", says=["--out run holds a run: "])


class Interrupting:
    """The sums of a question, interrupted when they are asked for the `last` time."""

    def __init__(self, sums: Callable[..., Any], last: int) -> None:
        self.sums, self.last, self.calls = sums, last, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == self.last:
            raise KeyboardInterrupt
        return self.sums(*arguments)


@pytest.mark.parametrize(("last", "fresh"), [(1, True), (3, False)])
def test_an_interrupt_leaves_nothing(folder, earlier, monkeypatch, capsys, last, fresh):
    sums = Interrupting(TemperatureNewton.sums, last)
    monkeypatch.setattr(TemperatureNewton, "sums", lambda *arguments: sums(*arguments))
    out_folder = "deep/new" if fresh else "run"
    arguments = [*RUN, "--out", out_folder, "--overwrite"]
    assert exit_code_of([*arguments, "--ledger", "l.db", "--cap", "1", "--epsilon", "1"]) == 130
    assert sums.calls == last
    out, err = capsys.readouterr()
    assert out == ""
    assert without_too_little(err) == ["fedcal: interrupted; nothing was written"]
    with Ledger("l.db") as ledger:  # a round is charged before its answers are added up
        assert ledger.spent()[0] == 1.0
        assert [entry.charged for entry in ledger.entries()] == [tuple(range(1, last + 1))]
    Path("l.db").unlink()
    assert disk(folder) == earlier


class FullDisk:
    """An `os.replace` that fails once, at its `at`-th call (0: always)."""

    def __init__(self, at: int) -> None:
        self.at, self.calls, self.real = at, 0, os.replace

    def __call__(self, source: Any, target: Any) -> None:
        self.calls += 1
        if self.at in (0, self.calls):
            raise OSError(28, "No space left on device")
        self.real(source, target)


KEPT, FILES = 4, 13
"""Files of what is paid for, and of a run: what each move into the folder is one of.

First the calibrator's own three moves (itself, after the round, the outcome) and those into the
folder; then those of what is made of them, which all take the place of files or are new.
"""


def full_at(out: str, at: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setattr(os, "replace", FullDisk(at))
    start = ("simulate", "--data", "data.npz", "--method", "fedoneshot", "--overwrite")
    return (*start, "--out", out)


@pytest.mark.parametrize(
    ("out", "at"),
    [
        *(("deep/down/new", at) for at in (0, 1, KEPT + 3)),
        *(("run", at) for at in (1, FILES, FILES + KEPT + 3)),
    ],
)
def test_a_full_disk_leaves_everything_as_it_was(refused, earlier, monkeypatch, out, at):
    refused(*full_at(out, at, monkeypatch), code=1, says=["No space left on device"])


@pytest.mark.parametrize(
    ("out", "moved", "more"), [("deep/new", KEPT, 1), ("run", FILES + KEPT, FILES)]
)
def test_a_disk_that_is_full_later_has_what_was_paid_for(
    folder, earlier, monkeypatch, out, moved, more
):
    assert exit_code_of([*full_at(out, 3 + moved + more, monkeypatch)]) == 1
    kept = {"calibrator.npz", "config.toml", "outcome.json", "round-1.npz"}
    assert set(os.listdir(out)) == kept
    assert exit_code_of(["report", out]) == 0
    assert len(os.listdir(out)) == FILES


def test_these_are_all_the_moves(earlier, monkeypatch):
    for out, gone in (("deep/new", 0), ("run", FILES)):
        arguments = full_at(out, -1, monkeypatch)
        assert exit_code_of([*arguments, "--quiet"]) == 0
        assert len(os.listdir(out)) == FILES
        # the calibrator's and the report's own are two
        assert os.replace.calls == 3 + gone + KEPT + 2 + KEPT + FILES


def test_a_full_disk_stops_apply(folder, refused, monkeypatch):
    TemperatureScaling(2.0, 3).save("c.npz")
    Path("p.npy").write_bytes(b"what was there")
    arguments = ("apply", "--calibrator", "c.npz", "--data", "data.npz", "--out", "p.npy")
    refused(*arguments, says=["p.npy exists"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", FullDisk(0))
        refused(*arguments, "--overwrite", code=1, says=["No space left on device"])


# -- without a package ---------------------------------------------------------------------------

DATA = "--data game-forecasts"
BARE = "--no-report --quiet --out"
CALIBRATOR = "--calibrator calibrator.npz"
PACKAGES = ("ray", "pyarrow", "flwr_datasets", "datasets", "torch", "opacus", "onnx", "sklearn")
SCRIPT = """
import sys
sys.modules |= dict.fromkeys(sys.argv[1:])
from fedcal.cli.main import exit_code_of
for line in sys.stdin.read().splitlines():
    print("->", exit_code_of(line.split()), flush=True)
"""
EXTRAS = {
    f"simulate {DATA} {BARE} run": "",
    "simulate --data rows.parquet": "parquet",
    f"apply --data rows.npz {CALIBRATOR} --out new.parquet": "parquet",
    "simulate --engine ray": "simulation",
    "simulate --engine flower": "simulation",
    "compare --method acct --engine ray": "simulation",
    "evaluate --partition flwr:IidPartitioner": "datasets",
    "train --data adult-features --partition flwr:IidPartitioner": "datasets",
    f"export {CALIBRATOR} --out calibrator.onnx": "export",
    "train --data adult-features --clients 4": "train",
}


@pytest.fixture
def files(tmp_path):
    """A folder with everything that the command lines name."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    TemperatureScaling(2.0, 3).save(tmp_path / "calibrator.npz")
    np.savez(tmp_path / "rows.npz", logits=rng.normal(size=(60, 3)), labels=labels)
    (tmp_path / "rows.parquet").touch()
    (tmp_path / "texts.csv").write_text("text,label\ngood,1\nbad,0\n" * 20)
    return tmp_path


def check(lines, files, *modules):
    """Each line says at its end what is expected, or, of "", it runs."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *modules],
        cwd=files,
        input="\n".join(lines),
        env=os.environ | {"FLWR_TELEMETRY_ENABLED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    parts = re.split(r"^-> (\d+)\n", done.stdout, flags=re.M)
    assert len(parts) == 2 * len(lines) + 1, done.stdout[-3000:]
    for (line, refusal), output, code in zip(lines.items(), parts[::2], parts[1::2], strict=False):
        assert code == ("2" if refusal else "0"), (line, output)
        assert output.rstrip("\n").endswith(refusal), (line, output)


def test_without_extras_the_line_names_the_one_that_is_needed(files):
    needed = {line: name and f"pip install 'fedcal[{name}]'" for line, name in EXTRAS.items()}
    check(needed, files, *PACKAGES)


def test_a_package_that_is_missing_costs_no_budget(files):
    line = "train --data adult-features --clients 4 --epsilon 8 --ledger ledger.db --cap 8"
    check({line: "pip install 'fedcal[train]'"}, files, "opacus")
    assert not (files / "ledger.db").exists()
