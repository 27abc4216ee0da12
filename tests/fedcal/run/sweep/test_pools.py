"""Where runs are computed: worker processes that end with us, and Ray."""

import os
import subprocess
import sys
import time
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import scored

from fedcal import datasets
from fedcal.core.checks import FedcalError
from fedcal.datasets import Dataset
from fedcal.run.comparison.grid import read_grid, resolve
from fedcal.run.comparison.run import run_row, runs_of
from fedcal.run.sweep import Run, digest_of, in_processes, key_of


def small(seed: int = 0, **more: Any) -> Dataset:
    logits, labels = scored(3, 120, seed, 2.0, 2.0)
    return datasets.from_arrays(
        logits=logits, labels=labels, test_logits=logits[:40], test_labels=labels[:40], **more
    )


def asked(data: Dataset, **options: Any) -> tuple[list[Run], dict[str, Dataset]]:
    grid = read_grid({"data": data.name, "method": "fednewton,fedbin", "seeds": 2, **options})
    cells = resolve(grid, {data.name: data})[0]
    runs = [run for cell in cells for run in runs_of(cell)]
    return runs, {data.name: data}


def bare(rows: Any) -> dict[str, dict[str, Any]]:
    return {key_of(r["run"]): {k: v for k, v in r.items() if k != "seconds"} for r in rows}


def test_the_digest_sees_everything():
    base = small()
    names = np.array(list("abc") * 40)
    others = [
        small(seed=1),
        *(small(client=owner) for owner in (np.arange(120) % 3, np.arange(120) % 4, names)),
        small(subject=np.arange(120) % 4),
        *(small(group=group) for group in (np.arange(120) % 3, names)),
        small(other_logits=base.logits),
        datasets.from_arrays(logits=base.logits, labels=base.labels),
        datasets.from_arrays(probs=base.probs, labels=base.labels),
    ]
    assert len({digest_of(data) for data in (base, *others)}) == 11
    assert digest_of(base) == digest_of(small())


def test_processes_end_with_their_rows_and_a_dead_one_is_an_error():
    before = set(active_children())

    def ours() -> list[BaseProcess]:
        return [process for process in active_children() if process not in before]

    runs, sources = asked(small())
    rows = in_processes(runs, sources, run_row, 2)
    found = bare([next(rows), next(rows)])
    assert len(ours()) == 2
    rows.close()  # as an interrupt does
    assert found.items() <= bare(in_processes(runs, sources, run_row, 1)).items()
    assert not ours()
    rows = in_processes(*asked(small(), seeds=50), run_row, 2)
    next(rows)
    ours()[0].kill()
    with pytest.raises(FedcalError, match=r"a worker process died \(killed, perhaps for"):
        list(rows)
    assert not ours()


SCRIPT = """
import os, signal
from multiprocessing import active_children

import numpy as np
from fedcal import compare

print("begun", flush=True)
labels = np.arange(40) % 2
rows = {"logits": 2.0 * np.eye(2)[labels], "labels": labels}

def end(done, total):
    if done:
        print(*(process.pid for process in active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

options = {"method": "none,fedbin", "clients": 2, "epsilon": "inf", "seeds": 50, "jobs": 2}
compare(rows | {f"test_{k}": v for k, v in rows.items()}, **options, progress=end)
"""


def test_workers_whose_parent_was_killed_end(tmp_path):
    """And its script needs no guard of its main module: no worker runs it."""
    (tmp_path / "script.py").write_text(SCRIPT)
    env = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], env=env, text=True, capture_output=True
    )
    begun, pids = done.stdout.splitlines()
    workers = [int(pid) for pid in pids.split()]
    assert (begun, len(workers)) == ("begun", 2), done.stderr
    deadline = time.monotonic() + 20
    while any(map(runs_still, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs_still(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
