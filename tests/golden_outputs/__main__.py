"""Do two commits show and write the same? `python tests/golden_outputs BASE [NAMES]`.

Runs every command of `fedcal` at the commit BASE and in the working tree, on this machine, and
compares what they print, their exit codes and every file they write. What is measured is not
compared (seconds are 0 while cells run), nor are pictures, and of HTML only text. NAMES are groups
(simulate, compare, ...) or patterns (simulate/fedbin*); all, if left out. "bits" alone asks
whether both release the same bits, whatever the promise. Differences that
`meant.toml` names are counted apart. Exit code 1 if something else differs.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import differences
import inputs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SIDES = ("base", "head")
GROUPS = (
    *("simulate", "bits", "compare", "plan", "reproduce", "documents", "train", "files"),
    *("python", "help"),
)


def worktree(commit: str, folder: Path, stack: ExitStack) -> Path:
    """A checkout of the commit, removed at the end."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    stack.callback(subprocess.run, [*git, "remove", "--force", str(folder)], check=True)
    return folder


def start(tree: Path, out: Path, share: tuple[int, int], names: list[str]) -> subprocess.Popen[str]:
    """A process that runs its share of the cells of a tree."""
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    looks = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONHASHSEED": "0"}
    cache = out.with_name(f"{out.name}-cache")
    cache.mkdir(exist_ok=True)
    places = {"PYTHONPATH": str(tree), "FEDCAL_CACHE": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", str(HERE / "worker.py"), str(tree), str(out)]
    command += [str(out.with_name("inputs")), *map(str, share), *names]
    return subprocess.Popen(command, env={**os.environ, **quiet, **looks, **places}, text=True)


def report(found: dict[str, dict[str, list[str]]], lines: int) -> int:
    """Print what differs; the number of cells that do, but for what is meant."""
    meant = differences.read_meant(HERE / "meant.toml")
    counts = {"equal": 0, "meant": 0, "different": 0}
    for cell, files in found.items():
        told: list[str] = []
        reasons: dict[str, None] = {}
        for file, changed in files.items():
            left = []
            for line in changed:
                fits = next((m for m in meant if m.covers(cell, file, line)), None)
                if fits is not None:
                    fits.used += 1
                    reasons[fits.reason] = None
                else:
                    left.append(line)
            if any(line[:1] in "+-!" for line in left):
                told.append(f"    {file}")
                told += [f"      {line}" for line in left[:lines]]
                told += [f"      ... {len(left) - lines} more lines"] * (len(left) > lines)
        word = "different" if told else "meant" if reasons else "equal"
        counts[word] += 1
        said = f": {'; '.join(reasons)}" if reasons else ""
        print("\n".join([f"{word:9} {cell}{said}", *told]))
    for entry in meant:
        if not entry.used:
            print(f"unused in meant.toml: {entry.reason}")
    print(f"{len(found)} cells: {', '.join(f'{n} {word}' for word, n in counts.items())}")
    return counts["different"]


def main() -> int:
    """Compare; the exit code."""
    about, _, more = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        prog="python tests/golden_outputs", description=about, epilog=more
    )
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("names", metavar="NAMES", nargs="*", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--without", metavar="GROUP", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2, help="processes, half for each side (2)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="a new folder for all outputs")
    parser.add_argument("--lines", type=int, default=20, help="of each file's difference (20)")
    parser.add_argument("--slow", type=int, default=0, help="name as many of the slowest cells")
    given = parser.parse_args()
    names = [n for n in given.names or GROUPS if n not in given.without]
    for name in names:
        if name.partition("/")[0] not in GROUPS:
            parser.error(f"no group {name!r}; there are {', '.join(GROUPS)}")
    since = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the checkout is removed then, too
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place = scratch if given.keep is None else given.keep.resolve()
        if given.keep is not None:
            place.mkdir(parents=True)
        inputs.write(place / "inputs")
        trees = (worktree(given.base, scratch / "tree", stack), ROOT)
        each = max(given.jobs // 2, 1)
        workers = []
        for side, tree in zip(SIDES, trees, strict=True):
            (place / side).mkdir()
            for k in range(each):
                workers.append(start(tree, place / side, (k, each), names))
                stack.callback(workers[-1].kill)
        codes = [worker.wait() for worker in workers]
        if any(codes):
            print("a commit's cells could not be run")
            return 2
        took = [json.loads(p.read_text()) for p in place.glob("base/times-*.json")]
        found = differences.of_cells(place / "base", place / "head")
    different = report(found, given.lines)
    slowest = sorted((s, name) for share in took for name, s in share.items())[::-1]
    for seconds, name in slowest[: given.slow]:
        print(f"{seconds:6.1f} CPU s  {name}")
    print(
        f"{time.monotonic() - since:.0f} s, {sum(s for s, _ in slowest):.0f} CPU s at {given.base}"
    )
    if not found:
        print("no cell is of these names")
    return 1 if different or not found else 0


if __name__ == "__main__":
    sys.exit(main())
