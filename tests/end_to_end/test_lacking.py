"""Without a package: what runs all the same, and what is refused in one line that names it."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from fedcal.calibrators import TemperatureScaling

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
def folder(tmp_path):
    """With everything that the command lines name."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    TemperatureScaling(2.0, 3).save(tmp_path / "calibrator.npz")
    np.savez(tmp_path / "rows.npz", logits=rng.normal(size=(60, 3)), labels=labels)
    (tmp_path / "rows.parquet").touch()
    (tmp_path / "texts.csv").write_text("text,label\ngood,1\nbad,0\n" * 20)
    return tmp_path


def check(lines, folder, *modules):
    """Each line says at its end what is expected, or, of "", it runs."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *modules],
        cwd=folder,
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


def test_without_extras_the_line_names_the_one_that_is_needed(folder):
    needed = {line: name and f"pip install 'fedcal[{name}]'" for line, name in EXTRAS.items()}
    check(needed, folder, *PACKAGES)


def test_a_package_that_is_missing_costs_no_budget(folder):
    line = "train --data adult-features --clients 4 --epsilon 8 --ledger ledger.db --cap 8"
    check({line: "pip install 'fedcal[train]'"}, folder, "opacus")
    assert not (folder / "ledger.db").exists()
