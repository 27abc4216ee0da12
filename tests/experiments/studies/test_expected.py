"""`--check`: what counts as a deviation, and that the shipped files describe this code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedcal.errors import InputError
from fedcal.experiments.studies import expected
from fedcal.experiments.studies.check import deviations, tolerance, wrong_verdicts
from fedcal.experiments.studies.comparisons import COMPARISONS
from fedcal.experiments.studies.expected import content, packed, read, shipped, unpacked, write
from fedcal.experiments.studies.registry import EXPERIMENTS
from fedcal.experiments.studies.result import Reproduction
from fedcal.experiments.studies.run import reproduce
from fedcal.experiments.studies.spec import EVERYWHERE, Experiment, Field, RowsTable


@pytest.fixture
def result(small: str, network: str) -> Reproduction:
    return reproduce(small, networks=[network], jobs=1)


def with_first(result: Reproduction, **changed: object) -> Reproduction:
    """With another first row of a private or fitted method."""
    k = next(k for k, row in enumerate(result.rows) if not row["baseline"])
    rows = [*result.rows]
    rows[k] = rows[k] | changed
    return replace(result, rows=rows)


def test_a_result_is_as_itself_whatever_the_number_of_seeds(
    small: str, network: str, result: Reproduction
) -> None:
    then = reproduce(small, networks=[network], jobs=1)
    assert deviations(result, then) == []
    assert deviations(reproduce(small, networks=[network], seeds=1, jobs=1), then) == []
    assert deviations(reproduce(small, networks=[network], seeds=3, jobs=1), then) == []


def test_a_number_outside_its_tolerance_is_a_line(result: Reproduction) -> None:
    row = next(row for row in result.rows if not row["baseline"])
    allowed = tolerance("classwise_ece", row["classwise_ece"])
    for by, count in ((0.9, 0), (1.1, 1)):
        moved = [v + by * allowed for v in row["classwise_ece"]]
        found = deviations(with_first(result, classwise_ece=moved), result)
        assert len(found) == count
    assert found[0].startswith("net.npz, paper, FedBBQ")
    assert "classwise ECE" in found[0]
    assert "expected" in found[0]
    fallen = [a - 0.02 for a in row["accuracy"]]
    (line,) = deviations(with_first(result, accuracy=fallen), result)
    assert "accuracy" in line


def test_tolerances_are_far_below_the_spread(result: Reproduction) -> None:
    for row in result.rows:
        allowed = tolerance("classwise_ece", row["classwise_ece"])
        assert 0 < allowed < 0.2 * row["classwise_ece_mean"]


def test_missing_and_unknown_cells_are_lines(result: Reproduction) -> None:
    fewer = replace(result, rows=result.rows[:-1])
    (line,) = deviations(fewer, result)
    assert line.endswith("no result")
    (line,) = deviations(result, fewer)
    assert line.endswith("not among the expected results")


def test_networks_of_the_user_are_not_checked(
    small: str, network: str, data_file: Callable[..., str], result: Reproduction
) -> None:
    more = reproduce(small, networks=[network], data=[data_file("mine.npz", n=300)], jobs=1)
    assert deviations(more, result) == []
    alone = reproduce(small, networks=[data_file("other.npz", n=300)], jobs=1)
    assert deviations(alone, result) == []


def test_what_ships_is_read_as_it_was(
    result: Reproduction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected, "FOLDER", tmp_path)
    with pytest.raises(InputError, match="no expected results of small"):
        shipped("small")
    write("small", content(result), "abc1234")
    again = shipped("small")
    assert again.rows == result.rows
    assert (again.blocks, again.verdicts) == (result.blocks, result.verdicts)
    assert read("small")["commit"] == "abc1234"


def test_failed_runs_are_no_expectation(result: Reproduction) -> None:
    with pytest.raises(InputError, match="nobody"):
        content(with_first(result, failures=["nobody answered"]))


def test_rows_that_nothing_tells_apart_are_refused() -> None:
    fields = (Field("method", "method"), Field("bytes", "bytes", 0, tolerance=0.0))
    tables = (RowsTable("t", fields),)
    table = Experiment(name="sizes", title="t", about="a", module="none", tables=tables)
    row = {"method": "acct", "bytes": 8}
    with pytest.raises(InputError, match="two rows are called acct"):
        content(Reproduction(table, [row, row]))


def test_what_is_expected_must_be_claimed() -> None:
    expected = {"made-up": {EVERYWHERE: "holds"}}
    some = Experiment(
        name="n", title="t", about="a", module="noise_audit", tables=(), expected=expected
    )
    result = Reproduction(some, [])
    assert wrong_verdicts(result) == ["made-up: expected, but not claimed"]


def test_a_claim_that_nothing_tells_any_more_is_a_deviation() -> None:
    kept = shipped("evaluation-errors")
    noisy = [r | ({"slope_std": 9.0} if r["what"] == "slope" else {}) for r in kept.rows]
    lines = wrong_verdicts(Reproduction(kept.experiment, noisy))
    assert len(lines) > 10
    assert all(": not told here, expected: " in line for line in lines)


def test_rows_are_packed_and_unpacked() -> None:
    """Keys of all, values of all, nothing of either; mappings; 1 is not 1.0."""
    rows = [
        {"a": 1, "b": None, "after": {"ece": {"mean": 0.5}}, "settings": {}},
        {"a": 1.0, "b": None, "after": {"ece": {"mean": 0.25}}, "settings": {"k": [1]}},
        {"a": 2, "after": {"ece": {"mean": 0.5}}, "settings": {}},
    ]
    first, second = packed(rows)
    assert first["columns"] == ("a", "b", "after.ece.mean", "settings")
    assert first["same"] == {"b": None}
    assert second["rows"] == [[]]
    assert [repr(row) for row in unpacked([first, second])] == [repr(row) for row in rows]


# --- the shipped files --------------------------------------------------------------------------


FILES = sorted({path.stem for path in expected.FOLDER.glob("*.json")} - {*COMPARISONS})


def test_the_paper_s_tables_have_files() -> None:
    assert {"maddock-table2", "maddock-table3"} <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_of_an_experiment_and_says_something(name: str) -> None:
    assert name.partition("@")[0] in EXPERIMENTS
    found = read(name)
    assert (found["schema"], found["name"]) == (3, name)
    assert re.fullmatch(r"[0-9a-f]{7,}\+?", found["commit"])
    assert shipped(name).blocks


@pytest.mark.parametrize("name", [name for name in FILES if "@" not in name])
def test_the_verdicts_of_what_ships_are_those_kept_by_hand(name: str) -> None:
    assert wrong_verdicts(shipped(name)) == []


def test_every_experiment_has_results_to_check_against() -> None:
    assert {*FILES} >= {*EXPERIMENTS} - {"fedtemp-bound"}  # not made yet


@pytest.mark.parametrize("name", ["maddock-table2", "maddock-table3"])
def test_a_seed_on_a_small_network_is_as_expected(name: str) -> None:
    found = reproduce(name, networks=["imdb-binary"], seeds=1, jobs=1)
    assert deviations(found, shipped(name)) == []
    assert len(found.rows) > 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maddock-table2", "maddock-table3"])
def test_the_paper_s_tables_are_as_expected(name: str) -> None:
    found = reproduce(name)
    assert found.failures == []
    assert deviations(found, shipped(name)) == []
