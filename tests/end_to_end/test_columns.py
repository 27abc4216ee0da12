"""Subjects, groups and a second model's scores reach the clients, whatever engine they run in."""

import json
import math
from typing import Any

import numpy as np
import pytest

from fedcal import compare, datasets, simulate
from fedcal.clients.site.guard import prepared
from fedcal.clients.site.preparing import prepare
from fedcal.core.checks import InputError
from fedcal.run.sweep import digest_of
from fedcal.sites.rows import SiteRows, read_rows, shards_of

ROWS, CLIENTS = 240, 3


def arrays(**columns: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, ROWS)
    logits = np.stack([np.zeros(ROWS), rng.normal(size=ROWS) + labels], axis=1)
    test = {"test_logits": logits[:9], "test_labels": labels[:9]}
    return {"logits": logits, "labels": labels, **test, **columns}


GROUPS = {
    "group": np.random.default_rng(1).choice(["a", "b", "c"], ROWS),
    "other_logits": -arrays()["logits"],
}
OWNERS = {"client": np.arange(ROWS) % CLIENTS}


def test_groups_are_counted_exactly_by_both_models_without_privacy():
    data = arrays(**GROUPS, **OWNERS)
    asked = {"groups": json.dumps(["a", "c", "nobody"]), "other": True, "bins": 12}
    found = simulate(data, method="evaluate", partition="natural", set=asked).artifact.histograms
    for view, score in (("model", data["logits"][:, 1]), ("other", data["other_logits"][:, 1])):
        for group in ("a", "c", "nobody"):
            own = data["group"] == group
            counts = found[view, group, ""].counts
            assert counts.sum() == own.sum()
            above = np.bincount(data["labels"][own & (score > 0)], minlength=2)
            upper = counts[:, counts.shape[1] // 2 :].sum(axis=1)
            np.testing.assert_allclose(upper, above, atol=1e-9)


def test_a_site_keeps_them_in_its_folder(tmp_path):
    data = arrays(**GROUPS)
    np.savez(tmp_path / "site.npz", **data)
    rows, _ = read_rows(str(tmp_path / "site.npz"), None)
    shown = SiteRows(rows, shards_of(rows), ("0", "1"))
    assert "logits, 3 groups, 9 test rows" in shown.described()
    assert "group" not in shown.described(counts=False)
    prepare(tmp_path / "site", shards_of(rows))
    shards = prepared(tmp_path / "site").shards
    assert np.array(shards.group_names)[shards.groups].tolist() == data["group"].tolist()
    np.testing.assert_array_equal(shards.other, data["other_logits"])


def test_without_them_nothing_more_is_kept(tmp_path):
    rows = datasets.from_arrays(**{k: arrays()[k] for k in ("logits", "labels")})
    assert shards_of(rows).clients == 1
    prepare(tmp_path / "site", shards_of(rows))
    kept = {path.name for path in (tmp_path / "site").glob("*.npy")}
    assert kept == {"logits.npy", "labels.npy"}


def test_rows_that_name_no_subject_are_refused_before_anything_is_asked(tmp_path):
    book, missing = tmp_path / "budget.db", "unit 'subject' needs a column subject"
    asked: dict[str, Any] = {"clients": CLIENTS, "unit": "subject"}
    for method in ("fednewton", "acct"):
        with pytest.raises(InputError, match=missing):
            simulate(arrays(), method=method, ledger=book, epsilon=1.0, **asked)
        assert not book.exists()
    with pytest.raises(InputError, match=missing):
        compare(arrays(), method="fednewton", epsilon="inf,1", **asked)
    exact = simulate(arrays(), epsilon=math.inf, **asked)  # nothing is promised to anybody
    assert exact.privacy["epsilon"] is None


def test_data_that_differ_in_subjects_alone_are_others():
    subjects = {"subject": np.arange(ROWS) // 4}
    plain, named = (datasets.from_arrays(**arrays(**more)) for more in ({}, subjects))
    assert digest_of(plain) != digest_of(named)
