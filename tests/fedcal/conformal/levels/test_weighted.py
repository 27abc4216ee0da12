"""Sets for rows that count by their label: what is proven, over many draws of rows and noise."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from refusals import each_is_refused
from scipy.stats import norm

from fedcal.conformal.aims import Aim, aim_of
from fedcal.conformal.grids import spread
from fedcal.conformal.levels.crossing import Draw
from fedcal.conformal.levels.levels import Law, Normal
from fedcal.conformal.levels.noise_law import Noise
from fedcal.conformal.levels.weighted import exact_terms, shift, weighted_level
from fedcal.conformal.pages.reported import Reported
from fedcal.conformal.set_release import SetRelease
from fedcal.core.types import Floats, Integers
from fedcal.evaluation.intervals.intervals import normal_quantile
from fedcal.mechanisms import NoiseLaw
from fedcal.queries.conformal import SetGaps
from fedcal.queries.encodings import decoder_of

ALPHA = 0.1
SOURCE = np.array([0.7, 0.2, 0.1])
AIMS = {
    "target": Aim("target", (0.1, 0.3, 0.6), 3),
    "source": Aim("target", (0.1, 0.3, 0.6), 3, tuple(SOURCE)),
    "costs": Aim("costs", (0.05, 0.6, 1.0), 3),
    "among": Aim("among", (1, 2), 3),
}
GRID = np.append(np.sin(np.linspace(0.02, 0.98, 49) * np.pi / 2) ** 2, 1.0)
TIED = np.array([0.2, 0.6, 1.0])
POWERS = np.array([4.0, 1.0, 0.4])
"""Scores of label y are u ** power: those of the last label are large."""


def below(t: Floats) -> Floats:
    """P(score <= t) of each label, (3, m)."""
    return np.asarray(t ** (1.0 / POWERS[:, None]))


def gain(aim: Aim, t: Floats) -> Floats:
    """What the threshold t is worth beyond the promise, by true laws; >= 0 in the mean."""
    covered = below(t)
    if aim.kind == "costs":
        return np.asarray(ALPHA - (SOURCE * np.array(aim.numbers)) @ (1.0 - covered))
    share = np.array(aim.numbers) if aim.kind == "target" else SOURCE * np.array([0, 1, 1])
    return np.asarray(share @ covered / share.sum() - (1.0 - ALPHA))


def some_counts(
    rng: np.random.Generator, rows: int, draws: int, thresholds: Floats
) -> tuple[Integers, Integers]:
    """Rows of each label, (draws, 3), and those of each label and bucket, (draws, 3, m)."""
    of = rng.multinomial(rows, SOURCE, draws)
    cells = np.diff(below(thresholds), axis=1, prepend=0.0)
    return of, np.stack([rng.multinomial(of[:, y], cells[y]) for y in range(3)], axis=1)


def enough(values: Floats) -> None:
    """At least 0 in the mean, up to 3.5 standard errors."""
    assert values.mean() >= -3.5 * values.std() / np.sqrt(len(values)) - 1e-12


@dataclass(frozen=True)
class Laplace(Law):
    """Laplace noise of scale 2, by its exact law."""

    def below(self, x: Floats) -> Floats:
        tail = 0.5 * np.exp(-np.abs(x) / 2.0)
        return np.asarray(np.where(x > 0, 1.0 - tail, tail))

    @property
    def reach(self) -> tuple[float, float]:
        return -70.0, 70.0


def lost(law: Law, start: float) -> float:
    """The integral of P(Z >= z) from `start` on, in closed form."""
    if isinstance(law, Normal):
        k = start / law.std
        return float(law.std * (norm.pdf(k) - k * norm.sf(k)))
    return math.exp(-abs(start) / 2.0) + max(-start, 0.0)


@pytest.mark.parametrize(("law", "most"), [(Normal(3.0), 1e-9), (Laplace(), 0.01)])
@pytest.mark.parametrize("spare", [1.5, 4.0, 60.0])
def test_a_level_is_never_too_low_and_hardly_too_high(law, most, spare):
    """E min(x - Z, spare) = spare - lost(x - spare): at least 0."""
    x = weighted_level(1.0, spare, law) - 1.0
    assert -1e-12 <= spare - lost(law, x - spare) <= most
    assert weighted_level(1.5, spare, law) == pytest.approx(x + 1.5) or spare <= 1.5
    assert weighted_level(1.0, 0.9, law) == np.inf


@pytest.mark.parametrize("name", AIMS)
@pytest.mark.parametrize(("rows", "grid"), [(12, TIED), (60, GRID), (400, GRID)])
def test_exact_thresholds_keep_the_promise(name, rows, grid):
    aim, rng = AIMS[name], np.random.default_rng(rows)
    of, cells = some_counts(rng, rows, 4000, grid)
    found = []
    for n, counts in zip(of, cells, strict=True):
        hit, need, level = exact_terms(aim, ALPHA, n.astype(float))
        sums = hit @ np.cumsum(counts, axis=1) - need @ n
        first = np.flatnonzero(sums >= level - 1e-12)
        found.append(grid[first[0]] if len(first) else 1.0)
    values = gain(aim, np.array(found))
    enough(values)
    if rows == 400:
        assert values.mean() < 0.03  # and no more than the grid and ranks ask for


@pytest.mark.parametrize("name", AIMS)
@pytest.mark.parametrize(("rows", "tailed", "grid"), [(1500, False, GRID), (150, True, TIED)])
def test_noisy_counts_keep_the_promise(name, rows, tailed, grid):
    aim, rng, std = AIMS[name], np.random.default_rng(rows), 2.0
    of, cells = some_counts(rng, rows, 300, grid)
    decoder = decoder_of("prefix", len(grid), 1)
    unit = std * (2.0 if tailed else 128 * 1.6)  # of a row whose norm is that of a column
    noise = Noise(unit, NoiseLaw(tailed))
    found = []
    for n, counts in zip(of, cells, strict=True):
        size = (3, decoder.shape[1])
        z = rng.laplace(0, 2**-0.5, size) if tailed else rng.standard_normal(size)
        more = rng.laplace(0, 2**-0.5, 3) if tailed else rng.standard_normal(3)
        release = SetRelease(
            grid, counts + unit * z @ decoder.T, decoder, noise, None, "", n + 4.0 * more, 4.0
        )
        found.append(release.aimed(ALPHA, aim))
    values = gain(aim, np.array(found))
    enough(values)
    if rows == 1500:
        assert values.mean() < 0.05


@pytest.mark.parametrize("name", ["source", "costs", "among"])
def test_a_draw_keeps_the_promise(name):
    aim, rng, rows = AIMS[name], np.random.default_rng(5), 600
    hit, need = aim.terms(ALPHA)
    scale = 2.0 * float(np.maximum(hit - need, np.abs(need)).max())  # epsilon = 1
    draw = Draw(64, 0.02)
    level = need.max() + draw.slack(scale, whole_rows=False)
    grid = spread(draw.candidates)
    query = SetGaps(3, grid, need=need, hit=hit, level=level, tilt=draw.tilt * scale)
    assert 2.0 * query.row_bound == scale
    of, cells = some_counts(rng, rows, 3000, grid)
    found = []
    for n, counts in zip(of, cells, strict=True):
        costs = query.costs(hit @ np.cumsum(counts, axis=1) - need @ n)
        found.append(grid[np.argmax(rng.gumbel(size=64) - costs / scale)])
    enough(gain(aim, np.array(found)))


def test_a_reported_interval_ends_where_hits_are_at_their_quantile():
    """At both ends c: (hits - c rows)^2 = 1.96^2 (rows c (1 - c) + std^2 ((1 - c)^2 + c^2))."""
    hits, misses, std = np.array([30.0, 200.0]), np.array([20.0, 40.0]), 4.0
    value, *ends = Reported(("a", "b"), np.stack([hits, misses], axis=1), std).intervals
    rows, z = hits + misses, normal_quantile(0.95)
    np.testing.assert_allclose(value, hits / rows)
    for c in ends:
        variance = rows * c * (1 - c) + std**2 * ((1 - c) ** 2 + c**2)
        np.testing.assert_allclose((hits - c * rows) ** 2, z**2 * variance, rtol=1e-6)
    assert (ends[0] < value).all()
    assert (value < ends[1]).all()
    target, noise = np.array([0.1, 0.3, 0.6]), Noise(4.0)  # off target falls with rows
    labels = [(0, 0, 0), (5, 5, 5), (50, 20, 9), (50, 40, 9), (500, 400, 90), (10**6,) * 3]
    off = [shift(target, np.array(each, float), noise) for each in labels]
    assert all(a >= b for a, b in pairwise(off))
    assert off[-1] < 1e-5


def test_coverage_is_told_where_rows_stand_out_from_the_noise_of_both_counts():
    """Three standard deviations of a sum of two counts, 3 sqrt(2) std."""
    rows = 3 * math.sqrt(2) * np.array([0.99, 1.01])
    found = Reported(("few", "enough"), np.stack([0.9 * rows, 0.1 * rows], axis=1), 1.0).lines
    assert found["few"] == {"coverage": None, "low": 0.0, "high": 1.0, "rows": rows[0]}
    assert found["enough"]["coverage"] == pytest.approx(0.9)


def test_what_is_no_aim_is_refused():
    ones, half = "[1, 1, 1]", "[0.5, 0.5, 0]"
    table: list[tuple[dict[str, str], str]] = [
        *(({"target": target}, "") for target in ("[0.5, 0.6, 0]", "[1, 0]")),
        *(({"costs": costs}, "") for costs in ("[0.5, 2, 0]", "nothing")),
        *(({"among": among}, "") for among in ("[3]", "[1, 1]", "[]")),
        ({"costs": ones, "among": "[1]"}, ""),
        ({"target": "[0, 0, 1]", "source": half}, ""),
        ({"source": half}, ""),
        ({"costs": ones, "source": half}, ""),
    ]
    each_is_refused(table, lambda given: aim_of(3, **{"source": "", **given}))
