"""`--check`: what counts as a deviation, and that the shipped files describe this code."""

import re
from dataclasses import replace

import pytest
from refusals import refused

from experiments.studies import expected
from experiments.studies.expected import (
    content,
    deviations,
    shipped,
    tolerance,
    wrong_verdicts,
)
from experiments.studies.result import Reproduction
from experiments.studies.run import reproduce
from experiments.studies.spec import EXPERIMENTS
from experiments.studies.texts import COMPARISONS, DEMO


@pytest.fixture
def result(ran):
    return ran[0]


def with_first(result: Reproduction, **changed: object) -> Reproduction:
    """With another first row of a private or fitted method."""
    k = next(k for k, row in enumerate(result.rows) if not row["baseline"])
    rows = [*result.rows]
    rows[k] = rows[k] | changed
    return replace(result, rows=rows)


def test_a_result_is_as_itself_whatever_the_number_of_seeds(small, network, data_file, result):
    for seeds in (1, 2, 3):
        again = reproduce(small, networks=[network], seeds=seeds, jobs=1)
        assert deviations(again, result) == []
    mine, other = (data_file(name, n=300) for name in ("mine.npz", "other.npz"))
    more = reproduce(small, networks=[network], data=[mine], seeds=1, jobs=1)
    assert deviations(more, result) == []  # networks of the user's are not checked
    assert deviations(reproduce(small, networks=[other], seeds=1, jobs=1), result) == []


def test_a_number_outside_its_tolerance_and_a_cell_too_few_or_many_are_lines(result):
    row = next(row for row in result.rows if not row["baseline"])
    allowed = tolerance("classwise_ece", row["classwise_ece"])
    for by, count in ((0.9, 0), (1.1, 1)):
        moved = [v + by * allowed for v in row["classwise_ece"]]
        found = deviations(with_first(result, classwise_ece=moved), result)
        assert len(found) == count
    assert re.match(r"net\.npz, paper, FedBBQ.*classwise ECE.*expected", found[0])
    fallen = [a - 0.02 for a in row["accuracy"]]
    (line,) = deviations(with_first(result, accuracy=fallen), result)
    assert "accuracy" in line
    for row in result.rows:
        allowed = tolerance("classwise_ece", row["classwise_ece"])
        assert 0 < allowed < 0.2 * row["classwise_ece"][0]
    fewer = replace(result, rows=result.rows[:-1])
    (line,) = deviations(fewer, result)
    assert line.endswith("no result")
    (line,) = deviations(result, fewer)
    assert line.endswith("not among the expected results")
    refused("nobody", content, with_first(result, failures=["nobody answered"]))


FILES = sorted({path.stem for path in expected.FOLDER.glob("*.json")} - {*COMPARISONS, DEMO})


def test_every_experiment_has_results_to_check_against():
    assert {*FILES} == {*EXPERIMENTS} - {"small"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_verdicts_that_are_kept_by_hand(name):
    kept = shipped(name)
    assert kept.tables
    assert wrong_verdicts(kept) == []


@pytest.mark.parametrize("name", ["maddock-table2", "maddock-table3"])
def test_a_seed_on_a_small_network_is_as_expected(name):
    found = reproduce(name, networks=["imdb-binary"], seeds=1, jobs=1)
    assert deviations(found, shipped(name)) == []
    assert len(found.rows) > 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maddock-table2", "maddock-table3"])
def test_the_paper_s_tables_are_as_expected(name):
    found = reproduce(name)
    assert found.failures == []
    assert deviations(found, shipped(name)) == []
