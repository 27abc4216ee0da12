"""Run cells with the fedcal that is on the path: `worker.py TREE OUT INPUTS K N PATTERNS`.

Started by `python tests/golden_outputs`, for each of two commits. Only what is public, and what
`ENTRIES` names, is used. A folder OUT/GROUP/CELL gets what the cell writes and, for each step, what
it prints and its exit code. K of N: this process runs every N-th cell.
"""

import contextlib
import io
import json
import logging
import os
import re
import shlex
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

time.perf_counter = lambda: 0.0  # what is timed took no time; before fedcal is imported
sys.path.append(str(Path(__file__).resolve().parent))

import calls  # noqa: E402
import cells  # noqa: E402

ROOT = "fedcal.experiments."
ENTRIES = {
    "fedcal": "cli.main:main cli:main",
    "demo": "demo:main",
    "methods": "config:METHODS runs.config:METHODS",
    "benchmarks": "benchmarks.__main__:main research.benchmarks.__main__:main",
    **{
        f"shift-{name}": f"shift.{name}:main research.shift.{name}:main"
        for name in ("mnist", "picture")
    },
    "blocks": "studies.documents:BLOCKS research.studies.documents:BLOCKS",
    "expected": "studies.expected:main research.studies.expected:main",
    "shipped": "studies.expected:shipped research.studies.expected:shipped",
    "reproduce": "studies.run:reproduce research.studies.run:reproduce",
    "experiments": "studies.registry:EXPERIMENTS research.studies.registry:EXPERIMENTS",
    "audit": "research.studies.noise_audit:rows research.studies.own.audits:noise.rows",
    "amplification": "studies.amplification:rows research.studies.maddock.amplification:rows",
    "binning-pays": "research.studies.binning_pays:rows research.studies.own.binning_pays:rows",
    "maddock-table6": "research.studies.bytes_sent:rows research.studies.maddock.bytes_sent:rows",
    **{
        f"luo-{name}": f"research.studies.luo_{name}:rows research.studies.luo.results:{name}.rows"
        for name in ("table1", "table7", "figures")
    },
}
"""Name -> where it is, below ROOT: what moves gets its new place added, after a space."""


DRAWN = ("simulate/default-out", "compare/out", "reproduce/shipped-maddock-figure2")
"""Cells whose pictures are drawn; in the others matplotlib's are empty files, in a tenth of the
time, as nothing of a picture is compared."""


def empty_picture(self: Any, file: Any, **options: object) -> None:
    """In place of `Figure.savefig`."""
    if hasattr(file, "write"):
        axes = "".join(f'<g id="axes_{k + 1}"/>' for k, _ in enumerate(self.axes))
        file.write(f'<svg viewBox="0 0 1 1">{axes}</svg>'.encode())
    else:
        Path(file).write_bytes(b"")


def entry(name: str) -> Any:
    """What is at the first place that there is."""
    for place in ENTRIES[name].split():
        module, _, attribute = place.partition(":")
        with contextlib.suppress(ModuleNotFoundError, AttributeError):
            return attrgetter(attribute)(import_module(ROOT + module))
    raise LookupError(f"none of {ENTRIES[name]} is there: see ENTRIES in worker.py")


def names(place: str) -> list[str]:
    """The names in a table; none where it is not found."""
    try:
        return list(entry(place))
    except LookupError as error:
        print(error, file=sys.stderr)
        return []


def step(line: str) -> object:
    """Run one; what a Python function gives."""
    kind, *rest = shlex.split(line) or [""]
    if kind == "python":
        return getattr(calls, rest[0])(entry, *rest[1:])
    name, given = (rest[0], rest[1:]) if kind == "module" else ("fedcal", shlex.split(line))
    sys.argv = [name, *given]
    main = entry(name)
    code = main(given)
    sys.exit(code if isinstance(code, int) else 0)


def run_cell(steps: list[str], plain: Callable[[str], str]) -> None:
    """Run the steps in the folder where we are, and write what they print."""
    for number, line in enumerate(steps, 1):
        out, err = io.StringIO(), io.StringIO()
        code: object = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                calls.write(step(line), f"{number}.value")
            except SystemExit as left:
                code = left.code
            except Exception as error:  # noqa: BLE001  a trace is a result, too
                code = f"{type(error).__name__}: {error}"
        as_json = "--json" in line and code == 0
        Path(f"{number}.stdout{'.json' if as_json else '.txt'}").write_text(plain(out.getvalue()))
        told = plain(f"{err.getvalue()}[{code}] fedcal {line}\n")
        Path(f"{number}.stderr.txt").write_text(told)
    Path("in").unlink()
    for path in [p for p in Path().rglob("*.db") if p.is_file()]:
        with contextlib.closing(sqlite3.connect(path)) as ledger:
            dump = "\n".join(ledger.iterdump())
        path.with_suffix(".sql").write_text(dump)
        path.unlink()
    for path in Path().rglob("*"):
        if path.suffix in (".json", ".jsonl", ".toml", ".md", ".csv", ".tex", ".html", ".sql"):
            path.write_text(plain(path.read_text("utf-8")), "utf-8")


def plain_text(tree: Path, out: Path, inputs: Path) -> Callable[[str], str]:
    """A function that takes out of a text what differs from run to run."""
    places = [(str(out), "<OUT>"), (str(inputs), "<IN>"), (str(tree), "<TREE>")]
    patterns = [
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", "<TIME>"),
        (r"\b0x[0-9a-f]{6,16}\b", "<ADDRESS>"),
        (r"/tmp/[\w.-]+", "<TMP>"),
        (r"\.draft-\w+", ".draft"),
        (r"(?<=['\"])[0-9a-f]{16}(?=['\"])", "<RUN>"),  # a ledger's, drawn anew for each run
    ]

    def plain(text: str) -> str:
        for place, word in places:
            text = text.replace(place, word)
        for pattern, word in patterns:
            text = re.sub(pattern, word, text)
        return text

    return plain


def chosen(patterns: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The cells that a pattern or a group's name names."""
    blocks = names("blocks")
    for name, steps in cells.cells(names("methods"), names("experiments"), blocks):
        if any(fnmatch(name, p) or name.partition("/")[0] == p for p in patterns):
            yield name, list(steps)


def main() -> None:
    """Run this process's share."""
    tree, out, inputs = map(Path, sys.argv[1:4])
    k, n = map(int, sys.argv[4:6])
    import fedcal

    if Path(fedcal.__file__).resolve().parents[1] != tree.resolve():
        sys.exit(f"fedcal is {fedcal.__file__}, not that of {tree}")
    import flwr.serverapp  # noqa: F401  Flower sets its own level when it is imported

    logging.getLogger("flwr").setLevel(logging.ERROR)  # its log is bound to the stderr of now
    from matplotlib.figure import Figure

    savefig = Figure.savefig
    plain = plain_text(tree, out, inputs)
    took: dict[str, float] = {}
    for number, (name, steps) in enumerate(chosen(sys.argv[6:])):
        if number % n != k:
            continue
        folder = out / name
        folder.mkdir(parents=True)
        os.chdir(folder)
        Path("in").symlink_to(inputs)
        since = time.process_time()
        Figure.savefig = savefig if name in DRAWN else empty_picture
        run_cell(steps, plain)
        took[name] = time.process_time() - since
    (out / f"times-{k}.json").write_text(json.dumps(took))


if __name__ == "__main__":
    main()
