"""Without a package, and on Windows as far as this system can play it: what runs all the same, and
what is refused in one line that says what is lacking."""

import os
import re
import subprocess
import sys

import lacking
import numpy as np
import pytest

from fedcal.calibrators import TemperatureScaling

DATA = "--data game-forecasts"
BARE = "--no-report --quiet --out"
LOCK = "needs a lock (fcntl), which Linux and macOS have; this system does not"
CALIBRATOR = "--calibrator calibrator.npz"
WINDOWS = {
    f"simulate {DATA} --epsilon 1 --ledger ledger.db --cap 2 {BARE} run": "",
    f"compare {DATA} --method acct --epsilon 1 --seeds 1 --jobs 1 {BARE} many": "",
    f"evaluate {DATA} {BARE} read": "",
    "plan --clients 100 --rows-per-client 50 --classes 10 --epsilon 1 --method acct": "",
    f"apply --data rows.npz {CALIBRATOR} --out probabilities.npz": "",
    "report run": "",
    "doctor": "",
    "train --data adult-features --clients 4 --rounds 1": "",
    "train --data adult-features --clients 4 --rounds 1 --out model": f"model/lock {LOCK}",
    **{
        f"simulate --engine {name} --clients 2": f"engine '{name}' needs Linux or macOS"
        for name in ("flower", "grpc")
    },
}
PACKAGES = (*("ray", "pyarrow", "flwr_datasets", "datasets", "torch", "opacus", "onnx", "sklearn"),)
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
    """Each line says at its end what is expected, or, of "", it runs; returns all that was said."""
    done = subprocess.run(
        [sys.executable, lacking.__file__, *modules],
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
    return done.stdout


def test_without_extras_the_line_names_the_one_that_is_needed(folder):
    needed = {line: name and f"pip install 'fedcal[{name}]'" for line, name in EXTRAS.items()}
    check(needed, folder, *PACKAGES)


def test_a_package_that_is_missing_costs_no_budget(folder):
    line = "train --data adult-features --clients 4 --epsilon 8 --ledger ledger.db --cap 8"
    check({line: "pip install 'fedcal[train]'"}, folder, "opacus")
    assert not (folder / "ledger.db").exists()


@pytest.mark.slow
def test_what_windows_lacks_is_refused_where_it_is_needed(folder):
    output = check(WINDOWS, folder)
    assert f"fedcal train --out, site, study: its folder {LOCK}" in output
