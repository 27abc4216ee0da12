"""`compare`: the same rows whatever the order, the processes and the interruptions."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import scored

from fedcal import Comparison, compare, datasets, simulate
from fedcal.core.checks import Interrupted
from fedcal.run import folders
from fedcal.run.sweep import Row, key_of

pytestmark = pytest.mark.usefixtures("quick_figures")


def arrays(seed: int = 5, **more: Any) -> dict[str, Any]:
    logits, labels = scored(3, 240, seed, 3.0, 3.0)
    test = {"test_logits": logits[:90], "test_labels": labels[:90]}
    return {"logits": logits, "labels": labels, **test, **more}


SMALL: dict[str, Any] = {"method": "none,fednewton,fedbin", "clients": 4, "seeds": 2}


@pytest.fixture(autouse=True, scope="module")
def _no_figures():
    """Reports have tests of their own, and Matplotlib takes its time."""

    def write(folder: Path, _: Path) -> None:
        read = json.loads((folder / "compare.json").read_text())
        (folder / "report.html").write_text(f"<html>{len(read['cells'])}</html>")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders, "write_report", write)
        yield


@pytest.fixture(scope="module")
def saved(_no_figures, tmp_path_factory):
    out = tmp_path_factory.mktemp("compare") / "small"
    seen: list[tuple[int, int]] = []
    found = compare(arrays(), jobs=1, out=out, progress=lambda *k: seen.append(k), **SMALL)
    assert seen == [(k, 9) for k in range(10)]
    return found, out


@pytest.fixture
def folder(saved, tmp_path):
    return Path(shutil.copytree(saved[1], tmp_path / "copy"))


def noting(ran: list[int]) -> Any:
    return lambda done, _: ran.append(done)


def interrupted_after(runs: int) -> Any:
    def progress(done: int, total: int) -> None:
        if done == runs:
            raise KeyboardInterrupt

    return progress


def bare(rows: list[Row]) -> list[Row]:
    """Rows without what differs from run to run."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def in_folder(folder: Path) -> list[Row]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def test_a_row_is_what_simulate_gives(saved):
    found, _ = saved
    assert len(found.rows) == 1 + 2 * 2 * 2
    for row in found.rows:
        asked = {k: v for k, v in row["run"].items() if k != "data"}
        result = simulate(arrays(), **{**asked, "epsilon": float(asked["epsilon"])})
        for part in ("before", "after"):
            known = result.reliability[part]
            more = {"resolution": known.resolution, "uncertainty": known.uncertainty}
            assert row[part] == getattr(result, part) | more
        assert row["privacy"]["epsilon"] == result.privacy["epsilon"]
        assert row["privacy"]["noise_std"] == result.privacy["noise_std"]
        assert row["communication"] == result.communication


def test_a_run_that_fails_is_a_row_and_the_others_go_on(tmp_path):
    options: dict[str, Any] = {"method": "fedbin", "epsilon": 1, "clients": 2, "jobs": 1}
    found = compare(arrays(), seeds=6, dropout=0.6, out=tmp_path, **options)
    _, cell = found.cells
    failed = [f["seed"] for f in cell["failures"]]
    assert 0 < len(failed) < 6
    assert sorted(failed + cell["seeds"]) == list(range(6))
    assert len(cell["after"]["ece"]["values"]) == len(cell["seeds"])
    assert len(found.failures) == len(failed)
    assert re.search(rf"FedBin\S* {len(failed)} of 6 failed", found.to_markdown())
    ran: list[int] = []
    again = compare(arrays(), jobs=1, out=tmp_path, resume=True, progress=noting(ran))
    assert ran == list(range(7 - len(failed), 8))  # what failed is run again
    assert bare(again.rows) == bare(found.rows)


def test_interrupted_and_resumed_nothing_is_lost_or_doubled(tmp_path):
    data = [
        arrays(client=np.repeat(list("abcdef"), 40)),
        datasets.from_arrays(**arrays(seed=6), name="d"),
    ]
    options = {"method": "none,fedoneshot,fedbbq", "seeds": 1, "partition": "dirichlet:0.5"}
    uninterrupted, out = compare(data, jobs=1, **options), tmp_path / "o"
    with pytest.raises(Interrupted, match=r"7 of 10 runs are kept in .*; continue with --resume"):
        compare(data, jobs=1, out=out, progress=interrupted_after(7), **options)
    kept = in_folder(out)
    assert len(kept) == 7
    assert {p.name for p in out.iterdir()} == {"config.toml", "rows.jsonl", ".inputs.json"}

    ran: list[int] = []
    found = compare(data, jobs=1, out=out, resume=True, progress=noting(ran))
    assert ran == list(range(7, 11))
    assert bare(found.rows) == bare(uninterrupted.rows) == bare(in_folder(out))
    for a, b in zip(found.cells, uninterrupted.cells, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}
    by_key = {key_of(row["run"]): row for row in found.rows}
    assert all(by_key[key_of(row["run"])] == row for row in kept)  # to the second


@pytest.mark.parametrize("resume", [False, True])
def test_a_finished_comparison_stays_until_the_next_is_saved(folder, resume):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    other = {**SMALL, "seeds": 3} if resume else {"method": "fedoneshot", "clients": 5, "seeds": 1}
    done = 10 if resume else 1
    mode = {"resume": True} if resume else {"overwrite": True}
    with pytest.raises(Interrupted, match=rf"are kept in {folder}; continue with --resume"):
        compare(arrays(), jobs=1, out=folder, progress=interrupted_after(done), **mode, **other)
    grown = {"config.toml", "rows.jsonl", ".inputs.json"}
    assert {p.name for p in folder.iterdir()} == {*before}
    for name in {*before} - grown:
        assert (folder / name).read_bytes() == before[name]
    ran: list[int] = []
    found = compare(arrays(), jobs=1, out=folder, resume=True, progress=noting(ran))
    assert ran[0] == done
    assert in_folder(folder) == found.rows
    assert {p.name for p in folder.iterdir()} == set(before)
    assert bare(found.rows) == bare(compare(arrays(), jobs=1, **other).rows)


def test_an_interrupt_while_files_are_written_keeps_the_rows(tmp_path, monkeypatch):
    def interrupted(self: Comparison, out: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Comparison, "save", interrupted)
        with pytest.raises(Interrupted, match="9 of 9 runs are kept"):
            compare(arrays(), jobs=1, out=tmp_path, **SMALL)
    assert len(in_folder(tmp_path)) == 9
    compare(arrays(), jobs=1, out=tmp_path, resume=True)
    assert (tmp_path / "compare.json").exists()
