import hashlib
import itertools

import numpy as np
import pytest

from fedcal.secure_aggregation.masking import (
    COMPLETE_UP_TO,
    SPARSE_DEGREE,
    mask,
    neighbours,
    unmask,
)

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


@pytest.mark.parametrize("n", [1, 2, 3, 129])
def test_masks_cancel_in_any_order(n):
    cohort, x = cohort_of(n), vectors(n, 5)
    plain = total(x)
    hidden = masks(cohort, RUN, ROUND, 5)
    assert hidden.shape == (n, 5)
    assert hidden.dtype == np.uint64
    assert (total(x + hidden) == plain).all()

    order = np.random.default_rng(1).permutation(n)
    assert (masks([cohort[k] for k in order], RUN, ROUND, 5) == hidden[order]).all()

    if n > 1:
        assert (hidden != 0).any(axis=1).all()
        assert (total((x + hidden)[1:]) != total(x[1:])).any()


@pytest.mark.parametrize("n", [1, 2, 65, COMPLETE_UP_TO, COMPLETE_UP_TO + 1, 600])
def test_graph_is_regular_symmetric_connected(n):
    """Connected also where half of the clients are lost."""
    cohort = cohort_of(n)
    graph = neighbours(tuple(sorted(cohort)), RUN, ROUND)
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


@pytest.mark.parametrize(("n", "dropped"), [(2, 1), (4, 3), (20, 7), (129, 128), (300, 40)])
def test_dropouts(n, dropped):
    """The survivors' masked sum is not the plain one, and unmasked it is."""
    cohort = cohort_of(n)
    lost = [cohort[k] for k in np.random.default_rng(n).permutation(n)[:dropped]]
    x = vectors(n, 4)
    alive = np.array([client not in lost for client in cohort])
    masked = total((x + masks(cohort, RUN, ROUND, 4))[alive])
    survivors = [client for client in cohort if client not in lost]
    assert (masked != total(x[alive])).any()
    assert (unmask(masked, survivors, cohort, RUN, ROUND) == total(x[alive])).all()
