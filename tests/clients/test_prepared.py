"""A site's folder: private, mapped rather than read, and refused in one line where damaged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fedcal.classes import digest_of
from fedcal.clients.prepared import LOCK, SITE, alone, prepare, prepared
from fedcal.errors import InputError
from fedcal.shards import Shards

ROWS = Shards.from_owner(
    np.linspace(-1, 1, 12).reshape(6, 2),
    np.array([0, 1, 1, 0, 1, 0]),
    np.zeros(6, np.int64),
    1,
    "probs",
    np.array([0, 0, 1, 1, 2, 2]),
    groups=np.array([0, 1, 1, 0, 0, 1]),
    group_names=("ward 1", "ward 2"),
    other=np.linspace(1, -1, 12).reshape(6, 2),
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    test = (np.ones((2, 2)), np.array([0, 1]))
    prepare(tmp_path / "a", ROWS, test=test, names=["x", "y"], number=3, simulated=True)
    site = prepared(tmp_path / "a")
    for name in ("logits", "labels", "offsets", "subjects", "groups", "group_names", "other"):
        assert np.array_equal(getattr(site.shards, name), getattr(ROWS, name))
    assert site.test is not None
    assert np.array_equal(site.test[0], test[0])
    assert (site.shards.input, site.names, site.number) == ("probs", ("x", "y"), 3)
    assert site.simulated
    assert site.digest == digest_of(["x", "y"])
    prepare(tmp_path / "b", ROWS)
    real = prepared(tmp_path / "b")
    assert (real.names, real.number, real.simulated, real.test) == (("0", "1"), None, False, None)
    prepare(tmp_path / "c", Shards(ROWS.logits, ROWS.labels, ROWS.offsets))
    plain = prepared(tmp_path / "c").shards
    assert plain.subjects is plain.groups is plain.other is None
    assert plain.group_names == ()


def test_nobody_else_can_enter_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    prepare(tmp_path / "a", ROWS)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_rows_are_mapped_not_read(tmp_path: Path) -> None:
    many = Shards.from_owner(
        np.zeros((200_000, 2)), np.zeros(200_000, np.int64), np.zeros(200_000, np.int64), 1
    )
    prepare(tmp_path, many)
    logits = prepared(tmp_path).shards.logits
    assert isinstance(logits.base, np.memmap)
    assert not logits.flags.writeable


def test_a_site_may_have_no_rows(tmp_path: Path) -> None:
    prepare(tmp_path, ROWS.take(np.array([0])).block(0, 1))
    empty = Shards(np.zeros((0, 2)), np.zeros(0, np.int64), np.array([0, 0]))
    prepare(tmp_path, empty)
    assert prepared(tmp_path).shards.rows.tolist() == [0]


def test_several_clients_are_no_site(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a site is one client; these rows belong to 6"):
        prepare(tmp_path, ROWS.each_row())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    mode = tmp_path.stat().st_mode
    with pytest.raises(InputError, match="holds something else"):
        prepare(tmp_path, ROWS)
    assert tmp_path.stat().st_mode == mode
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_site_that_runs_is_not_prepared_again(tmp_path: Path) -> None:
    prepare(tmp_path, ROWS)
    with alone(tmp_path), pytest.raises(InputError, match="another process runs"):
        prepare(tmp_path, ROWS)
    prepare(tmp_path, ROWS)
    assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize("name", [SITE, "logits.npy", "labels.npy"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "noise"])
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str, damage: str) -> None:
    prepare(tmp_path, ROWS)
    path = tmp_path / name
    if damage == "gone":
        path.unlink()
    else:
        content = {"empty": b"", "cut": path.read_bytes()[:-9], "noise": os.urandom(80)}[damage]
        path.write_bytes(content)
    with pytest.raises(InputError, match="this site") as said:
        prepared(tmp_path)
    assert "\n" not in str(said.value)
