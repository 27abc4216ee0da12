"""The rows of a site, and whether they are those of an earlier quarter."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from refusals import refused

from fedcal.core.checks import InputError
from fedcal.core.scores import rows_by_owner
from fedcal.datasets.site_csv import Reading
from fedcal.sites import rows as site_rows
from fedcal.sites.rows import FILE, compared, read_rows, shards_of

LOGITS = np.arange(12.0).reshape(6, 2)
LABELS = [0, 1, 0, 1, 1, 0]


def test_rows_of_one_client_are_a_sites(tmp_path):
    for name, clients in (("one", [7] * 6), ("two", [7] * 5 + [8])):
        np.savez(tmp_path / f"{name}.npz", logits=LOGITS, labels=LABELS, client=clients)
    one, two = (str(tmp_path / f"{name}.npz") for name in ("one", "two"))
    assert shards_of(read_rows(one, None)[0]).rows.tolist() == [6]
    refused("must be 1, got 2", shards_of, read_rows(two, None)[0])
    refused("are for CSV files, not", read_rows, one, None, Reading(drop_missing=True))


def test_class_names_say_which_column_a_label_means(tmp_path):
    """The digest tells the other sites of this order: it must be that of the labels."""
    names = ["sick" if y else "well" for y in LABELS]
    rows = "".join(f"{a},{b},{name}\n" for (a, b), name in zip(LOGITS, names, strict=True))
    plain, own = tmp_path / "plain.csv", tmp_path / "own.csv"
    plain.write_text(f"logit_0,logit_1,label\n{rows}")
    own.write_text(f"logit_well,logit_sick,label\n{rows}")
    for file in (plain, own):
        assert read_rows(str(file), ["well", "sick"])[0].labels.tolist() == LABELS
        turned = read_rows(str(file), ["sick", "well"])[0]
        assert turned.labels.tolist() == [1 - y for y in LABELS]
    np.testing.assert_array_equal(turned.scores, np.array(LOGITS)[:, ::-1])  # columns are named
    with pytest.raises(InputError, match=r"labels are names .*the columns of scores have none"):
        read_rows(str(plain), None)


DAY = 86_400.0
MAY = datetime(2027, 5, 3, 12, tzinfo=UTC).timestamp()


def made(n=1000, seed=0, values=None):
    """Rows of one site, with the names of their subjects."""
    rng = np.random.default_rng(seed)
    score = rng.random(n) if values is None else rng.choice(values, n)
    logits = np.log(np.stack([1 - score, score], axis=1))
    labels = (rng.random(n) < score).astype(np.int64)
    ids = np.array([f"p{seed}-{k}" for k in range(n)])
    return logits, labels, ids


@pytest.fixture
def warnings_of(tmp_path, monkeypatch):
    (tmp_path / FILE).write_text(json.dumps({"key": "2c" * 32, "rows": []}))

    def warnings_of(given, day, answered=(), named=True):
        monkeypatch.setattr(site_rows.time, "time", lambda: MAY + day * DAY)
        logits, labels, ids = given
        shards = rows_by_owner(logits, labels, np.zeros(len(labels), np.int64), 1)
        when = [MAY + day * DAY for day in answered]
        return compared(tmp_path, shards, ids if named else (), when)

    return warnings_of


def mixed(first, second, share):
    """The second rows, a share of them replaced by the first ones, in another order."""
    n = round(share * len(first[0]))
    order = np.random.default_rng(9).permutation(len(first[0]))
    return tuple(np.concatenate([a[:n], b[n:]])[order] for a, b in zip(first, second, strict=True))


def test_the_same_rows_are_named_by_the_quarter_that_was_answered_from_them(warnings_of):
    first, second = made(), made(seed=1)
    assert warnings_of(first, 0) == []  # nobody has asked yet
    assert warnings_of(mixed(first, first, 1), 1) == []
    assert warnings_of(second, 2) == []
    same = "warning: the same rows as in 2027Q2, answered on 2027-05-06"
    assert warnings_of(mixed(second, second, 1), 5, answered=[3]) == [same]
    assert warnings_of(first, 100, answered=[3]) == []  # these were never answered from
    assert warnings_of(second, 101, answered=[3]) == [same]
    later = "warning: the same rows as in 2027Q3, answered on 2027-08-13"
    assert warnings_of(second, 103, answered=[3, 102]) == [later]


@pytest.mark.parametrize(("share", "words"), [(0.9, "nine tenths"), (0.5, "half"), (0.3, "")])
def test_rows_that_are_mostly_those_of_an_earlier_quarter_are_noticed(warnings_of, share, words):
    first = made()
    warnings_of(first, 0)
    output = warnings_of(mixed(first, made(seed=1), share), 90, answered=[1])
    expected = f"warning: {words} of the rows are the same as in 2027Q2, answered on 2027-05-04"
    assert output == ([expected] if words else [])


def test_points_that_other_patients_have_too_are_no_earlier_rows(warnings_of):
    points = [0.05, 0.1, 0.2, 0.3, 0.5, 0.8]
    first, second = (made(1200, seed, points) for seed in (0, 1))
    warnings_of(first, 0, named=False)
    assert warnings_of(second, 90, answered=[1], named=False) == []
    assert "the same rows" in warnings_of(first, 91, answered=[1], named=False)[0]


def test_what_is_kept_says_nothing_without_the_key(warnings_of, tmp_path):
    found = []
    for _ in range(2):
        (tmp_path / FILE).unlink()
        warnings_of(made(), 0)
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
        found.append(json.loads((tmp_path / FILE).read_text("utf-8")))
    (first,), (second,) = (one["rows"] for one in found)
    assert first["digest"] != second["digest"]
    assert not {*first["least"]} & {*second["least"]}
