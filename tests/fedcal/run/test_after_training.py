"""Results of `AfterTraining` stay until new ones are whole, also where a process is killed."""

import json
import os
import subprocess
import sys

APP = """
import os, sys
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from fedcal import AfterTraining, InProcessGrid, datasets, with_answers
from fedcal.partition import deal

shards = deal(datasets.load("resnet110-cifar10").split(0), "iid", 4, 0)

def scores(arrays, context):
    k = int(context.node_config["partition-id"])
    rows = shards.block(k, k + 1)
    return rows.logits, rows.labels

class Grid(InProcessGrid):
    left = 0
    def push_messages(self, messages):
        self.left -= 1
        if self.left == 0:
            os._exit(9)
        return super().push_messages(messages)

app = with_answers(ClientApp(), scores=scores)

def run(overwrite, dies):
    grid = Grid(app, range(1, 5))
    grid.left = dies
    after = AfterTraining(
        "fednewton", epsilon=8.0, unit="example", rounds=2, out="out", overwrite=overwrite
    )
    after.start(grid, ArrayRecord({"w": Array(np.array([2.0]))}))

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
    done = subprocess.run(
        [sys.executable, "-c", APP],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text())["privacy"]["epsilon"]
