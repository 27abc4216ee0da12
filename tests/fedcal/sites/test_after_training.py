"""Results that are there stay until new ones are whole, also where a process is killed half way.

Black box: each run is a process of its own, which a callback or a client's code ends like SIGKILL.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
import os, sys
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from fedcal import AfterTraining, InProcessGrid, add_answers, datasets
from fedcal.partition import deal

out, overwrite, seed, dies = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3]), int(sys.argv[4])
shards, app = deal(datasets.load("resnet110-cifar10").split(0), "iid", 4, 0), ClientApp()

def scores(arrays, context):
    k = int(context.node_config["partition-id"])
    rows = shards.block(k, k + 1)
    return (1 + seed) * rows.logits, rows.labels

class Grid(InProcessGrid):
    asked = 0
    def push_messages(self, messages):
        Grid.asked += 1
        if Grid.asked == dies:
            os._exit(9)
        return super().push_messages(messages)

add_answers(app, scores=scores)
after = AfterTraining(
    "fednewton", epsilon=8.0, unit="example", rounds=2, out=out, overwrite=overwrite
)
after.start(Grid(app, range(1, 5)), ArrayRecord({"w": Array(np.array([2.0]))}))
"""

SIMULATE = """
import os, sys
from fedcal import simulate
out, overwrite, seed, dies = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3]), int(sys.argv[4])
def told(done, planned, *more):
    if done >= dies > 0:
        os._exit(9)
simulate("resnet110-cifar10", method="{method}", unit="example", clients=4, seed=seed, epsilon=8.0,
         out=out, overwrite=overwrite, progress=told)
"""

TRAIN = """
import os, sys
import numpy as np
from fedcal import train
out, overwrite, seed, dies = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3]), int(sys.argv[4])
def told(done, total, record):
    if done >= dies > 0:
        os._exit(9)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(200, 4)), rng.integers(0, 2, 200)
train(data=(x + y[:, None], y), method="fedsgd", model="softmax", clients=4, rounds=3, seed=seed,
      partition="iid", out=out, overwrite=overwrite, progress=told)
"""

COMPARE = """
import os, sys
from fedcal import compare
out, overwrite, seed, dies = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3]), int(sys.argv[4])
def told(done, planned, *more):
    if done >= dies > 0:
        os._exit(9)
compare(data="resnet110-cifar10", method="fednewton", unit="example", clients=4, seeds=2, seed=seed,
        epsilon=8.0, jobs=1, out=out, overwrite=overwrite, progress=told)
"""

COMMANDS = {
    "AfterTraining": APP,
    "simulate": SIMULATE.replace("{method}", "fednewton"),
    "evaluate": SIMULATE.replace("{method}", "evaluate"),
    "train": TRAIN,
    "compare": COMPARE,
}
KILLED = 9


@pytest.fixture
def run(tmp_path):
    def run(text: str, out: Path, *, overwrite: bool, seed: int, dies: int = 0) -> tuple[int, str]:
        script = tmp_path / "script.py"
        script.write_text(text, "utf-8")
        given = [str(out), str(overwrite), str(seed), str(dies)]
        done = subprocess.run(
            [sys.executable, script, *given],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
        return done.returncode, done.stderr

    return run


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_earlier_results_stay_until_new_ones_are_whole(run, tmp_path):
    earlier_results_stay("AfterTraining", run, tmp_path)


def earlier_results_stay(name, run, tmp_path):
    text, out = COMMANDS[name], tmp_path / "out"
    code, said = run(text, out, overwrite=False, seed=0)
    assert code == 0, said
    first = files(out)
    code, said = run(text, out, overwrite=True, seed=1, dies=2 if name == "AfterTraining" else 1)
    assert code == KILLED, said
    left = files(out)
    changed = {n for n in first if left.get(n) != first[n]}
    assert not changed
    code, said = run(text, out, overwrite=True, seed=1)
    assert code == 0, said
    second = files(out)
    assert set(second) == set(first)
    assert {n for n in first if second[n] == first[n]} < set(first)


@pytest.mark.slow
def test_a_killed_run_after_a_training_does_not_lock_its_folder(run, tmp_path):
    out = tmp_path / "out"
    code, said = run(APP, out, overwrite=False, seed=0, dies=3)
    assert code == KILLED, said
    code, said = run(APP, out, overwrite=False, seed=0)
    assert code == 0, said
    assert json.loads((out / "result.json").read_text("utf-8"))["privacy"]["epsilon"]
    code, said = run(APP, out, overwrite=False, seed=1)
    assert code != 0
    assert "--overwrite replaces it" in said
