"""The built wheel: what is in it, and that it works alone, in an empty folder."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fedcal

ROOT = Path(fedcal.__file__).resolve().parents[1]
ROOMS = ("clients", "strategies")
PACKAGES = ("fedcal", *ROOMS)
BESIDE = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE")


def run(*command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words, env = list(map(str, command)), os.environ | env
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def pip(*arguments: str | Path, cwd: Path) -> None:
    quiet = ("--disable-pip-version-check", "--no-input", "--quiet")
    # --no-index: nothing is fetched, so a missing build tool shows at once
    done = run(sys.executable, "-m", "pip", *quiet, *arguments, cwd=cwd, PIP_NO_INDEX="1")
    assert done.returncode == 0, done.stderr


def without_progress(text: str) -> str:
    """What was said but lines of progress, which a busy machine has after three seconds."""
    return re.sub(r"^fedcal: (?!error|warning).*\n", "", text, flags=re.M)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that no build folder stays in the repository."""
    source = tmp_path_factory.mktemp("source") / "checkout"
    source.mkdir()
    for name in BESIDE:
        shutil.copy(ROOT / name, source / name)
    for package in (*PACKAGES, "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source, cwd=out)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_one_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    info = f"fedcal-{fedcal.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"fedcal", info}
    assert [name for name in names if "test" in Path(name).stem.split("_")] == []

    def stored(path: Path) -> str:
        name = str(path.relative_to(ROOT))
        return f"fedcal/{name}" if name.partition("/")[0] in ROOMS else name

    modules = {stored(p) for k in PACKAGES for p in (ROOT / k).rglob("*.py")}
    data = {str(p.relative_to(ROOT)) for p in (ROOT / "fedcal/datasets").glob("*.npz")}
    read = {stored(p) for p in (ROOT / "fedcal/results/templates").glob("*.j2")}
    read |= {"fedcal/core/removed.toml", "fedcal/secure_aggregation/words.txt", "fedcal/py.typed"}
    assert {"fedcal/results/figures/fedcal.mplstyle", *read} <= set(names)
    assert {n for n in names if n.endswith(".py")} == modules
    assert {n for n in names if n.endswith(".npz")} == data
    assert "fedcal/datasets/README.md" in names  # attribution travels with the data
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE"} <= set(names)


def test_the_commands_run_from_the_wheel(wheel, tmp_path):
    """In one process, of which -P has only the wheel and its dependencies searched."""
    installed, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    data = "--data game-forecasts"
    commands = (
        f"simulate {data} --partition natural --epsilon 4 --out run --json",
        f"apply {data} --calibrator run/calibrator.npz --out probs.npy --json",
        "datasets --json",
    )
    code = (
        "import fedcal.clients, fedcal.strategies\n"
        "print(fedcal.__file__, fedcal.clients.__file__, fedcal.strategies.__file__, sep='\\n')\n"
        "from fedcal.cli.main import exit_code_of\n"
        f"for line in {commands}: print(exit_code_of(line.split()), end='@')"
    )
    done = run(sys.executable, "-P", "-c", code, cwd=here, PYTHONPATH=str(installed))
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    *files, output = done.stdout.split("\n", 3)
    names = [f"fedcal/{name}__init__.py" for name in ("", "clients/", "strategies/")]
    assert [str(Path(file).relative_to(installed)) for file in files] == names
    simulated, applied, listed, _ = output.split("0@")
    assert json.loads(simulated)["schema"] == 1
    assert (here / "run" / "result.json").read_text("utf-8") == simulated
    assert json.loads(applied)["rows"] == 28932
    assert len(json.loads(listed)) == 11
    assert sorted(os.listdir(here)) == ["probs.npy", "run"]
