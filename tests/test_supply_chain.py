"""Installed packages, by version and hash, and the bill of materials that names it."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "locks"
BENCHMARKS = ROOT / "experiments" / "benchmarks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def entries(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Return normalized name -> version and hashes, of a constraints or lock file."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    found: dict[str, tuple[str, list[str]]] = {}
    for line in text.splitlines():
        if not line or line.lstrip().startswith("#"):
            continue
        name, _, rest = line.partition("==")
        assert canonicalize_name(name) not in found, line
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})(?= |$)", rest)
        assert len(hashes) == rest.count("--hash"), line
        found[canonicalize_name(name)] = rest.split()[0], hashes
    return found


OURS = entries(ROOT / "constraints.txt")
PEERS, PFL = (entries(BENCHMARKS / f"{of}-constraints.txt") for of in ("peers", "pfl"))
LOCKED = {path.name: entries(path) for path in sorted(LOCKS.glob("*.txt"))}


def test_locks_and_constraints_agree_and_every_entry_has_its_hashes():
    assert LOCKED.keys() == {"all.txt", "build.txt", "peers.txt", "pfl.txt", "torch-cpu.txt"}
    for file, lock in LOCKED.items():
        pinned = {"peers.txt": OURS | PEERS, "pfl.txt": PFL}.get(file, OURS)
        for name, (locked, hashes) in lock.items():
            assert hashes, f"{file}: {name} has no hash; run `make lock`"
            assert locked == pinned[name][0] + "+cpu" * (file == "torch-cpu.txt"), (file, name)
    assert OURS.keys() == (LOCKED["all.txt"] | LOCKED["build.txt"]).keys()
    assert PEERS.keys() <= LOCKED["peers.txt"].keys()


def test_all_that_pyproject_asks_for_is_locked_and_in_range():
    project = PROJECT["project"]
    asked = sum(project["optional-dependencies"].values(), project["dependencies"])
    asked += PROJECT["build-system"]["requires"]
    lock = LOCKED["all.txt"] | LOCKED["build.txt"]
    for requirement in map(Requirement, asked):
        locked = lock.get(canonicalize_name(requirement.name), ("",))[0]
        assert requirement.name == "fedcal" or requirement.specifier.contains(locked), requirement


def test_every_install_is_by_hash_or_of_fedcal_itself():
    """In the Makefile and the Dockerfile; both build fedcal with the locked setuptools alone.

    `make flower` aside, which tries what is not locked in an environment of its own.
    """
    hashed, own = {"--require-hashes", "--only-binary"}, {"--no-deps", "--no-build-isolation"}
    for path in (ROOT / "Makefile", ROOT / "docker" / "Dockerfile"):
        text = re.sub(r"\\\n\s*", "", path.read_text("utf-8")).replace("&&", "\n")
        text = re.sub(r"\nflower: .*?\n\n", "\n", text, flags=re.DOTALL)
        installs = re.findall(r"(?:pip|\$\(PIP\)) .*\binstall (.*)", text)
        assert len(installs) >= 2
        for words in map(str.split, installs):
            assert hashed <= set(words) or own <= set(words), (path, words)
            assert own - set(words) or set(words) - own <= {"-e", ".", "--no-cache-dir"}


def test_the_bill_of_materials_is_cyclonedx_and_names_what_runs(tmp_path):
    out, listed, lock = tmp_path / "sbom.json", tmp_path / "licences.md", LOCKS / "all.txt"
    script = [sys.executable, str(ROOT / "docker" / "sbom.py"), "--out", str(out), "--lock"]
    subprocess.run([*script, lock, "--licences", listed], check=True, capture_output=True)
    text = out.read_text("utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    parts = {part["name"]: part for part in json.loads(text)["components"]}
    direct = {canonicalize_name(Requirement(d).name) for d in PROJECT["project"]["dependencies"]}
    assert direct | {"grpcio", "starlette"} <= parts.keys()  # what Flower needs, too
    assert parts.keys() & {"torch", "pytest", "ray"} == set()
    for name, part in parts.items():
        locked, hashes = LOCKED["all.txt"][name]
        assert part["version"] == locked
        assert [h["content"] for h in part["hashes"]] == hashes
        assert f"\n| {name} | {locked} | " in listed.read_text("utf-8")
    assert "not stated" not in listed.read_text("utf-8")
    # a package that is not the locked one is not part of it
    wrong = tmp_path / "lock.txt"
    lines = lock.read_text("utf-8")
    wrong.write_text(lines.replace(f"\nnumpy=={version('numpy')} ", "\nnumpy==1.0 "), "utf-8")
    done = subprocess.run([*script, wrong], capture_output=True, text=True, check=False)
    assert done.stderr == f"sbom: numpy {version('numpy')} is installed, locked is 1.0\n"
    assert done.returncode != 0
