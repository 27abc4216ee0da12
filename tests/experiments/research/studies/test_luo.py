"""Tables and figures of Luo et al.: what is summed up, what is drawn, what is refused."""

import dataclasses
import functools
import inspect
from statistics import median
from typing import Any

import numpy as np
import pytest
from refusals import refused

from fedcal.core.errors import Interrupted
from fedcal.experiments.report.figures.drawing import draw
from fedcal.experiments.research.studies.luo import results
from fedcal.experiments.research.studies.registry import experiment
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
    assert len(whole.verdicts) == 9
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


def test_the_figure_has_a_row_for_each_perturbation_and_one_for_all(shifts, monkeypatch):
    quick(monkeypatch, "figures")
    result = reproduce("luo-figures", data=shifts, jobs=1)
    sheet = result.sheet
    assert [p.note for p in sheet.panels[::3]] == ["fog.npz", "snow.npz", results.ALL]
    everything = [r for r in result.rows if r["data"] == results.ALL]
    first = everything[0]
    mine = [r for r in result.rows if r["data"] != results.ALL and r["sweep"] == first["sweep"]]
    values = [r["acc-t/local"] for r in mine if r["sources"] == first["sources"]]
    assert first["acc-t/local"] == pytest.approx(np.mean(values))
    assert first["acc-t/local std"] == pytest.approx(np.std(values))
    ax = draw(sheet).axes[0]
    assert len(ax.lines) == 6 + 1  # the model as it is lies across
    assert len(ax.collections) == 2  # bands of Acc-T under both kinds of noise


def test_what_cannot_be_chosen_is_refused(tmp_path):
    out = tmp_path / "out"
    rain = {"data": ["mnist-shift:rain:5"], "out": out}
    for name in ("luo-table1", "luo-table7", "luo-figures"):
        named = set(inspect.signature(experiment(name).home.rows).parameters)
        assert {"data", "out", "resume", "jobs", "ray_address", "progress"} <= named
        refused("no choice of seeds", reproduce, name, seeds=2)
        refused("unknown data set 'mnist-shift:rain:5'", reproduce, name, **rain)
        assert not out.exists()
    refused("leave out --ray-address", reproduce, "audit", ray_address="local")
