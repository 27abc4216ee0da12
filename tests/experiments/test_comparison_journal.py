"""The folder of a comparison while it grows: kept rows, torn lines, one writer."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from experiments.comparison import journal as module
from experiments.comparison.grid import Grid, read_grid
from experiments.comparison.journal import CONFIG, DONE, FINAL, ROWS, Journal, grid_in
from experiments.comparison.row import Row, key_of
from fedcal.errors import FedcalError, InputError

GRID = read_grid({"method": "fedbin", "seeds": 3})


def row(seed: int, **more: Any) -> Row:
    return {
        "run": {"data": "d", "seed": seed},
        "data_sha256": "0",
        "versions": {},
        "before": {"ece": 0.1},
        "after": {"ece": 0.05},
        "privacy": {},
        "communication": {},
        "seconds": 0.1,
        **more,
    }


def journal(folder: Path, grid: Grid = GRID, *, resume: bool) -> AbstractContextManager[Journal]:
    return module.journal(folder, grid, resume=resume, check=lambda rows: None)


def fill(folder: Path, rows: list[Row], grid: Grid = GRID) -> None:
    with journal(folder, grid, resume=False) as kept:
        for entry in rows:
            kept.append(key_of(entry["run"]), entry)


def lines(folder: Path) -> list[Row]:
    return [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]


def test_a_row_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    with journal(tmp_path / "deep" / "er", GRID, resume=False) as kept:
        kept.append("0", row(0))
        assert lines(tmp_path / "deep" / "er") == [row(0)]
        kept.append("1", row(1))
        assert lines(tmp_path / "deep" / "er") == [row(0), row(1)]
    assert grid_in(tmp_path / "deep" / "er") == GRID


def test_to_resume_keeps_what_is_there(tmp_path: Path) -> None:
    fill(tmp_path, [row(0), row(1, error="nobody answered")])
    with journal(tmp_path, resume=True) as kept:
        assert list(kept.rows.values()) == [row(0), row(1, error="nobody answered")]
        kept.append("2", row(2))
    assert [r["run"]["seed"] for r in lines(tmp_path)] == [0, 1, 2]


@pytest.mark.parametrize("torn", [b"{", b'{"run": {"seed"', b"\x00\x00", b'{"run": {}}'])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    fill(tmp_path, [row(0)])
    with (tmp_path / ROWS).open("ab") as f:
        f.write(torn)
    with journal(tmp_path, resume=True) as kept:
        assert list(kept.rows.values()) == [row(0)]
        kept.append("1", row(1))
    assert lines(tmp_path) == [row(0), row(1)]


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        "{}",
        '{"run": 3}',
        json.dumps(row(7, seconds="1")),
        json.dumps(row(7, before={"ece": None})),
        json.dumps({k: v for k, v in row(7).items() if k != "privacy"}),
        "[" * 100_000,
        "\udcff",
    ],
)
def test_a_damaged_line_in_the_middle_is_refused_and_nothing_lost(tmp_path: Path, bad: str) -> None:
    fill(tmp_path, [row(0)])
    with (tmp_path / ROWS).open("ab") as f:
        f.write(bad.encode("utf-8", "surrogateescape") + b"\n" + json.dumps(row(1)).encode())
        f.write(b"\n")
    before = (tmp_path / ROWS).read_bytes()
    with pytest.raises(InputError, match="line 2 is not a row"):
        journal(tmp_path, resume=True).__enter__()
    assert (tmp_path / ROWS).read_bytes() == before


def test_a_doubled_row_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, [row(0), row(1), row(0)])
    with pytest.raises(InputError, match=r"line 3: this run is there twice"):
        journal(tmp_path, resume=True).__enter__()


def test_an_unfinished_folder_is_not_replaced(tmp_path: Path) -> None:
    fill(tmp_path, [row(0), row(1)])
    with pytest.raises(InputError, match=r"2 runs are kept\): go on with --resume"):
        fill(tmp_path, [])
    assert lines(tmp_path) == [row(0), row(1)]


def test_a_finished_folder_is_replaced(tmp_path: Path) -> None:
    fill(tmp_path, [row(0)])
    for name in FINAL:
        (tmp_path / name).write_text("old")
    (tmp_path / "mine.txt").write_text("kept")
    other = read_grid({"method": "fedtemp"})
    fill(tmp_path, [row(5)], other)
    assert {p.name for p in tmp_path.iterdir()} == {CONFIG, ROWS, "mine.txt"}
    assert lines(tmp_path) == [row(5)]
    assert grid_in(tmp_path) == other


def test_a_folder_where_nothing_was_kept_is_simply_used(tmp_path: Path) -> None:
    fill(tmp_path, [])
    fill(tmp_path, [row(0)])


def test_another_grid_is_named(tmp_path: Path) -> None:
    fill(tmp_path, [row(0)])
    before = (tmp_path / CONFIG).read_bytes()
    smaller = read_grid({"method": "fedbin", "seeds": 2})
    with pytest.raises(InputError, match="another grid: seeds was 3 and is 2"):
        journal(tmp_path, smaller, resume=True).__enter__()
    assert (tmp_path / CONFIG).read_bytes() == before


@pytest.mark.parametrize("there", [(), (CONFIG,), (ROWS,), (DONE,)])
def test_there_must_be_something_to_resume(tmp_path: Path, there: tuple[str, ...]) -> None:
    for name in there:
        (tmp_path / name).write_text("")
    with pytest.raises(InputError, match="nothing to resume"):
        grid_in(tmp_path)


def test_one_folder_has_one_writer(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with journal(tmp_path, resume=False) as kept:
        kept.append("0", row(0))
        for resume in (True, False):
            with pytest.raises(InputError, match="another comparison is writing"):
                journal(tmp_path, resume=resume).__enter__()
    with journal(tmp_path, resume=True):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FedcalError, match="cannot write"):
        fill(tmp_path / "file" / "below", [])


def test_rows_are_checked_before_anything_is_changed(tmp_path: Path) -> None:
    fill(tmp_path, [row(0)])
    (tmp_path / DONE).write_text("old")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def refuse(rows: Any) -> None:
        assert list(rows.values()) == [row(0)]
        raise InputError("not these")

    bigger = read_grid({"method": "fedbin", "seeds": 9})
    with pytest.raises(InputError, match="not these"):
        module.journal(tmp_path, bigger, resume=True, check=refuse).__enter__()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_what_is_kept_is_counted_in_the_file(tmp_path: Path) -> None:
    with journal(tmp_path, resume=False) as kept:
        kept.append("0", row(0))
        kept.append("1", row(1))
        kept.rows.clear()  # as if interrupted before it was noted
        assert kept.count() == 2


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with journal(tmp_path, resume=False) as kept:
        kept.append("0", row(0))
        file = kept._file

        class Full:
            def write(self, line: bytes) -> int:
                return file.write(line[:9])

            def close(self) -> None:
                file.close()

        kept._file = Full()  # type: ignore[assignment]
        with pytest.raises(FedcalError, match=r"cannot write .*: No space left"):
            kept.append("1", row(1))
        assert kept.count() == 1
    with journal(tmp_path, resume=True) as kept:
        assert list(kept.rows.values()) == [row(0)]
