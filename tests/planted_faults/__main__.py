"""Do the tests notice what they are for? `python tests/planted_faults [NAME ...]`.

Each row of `faults.toml` plants one fault in the source. The working tree is copied, but for what
git ignores; the tests that the rows name must pass there (the green baseline); then each fault is
planted in a copy of its own, where one of its tests must fail. One line for each:

    caught          a test failed
    MISSED          all of its tests passed, or could not be run
    does not apply  the source has changed: mend the row

Exit code 1 if a fault is missed or does not apply, or if the baseline is not green. `--since BASE`
takes the rows whose source or tests have changed since a commit. `--mend` finds the lines and tests
of rows that no longer fit, and writes the table anew: read its diff.
"""

import argparse
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rows import ROOT, Fault, faults, mended, missing_tests, planted, write

LIMIT_S = 600.0
"""Limit of the tests of one fault; of the baseline six times as much."""
LIBRARIES = (
    *("pytest", "scipy.stats", "scipy.optimize", "dp_accounting"),
    *("flwr.serverapp", "flwr.clientapp", "typer", "rich.table", "matplotlib.figure", "torch"),
)
"""Imported once, before processes for single faults are forked: most of such a run's time."""


def files() -> list[Path]:
    """Return the files of the working tree that git does not ignore, as paths below it."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = sorted(set(listed.split("\0")) - {""})
    return [Path(name) for name in names if os.path.lexists(ROOT / name)]


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def touched(known: Sequence[Fault], base: str) -> list[Fault]:
    """Return the rows whose source or tests differ from a commit's."""
    named = git("diff", "--name-only", base), git("ls-files", "--others", "--exclude-standard")
    changed = set("\n".join(named).split("\n"))
    return [f for f in known if changed & {f.file, *(t.partition("::")[0] for t in f.tests)}]


def copied(names: Sequence[Path], tree: Path) -> Path:
    """Copy these files into a new folder, whose code can be imported without an install."""
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    for folder in ("clients", "strategies", "experiments"):
        (tree / "fedcal" / folder).symlink_to(f"../{folder}")  # what setup.py maps
    return tree


PYTEST = ("-q", "-x", "--tb=line", "-p", "no:cacheprovider", "-m", "not slow")


def baseline(chosen: Sequence[Fault], tree: Path, jobs: int) -> str:
    """Run the tests without a fault; "" if they pass, else what went wrong."""
    code = "import fedcal, fedcal.clients as c, sys; sys.stdout.write(fedcal.__file__ + c.__file__)"
    tests = sorted({test for fault in chosen for test in fault.tests})
    # loadfile: fixtures of a module are made once
    run = ["-m", "pytest", "-n", str(jobs), "--dist", "loadfile", *PYTEST, *tests]
    environment = os.environ | surroundings(tree)
    for arguments in (["-c", code], run):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tree,
            env=environment,
            timeout=6 * LIMIT_S,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if arguments[0] == "-c" and done.stdout.count(str(tree)) != 2:
            return f"not the copy in {tree} is imported: {done.stdout}"
        if done.returncode:
            return "\n".join(done.stdout.splitlines()[-25:]) or f"exit code {done.returncode}"
    return ""


def surroundings(tree: Path) -> dict[str, str]:
    # the path goes before an editable install
    return {"PYTHONPATH": str(tree)}


def test_one(fault, green):
    """Plant one fault in a copy of the green tree and run its tests; in a forked process."""
    tree = green.with_name(fault.name)
    # what it has compiled, too: Python goes by times, and a planted file is new
    shutil.copytree(green, tree, symlinks=True)
    (tree / fault.file).write_text(planted(fault, tree)[0], "utf-8")
    os.chdir(tree)
    os.environ.update(surroundings(tree))
    sys.path[:1] = ["", str(tree)]
    import pytest

    sys.exit(pytest.main([*PYTEST, *fault.tests, "-p", "no:xdist"]))


