"""Do two commits release the same bits? `python tests/golden_bits BASE [HEAD]`.

Runs each method x mechanism x trust model x unit at both commits on this machine (`exp` differs
between types of CPU, so no digest of floats is committed) and compares every released number, the
calibrator, the test probabilities, the promise and the bytes. HEAD is the working tree if it is
left out. Exit code 1 and a line for each cell that differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def start(tree: Path, cache: Path) -> subprocess.Popen[str]:
    """The cells of the packages in a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "FEDCAL_CACHE": str(cache)}
    command = [sys.executable, "-P", str(HERE / "run_cells.py")]
    return subprocess.Popen(command, env=environment, cwd=cache, stdout=subprocess.PIPE, text=True)


def checkout(commit: str, folder: Path) -> Path:
    """A worktree of the commit."""
    command = ["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach"]
    subprocess.run([*command, str(folder), commit], check=True)
    return folder


def compare(base: dict[str, str], head: dict[str, str]) -> list[str]:
    """A line for each cell that is gone, or differs."""
    return [
        f"{head.get(cell, 'gone'):>16} was {digest:>16}  {cell}"
        for cell, digest in base.items()
        if head.get(cell) != digest
    ]


def main() -> int:
    """Compare; the exit code."""
    parser = argparse.ArgumentParser(prog="python tests/golden_bits", description=__doc__)
    parser.add_argument("base", metavar="BASE")
    parser.add_argument("head", metavar="HEAD", nargs="?")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        trees, runs = [], []
        try:
            for name, commit in (("base", given.base), ("head", given.head)):
                cache = Path(scratch) / f"{name}-cache"
                cache.mkdir()
                tree = ROOT
                if commit is not None:
                    tree = checkout(commit, Path(scratch) / name)
                    trees.append(tree)
                runs.append(start(tree, cache))
            base, head = (json.loads(run.communicate()[0] or "{}") for run in runs)
        finally:
            for run in runs:
                run.kill()
            for tree in trees:
                command = ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)]
                subprocess.run(command, check=True)
    if not base or not head:
        print("a commit's cells could not be run")
        return 2
    different = compare(base, head)
    print("\n".join(different))
    refused = sum(not digest.islower() for digest in base.values())
    print(
        f"{len(base)} cells ({refused} refused), {len(different)} differ, "
        f"{len(head.keys() - base.keys())} new"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
