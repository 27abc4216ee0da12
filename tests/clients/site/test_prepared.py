"""A site's folder: private, mapped rather than read, and refused in one line where damaged."""

import os
import shutil
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from policies import FACTS, policy
from refusals import each_is_refused, refused

from fedcal.clients.site.guard import SITE, alone, prepared
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.store import records_of
from fedcal.core.checks import BudgetExceeded
from fedcal.core.naming import digest_of
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.secure_aggregation.keys import SigningKey, make_key
from fedcal.secure_aggregation.roster import Committee, Member, Roster

ROWS = rows_by_owner(
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


def test_what_was_written_is_read(tmp_path):
    prepare(tmp_path / "a", ROWS, names=["x", "y"], number=3, simulated=True)
    site = prepared(tmp_path / "a")
    for name in ("logits", "labels", "offsets", "subjects", "groups", "group_names", "other"):
        assert np.array_equal(getattr(site.shards, name), getattr(ROWS, name))
    assert (site.shards.input, site.names, site.number) == ("probs", ("x", "y"), 3)
    assert site.simulated
    assert site.digest == digest_of(["x", "y"])
    prepare(tmp_path / "b", Shards(ROWS.logits, ROWS.labels, ROWS.offsets))
    real = prepared(tmp_path / "b")
    assert (real.names, real.number, real.simulated) == (("0", "1"), None, False)
    assert real.shards.subjects is real.shards.groups is real.shards.other is None


def test_rows_are_mapped_not_read_in_a_folder_that_nobody_else_can_enter(tmp_path):
    (tmp_path / "a").mkdir(mode=0o755)
    prepare(tmp_path / "a", ROWS)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    logits = prepared(tmp_path / "a").shards.logits
    assert isinstance(logits.base, np.memmap)
    assert not logits.flags.writeable
    prepare(tmp_path / "a", Shards(np.zeros((0, 2)), np.zeros(0, np.int64), np.array([0, 0])))
    assert prepared(tmp_path / "a").shards.rows.tolist() == [0]  # a site may have no rows


def test_a_folder_of_something_else_or_of_a_site_that_runs_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    refused("contains something else", prepare, tmp_path, ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    prepare(tmp_path / "site", ROWS)
    with alone(tmp_path / "site"):
        refused("another process runs", prepare, tmp_path / "site", ROWS)


def test_a_damaged_file_is_one_line(tmp_path):
    for name, damage in product((SITE, "logits.npy"), ("gone", "empty", "cut", "no")):
        prepare(tmp_path, ROWS)
        path = tmp_path / name
        damaged = {"empty": b"", "cut": path.read_bytes()[:-9], "no": os.urandom(80)}
        path.unlink()
        if damage in damaged:
            path.write_bytes(damaged[damage])
        refused("this site", prepared, tmp_path)


@pytest.fixture
def files(tmp_path):
    """A federation of three with this site as its second, its key and its policy."""
    key = make_key(tmp_path / "signing.pem")
    others = [SigningKey(bytes([n]) * 32).public for n in (1, 2)]
    sites = tuple(Member(f"site {n}", k) for n, k in enumerate((others[0], key.public, others[1])))
    roster = Roster("hearts", sites, Committee((0, 1, 2), 3), digest_of(["x", "y"]))
    rules = policy(federation=roster.digest, epsilon_total=2.5, delta_total=1e-3)
    return {"roster": roster, "sign_key": tmp_path / "signing.pem", "policy": rules}


def test_federation_key_policy_and_classes_go_together(files, tmp_path):
    make_key(tmp_path / "other.pem")
    lungs = replace(files["roster"], name="lungs")
    table = [({**files, name: None}, "a roster, a signing key and a policy") for name in files]
    table += [
        ({**files, "names": None}, "class digest of the federation hearts must be"),
        ({**files, "sign_key": tmp_path / "other.pem"}, r"with the public key of .* has none"),
        ({**files, "roster": lungs}, "policy refuses the federation"),
    ]
    folder = tmp_path / "a"
    each_is_refused(table, lambda given: prepare(folder, ROWS, **{"names": ["x", "y"], **given}))
    assert not folder.exists()


def test_records_are_those_of_the_key_within_the_policy(files, tmp_path):
    def answer(name: str, job: str, key: str = "signing.pem", **change: Any) -> None:
        own = files | {"sign_key": tmp_path / key}
        prepare(tmp_path / name, ROWS, names=["x", "y"], **own)
        with records_of(prepared(tmp_path / name)) as records:
            records.answer(replace(FACTS, job=job * 64, **change), 1, "q", lambda: b"words")

    answer("first", "1")
    refused("epsilon 1 of 2.5", answer, "first", "2", epsilon=2.0, error=BudgetExceeded)
    refused(r"signing\.pem\.records, the file of this site's key", answer, "second", "2")
    shutil.copy(tmp_path / "signing.pem", tmp_path / "new.pem")
    refused("restored from a backup", answer, "first", "2", key="new.pem")
    answer("first", "2")
