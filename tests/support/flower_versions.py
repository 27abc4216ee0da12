"""Try fedcal with the Flower of this environment; print a row for docs/guide/engines.md.

`make flower VERSION=1.42.0` makes the environment and runs this. Each cell is tests of the suite.
"""

import subprocess
import sys
import time
from importlib.metadata import version

ENGINES = "tests/fedcal/run/engines"
SITES = "tests/fedcal/sites"
CELLS = {
    "inline": [f"{ENGINES}/test_engines.py", "-k", "inline"],
    "Flower's loop in process": [f"{ENGINES}/test_flower_grid.py"],
    "Ray": [f"{ENGINES}/test_ray.py::test_the_bits_are_inline_s"],
    "`flwr run`": [f"{ENGINES}/test_real_engines.py", "-k", "same_bits and flower"],
    "gRPC engine": [f"{ENGINES}/test_real_engines.py", "-k", "same_bits and grpc"],
    "guard": [
        "tests/fedcal/core/test_removed.py::test_a_flower_that_was_not_tried_is_refused",
        "tests/fedcal/core/test_removed.py::test_a_reply_that_stays_in_pieces_is_given_up",
        "tests/clients/site/process",
    ],
    "hostile server": [f"{SITES}/test_hostile_server.py", f"{ENGINES}/test_node.py"],
    "deployment": [
        f"{SITES}/test_faults_over_sites.py",
        "-k",
        "booked_once or killed_in_mid_round",
    ],
}
OF_SITES = ("gRPC engine", "guard", "hostile server", "deployment")
CHECK = "from fedcal.core.flower_internals_site import check_flower; check_flower()"


def tried(tests: list[str]) -> str:
    """Seconds that these tests took, or the first thing that went wrong."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line]
    if done.returncode == 0 and " passed" in lines[-1]:
        return f"works ({time.monotonic() - began:.0f} s)"
    wrong = [line for line in lines if line.startswith(("E  ", "FAILED", "ERROR"))]
    return f"fails: {(wrong or lines or [done.stderr[-200:]])[0][:200].replace('|', ' ')}"


def start_of_site() -> str:
    """What `fedcal site` says to this Flower."""
    command = [sys.executable, "-c", CHECK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = (done.stderr.splitlines() or [""])[-1].rpartition("InputError: ")[2]
    return f"refused: {output.partition(': ')[0]}" if done.returncode else "starts"


if __name__ == "__main__":
    row = {"flwr": version("flwr"), "`fedcal site`": start_of_site()}
    refused = row["`fedcal site`"] != "starts"
    for name, tests in CELLS.items():
        row[name] = "" if refused and name in OF_SITES else tried(tests)
        print(f"{name}: {row[name]}", file=sys.stderr, flush=True)
    for cells in (row.keys(), ["---"] * len(row), row.values()):
        print(f"| {' | '.join(cells)} |")
    sys.exit(any(cell.startswith("fails") for cell in row.values()))
