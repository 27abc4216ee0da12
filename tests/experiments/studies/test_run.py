"""Running an experiment: settings, networks of the user's, files, interruptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedcal.experiments.report
from fedcal.errors import InputError, Interrupted
from fedcal.experiments import compare
from fedcal.experiments.studies import figures, grids
from fedcal.experiments.studies.check import checked
from fedcal.experiments.studies.result import Reproduction
from fedcal.experiments.studies.run import reproduce

Write = Callable[..., str]


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matplotlib takes its time; figures have tests of their own."""
    monkeypatch.setattr(fedcal.experiments.report, "write_comparison_report", lambda folder: None)

    def save(sheet: Any, folder: Path, name: str) -> None:
        (folder / f"{name}.pdf").write_bytes(b"%PDF-")

    monkeypatch.setattr(figures, "save", save)


def values(found: Reproduction) -> dict[tuple[str, ...], Any]:
    return {
        key: row["classwise_ece"][0] for key, row in checked(found.experiment, found.rows).items()
    }


def test_cells_are_what_compare_gives(small: str, network: str) -> None:
    found = reproduce(small, networks=[network], jobs=1)
    beside = compare(
        network,
        method="fedbbq",
        clients=100,
        partition="dirichlet:0.1",
        rounds=2,
        sampling_rate=0.5,
        epsilon="inf",
        seeds=2,
        jobs=1,
    ).cells[1]
    (row,) = [row for row in found.rows if row["title"] == "FedBBQ all weight"]
    assert row["classwise_ece"] == beside["after"]["classwise_ece"]["values"]
    assert row["accuracy"] == beside["after"]["accuracy"]["values"]
    assert row["accuracy_before"] == beside["before"]["accuracy"]["mean"]
    assert (row["network"], row["rounds"], row["clients"]) == ("net.npz", 2, 100)


def test_networks_with_clients_of_their_own_keep_them(
    small: str, network: str, data_file: Write
) -> None:
    own = data_file("own.npz", own_clients=True)
    found = reproduce(small, networks=[network], data=[own], seeds=1, jobs=1)
    parts = {
        row["network"]: (row["partition"], row["clients"])
        for row in found.rows
        if not row["baseline"]
    }
    assert parts == {"net.npz": ("dirichlet:0.1", 100), "own.npz": ("natural", 7)}
    assert [row[0] for row in found.blocks[0].rows] == ["net.npz", "own.npz"]


def test_the_claims_are_judged(small: str, network: str) -> None:
    found = reproduce(small, networks=[network], seeds=1, jobs=1)
    words = {v.text.partition(" ")[0]: v.word for v in found.verdicts}
    assert words["Without"] == "holds"  # FedNewton without privacy is the pooled temperature
    assert words["FedNewton's"] == "holds"
    assert words["FedCal"] == "not told here"


