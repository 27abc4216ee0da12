"""Tables and figures of Luo et al.: what is summed up, what is drawn, what is refused."""

import dataclasses
import functools
from statistics import median
from typing import Any

import pytest
from refusals import refused

from fedcal.core.checks import Interrupted
from fedcal.experiments.research.studies.luo import results
from fedcal.experiments.research.studies.run import reproduce


@pytest.fixture
def shifts(data_file):
    return [data_file("fog.npz", n=3100), data_file("snow.npz", n=3110)]


def quick(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    study = getattr(results, name)
    rows = functools.partial(study.rows, trials=2, every=5)
    monkeypatch.setattr(results, name, dataclasses.replace(study, rows=rows))


def test_an_interrupted_table_goes_on(shifts, tmp_path, monkeypatch):
    quick(monkeypatch, "table1")
    options: dict[str, Any] = {"data": shifts, "jobs": 1}
    whole = reproduce("luo-table1", **options)
    assert {r["data"] for r in whole.rows if r["what"] == "cell"} == {"fog.npz", "snow.npz"}
    ece = [r["acc-t/local"] for r in whole.rows if r["what"] == "cell"]
    methods = {(r["method"], r["noise"]): r for r in whole.rows if r["what"] == "method"}
    assert methods["acc-t", "local"]["median"] == median(ece)
    assert len(whole.verdicts) == 7
    assert all(block.rows for block in whole.blocks)

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="4 of"):
        reproduce("luo-table1", out=tmp_path, progress=stop, **options)
    refused("unfinished run of luo-table1", reproduce, "luo-table1", out=tmp_path, **options)
    again = reproduce("luo-table1", out=tmp_path, resume=True, **options)
    assert again.rows == whole.rows
    assert {p.name for p in tmp_path.iterdir()} >= {"luo-table1.md", "luo-table1.html", "runs"}
    refused("nothing of luo-table7", reproduce, "luo-table7", out=tmp_path, resume=True, **options)
