"""What is installed, by version and hash, and the bill of materials that names it."""

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
    """Normalized name -> version and hashes, of a constraints or lock file."""
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


OURS, THEIRS, PFL = (
    entries(path)
    for path in (
        ROOT / "constraints.txt",
        *(BENCHMARKS / f"{of}-constraints.txt" for of in ("peers", "pfl")),
    )
)
LOCKED = {path.name: entries(path) for path in sorted(LOCKS.glob("*.txt"))}


def test_locks_and_constraints_agree_and_every_entry_has_its_hashes():
    assert LOCKED.keys() == {"all.txt", "build.txt", "peers.txt", "pfl.txt", "torch-cpu.txt"}
    for file, lock in LOCKED.items():
        for name, (locked, hashes) in lock.items():
            assert hashes, f"{file}: {name} has no hash; run `make lock`"
            of = {"peers.txt": OURS | THEIRS, "pfl.txt": PFL}.get(file, OURS)
            pinned = of[name][0]
            pinned += "+cpu" * (file == "torch-cpu.txt")
            assert locked == pinned, f"{file}: {name} is not of the constraints; run `make lock`"
    assert OURS.keys() == (LOCKED["all.txt"] | LOCKED["build.txt"]).keys()
    assert THEIRS.keys() <= LOCKED["peers.txt"].keys()


def test_no_file_names_a_registry():
    files = (*LOCKS.iterdir(), *BENCHMARKS.glob("*.txt"), ROOT / "constraints.txt")
    for path in (*files, ROOT / "Makefile"):
        found = re.findall(r"https?://|--(?:extra-)?index|--find-links", path.read_text("utf-8"))
        assert all(path.name == "torch-cpu.txt" for _ in found), path  # a comment there


def test_all_that_pyproject_asks_for_is_locked_and_in_range():
    project = PROJECT["project"]
    asked = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        asked += extra
    lock = LOCKED["all.txt"]
    for line in asked:
        wanted = Requirement(line)
        if wanted.name != "fedcal":
            assert wanted.specifier.contains(lock[canonicalize_name(wanted.name)][0]), line
    for line in PROJECT["build-system"]["requires"]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(LOCKED["build.txt"][wanted.name][0])


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
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert makefile.count("$(call hashed,") >= 5  # runtime, dev, bench, peers, pip and setuptools


def test_the_bill_of_materials_is_cyclonedx_and_names_what_runs(tmp_path):
    out = tmp_path / "sbom.json"
    script = [sys.executable, str(ROOT / "docker" / "sbom.py"), "--out", str(out)]
    listed = tmp_path / "licences.md"
    lock = ["--lock", str(LOCKS / "all.txt")]
    subprocess.run([*script, *lock, "--licences", str(listed)], check=True, capture_output=True)
    text = out.read_text("utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.replace("purl", "p"))
    sbom = json.loads(text)
    assert sbom["metadata"]["component"]["name"] == "fedcal"
    parts = {part["name"]: part for part in sbom["components"]}
    direct = {canonicalize_name(Requirement(d).name) for d in PROJECT["project"]["dependencies"]}
    assert direct | {"grpcio", "starlette"} <= parts.keys()  # what Flower needs, too
    assert parts.keys() & {"torch", "pytest", "ray"} == set()
    for name, part in parts.items():
        locked, hashes = LOCKED["all.txt"][name]
        assert part["version"] == locked
        assert [h["content"] for h in part["hashes"]] == hashes
        assert part["licenses"], name
        assert f"\n| {name} | {locked} | " in listed.read_text("utf-8")
    assert "not stated" not in listed.read_text("utf-8")
    wanted = {d["ref"]: d["dependsOn"] for d in sbom["dependencies"]}
    assert {parts[name]["purl"] for name in direct} == set(
        wanted[f"pkg:pypi/fedcal@{sbom['metadata']['component']['version']}"]
    )
    # a package that is not the locked one is no part of it
    wrong = tmp_path / "lock.txt"
    lines = (LOCKS / "all.txt").read_text("utf-8")
    wrong.write_text(lines.replace(f"\nnumpy=={version('numpy')} ", "\nnumpy==1.0 "), "utf-8")
    done = subprocess.run(
        [*script, "--lock", str(wrong)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert done.stderr == f"sbom: numpy {version('numpy')} is installed, locked is 1.0\n"


def test_workflows_are_what_the_schema_says_and_name_untried_actions_by_version():
    files = sorted((ROOT / ".github" / "workflows").iterdir())
    schema = ("-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows")
    subprocess.run([sys.executable, *schema, *files], check=True)
    for file in files:
        text = file.read_text("utf-8")
        assert text.startswith("# Untried: ")
        for action in re.findall(r"uses: (\S+)", text):
            assert re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", action), action