def test_all_files_are_written_and_say_the_same(small: str, network: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = reproduce(small, networks=[network], jobs=1, out=out)
    names = {p.name for p in out.iterdir()}
    suffixes = ("json", "md", "csv", "html", "pdf")
    assert names == {"runs", *(f"small.{s}" for s in suffixes)}
    read = json.loads((out / "small.json").read_text())
    assert (read["schema"], read["kind"], read["name"]) == (1, "reproduction", "small")
    assert [c["title"] for c in read["cells"]] == [row["title"] for row in found.rows]
    assert read == found.to_json()
    assert [v["key"] for v in read["claims"]] == list(found.experiment.expected)
    markdown = (out / "small.md").read_text()
    assert all(v.text in markdown and v.said in markdown for v in found.verdicts)
    page = (out / "small.html").read_text()
    for words in (
        "FedBBQ all weight",
        "A note.",
        "not told here",
        "<svg",
        "fedcal reproduce small",
    ):
        assert words in page
    assert "<script" not in page
    runs = {p.name for p in (out / "runs" / "small").iterdir()}
    assert runs == {"paper", "ours"}
    lines = (out / "runs" / "small" / "paper" / "rows.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 2 * 2  # Base once, the rest with two seeds


def test_an_interrupted_run_goes_on_where_it_was(
    small: str, network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    straight = reproduce(small, networks=[network], jobs=1)

    def stop(done: int, total: int) -> None:
        assert total == 8
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="--resume"):
        reproduce(small, networks=[network], jobs=1, out=out, progress=stop)
    assert not (out / "small.json").exists()
    with pytest.raises(InputError, match=r"unfinished run of small.*--resume"):
        reproduce(small, networks=[network], jobs=1, out=out)

    seen: list[int] = []
    again = reproduce(
        small,
        networks=[network],
        jobs=1,
        out=out,
        resume=True,
        progress=lambda done, total: seen.append(done),
    )
    assert seen[0] == 5  # the first part was whole
    assert values(again) == values(straight)
    assert (out / "small.json").exists()


def test_a_finished_run_grows_by_a_seed(small: str, network: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reproduce(small, networks=[network], seeds=1, jobs=1, out=out)
    grown = reproduce(small, networks=[network], jobs=1, out=out, resume=True)
    assert values(grown) == values(reproduce(small, networks=[network], jobs=1))


def test_nothing_runs_before_all_parts_are_checked(
    small: str, network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("ran")

    monkeypatch.setattr(grids, "compare", never)
    with pytest.raises(InputError, match=r"missing\.npz"):
        reproduce(small, data=[str(tmp_path / "missing.npz")])
    with pytest.raises(InputError, match="seeds must be"):
        reproduce(small, networks=[network], seeds=0)
    with pytest.raises(InputError, match="--out"):
        reproduce(small, networks=[network], resume=True)
    with pytest.raises(InputError, match="nothing of small to resume"):
        reproduce(small, networks=[network], resume=True, out=tmp_path / "none")
    with pytest.raises(InputError, match="allowed: small"):
        reproduce("smal")


def test_an_experiment_is_replaced_only_where_it_is_asked_for(
    small: str, network: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"networks": [network], "seeds": 1, "jobs": 1, "out": tmp_path}
    first = reproduce(small, **given)
    (tmp_path / "other.json").write_text("of another experiment")
    with pytest.raises(InputError, match=f"holds {small}: --overwrite replaces it"):
        reproduce(small, **given)
    with pytest.warns(UserWarning, match=f"holds {small}, which is replaced") as told:
        again = reproduce(small, overwrite=True, **given)
    assert len([1 for one in told if "replaced" in str(one.message)]) == 1
    assert values(again) == values(first)
    assert (tmp_path / "other.json").read_text() == "of another experiment"
    (tmp_path / f"{small}.json").write_text("{}")
    with pytest.raises(InputError, match="no result of fedcal's"):
        reproduce(small, overwrite=True, **given)


def test_the_same_network_twice_is_refused(small: str, network: str) -> None:
    with pytest.raises(InputError, match="twice"):
        reproduce(small, networks=[network], data=[network])


# --- functions that return rows -----------------------------------------------------------------

FUNCTION = """
[function]
title = "A function"
about = "Rows."
rows = "made_up"

[[function.tables]]
title = "Numbers"
where = { what = "n" }
columns = [
  { key = "name", title = "name" },
  { key = "value", title = "value", digits = 1, tolerance = 0.1 },
]
"""


class MadeUp:
    """Stands for a module."""

    @staticmethod
    def rows(seeds: int = 3, progress: Any = None) -> list[dict[str, Any]]:
        return [{"what": "n", "name": f"row {k}", "value": float(k)} for k in range(seeds)]

    @staticmethod
    def claims(rows: list[dict[str, Any]]) -> list[tuple[str, bool, str]]:
        return [("There are three.", len(rows) == 3, f"there are {len(rows)}")]


@pytest.fixture
def function(small: str, monkeypatch: pytest.MonkeyPatch) -> str:
    from fedcal.experiments.studies import registry, spec

    (registry.FOLDER / "function.toml").write_text(FUNCTION)
    monkeypatch.setattr(registry, "EXPERIMENTS", {"function": "function"})
    monkeypatch.setattr(spec.Experiment, "home", MadeUp)
    return "function"


def test_a_function_s_rows_are_laid_out(function: str, tmp_path: Path) -> None:
    found = reproduce(function, jobs=2, out=tmp_path / "out", progress=lambda done, total: None)
    assert [(v.text, v.word) for v in found.verdicts] == [("There are three.", "holds")]
    (block,) = found.blocks
    assert block.rows == [
        *(("row 0", "0.0"), ("row 1", "1.0"), ("row 2", "2.0")),
    ]
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        f"function.{suffix}" for suffix in ("json", "md", "csv", "html")
    }
    assert reproduce(function, seeds=2).verdicts[0].word == "does not hold"


def test_a_function_refuses_what_it_does_not_take(function: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no choice of data"):
        reproduce(function, data=["x.npz"])
    with pytest.raises(InputError, match="in one go"):
        reproduce(function, resume=True, out=tmp_path)
