"""Results of `AfterTraining` stay until new ones are whole, also where a process is killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

APPS = Path(__file__).parents[2] / "clients"
APP = """
import os
from test_any_app import MODEL, grid_of, scaled
from fedcal import AfterTraining

options = {"epsilon": 8.0, "unit": "example", "rounds": 2, "out": "out"}

def run(overwrite, dies):
    grid = grid_of(scaled)
    push, left = grid.push_messages, iter(range(dies - 1, -1, -1) if dies else ())
    grid.push_messages = lambda messages: push(messages) if next(left, 1) else os._exit(9)
    AfterTraining("fednewton", overwrite=overwrite, **options).start(grid, MODEL)

def dies(overwrite, at):
    child = os.fork()
    if not child:
        run(overwrite, at)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

def files():
    found = [entry for entry in os.scandir("out") if entry.is_file()]
    return {entry.name: open(entry, "rb").read() for entry in found}

dies(False, 3)  # a killed run does not lock its folder
run(False, 0)
first = files()
dies(True, 2)
left = files()
assert not [name for name in first if left.get(name) != first[name]]
run(True, 0)
second = files()
assert set(second) == set(first)
assert any(second[name] != first[name] for name in first)
"""


def test_earlier_results_stay_until_new_ones_are_complete(tmp_path):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(APPS)}
    where = {"cwd": tmp_path, "env": env, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", APP], check=False, **where)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text())["privacy"]["epsilon"]
