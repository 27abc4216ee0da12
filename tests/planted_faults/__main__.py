"""Do the tests notice what they are for? `python tests/planted_faults [NAME ...]`.

Each row of `faults.toml` plants one fault in the source. The working tree is copied, but for what
git ignores; the tests that the rows name must pass there (the green baseline); then each fault is
planted in a copy of its own, where one of its tests must fail. One line for each:

    caught          a test failed
    MISSED          all of its tests passed, or could not be run
    does not apply  the source has changed: mend the row

Exit code 1 if a fault is missed or does not apply, or if the baseline is not green. With `--whole`
all tests of `make test` run, up to the first that fails, in place of those that a row names.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLANS = ".plans"
LIMIT_S = 600.0
"""Limit of the tests of one fault; those of the baseline, or all tests, may take six times as long.
"""


@dataclass(frozen=True)
class Fault:
    """One row of the table.

    Attributes
    ----------
    file
        path of the source file, from the root
    old, new
        lines that stand in the file once, and what is planted in their place
    what
        the fault, in a sentence
    tests
        that catch it, `tests/path.py::test_name`
    """

    name: str
    file: str
    old: str
    new: str
    what: str
    tests: tuple[str, ...]


def faults() -> dict[str, Fault]:
    """All faults, by name; ValueError if two have the same name."""
    rows = tomllib.loads((HERE / "faults.toml").read_text("utf-8"))["fault"]
    known = {row["name"]: Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows}
    if len(known) != len(rows):
        raise ValueError("two faults have the same name")
    return known


def planted(fault: Fault, tree: Path) -> tuple[str, str]:
    """Return the file of a tree with the fault in it, and "" or why that cannot be."""
    path = tree / fault.file
    text = path.read_text("utf-8") if path.is_file() else ""
    if (times := text.count(fault.old)) != 1:
        return text, f"its old lines stand {times} times in {fault.file}"
    return text.replace(fault.old, fault.new), ""


def files() -> list[Path]:
    """The files of the working tree that git does not ignore, as paths below it."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run(
        [*command, "--exclude-standard"], check=True, capture_output=True, text=True
    )
    names = sorted(set(listed.stdout.split("\0")) - {""})
    return [Path(name) for name in names if os.path.lexists(ROOT / name)]


def copied(names: Sequence[Path], tree: Path) -> Path:
    """Copy these files into a new folder, links as links."""
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    return tree


def copy_of(tree: Path, copy: Path) -> Path:
    """Copy a tree, what it has compiled too: Python goes by times, and a planted file is new."""
    ignored = shutil.ignore_patterns(PLANS)
    shutil.copytree(tree, copy, symlinks=True, ignore=ignored)
    return copy


def python(tree: Path, *arguments: str, limit_s: float) -> tuple[int, str]:
    """Run Python on a tree: (exit code, what it wrote), or (-1, ...) after `limit_s`."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),  # goes before an editable install
        "FEDCAL_CACHE": str(tree / PLANS),
    }
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tree,
            env=environment,
            timeout=limit_s,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except subprocess.TimeoutExpired as late:
        told = late.stdout or ""
        return -1, told.decode() if isinstance(told, bytes) else told
    return done.returncode, done.stdout


def pytest(tree: Path, tests: Sequence[str], *, jobs: int, whole: bool) -> tuple[int, str]:
    """Run tests of a tree, up to the first that fails; all but the slow ones if `whole`."""
    chosen = ["-m", "not slow"]
    # the test of the rows sees each planted one as one that does not apply
    chosen += ["--ignore", "tests/planted_faults"] if whole else tests
    # loadfile: fixtures of a module are made once
    workers = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else ["-p", "no:xdist"]
    limit_s = LIMIT_S * (6 if whole or len(tests) > 10 else 1)
    return python(tree, "-m", "pytest", "-x", "--tb=line", *workers, *chosen, limit_s=limit_s)


def imported_from(tree: Path) -> str:
    """Where Python finds the packages when it runs on a tree."""
    code = "import fedcal, fedcal.clients as c; print(fedcal.__file__, c.__file__)"
    return python(tree, "-c", code, limit_s=60.0)[1].strip()


def failed(told: str) -> str:
    """The test that failed first, out of what pytest wrote."""
    lines = [line for line in told.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].split()[1] if lines else "stopped while tests were collected"


def verdict(fault: Fault, green: Path, whole: bool) -> tuple[bool, str]:
    """Plant one fault in a copy of the green tree: (caught, a line that says so)."""
    tree = copy_of(green, green.with_name(fault.name))
    try:
        text, complaint = planted(fault, tree)
        if complaint:
            return False, f"does not apply  {fault.name}: {complaint}"
        (tree / fault.file).write_text(text, "utf-8")
        code, told = pytest(tree, fault.tests, jobs=1, whole=whole)
    finally:
        shutil.rmtree(tree)
    # 1: a test failed; 2: an error stopped the collection, such as an import that is refused
    if code in (1, 2):
        return True, f"caught          {fault.name}: {failed(told)}"
    why = {-1: "out of time", 0: "all passed", 4: "no such test", 5: "no test ran"}
    return False, f"MISSED          {fault.name}: {why.get(code, f'exit code {code}')}"


def baseline(chosen: Sequence[Fault], tree: Path, jobs: int, whole: bool) -> str:
    """Run the tests without a fault; "" if they pass, else what went wrong."""
    for found in (origins := imported_from(tree)).split():
        if not Path(found).is_relative_to(tree):
            return f"not the copy in {tree} is imported: {origins}"
    tests = sorted({test for fault in chosen for test in fault.tests})
    code, told = pytest(tree, tests, jobs=jobs, whole=whole)
    return "" if code == 0 else "\n".join(told.splitlines()[-25:]) or f"exit code {code}"


def verdicts(
    chosen: Sequence[Fault], green: Path, jobs: int, whole: bool
) -> Iterator[tuple[bool, str]]:
    """The verdict on each fault, in order."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(partial(verdict, green=green, whole=whole), chosen)


def main() -> int:
    """Plant them; the exit code."""
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python tests/planted_faults", description=__doc__, formatter_class=described
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="of a fault; none = all")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time (2)")
    parser.add_argument("--whole", action="store_true", help="run all of `make test` on each")
    parser.add_argument("--list", action="store_true", help="say what they are, and run nothing")
    given = parser.parse_args()
    known = faults()
    if unknown := sorted(set(given.names) - set(known)):
        parser.error(f"no such fault: {', '.join(unknown)}")
    chosen = [known[name] for name in given.names or known]
    if given.list:
        for fault in chosen:
            print(f"{fault.name}: {fault.what}")
        return 0
    jobs = max(1, given.jobs)
    with tempfile.TemporaryDirectory() as scratch:
        green = copied(files(), Path(scratch).resolve() / "green")
        if wrong := baseline(chosen, green, jobs, given.whole):
            print(f"the baseline is not green\n{wrong}")
            return 1
        print(f"green baseline; {len(chosen)} faults", flush=True)
        missed = 0
        for caught, line in verdicts(chosen, green, jobs, given.whole):
            missed += not caught
            print(line, flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
