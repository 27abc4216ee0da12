"""Tables and figures of Luo et al.: what is summed up, what is claimed, and what is drawn."""

import functools
import inspect
from collections.abc import Callable
from statistics import fmean, median
from typing import Any

import numpy as np
import pytest

from fedcal.errors import InputError, Interrupted
from fedcal.experiments.figures.drawing import draw
from fedcal.experiments.luo.methods import COLUMNS, NOISES, PAPER
from fedcal.experiments.studies import luo, luo_figures, luo_table1, luo_table7
from fedcal.experiments.studies.registry import experiment
from fedcal.experiments.studies.run import reproduce

Row = dict[str, Any]

TABLE_1, TABLE_7 = luo.printed("table1"), luo.printed("table7")


def cells(**more: float) -> list[Row]:
    """Made-up cells of two perturbations: Acc-T is best by a third, local noise costs thrice."""
    ece = {c.key: 0.12 if c.noise == "local" else 0.04 for c in COLUMNS}
    ece |= {"none": 0.2, "one-source": 0.13, "acc-t/local": 0.08, "acc-t/central": 0.03}
    found = []
    for k, name in enumerate(("fog", "snow", "frost")):
        for sources in (10, 50, 250):
            row = {"what": "cell", "data": name, "sweep": "sources", "sources": sources}
            row |= {"samples": 10, "epsilon": 1.0, "trials": 5}
            row |= {key: value + 0.001 * k for key, value in (ece | more).items()}
            found.append(row)
    return found


def test_the_paper_s_tables_are_whole():
    for lines in (*TABLE_1.values(), *TABLE_7.values()):
        assert tuple(lines) == PAPER
        assert min(lines, key=lambda m: lines[m][0]) == "acc-t"
    assert TABLE_1["CIFAR-10"]["acc-t"] == [0.0836, 0.1199]
    assert TABLE_1["ImageNet"]["nll-t"] == [0.0597, 0.0624]
    assert TABLE_7["CIFAR-100"]["none"] == [0.1036, 0.1342]
    for module, severity in ((luo_table1, 5), (luo_table7, 1)):
        names = luo.shifted(module.SEVERITY)
        assert len(names) == len(set(names)) == 15
        assert f"mnist-shift:fog:{severity}" in names


def test_cells_are_summed_up():
    found = cells(**{"acc-t-bisection/local": 0.01})
    rows = luo.methods(found, TABLE_1)
    assert len(rows) == len(COLUMNS)
    acc_t = next(r for r in rows if r["method"] == "acc-t" and r["noise"] == "local")
    assert acc_t["median"] == median(r["acc-t/local"] for r in found)
    assert acc_t["mean"] == fmean(r["acc-t/local"] for r in found)
    assert (acc_t["CIFAR-100 median"], acc_t["CIFAR-100 mean"]) == (0.0890, 0.0973)
    none = next(r for r in rows if r["method"] == "none")
    assert none["behind"] == pytest.approx(0.201 / 0.081)
    assert all(r["ImageNet mean"] is None for r in rows if r["noise"] == "central")
    rows = luo.aggregation(found)  # ratios of means
    assert [r["sources"] for r in rows] == [10, 50, 250]
    assert rows[0]["acc-t"] == pytest.approx(0.081 / 0.031)
    assert rows[0]["histogram"] == pytest.approx(0.121 / 0.041)
    rows = luo.searches(found)
    best = {r["method"]: r["best"] for r in rows if r["noise"] == "local"}
    assert best["acc-t-bisection"] == 1.0
    assert {r["noise"] for r in rows} == set(NOISES)
    assert sum(r["best"] for r in rows) == pytest.approx(2.0)
    assert "acc-t-exponential" not in best


def verdicts(module: Any, **more: float) -> dict[str, tuple[bool, str]]:
    found = cells(**more)
    told = module.claims([*luo.summary(found, TABLE_1), *found])
    return {text: (holds, said) for text, holds, said, *_ in told}


