"""The folder of a comparison while it grows: kept rows, torn lines, one writer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused, refused

from fedcal.datasets import Dataset
from fedcal.results.files import versions
from fedcal.results.labels import FAMILIES
from fedcal.run.comparison.grid import read_grid
from fedcal.run.sweep import CONFIG, INPUTS, PRIVACY, ROWS, SENT, Journal, Row, digest_of, key_of

GRID = read_grid({"data": "d", "method": "fedbin", "seeds": 3})
DATA = Dataset("d", "logits", np.eye(3), np.arange(3))
METRICS = dict.fromkeys(FAMILIES["calibrate"].complete, 0.5)


def row(seed: int, **more: Any) -> Row:
    return {
        "run": {"data": "d", "seed": seed},
        "versions": versions(),
        "before": METRICS,
        "after": METRICS,
        "privacy": dict.fromkeys(PRIVACY),
        "communication": dict.fromkeys(SENT, 1),
        "seconds": 0.1,
        **more,
    }


RUNS = [row(seed)["run"] for seed in range(4)]


@contextmanager
def journal(folder: Path, *, resume: bool, data: Dataset = DATA) -> Iterator[Journal]:
    kept = Journal(folder, resume=resume)
    with kept.opened(GRID.to_toml(), {"d": data}, RUNS):
        yield kept


def fill(folder: Path, rows: list[Row]) -> None:
    with journal(folder, resume=False) as kept:
        for entry in rows:
            kept[key_of(entry["run"])] = entry


def test_rows_that_another_process_kept_since_the_check_are_not_replaced(tmp_path):
    late = Journal(tmp_path)
    fill(tmp_path, [row(0)])
    opened = late.opened(GRID.to_toml(), {"d": DATA}, RUNS)
    refused("unfinished comparison", opened.__enter__)
    assert lines(tmp_path) == [row(0)]


def test_data_that_changed_names_are_other_data(tmp_path):
    other = Dataset("e", "logits", 2 * np.eye(3), np.arange(3))
    runs = [row(0)["run"], {"data": "e", "seed": 0}]
    kept = Journal(tmp_path)
    with kept.opened(GRID.to_toml(), {"d": DATA, "e": other}, runs):
        for run in runs:
            kept[key_of(run)] = row(0, run=run)
    again = Journal(tmp_path, resume=True)
    opened = again.opened(GRID.to_toml(), {"d": other, "e": DATA}, runs)
    refused("d, e changed since", opened.__enter__)


def lines(folder: Path) -> list[Row]:
    return [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]


def test_a_row_is_in_the_file_when_append_returns_and_stays(tmp_path):
    folder = tmp_path / "deep" / "er"
    with journal(folder, resume=False) as kept:
        kept["0"] = row(0)
        assert lines(folder) == [row(0)]
        kept["1"] = row(1)
        assert (folder / INPUTS).stat().st_mode & 0o777 == 0o600  # for the owner alone
        assert json.loads((folder / INPUTS).read_text()) == {"data": {"d": digest_of(DATA)}}
    with journal(folder, resume=True) as kept:
        assert read_grid(kept.begun) == GRID
        assert list(kept.values()) == [row(0), row(1)]
        kept["2"] = row(2)
    assert lines(folder) == [row(0), row(1), row(2)]


DAMAGED = [
    "{",
    json.dumps(row(7, seconds=float("nan"))),
    json.dumps({k: v for k, v in row(7).items() if k != "privacy"}),
    "[" * 100_000,
    json.dumps(row(1, versions=[])),
    json.dumps(row(1, before=[])),
    json.dumps(row(1, after=METRICS | {"nll": "0.5"})),
    json.dumps(row(1, after=METRICS | {"nll": 1e200})),
    json.dumps(row(1, after={})),
    json.dumps(row(1, privacy={})),
    json.dumps(row(1, communication={"rounds": 1})),
    json.dumps(row(1, seconds="long")),
    json.dumps({"run": row(1)["run"], "versions": versions(), "error": 1}),
]


def test_a_damaged_line_in_the_middle_is_refused_and_nothing_lost(tmp_path):
    fill(tmp_path, [row(0)])
    first, path = (tmp_path / ROWS).read_bytes(), tmp_path / ROWS

    def resumed(bad: str) -> None:
        line = bad.encode("utf-8", "surrogateescape") + b"\n"
        path.write_bytes(before := first + line + json.dumps(row(1)).encode() + b"\n")
        try:
            journal(tmp_path, resume=True).__enter__()
        finally:
            assert path.read_bytes() == before

    each_is_refused([(bad, "line 2 is not a row") for bad in DAMAGED], resumed)


def test_what_a_folder_holds_is_not_lost(tmp_path):
    fill(tmp_path / "new", [])
    fill(tmp_path / "new", [row(0), row(1)])  # nothing was kept there
    refused(r"runs kept: 2\): continue with --resume", fill, tmp_path / "new", [])
    before = (tmp_path / "new" / CONFIG).read_bytes()
    other = Dataset("d", "logits", np.eye(3), np.arange(3)[::-1])
    other_data = journal(tmp_path / "new", resume=True, data=other)
    refused("d changed since this comparison was begun", other_data.__enter__)
    assert (tmp_path / "new" / CONFIG).read_bytes() == before
    assert lines(tmp_path / "new") == [row(0), row(1)]
    strange = {**row(0), "versions": versions() | {"numpy": "1.0"}}
    fill(tmp_path / "older", [strange])
    older = journal(tmp_path / "older", resume=True)
    refused("numpy that .* was made by .* must be .1.0., got", older.__enter__)
    fill(tmp_path / "more", [row(9)])
    refused(
        "begun with another grid, which may grow", journal(tmp_path / "more", resume=True).__enter__
    )
    fill(tmp_path / "twice", [row(0), row(1), row(0)])
    refused("not of this one, or there twice", journal(tmp_path / "twice", resume=True).__enter__)


def test_one_folder_has_one_writer(tmp_path):
    pytest.importorskip("fcntl")
    with journal(tmp_path, resume=False) as kept:
        for resume in (True, False):
            refused("another comparison is writing", journal(tmp_path, resume=resume).__enter__)
        kept["0"] = row(0)
    with journal(tmp_path, resume=True):
        pass


def test_a_full_disk_is_reported(tmp_path):
    with journal(tmp_path, resume=False) as kept:
        kept["0"] = row(0)
        file = kept._file

        class Full:
            def write(self, line: bytes) -> int:
                return file.write(line[:9])

            def close(self) -> None:
                file.close()

        kept._file = Full()
        refused(r"cannot write .*: No space left", kept.__setitem__, "1", row(1))
        assert list(kept) == ["0"]
    with journal(tmp_path, resume=True) as kept:
        assert list(kept.values()) == [row(0)]
