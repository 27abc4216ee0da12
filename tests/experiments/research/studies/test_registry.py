"""The table of experiments: every file says what it must, and only known things."""

import pytest

from fedcal.datasets import catalogue
from fedcal.experiments.research.studies.cells import BASE
from fedcal.experiments.research.studies.expected import ROOT
from fedcal.experiments.research.studies.maddock.claims import CLAIMS
from fedcal.experiments.research.studies.registry import EXPERIMENTS, FOLDER, STUDIES, experiment
from fedcal.experiments.runs.comparison.grid import Variant
from fedcal.experiments.runs.config import METHODS

GRIDS = [name for name in EXPERIMENTS if experiment(name).parts]


def test_the_table_the_folder_and_the_guide_agree():
    assert {p.stem for p in FOLDER.glob("*.toml")} == set(STUDIES)
    pages = [page.read_text("utf-8") for page in (ROOT / "docs" / "results").glob("*.md")]
    words = set("\n".join(pages).replace("`", " ").split())
    assert set(EXPERIMENTS) <= words


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_names_only_what_there_is(name):
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
