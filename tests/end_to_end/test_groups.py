"""Groups and a second model's scores reach the clients, whatever engine they run in."""

import json
from typing import Any

import numpy as np

from fedcal import datasets, simulate
from fedcal.clients.site.guard import prepared
from fedcal.clients.site.preparing import prepare
from fedcal.sites.rows import SiteRows, read_rows, shards_of

ROWS, CLIENTS = 240, 3
ASKED: dict[str, Any] = {
    **{"method": "evaluate", "unit": "example", "epsilon": 1.0, "partition": "natural"},
    "set": {"groups": json.dumps(["a", "c", "nobody"]), "other": True, "bins": 12},
}


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, ROWS)
    logits = np.stack([np.zeros(ROWS), rng.normal(size=ROWS) + labels], axis=1)
    return {
        **{"logits": logits, "labels": labels, "client": np.arange(ROWS) % CLIENTS},
        **{"group": np.array(["a", "b", "c"])[rng.integers(0, 3, ROWS)], "other_logits": -logits},
        **{"test_logits": logits[:9], "test_labels": labels[:9]},
    }


def counted(engine: str, epsilon: float = 1.0) -> Any:
    return simulate(arrays(), engine=engine, **(ASKED | {"epsilon": epsilon})).artifact


def test_groups_are_counted_exactly_by_both_models_without_privacy():
    data = arrays()
    found = counted("inline", float("inf")).histograms
    for view, score in (("model", data["logits"][:, 1]), ("other", data["other_logits"][:, 1])):
        for group in ("a", "c", "nobody"):
            own = data["group"] == group
            counts = found[view, group, ""].counts
            assert counts.sum() == own.sum()
            above = np.bincount(data["labels"][own & (score > 0)], minlength=2)
            upper = counts[:, counts.shape[1] // 2 :].sum(axis=1)
            np.testing.assert_allclose(upper, above, atol=1e-9)


def test_a_site_keeps_them_in_its_folder(tmp_path):
    data = {k: v for k, v in arrays().items() if k != "client"}
    np.savez(tmp_path / "site.npz", **data)
    rows, _ = read_rows(str(tmp_path / "site.npz"), None)
    told = SiteRows(rows, shards_of(rows), ("0", "1"))
    assert "logits, 3 groups, 9 test rows" in told.described()
    assert "group" not in told.described(counts=False)
    prepare(tmp_path / "site", shards_of(rows))
    shards = prepared(tmp_path / "site").shards
    assert np.array(shards.group_names)[shards.groups].tolist() == data["group"].tolist()
    np.testing.assert_array_equal(shards.other, data["other_logits"])


def test_without_them_nothing_more_is_kept(tmp_path):
    rows = datasets.from_arrays(**{k: arrays()[k] for k in ("logits", "labels")})
    prepare(tmp_path / "site", shards_of(rows))
    kept = {path.name for path in (tmp_path / "site").glob("*.npy")}
    assert kept == {"logits.npy", "labels.npy"}