def started(fault: Fault, green: Path) -> int:
    """Fork a process for a fault, with a session of its own; return its number."""
    log = green.with_name(f"{fault.name}.log")
    if process := os.fork():
        return process
    code = 3
    try:
        os.setsid()
        with log.open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        test_one(fault, green)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except Exception:  # noqa: BLE001  whatever it is, this process has no other way to report it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def results(chosen: Sequence[Fault], green: Path, jobs: int) -> Iterator[tuple[Fault, int | None]]:
    """Run `jobs` faults at a time: pytest's exit code for each as it ends, None if out of time."""
    waiting, running = list(reversed(chosen)), dict[int, tuple[Fault, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            fault = waiting.pop()
            running[started(fault, green)] = fault, time.monotonic()
        time.sleep(0.05)
        for process, (fault, since) in list(running.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            late = time.monotonic() - since > LIMIT_S
            if not ended and not late:
                continue
            with suppress(ProcessLookupError):  # what its tests have started, too
                os.killpg(process, signal.SIGKILL)
            if not ended:
                os.waitpid(process, 0)
            del running[process]
            yield fault, os.waitstatus_to_exitcode(status) if ended else None


def verdict(fault: Fault, code: int | None, log: str) -> tuple[bool, str]:
    """Return whether a fault was caught, and a line that says so."""
    found = re.search(r"^(?:FAILED|ERROR) (tests/\S+)", log, re.M)
    # 1: a test failed; 2: an error stopped the collection, such as an import that is refused; so
    # does 4, where pytest names the file of the test that it did not find for that error
    if code in (1, 2) or (code == 4 and found):
        first = found[1] if found else "stopped while tests were collected"
        return True, f"caught          {fault.name}: {first}"
    why = {None: "out of time", 0: "all passed", 4: "no such test", 5: "no test ran"}
    last = (log.splitlines() or [""])[-1]
    return False, f"MISSED          {fault.name}: {why.get(code, f'exit code {code}, {last}')}"


def run(chosen: Sequence[Fault], jobs: int) -> int:
    """Plant the faults; return the exit code."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # as tests/conftest.py does, before numpy is imported
    since = time.monotonic()
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        green = copied(files(), Path(scratch).resolve() / "green")
        fits = [fault for fault in chosen if not planted(fault, green)[1]]
        for fault in chosen:
            if complaint := planted(fault, green)[1]:
                bad.append(f"does not apply  {fault.name}: {complaint} (--mend may find them)")
                print(bad[-1], flush=True)
        if not fits:
            return int(bool(bad))
        if wrong := baseline(fits, green, jobs):
            print(f"the baseline is not green\n{wrong}")
            return 1
        print(f"green baseline; {len(fits)} faults", flush=True)
        for name in LIBRARIES:
            with suppress(ImportError):
                importlib.import_module(name)
        for k, (fault, code) in enumerate(results(fits, green, jobs), 1):
            log = green.with_name(f"{fault.name}.log").read_text("utf-8", errors="replace")
            shutil.rmtree(green.with_name(fault.name), ignore_errors=True)
            caught, line = verdict(fault, code, log)
            bad += [] if caught else [line]
            print(f"{k:4} {line}", flush=True)
    seconds = time.monotonic() - since
    print(f"{len(chosen) - len(bad)} of {len(chosen)} caught in {seconds:.0f} s", *bad, sep="\n")
    return 1 if bad else 0


def mend(known: Sequence[Fault]) -> int:
    """Mend the rows that no longer fit and say what became of them; 1 if a person has to."""
    kept, lost = [], 0
    for fault in known:
        if not planted(fault, ROOT)[1] and not missing_tests(fault, ROOT):
            kept.append(fault)
            continue
        now = mended(fault, ROOT)
        lost += now is None
        kept.append(now or fault)
        print(f"{fault.name}: {'not found: mend it by hand' if now is None else now.file}")
    write(kept)
    print(f"{lost} rows to mend by hand")
    return 1 if lost else 0


def main() -> int:
    """Plant faults or mend the table; return the exit code."""
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python tests/planted_faults", description=__doc__, formatter_class=described
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="of a fault; none = all")
    parser.add_argument("--since", metavar="BASE", help="those of what changed since a commit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="faults at a time")
    parser.add_argument("--mend", action="store_true", help="find what rows no longer fit, and end")
    given = parser.parse_args()
    known = faults()
    if unknown := sorted(set(given.names) - set(known)):
        parser.error(f"no such fault: {', '.join(unknown)}")
    if given.mend:
        return mend(list(known.values()))
    chosen = [known[name] for name in given.names or known]
    if given.since is not None:
        chosen = touched(chosen, given.since)
    return run(chosen, max(1, given.jobs)) if chosen else 0


if __name__ == "__main__":
    sys.exit(main())
