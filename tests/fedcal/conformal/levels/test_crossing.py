"""The level of a drawn crossing: misses of bags of rows, each left out in turn, exactly."""

import math
from itertools import combinations

import numpy as np
import pytest

from fedcal.calibrators.conformity import spread
from fedcal.clients.questions.conformal import SetGaps
from fedcal.conformal.levels import Draw, client_clip, sure_coverage
from fedcal.core.numerics import Floats, Integers

NEED = 0.9


def query(draw: Draw, scale: float, slack: float) -> SetGaps:
    return SetGaps(
        2,
        spread(draw.candidates),
        need=NEED,
        level=slack + NEED,
        tilt=draw.tilt * scale,
    )


def below(asked: SetGaps, sums: Floats, scale: float) -> Floats:
    """P(the drawn candidate is before each one), (m,)."""
    costs = asked.costs(sums)
    weights = np.exp((costs.min() - costs) / scale)
    return np.concatenate([[0.0], np.cumsum(weights)[:-1]]) / weights.sum()


def missed(asked: SetGaps, cells: Integers, scale: float) -> float:
    """Expected number of rows of a bag that are not covered when they are left out."""
    total = 0.0
    for cell in np.flatnonzero(cells):
        rest = cells.copy()
        rest[cell] -= 1
        sums = np.cumsum(rest) - NEED * rest.sum()
        total += cells[cell] * below(asked, sums, scale)[cell]
    return total


def bags(rows: int, buckets: int) -> list[Integers]:
    """All bags of so many rows."""
    ends = combinations(range(rows + buckets - 1), buckets - 1)
    return [np.diff([-1, *e, rows + buckets - 1]) - 1 for e in ends]


@pytest.mark.parametrize(
    ("epsilon", "tilt", "rows"), [(2.0, 0.0, 9), (2.0, 0.3, 9), (1.0, 0.3, 13), (8.0, 0.1, 11)]
)
def test_of_every_bag_at_most_a_tenth_is_missed(epsilon, tilt, rows):
    draw, scale = Draw(4, tilt), 2 * NEED / epsilon
    slack = draw.slack(scale)
    assert slack <= 0.1 * rows
    asked = query(draw, scale, slack)
    worst = max(missed(asked, cells, scale) for cells in bags(rows, 4))
    assert worst <= 0.1 * rows + 1e-9


def test_the_slack_is_no_gift():
    # all but the crossing are as many rows short of it as makes them likeliest to be drawn
    draw, scale, rows = Draw(64, 0.0), 2 * NEED, 62
    slack = draw.slack(scale)

    def worst(share: float) -> float:
        asked, found = query(draw, scale, share * slack), 0.0
        for low in range(int(NEED * rows) - 8, rows + 1):
            cells = np.zeros(64, np.int64)
            cells[0], cells[-2] = low, rows - low
            found = max(found, missed(asked, cells, scale))
        return found

    assert worst(1.0) <= 0.1 * rows + 1e-9
    assert worst(0.4) > 0.1 * rows
    for draw in (Draw(32, 0.0), Draw(32, 0.05), Draw(512, 20.0 / 512)):
        likely = np.exp(draw.tilt * np.arange(draw.candidates))
        assert draw.weight == pytest.approx((likely[:-1] / likely[-1]).sum(), rel=1e-9)
    want = 0.04 * math.log1p(Draw(32, 0.05).weight)
    assert Draw(32, 0.05).slack(0.04) == pytest.approx(want)


@pytest.mark.parametrize(("most", "clip"), [(12, 3.0), (6, 2.0), (4, 3.5)])
def test_of_all_rows_that_clients_may_have_the_worst_is_reached(most, clip):
    """All federations of three clients, each row a hit or a miss, whose clipped sum is >= 0."""
    alpha = 0.25
    rows, hits = np.array([(r, h) for r in range(most + 1) for h in range(r + 1)]).T
    gaps = (hits - (1 - alpha) * rows).clip(-clip, clip)
    sums = gaps[:, None, None] + gaps[:, None] + gaps
    there = rows[:, None, None] + rows[:, None] + rows
    covered = (hits[:, None, None] + hits[:, None] + hits)[(sums >= 0) & (there > 0)]
    worst = (covered / there[(sums >= 0) & (there > 0)]).min()
    assert worst >= sure_coverage(clip, most, alpha) - 1e-12
    if most == 12:  # one client that misses all, and one that hits all: the sum is 3 - 3
        assert worst == sure_coverage(clip, most, alpha) == 0.5
    if clip == 3.5:  # no client can miss more than 3
        assert sure_coverage(clip, most, alpha) == 1 - alpha
    assert sure_coverage(clip, math.inf, alpha) == 0.0


def test_clipped_clients_miss_no_more_than_what_is_cut():
    rng = np.random.default_rng(4)
    tried = 0
    for _ in range(150):
        clients, nominal = int(rng.integers(4, 20)), int(rng.integers(3, 16))
        clip, m = client_clip(nominal, 0.1) * rng.uniform(0.3, 1.2), int(rng.integers(3, 10))
        draw, scale = Draw(m, float(rng.choice([0.0, 0.1, 0.3]))), 2 * clip / 4.0
        slack, rows = draw.slack(scale), clients * nominal
        if slack > 0.1 * rows:
            continue
        tried += 1
        asked = query(draw, scale, slack)
        owner = np.sort(rng.integers(0, clients, rows))
        cells = np.sort(rng.choice(m, rows, p=rng.dirichlet(np.full(m, 0.3))))
        if rng.random() < 0.5:
            cells = rng.permutation(cells)
        counts = np.zeros((clients, m))
        np.add.at(counts, (owner, cells), 1)
        gaps = np.cumsum(counts, axis=1) - NEED * counts.sum(axis=1, keepdims=True)
        clipped = gaps.clip(-clip, clip)
        total = 0.0
        for k, cell in zip(*np.nonzero(counts), strict=True):
            rest = counts[k].copy()
            rest[cell] -= 1
            mine = (np.cumsum(rest) - NEED * rest.sum()).clip(-clip, clip)
            sums = clipped.sum(axis=0) - clipped[k] + mine
            total += counts[k, cell] * below(asked, sums, scale)[cell]
        cut = np.maximum(-gaps - clip, 0.0).sum(axis=0).max()
        assert total <= 0.1 * rows + cut + 1e-9
        most = float(counts.sum(axis=1).max())
        assert total <= (1 - sure_coverage(clip, most, 0.1)) * rows + 1e-9
    assert tried > 40
