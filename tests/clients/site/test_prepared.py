"""A site's folder: private, mapped rather than read, and refused in one line where damaged."""

import os
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from refusals import refused

from fedcal.clients.site.guard import LOCK, SITE, alone, own_terms, prepared
from fedcal.clients.site.preparing import prepare
from fedcal.core.checks import InputError
from fedcal.core.naming import digest_of
from fedcal.core.shards import Shards
from fedcal.privacy.privacy import Federation
from fedcal.secure_aggregation.keys import SigningKey, make_key
from fedcal.secure_aggregation.roster import Committee, Member, Roster
from fedcal.strategies.server.job import Job

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


def test_what_was_written_is_read(tmp_path):
    test = (np.ones((2, 2)), np.array([0, 1]))
    prepare(tmp_path / "a", ROWS, test=test, names=["x", "y"], number=3, simulated=True)
    site = prepared(tmp_path / "a")
    for name in ("logits", "labels", "offsets", "subjects", "groups", "group_names", "other"):
        assert np.array_equal(getattr(site.shards, name), getattr(ROWS, name))
    assert np.array_equal(site.test[0], test[0])
    assert (site.shards.input, site.names, site.number) == ("probs", ("x", "y"), 3)
    assert site.simulated
    assert site.digest == digest_of(["x", "y"])
    prepare(tmp_path / "b", Shards(ROWS.logits, ROWS.labels, ROWS.offsets))
    real = prepared(tmp_path / "b")
    assert (real.names, real.number, real.simulated, real.test) == (("0", "1"), None, False, None)
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


def test_what_is_no_site_and_no_folder_for_one_is_left_alone(tmp_path):
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "thesis.tex").touch()
    mode = tmp_path.stat().st_mode
    refused("contains something else", prepare, tmp_path, ROWS)
    assert tmp_path.stat().st_mode == mode
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_site_that_runs_is_not_prepared_again(tmp_path):
    prepare(tmp_path, ROWS)
    with alone(tmp_path), pytest.raises(InputError, match="another process runs"):
        prepare(tmp_path, ROWS)
    prepare(tmp_path, ROWS)
    assert (tmp_path / LOCK).exists()


def test_a_damaged_file_is_one_line(tmp_path):
    for name, damage in product((SITE, "logits.npy", "labels.npy"), ("gone", "empty", "cut", "no")):
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
    (tmp_path / "federation.toml").write_text(roster.to_toml())
    (tmp_path / "site.toml").write_text(
        f'expires = 2100-01-01\ncpu-seconds = 9\nfederation = "{roster.digest}"\n'
    )
    return {
        "federation": tmp_path / "federation.toml",
        "sign_key": tmp_path / "signing.pem",
        "policy": tmp_path / "site.toml",
    }


def test_federation_key_and_policy_go_together(files, tmp_path):
    for names in product((True, False), repeat=3):
        given = {name: path for (name, path), so in zip(files.items(), names, strict=True) if so}
        if 0 < len(given) < 3:
            with pytest.raises(InputError, match="--federation, --sign-key and --policy together"):
                prepare(tmp_path / "a", ROWS, **given)
    assert not (tmp_path / "a").exists()
    prepare(tmp_path / "a", ROWS, names=["x", "y"], **files)


def test_what_does_not_go_together_is_refused_at_the_start(files, tmp_path):
    refused(r"class digest of .*federation\.toml must be", prepare, tmp_path / "a", ROWS, **files)
    make_key(tmp_path / "other.pem")
    wrong = {**files, "sign_key": tmp_path / "other.pem"}
    with pytest.raises(InputError, match=r"with the public key of .* has none"):
        prepare(tmp_path / "a", ROWS, names=["x", "y"], **wrong)
    text = files["federation"].read_text()
    files["federation"].write_text(text.replace("site 2", "site two"))
    with pytest.raises(InputError, match="policy refuses the federation"):
        prepare(tmp_path / "a", ROWS, names=["x", "y"], **files)
    assert not (tmp_path / "a").exists()


def test_under_the_protocol_a_site_needs_a_policy(tmp_path):
    facts = {"clients": 3, "classes": 2, "epsilon": 1.0, "trust": "local"}
    facts["noise_source"] = "system"
    for committee in ({}, {"committee": 3, "threshold": 3, "quorum": 1.0}):
        how = "protocol" if committee else "none"
        job = Job("fedbin", Federation(**facts, **committee), secure_aggregation=how)
        prepare(tmp_path / how, replace(ROWS, input="logits"), terms=job.terms())
        asked = job.to_fields(), "r", prepared(tmp_path / how)
        if committee:
            refused("needs --federation, --sign-key and --policy", own_terms, *asked)
        else:
            assert own_terms(*asked).key == job.terms().key
