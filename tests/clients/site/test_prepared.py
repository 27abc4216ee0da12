"""A site's folder: private, mapped rather than read, and refused in one line where damaged."""

import os
import shutil
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from policies import FACTS, policy
from refusals import refused

from fedcal.clients.site.guard import SITE, Prepared, alone, prepared
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.store import records_of
from fedcal.core.checks import BudgetExceeded, InputError
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


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    refused("contains something else", prepare, tmp_path, ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_site_that_runs_is_not_prepared_again(tmp_path):
    prepare(tmp_path, ROWS)
    with alone(tmp_path), pytest.raises(InputError, match="another process runs"):
        prepare(tmp_path, ROWS)
    prepare(tmp_path, ROWS)


def test_a_damaged_file_is_one_line(tmp_path):
    for name, damage in product((SITE, "logits.npy"), ("gone", "empty", "cut", "no")):
        prepare(tmp_path, ROWS)
        path = tmp_path / name
        damaged = {"empty": b"", "cut": path.read_bytes()[:-9], "no": os.urandom(80)}
        if damage == "gone":
            path.unlink()
        else:
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


def test_federation_key_and_policy_go_together(files, tmp_path):
    for name in files:
        two = {key: path for key, path in files.items() if key != name}
        refused("a roster, a signing key and a policy", prepare, tmp_path / "a", ROWS, **two)
    assert not (tmp_path / "a").exists()
    prepare(tmp_path / "a", ROWS, names=["x", "y"], **files)


def test_what_does_not_go_together_is_refused_at_the_start(files, tmp_path):
    refused("class digest of the federation hearts must be", prepare, tmp_path / "a", ROWS, **files)
    make_key(tmp_path / "other.pem")
    wrong = {**files, "sign_key": tmp_path / "other.pem"}
    with pytest.raises(InputError, match=r"with the public key of .* has none"):
        prepare(tmp_path / "a", ROWS, names=["x", "y"], **wrong)
    files["roster"] = replace(files["roster"], name="lungs")
    with pytest.raises(InputError, match="policy refuses the federation"):
        prepare(tmp_path / "a", ROWS, names=["x", "y"], **files)
    assert not (tmp_path / "a").exists()


@pytest.fixture
def make(files, tmp_path):
    """Prepares the site in a folder of this name, under the key in this file, or a copy of it."""

    def made(name: str = "site", file: str = "signing.pem") -> Prepared:
        if not (tmp_path / file).exists():
            shutil.copy(tmp_path / "signing.pem", tmp_path / file)
        own = files | {"sign_key": tmp_path / file}
        prepare(tmp_path / name, ROWS, names=["x", "y"], server="hub:9092", **own)
        return prepared(tmp_path / name)

    return made


def test_records_are_those_of_the_key_within_the_policy(make):
    def answer(site: Prepared, job: str, **change: Any) -> None:
        with records_of(site) as records:
            records.answer(replace(FACTS, job=job * 64, **change), 1, "q", lambda: b"words")

    answer(make("first"), "1")
    refused("epsilon 1 of 2.5", answer, make("first"), "2", epsilon=2.0, error=BudgetExceeded)
    refused(r"signing\.pem\.records, the file of this site's key", answer, make("second"), "2")
    refused("restored from a backup", answer, make("first", "new.pem"), "2")
    answer(make("first"), "2")
