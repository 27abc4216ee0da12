"""Rows by client: order, blocks, columns, sums, subjects, and numbers drawn for rows."""

import math

import numpy as np
import pytest

from fedcal.core.row_order import uniforms
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards

CLIENTS = 9


def columns(rows: int = 60) -> tuple[Shards, np.ndarray, np.ndarray]:
    """Shards whose logits are the number of their row, owners, subjects; client 4 owns no row."""
    owner = np.random.default_rng(5).choice([0, 1, 2, 3, 5, 6, 7, 8], rows)
    subject = np.random.default_rng(7).integers(0, 4, rows)
    logits = np.stack([np.arange(rows), -np.arange(rows)], axis=1).astype(float)
    named = {"groups": 3 - subject, "group_names": ("a", "b", "c", "d"), "other": -logits}
    labels = np.arange(rows) % 2
    shards = rows_by_owner(logits, labels, owner, CLIENTS, subjects=subject, **named)
    return shards, owner, subject


@pytest.mark.parametrize("size", [1, 7, CLIENTS])
def test_columns_are_carried_by_blocks_and_choices(size):
    shards, owner, subject = columns()
    for ids in (np.arange(CLIENTS), np.array([7, 0, 4, 3]), np.arange(0)):
        pieces, sums = list(shards.blocks(ids, size)), np.zeros(0)
        assert [k for piece, _ in pieces for k in piece] == ids.tolist()
        for piece, part in pieces:
            assert len(piece) == part.clients <= size
            rows = part.logits[:, 0].astype(int)
            assert rows.tolist() == [i for k in piece for i in np.flatnonzero(owner == k)]
            np.testing.assert_array_equal(part.labels, rows % 2)
            np.testing.assert_array_equal(part.subjects, subject[rows])
            np.testing.assert_array_equal(part.groups, 3 - subject[rows])
            np.testing.assert_array_equal(part.other, -part.logits)
            assert part.group_names == ("a", "b", "c", "d")
            np.testing.assert_array_equal(piece[part.owner], owner[rows])
            sums = np.append(sums, part.sum_rows(part.logits[:, 1] / 3))
        chosen = shards.take(ids)
        np.testing.assert_array_equal(sums, chosen.sum_rows(chosen.logits[:, 1] / 3))
        again = shards.ordered.take(ids).ordered  # not ordered by its rows, but as they were
        np.testing.assert_array_equal(again.logits, chosen.ordered.logits)
    np.testing.assert_array_equal(shards.each_row().subjects, shards.subjects)
    assert np.shares_memory(shards.block(3, 6).logits, shards.logits)


def test_one_number_at_clients_in_a_row_is_a_subject_of_each():
    owner, about = np.array([0, 0, 1, 2]), np.full(4, 5)
    logits = np.arange(8.0).reshape(4, 2)
    shards = rows_by_owner(logits, np.zeros(4, np.int64), owner, 3, subjects=about)
    parts, client = shards.each_subject()
    assert (client.tolist(), parts.rows.tolist()) == ([0, 1, 2], [2, 1, 1])
    assert np.shares_memory(parts.logits, shards.logits)  # in order: no copy


def test_sums_of_rows_are_exact():
    """To a part in 2**53 of the largest value, times the rows: and one row keeps its bits."""
    rng = np.random.default_rng(3)
    rows, ends = rng.integers(0, 60, 12), np.zeros(13, np.int64)
    ends[1:] = np.cumsum(rows)
    values = rng.normal(size=ends[-1]) * 10.0 ** rng.integers(-30, 30, ends[-1])
    cells = rng.integers(0, 3, ends[-1])
    shards = Shards(np.zeros((ends[-1], 2)), cells, ends)
    sums, by_cell = shards.sum_rows(values), shards.sum_rows(values, cells, 3)
    for k in range(12):
        own = values[ends[k] : ends[k + 1]]
        close = 2.0**-52 * len(own) ** 2 * np.abs(own).max(initial=0.0)
        assert abs(sums[k] - math.fsum(own)) <= close
        assert abs(by_cell[k].sum() - sums[k]) <= close
    assert shards.each_row().sum_rows(values).tobytes() == values.tobytes()


def test_a_row_s_uniform_is_its_own_and_that_of_its_copies_is_not():
    rng = np.random.default_rng(4)
    logits = rng.integers(0, 2, (5000, 2)) * 1.0  # 8 different rows with labels, 80 copies each
    labels, subjects = rng.integers(0, 2, 5000), rng.integers(0, 8, 5000)
    shards = Shards(logits - 0.5, labels, np.array([0, 5000]), subjects=subjects)
    u = uniforms(shards, 7)
    own = np.concatenate([logits, labels[:, None], subjects[:, None]], axis=1)
    apart = len(np.unique(np.column_stack([own, u]), axis=0))
    assert apart == 5000  # of one subject, no two equal rows have one number
    assert abs(np.unique(u).mean() - 0.5) < 0.02
    assert not np.isin(u, uniforms(shards, 8)).any()
    fewer = shards.keep(np.flatnonzero(subjects != 3))
    again = Shards(fewer.logits, fewer.labels, fewer.offsets, subjects=fewer.subjects)
    assert np.array_equal(np.sort(uniforms(again, 7)), np.sort(u[subjects != 3]))