def test_claims_hold_and_fail():
    lead = "In the median Acc-T is at least 1.3 times ahead of the next method"
    private, lowest = lead.replace("next", "next private"), "Acc-T has the lowest median ECE"
    told = verdicts(luo_table1)
    twice = next(text for text in told if text.startswith("Acc-T: one noise"))
    assert told[lead] == (True, "median of Histogram binning over that of Acc-T: 1.49")
    assert all(told[text][0] for text in (lowest, twice, private))
    other = "Under local noise another search finds a better temperature than golden section"
    assert not told[other][0]
    told = verdicts(luo_table1, **{"one-source": 0.09})
    assert told[lead] == (False, "median of One source over that of Acc-T: 1.12")
    assert told[private][0]
    told = verdicts(luo_table1, **{"nll-t/local": 0.07, "acc-t/central": 0.079})
    mean = "Acc-T has the lowest mean ECE"
    assert not any(told[text][0] for text in (lowest, mean, lead, twice))
    assert told[mean][1].startswith("NLL-T 0.07")
    assert verdicts(luo_table7, none=0.1)[ALONE][0]
    assert not verdicts(luo_table7)[ALONE][0]  # none is worse
    assert not verdicts(luo_table7, none=0.07)[ALONE][0]  # Acc-T is, too


ALONE = "In the median, of the private methods Acc-T alone leaves the model no worse than it was"


@pytest.fixture
def shifts(data_file: Callable[..., str]) -> list[str]:
    return [data_file("fog.npz", n=3100), data_file("snow.npz", n=3110)]


def quick(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    rows = functools.partial(module.rows, trials=2, every=5)
    monkeypatch.setattr(module, "rows", rows)


def test_an_interrupted_table_goes_on(shifts, tmp_path, monkeypatch):
    quick(monkeypatch, luo_table1)
    options: dict[str, Any] = {"data": shifts, "jobs": 1}
    whole = reproduce("luo-table1", **options)
    assert {r["data"] for r in whole.rows if r["what"] == "cell"} == {"fog.npz", "snow.npz"}
    assert len(whole.verdicts) == 9
    assert all(block.rows for block in whole.blocks)

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="4 of"):
        reproduce("luo-table1", out=tmp_path, progress=stop, **options)
    with pytest.raises(InputError, match="unfinished run of luo-table1"):
        reproduce("luo-table1", out=tmp_path, **options)
    again = reproduce("luo-table1", out=tmp_path, resume=True, **options)
    assert again.rows == whole.rows
    assert {p.name for p in tmp_path.iterdir()} >= {"luo-table1.md", "luo-table1.html", "runs"}
    with pytest.raises(InputError, match="nothing of luo-table7"):
        reproduce("luo-table7", out=tmp_path, resume=True, **options)


def test_the_figure_has_a_row_for_each_perturbation_and_one_for_all(shifts, monkeypatch):
    quick(monkeypatch, luo_figures)
    result = reproduce("luo-figures", data=shifts, jobs=1)
    sheet = result.sheet
    assert [p.note for p in sheet.panels[::3]] == ["fog.npz", "snow.npz", luo_figures.ALL]
    everything = [r for r in result.rows if r["data"] == luo_figures.ALL]
    first = everything[0]
    mine = [r for r in result.rows if r["data"] != luo_figures.ALL and r["sweep"] == first["sweep"]]
    values = [r["acc-t/local"] for r in mine if r["sources"] == first["sources"]]
    assert first["acc-t/local"] == pytest.approx(np.mean(values))
    assert first["acc-t/local std"] == pytest.approx(np.std(values))
    ax = draw(sheet).axes[0]
    assert len(ax.lines) == 6 + 1  # the model as it is lies across
    assert len(ax.collections) == 2  # bands of Acc-T under both kinds of noise
    # what is too small for a sweep is drawn without it
    found = [{**row, **{f"{c.key} std": 0.01 for c in COLUMNS}} for row in cells()]
    sheet = luo_figures.sheet([*found, *({**row, "data": luo_figures.ALL} for row in found[:3])])
    assert (sheet.columns, len(sheet.panels)) == (1, 4)
    assert luo_figures.sheet(found) is None


def test_what_cannot_be_chosen_is_refused(tmp_path):
    out = tmp_path / "out"
    rain = {"data": ["mnist-shift:rain:5"], "out": out}
    for name in ("luo-table1", "luo-table7", "luo-figures"):
        named = set(inspect.signature(experiment(name).home.rows).parameters)
        assert {"data", "out", "resume", "jobs", "ray_address", "progress"} <= named
        with pytest.raises(InputError, match="no choice of seeds"):
            reproduce(name, seeds=2)
        with pytest.raises(InputError, match="unknown data set 'mnist-shift:rain:5'"):
            reproduce(name, **rain)
        assert not out.exists()
    with pytest.raises(InputError, match="leave out --ray-address"):
        reproduce("audit", ray_address="local")
