"""A site notices by itself that its rows are those of an earlier quarter."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest

from fedcal.core.shards import Shards
from fedcal.sites import rows as site_rows
from fedcal.sites.rows import FILE, compared

DAY = 86_400.0
MAY = datetime(2027, 5, 3, 12, tzinfo=UTC).timestamp()


def rows(n=1000, seed=0, values=None):
    """Rows of one site, with the names of their subjects."""
    rng = np.random.default_rng(seed)
    score = rng.random(n) if values is None else rng.choice(values, n)
    logits = np.log(np.stack([1 - score, score], axis=1))
    labels = (rng.random(n) < score).astype(np.int64)
    ids = np.array([f"p{seed}-{k}" for k in range(n)])
    return logits, labels, ids


@pytest.fixture
def told(tmp_path, monkeypatch):
    (tmp_path / FILE).write_text(json.dumps({"key": "2c" * 32, "rows": []}))

    def told(given, day, answered=(), named=True):
        monkeypatch.setattr(site_rows.time, "time", lambda: MAY + day * DAY)
        logits, labels, ids = given
        shards = Shards.from_owner(logits, labels, np.zeros(len(labels), np.int64), 1)
        when = [MAY + day * DAY for day in answered]
        return compared(tmp_path, shards, ids if named else (), when)

    return told


def mixed(first, second, share):
    """The second rows, a share of them replaced by the first ones, in another order."""
    n = round(share * len(first[0]))
    order = np.random.default_rng(9).permutation(len(first[0]))
    return tuple(np.concatenate([a[:n], b[n:]])[order] for a, b in zip(first, second, strict=True))


def test_the_same_rows_are_named_by_the_quarter_that_was_answered_from_them(told):
    first, second = rows(), rows(seed=1)
    assert told(first, 0) == []  # nobody has asked yet
    assert told(mixed(first, first, 1), 1) == []
    assert told(second, 2) == []
    same = "warning: the same rows as in 2027Q2, answered on 2027-05-06"
    assert told(mixed(second, second, 1), 5, answered=[3]) == [same]
    assert told(first, 100, answered=[3]) == []  # these were never answered from
    assert told(second, 101, answered=[3]) == [same]
    later = "warning: the same rows as in 2027Q3, answered on 2027-08-13"
    assert told(second, 103, answered=[3, 102]) == [later]


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.9, "nine tenths"), (0.5, "half"), (0.3, "")],
)
def test_rows_that_are_mostly_those_of_an_earlier_quarter_are_noticed(told, share, words):
    first = rows()
    told(first, 0)
    said = told(mixed(first, rows(seed=1), share), 90, answered=[1])
    expected = f"warning: {words} of the rows are the same as in 2027Q2, answered on 2027-05-04"
    assert said == ([expected] if words else [])


def test_points_that_other_patients_have_too_are_no_earlier_rows(told):
    points = [0.05, 0.1, 0.2, 0.3, 0.5, 0.8]
    first, second = (rows(1200, seed, points) for seed in (0, 1))
    told(first, 0, named=False)
    assert told(second, 90, answered=[1], named=False) == []
    assert "the same rows" in told(first, 91, answered=[1], named=False)[0]


def test_what_is_kept_says_nothing_without_the_key(told, tmp_path):
    found = []
    for _ in range(2):
        (tmp_path / FILE).unlink()
        told(rows(), 0)
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
        found.append(json.loads((tmp_path / FILE).read_text("utf-8")))
    (first,), (second,) = (one["rows"] for one in found)
    assert first["digest"] != second["digest"]
    assert not {*first["least"]} & {*second["least"]}
