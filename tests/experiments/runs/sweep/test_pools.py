"""Where runs are computed: worker processes that end with us, and Ray."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fedcal import datasets
from fedcal.core.errors import FedcalError
from fedcal.datasets import Dataset
from fedcal.experiments.runs import sweep
from fedcal.experiments.runs.comparison.grid import read_grid
from fedcal.experiments.runs.comparison.resolve import resolve
from fedcal.experiments.runs.comparison.run import run_row, runs_of
from fedcal.experiments.runs.sweep import Run, digest_of, hand_over, here, in_processes, key_of


def small(seed: int = 0, **more: Any) -> Dataset:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 120)
    logits = 2 * rng.normal(size=(120, 3)) + 2 * np.eye(3)[labels]
    return datasets.from_arrays(
        logits=logits, labels=labels, test_logits=logits[:40], test_labels=labels[:40], **more
    )


def asked(data: Dataset, **options: Any) -> tuple[list[Run], dict[str, Dataset]]:
    grid = read_grid({"data": data.name, "method": "fednewton,fedbin", "seeds": 2, **options})
    cells = resolve(grid, {data.name: data}).cells
    runs = [run for cell in cells for run in runs_of(cell)]
    return runs, {data.name: data}


def bare(rows: Any) -> dict[str, dict[str, Any]]:
    return {key_of(r["run"]): {k: v for k, v in r.items() if k != "seconds"} for r in rows}


def test_the_digest_sees_everything():
    base = small()
    others = [
        small(seed=1),
        small(client=np.arange(120) % 3),
        small(client=np.arange(120) % 4),
        small(subject=np.arange(120) % 4),
        small(client=np.array(list("abc") * 40)),
        small(group=np.arange(120) % 3),
        small(group=np.array(list("abc") * 40)),
        small(other_logits=base.logits),
        datasets.from_arrays(logits=base.logits, labels=base.labels),
        datasets.from_arrays(probs=base.probs, labels=base.labels),
    ]
    assert len({digest_of(data) for data in (base, *others)}) == 11
    assert digest_of(base) == digest_of(small())


def workers_of(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    started: list[Any] = []
    process = sweep.LineProcess

    def start(*arguments: Any) -> Any:
        started.append(process(*arguments))
        return started[-1]

    monkeypatch.setattr(sweep, "LineProcess", start)
    return started


def test_processes_end_with_their_rows_and_a_dead_one_is_told(monkeypatch):
    started = workers_of(monkeypatch)
    runs, sources = asked(small())
    rows = in_processes(runs, sources, run_row, 2)
    found = [next(rows)]
    assert [p.poll() for p in started] == [None, None]
    found += rows
    assert bare(found) == bare(here(runs, sources, run_row, jobs=1))
    assert all(p.poll() is not None for p in started)
    for killed in (False, True):  # before all rows are there
        rows = in_processes(*asked(small(), seeds=50), run_row, 2)
        next(rows)
        assert [p.poll() for p in started[-2:]] == [None, None]
        if killed:
            started[-2].kill()
            with pytest.raises(FedcalError, match=r"a worker process died \(killed, perhaps for"):
                list(rows)
        else:
            rows.close()
        assert all(p.poll() is not None for p in started)
    assert len(started) == 6


SCRIPT = """
import numpy as np
from fedcal import compare

print("begun")
labels = np.arange(40) % 2
rows = {"logits": 2.0 * np.eye(2)[labels], "labels": labels}
options = {"method": "none,fedbin", "clients": 2, "epsilon": "inf", "seeds": 2, "jobs": 2}
print(len(compare(rows | {f"test_{k}": v for k, v in rows.items()}, **options).rows))
"""


def test_a_script_needs_no_guard_of_its_main_module(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, path], text=True, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "begun\n3\n"), done.stderr


def test_a_worker_that_lost_its_parent_removes_the_data_and_ends(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    data = small()
    hand_over(folder, run_row, {"arrays": data})
    run = asked(data)[0][0]
    start = [sys.executable, "-c", sweep._START, json.dumps(sys.path), str(folder)]
    worker = subprocess.run(
        start, input=json.dumps(run) + "\n", text=True, capture_output=True, timeout=60
    )
    assert json.loads(worker.stdout)["run"] == run
    assert (worker.returncode, worker.stderr) == (1, "")
    assert list(tmp_path.iterdir()) == []
