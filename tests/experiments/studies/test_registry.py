"""The table of experiments: every file says what it must, and only known things."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcal.datasets import catalogue
from fedcal.errors import InputError
from fedcal.experiments.comparison.grid import Variant
from fedcal.experiments.config import METHODS
from fedcal.experiments.studies import registry
from fedcal.experiments.studies.cells import BASE
from fedcal.experiments.studies.expected import ROOT
from fedcal.experiments.studies.maddock import CLAIMS
from fedcal.experiments.studies.registry import EXPERIMENTS, FOLDER, STUDIES, experiment

GRIDS = [name for name in EXPERIMENTS if experiment(name).parts]
FUNCTIONS = [name for name in EXPERIMENTS if name not in GRIDS]


def test_the_table_and_the_folder_agree() -> None:
    assert {p.stem for p in FOLDER.glob("*.toml")} == set(STUDIES)


def test_the_guide_names_all_of_them() -> None:
    page = (ROOT / "docs" / "guide" / "reproduce.md").read_text("utf-8")
    assert [name for name in EXPERIMENTS if f"`{name}`" not in page] == []


def test_the_sources_name_the_papers_that_are_run_again() -> None:
    page = (ROOT / "docs" / "sources.md").read_text("utf-8")
    for title in (
        "Private Federated Multiclass Post-hoc Calibration",
        "Privacy Preserving Recalibration under Domain Shift",
        "Private Prediction Sets",
        "A Closer Look at the Calibration of Differentially Private Learners",
        "Federated Calibration and Evaluation of Binary Classifiers",
    ):
        assert page.count(title) == 1


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as refused:
        experiment("maddock-table9")
    assert sum(name in str(refused.value) for name in EXPERIMENTS) == 3
    assert "maddock-table6" in str(refused.value)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_has_its_line_of_the_list(name: str) -> None:
    found = experiment(name)
    assert found.title
    assert "\n" not in found.about
    assert len(found.about) < 140


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_names_only_what_there_is(name: str) -> None:
    found = experiment(name)
    assert set(found.networks) <= {entry.name for entry in catalogue()}
    assert set(found.expected) <= set(CLAIMS)
    parts = {part.name: part for part in found.parts}
    assert len(parts) == len(found.parts)
    for part in found.parts:
        assert {Variant.parse(method).method for method in part.methods.values()} <= set(METHODS)
    for plot in found.plots:
        assert plot.part in parts
        assert plot.x in ("rounds", "epsilon", "partition")
        assert plot.y in ("classwise_ece", "accuracy")
    titles = {title for part in found.parts for title in part.methods}
    assert not found.reference or found.reference in titles
    assert BASE in titles  # its accuracy is the one to keep


@pytest.mark.parametrize("name", ["maddock-table2", "maddock-table3"])
def test_a_table_has_the_paper_s_columns(name: str) -> None:
    found = experiment(name)
    titles = {title for part in found.parts for title in part.methods}
    assert found.paper is not None
    assert set(found.paper.columns) <= titles
    paper = found.parts[0].settings
    assert (paper["rounds"], paper["sampling_rate"], found.seeds) == (12, 0.1, 5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_can_be_called_without_options(name: str) -> None:
    found = experiment(name)
    assert callable(found.home.rows)
    assert found.tables


@pytest.mark.parametrize("name", [f"maddock-table{n}" for n in (2, 3, 6, 7)])
def test_the_paper_s_tables_are_whole(name: str) -> None:
    found = experiment(name).paper
    assert found is not None
    assert found.rows
    for values in found.rows.values():
        assert len(values) == len(found.columns)
        assert all(len(v) in (1, 2) and v[0] >= 0 for v in values)


def refused(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "x.toml").write_text('[x]\ntitle="t"\nabout="a"\nseeds=1\n' + text)
    monkeypatch.setattr(registry, "FOLDER", folder)
    monkeypatch.setattr(registry, "EXPERIMENTS", {"x": "x"})
    experiment("x")


def test_a_setting_that_compare_lacks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="'round'"):
        refused('[[x.parts]]\nname="p"\nround=3\nmethods=[]\n', tmp_path, monkeypatch)


def test_a_verdict_is_one_of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="depends on seeds"):
        refused('parts=[]\n[x.claims]\nnewton-ratio="perhaps"\n', tmp_path, monkeypatch)
