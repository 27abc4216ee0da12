import hashlib
import itertools

import numpy as np
import pytest

from fedcal.secure_aggregation.masking import (
    COMPLETE_UP_TO,
    SPARSE_DEGREE,
    mask,
    neighbours,
    pair_seed,
    unmask,
)
from fedcal.secure_aggregation.roster import stream

RUN, ROUND = 11, 3


def cohort_of(n: int, seed: int = 0) -> list[int]:
    """Different ids, unordered: negative, small, and up to Flower's 64-bit node ids."""
    rng = np.random.default_rng([n, seed])
    ids = {int(v) for v in rng.integers(-(2**63), 2**63 - 1, size=n)}
    ids |= {2**64 - 1, 0, -5}
    chosen = sorted(ids, key=lambda v: hashlib.sha256(str(v).encode()).digest())[:n]
    assert len(chosen) == n
    return chosen


def vectors(n: int, length: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 2**64, (n, length), dtype=np.uint64)


def masks(cohort: list[int], run: int, round: int, length: int) -> np.ndarray:
    return np.stack([mask(client, cohort, run, round, length) for client in cohort])


def total(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows.sum(axis=0, dtype=np.uint64))


@pytest.mark.parametrize("n", [1, 2, 3, 128, 129, 500])
def test_masks_cancel_in_any_order(n):
    cohort, x = cohort_of(n), vectors(n, 5)
    plain = total(x)
    whole = masks(cohort, RUN, ROUND, 5)
    assert whole.shape == (n, 5)
    assert whole.dtype == np.uint64
    assert (total(x + whole) == plain).all()

    order = np.random.default_rng(1).permutation(n)
    assert (masks([cohort[k] for k in order], RUN, ROUND, 5) == whole[order]).all()

    if n > 1:
        assert (whole != 0).any(axis=1).all()
        assert (total((x + whole)[1:]) != total(x[1:])).any()


@pytest.mark.parametrize("n", [1, 2, 9, 140])
def test_a_mask_is_the_signed_sum_of_the_neighbours_streams(n):
    cohort = cohort_of(n)
    ids, graph = sorted(cohort), neighbours(cohort, RUN, ROUND)
    for k in {0, n // 2, n - 1}:
        want = [0] * 4
        for position in graph[k]:
            other = ids[position]
            words = stream(pair_seed(RUN, ids[k], other, ROUND), 4)
            sign = 1 if ids[k] < other else -1
            want = [(a + sign * int(b)) % 2**64 for a, b in zip(want, words, strict=True)]
        assert mask(ids[k], cohort, RUN, ROUND, 4).tolist() == want


def test_pair_seed_encoding_is_the_written_one():
    encoded = b"fedcal/masking/1/pair\0" + (7).to_bytes(32, "little") + (2).to_bytes(8, "little")
    encoded += (-1).to_bytes(16, "little", signed=True) + (4).to_bytes(16, "little")
    assert pair_seed(7, 4, -1, 2) == hashlib.sha256(encoded).digest()
    assert pair_seed(7, np.int64(4), np.int32(-1), 2) == pair_seed(7, 4, -1, 2)


def test_stream_is_chacha20():
    # RFC 8439, appendix A.1, test vector 1: key, nonce and counter zero.
    start = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    words = stream(bytes(32), 4)
    assert words.dtype == np.uint64
    assert words.tolist() == [int.from_bytes(start[k : k + 8], "little") for k in (0, 8, 16, 24)]
    # Test vector 2 is the next block (counter 1).
    following = int.from_bytes(bytes.fromhex("9f07e7be5551387a"), "little")
    assert stream(bytes(32), 9)[8] == following
    longest = stream(bytes(range(32)), 100)
    for length in (0, 1, 7, 8, 9, 99):
        np.testing.assert_array_equal(stream(bytes(range(32)), length), longest[:length])


@pytest.mark.parametrize("n", [1, 2, 3, 65, COMPLETE_UP_TO, COMPLETE_UP_TO + 1, 200, 600])
def test_graph_is_regular_symmetric_connected(n):
    """Connected also where half of the clients are lost."""
    cohort = cohort_of(n)
    graph = neighbours(cohort, RUN, ROUND)
    degree = n - 1 if n <= COMPLETE_UP_TO else SPARSE_DEGREE
    assert graph.shape == (n, degree)
    adjacent = np.zeros((n, n), bool)
    adjacent[np.arange(n)[:, None], graph] = True
    assert (adjacent.sum(axis=1) == degree).all()  # no neighbour twice
    assert (adjacent == adjacent.T).all()
    assert not adjacent.diagonal().any()
    assert (np.diff(graph, axis=1) > 0).all()
    for alive in (np.ones(n, bool), np.random.default_rng(4).random(n) < 0.5):
        reached = np.arange(n) == alive.argmax()
        for _ in range(n):
            reached = reached | (adjacent[reached].any(axis=0) & alive)
        assert (reached == alive).all() or not alive.any()


def test_graph_depends_on_the_set_the_run_and_the_round_alone():
    cohort = cohort_of(200)
    graph = neighbours(cohort, RUN, ROUND)
    assert (neighbours(sorted(cohort), RUN, ROUND) == graph).all()
    assert (neighbours(set(cohort), RUN, ROUND) == graph).all()
    assert (neighbours(np.array(sorted(range(200))), RUN, ROUND) == graph).all()
    assert (neighbours(cohort, RUN, ROUND + 1) != graph).any()
    assert (neighbours(cohort, RUN + 1, ROUND) != graph).any()


def test_rounds_and_run_seeds_give_other_masks():
    cohort = cohort_of(5)
    versions = [masks(cohort, run, r, 3) for run, r in itertools.product((1, 2), (1, 2))]
    for a, b in itertools.combinations(versions, 2):
        assert (a != b).all()
    assert (masks(cohort, 1, 1, 3) == versions[0]).all()
    a, b, _ = masks(cohort[:3], RUN, ROUND, 20_000).view(np.int64) / 2.0**63
    assert abs(float(np.corrcoef(a, b)[0, 1])) < 6 / np.sqrt(20_000)


def test_masks_are_frozen():
    # A change here breaks the repetition of earlier runs.
    words = masks(list(range(200)), 1, 2, 3)
    digest = hashlib.sha256(words.astype("<u8").tobytes()).hexdigest()
    assert digest == "bc861a4d329f6294df12bb675dd5f2651e30d362815244ea7f36dfeae27fa7ef"


def close(cohort: list[int], lost: list[int], length: int) -> None:
    """The survivors' masked sum is not the plain one, and unmasked it is."""
    x = vectors(len(cohort), length)
    alive = np.array([client not in lost for client in cohort])
    masked = total((x + masks(cohort, RUN, ROUND, length))[alive])
    survivors = [client for client in cohort if client not in lost]
    plain = total(x[alive])
    assert (masked != plain).any() == bool(lost)
    given = masked.copy()
    assert (unmask(masked, survivors, cohort, RUN, ROUND) == plain).all()
    assert (masked == given).all()


@pytest.mark.parametrize(("n", "dropped"), [(2, 1), (20, 7), (129, 1), (129, 128), (300, 40)])
def test_dropouts(n, dropped):
    cohort = cohort_of(n)
    close(cohort, [cohort[k] for k in np.random.default_rng(n).permutation(n)[:dropped]], 4)


def test_every_dropout_pattern_of_four():
    cohort = cohort_of(4)
    for size in range(4):
        for lost in itertools.combinations(cohort, size):
            close(cohort, list(lost), 2)
