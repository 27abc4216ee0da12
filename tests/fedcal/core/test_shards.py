import math
from typing import Any

import numpy as np
import pytest

from fedcal.core.shards import Shards, uniforms

CLIENTS = 9


def owners(empty: tuple[int, ...], rows: int = 60, clients: int = CLIENTS) -> np.ndarray:
    """Owner of each row, shuffled; the clients `empty` own none."""
    rng = np.random.default_rng(5)
    return rng.choice(np.setdiff1d(np.arange(clients), empty), rows)


def shards_of(owner: np.ndarray, clients: int = CLIENTS, classes: int = 3) -> Shards:
    rng = np.random.default_rng(6)
    logits = rng.normal(size=(len(owner), classes))
    return Shards.from_owner(logits, rng.integers(0, classes, len(owner)), owner, clients)


def same(a: Shards, b: Shards) -> None:
    for name in ("logits", "labels", "offsets"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


some_empty = pytest.mark.parametrize(
    "empty", [(), (0,), (4,), (CLIENTS - 1,), (0, 4, CLIENTS - 1), tuple(range(1, CLIENTS))]
)
block_sizes = pytest.mark.parametrize("size", [1, 7, 64, CLIENTS])


@some_empty
def test_rows_are_sorted_by_client_and_keep_their_order(empty):
    owner = owners(empty)
    n = len(owner)
    logits = np.stack([np.arange(n), -np.arange(n)], axis=1).astype(float)  # row i says i
    shards = Shards.from_owner(logits, np.arange(n) % 2, owner, CLIENTS)
    want = [[i for i in range(n) if owner[i] == k] for k in range(CLIENTS)]
    for k in range(CLIENTS):
        a, b = shards.offsets[k : k + 2]
        assert shards.logits[a:b, 0].tolist() == want[k]
        assert shards.labels[a:b].tolist() == [i % 2 for i in want[k]]
    assert shards.rows.tolist() == [len(w) for w in want]
    assert shards.owner.tolist() == sorted(owner)
    assert (shards.clients, shards.classes) == (CLIENTS, 2)
    assert shards.logits.dtype == np.float64
    assert shards.logits.flags.c_contiguous
    assert shards.labels.dtype == shards.offsets.dtype == np.int64


@block_sizes
@pytest.mark.parametrize("ids", [np.arange(CLIENTS), np.array([7, 2, 3, 0, 8]), np.arange(0)])
def test_blocks_cut_the_clients_into_pieces(ids, size):
    shards = shards_of(owners((0, 4)))
    whole, pieces = shards.take(ids), list(shards.blocks(ids, size))
    by_hand = [math.fsum(shards.block(k, k + 1).logits[:, 1]) for k in ids]
    np.testing.assert_allclose(whole.sum_rows(whole.logits[:, 1]), by_hand, atol=1e-12)
    assert all(len(piece) == part.clients <= size for piece, part in pieces)
    assert [k for piece, _ in pieces for k in piece] == ids.tolist()
    sums = np.zeros(0)
    for piece, part in pieces:
        same(part, shards.take(piece))
        sums = np.append(sums, part.sum_rows(part.logits[:, 1]))
    np.testing.assert_array_equal(sums, whole.sum_rows(whole.logits[:, 1]))  # the same bits
    for place, k in enumerate(ids):
        same(whole.block(place, place + 1), shards.block(k, k + 1))
    for start, stop in ((0, 1), (0, CLIENTS), (3, 6), (CLIENTS - 1, CLIENTS), (4, 4)):
        block = shards.block(start, stop)
        same(block, shards.take(np.arange(start, stop)))
        assert block.offsets[0] == 0
        assert not len(block.logits) or np.shares_memory(block.logits, shards.logits)


def of_subjects(empty: tuple[int, ...]) -> tuple[Shards, np.ndarray, np.ndarray]:
    """Shards whose logits tell the number of their row, the owners and the subjects."""
    owner = owners(empty)
    about = np.random.default_rng(7).integers(0, 4, len(owner))
    logits = np.stack([np.arange(len(owner)), -np.arange(len(owner))], axis=1).astype(float)
    labels = np.arange(len(owner)) % 2
    named = {"groups": 3 - about, "group_names": ("a", "b", "c", "d")}
    shards = Shards.from_owner(
        logits, labels, owner, CLIENTS, subjects=about, other=-logits, **named
    )
    return shards, owner, about


def test_one_number_at_clients_in_a_row_is_a_subject_of_each():
    owner, about = np.array([0, 0, 1, 2]), np.full(4, 5)
    logits = np.arange(8.0).reshape(4, 2)
    shards = Shards.from_owner(logits, np.zeros(4, np.int64), owner, 3, subjects=about)
    parts, client = shards.each_subject()
    assert (client.tolist(), parts.rows.tolist()) == ([0, 1, 2], [2, 1, 1])
    assert np.shares_memory(parts.logits, shards.logits)  # in order: no copy


@block_sizes
def test_columns_are_carried_by_blocks_and_choices(size):
    shards, owner, about = of_subjects((4,))
    assert shards.subjects is not None
    for ids in (np.arange(CLIENTS), np.array([7, 0, 4, 3])):
        for piece, part in shards.blocks(ids, size):
            rows = part.logits[:, 0].astype(int)
            np.testing.assert_array_equal(part.subjects, about[rows])
            np.testing.assert_array_equal(part.groups, 3 - about[rows])
            np.testing.assert_array_equal(part.other, -part.logits)
            assert part.group_names == ("a", "b", "c", "d")
            np.testing.assert_array_equal(piece[part.owner], owner[rows])
    np.testing.assert_array_equal(shards.each_row().subjects, shards.subjects)


def test_sums_of_rows_are_exact_in_any_order():
    """To a part in 2**53 of the largest value, times the rows: and one row keeps its bits."""
    rng = np.random.default_rng(3)
    owner, clients = np.sort(rng.integers(0, 9, 300)), 12
    values = rng.normal(size=300) * 10.0 ** rng.integers(-30, 30, 300)
    cells = rng.integers(0, 3, 300)
    logits = np.stack([np.arange(300.0), np.zeros(300)], axis=1)

    def sums(order: np.ndarray, *each: Any) -> np.ndarray:
        shards = Shards.from_owner(logits[order], cells[order], owner[order], clients)
        at = shards.logits[:, 0].astype(int)
        return shards.sum_rows(values[at], *((cells[at], 3) if each else ()))

    order = np.arange(300)
    for each in ((), (3,)):
        whole = sums(order, *each)
        for _ in range(5):
            assert sums(rng.permutation(300), *each).tobytes() == whole.tobytes()
    for k in range(clients):
        own = values[owner == k]
        exact, most = math.fsum(own), np.abs(own).max(initial=0.0)
        assert abs(sums(order)[k] - exact) <= 2.0**-52 * len(own) ** 2 * most
    alone = Shards(logits, cells, np.arange(301))
    assert alone.sum_rows(values).tobytes() == values.tobytes()


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
