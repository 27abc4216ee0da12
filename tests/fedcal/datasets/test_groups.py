"""Groups of rows, and a second model's scores of them: read from everything that holds rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.core.numerics import logits_of
from fedcal.datasets import Dataset, from_arrays, load
from fedcal.partition import deal

Z = np.array([[3.0, 0, 1], [0, 2.0, -1], [1, 0, 4.0], [-1, 0, 2.0]])
Y = np.array([0, 1, 2, 0])
P = np.array([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375], [0.25, 0, 0.75], [0, 0, 1]])
GROUP = ["ward 2", "ward 1", "ward 2", "ward 3"]
CODES = [1, 0, 1, 2]
NAMES = ("ward 1", "ward 2", "ward 3")


def check(data: Dataset) -> None:
    assert data.group.dtype == np.int64
    assert (data.group.tolist(), data.group_names) == (CODES, NAMES)
    assert data.other_input == "probs"
    np.testing.assert_array_equal(data.other_scores, P)
    np.testing.assert_array_equal(data.other_logits, logits_of("probs", P))
    np.testing.assert_array_equal(data.scores, Z)


def table() -> dict[str, list[Any]]:
    """The rows as columns."""
    logits = {f"logit_{j}": Z[:, j].tolist() for j in range(3)}
    other = {f"other_prob_{j}": P[:, j].tolist() for j in range(3)}
    return {"group": GROUP, **other, "label": Y.tolist(), **logits}


def write_csv(path: Path, columns: dict[str, list[Any]]) -> Path:
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]))
    return path


def test_arrays_and_npz(tmp_path):
    check(from_arrays(logits=Z, labels=Y, group=GROUP, other_probs=P))
    np.savez(tmp_path / "x.npz", logits=Z, labels=Y, group=np.array(GROUP), other_probs=P)
    check(load(tmp_path / "x.npz"))


def test_csv(tmp_path):
    check(load(write_csv(tmp_path / "x.csv", table())))
    named = {"prob_cat": P[:, 0], "prob_dog": 1 - P[:, 0]}
    own = {"other_logit_dog": Z[:, 1], "other_logit_cat": Z[:, 0]}
    own["label"] = ["cat", "dog", "dog", "cat"]
    data = load(write_csv(tmp_path / "y.csv", named | own))
    np.testing.assert_array_equal(data.other_scores, Z[:, :2])
    two = {"other_score": [0.25, 0.5, 0, 1], "label": [0, 1, 1, 0], "score": [0.5, 0.75, 1, 0]}
    data = load(write_csv(tmp_path / "z.csv", two))
    np.testing.assert_array_equal(data.other_scores, [[0.75, 0.25], [0.5, 0.5], [1, 0], [0, 1]])
    np.testing.assert_array_equal(data.scores[:, 1], [0.5, 0.75, 1, 0])


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    lists = {"logits": Z.tolist(), "other_probs": P.tolist(), "label": Y, "group": GROUP}
    for columns in (table(), lists):
        pq.write_table(pa.table(columns), tmp_path / "x.parquet")
        check(load(tmp_path / "x.parquet"))


@pytest.mark.parametrize(("last", "clients"), [("b", [0, 1]), ("c", None)])
def test_test_rows_have_clients_if_none_of_these_is_held_out(last, clients, tmp_path):
    columns = table() | {"split": ["train", "test"] * 2, "client": ["a", "a", "b", last]}
    data = load(write_csv(tmp_path / "x.csv", columns))
    found = None if data.test_client is None else data.test_client.tolist()
    assert (found, data.client_names) == (clients, ("a", "b"))


def test_they_stay_with_their_rows():
    n = np.arange(101)
    z = np.stack([n, -n], axis=1).astype(float)
    data = from_arrays(logits=z, labels=n % 2, client=n % 5, group=n % 7, other_logits=-z)
    parts = data.split(3)
    np.testing.assert_array_equal(parts.group, parts.scores[:, 0] % 7)
    np.testing.assert_array_equal(parts.test_group, parts.test_scores[:, 0] % 7)
    np.testing.assert_array_equal(parts.other_scores, -parts.scores)
    assert parts.group_names == tuple("0123456")
    for partition, clients in (("natural", None), ("dirichlet:0.5", 9)):
        shards = deal(parts, partition, clients, 0)
        np.testing.assert_array_equal(shards.groups, shards.logits[:, 0] % 7)
        np.testing.assert_array_equal(shards.other, -shards.logits)
        assert shards.group_names == data.group_names
