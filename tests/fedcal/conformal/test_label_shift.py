"""Sets for other label shares: what is proven, over many draws of rows and noise."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import norm

from fedcal.clients.questions.conformal import SetGaps
from fedcal.conformal.levels import Draw, Noise, Normal
from fedcal.conformal.set_release import LabelShift, SetRelease, weighted_level
from fedcal.core.types import Floats, Integers
from fedcal.mechanisms import NoiseLaw
from fedcal.metrics.conformity import spread
from fedcal.metrics.encodings import decoder_of

ALPHA = 0.1
SOURCE = np.array([0.7, 0.2, 0.1])
SHIFTS = {
    "rare labels": LabelShift((0.1, 0.3, 0.6), tuple(SOURCE)),
    "two labels": LabelShift((0.0, 0.7, 0.3), tuple(SOURCE)),
}
GRID = np.append(np.sin(np.linspace(0.02, 0.98, 49) * np.pi / 2) ** 2, 1.0)
TIED = np.array([0.2, 0.6, 1.0])
POWERS = np.array([4.0, 1.0, 0.4])
"""Scores of label y are u ** power: those of the last label are large."""


def below(t: Floats) -> Floats:
    """P(score <= t) of each label, (3, m)."""
    return np.asarray(t ** (1.0 / POWERS[:, None]))


def gain(shift: LabelShift, t: Floats) -> Floats:
    """What the threshold t is worth beyond the promise, by true laws; >= 0 in the mean."""
    return np.asarray(np.array(shift.target) @ below(t) - (1.0 - ALPHA))


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
class Laplace:
    """Laplace noise of scale 2, by its exact law."""

    def below(self, x: Floats) -> Floats:
        tail = 0.5 * np.exp(-np.abs(x) / 2.0)
        return np.asarray(np.where(x > 0, 1.0 - tail, tail))

    @property
    def reach(self) -> tuple[float, float]:
        return -70.0, 70.0


def lost(law: Normal | Laplace, start: float) -> float:
    """The integral of P(Z >= z) from `start` on, in closed form."""
    if isinstance(law, Normal):
        k = start / law.std
        return float(law.std * (norm.pdf(k) - k * norm.sf(k)))
    return math.exp(-abs(start) / 2.0) + max(-start, 0.0)


@pytest.mark.parametrize(("law", "most"), [(Normal(3.0), 0.01), (Laplace(), 0.01)])
@pytest.mark.parametrize("spare", [1.5, 4.0, 60.0])
def test_a_level_is_never_too_low_and_hardly_too_high(law, most, spare):
    """E min(x - Z, spare) = spare - lost(x - spare): at least 0."""
    x = weighted_level(1.0, spare, law) - 1.0
    assert -1e-12 <= spare - lost(law, x - spare) <= most
    assert weighted_level(1.5, spare, law) == pytest.approx(x + 1.5) or spare <= 1.5
    assert weighted_level(1.0, 0.9, law) == np.inf


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize(("rows", "grid"), [(12, TIED), (60, GRID), (400, GRID)])
def test_exact_thresholds_keep_the_promise(name, rows, grid):
    shift, rng = SHIFTS[name], np.random.default_rng(rows)
    _, cells = some_counts(rng, rows, 4000, grid)
    decoder, nothing = np.eye(len(grid)), Noise(0.0)
    found = [SetRelease(grid, each, decoder, nothing).found(ALPHA, shift)[0] for each in cells]
    values = gain(shift, np.array(found))
    enough(values)
    if rows == 400:
        assert values.mean() < 0.06  # and no more than the grid and the new row ask for


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize(("rows", "tailed", "grid"), [(1500, False, GRID), (150, True, TIED)])
def test_noisy_counts_keep_the_promise(name, rows, tailed, grid):
    shift, rng, std = SHIFTS[name], np.random.default_rng(rows), 2.0
    _, cells = some_counts(rng, rows, 300, grid)
    decoder = decoder_of("prefix", len(grid), 1)
    unit = std * (2.0 if tailed else 128 * 1.6)  # of a row whose norm is that of a column
    noise = Noise(unit, NoiseLaw(tailed))
    found = []
    for counts in cells:
        size = (3, decoder.shape[1])
        z = rng.laplace(0, 2**-0.5, size) if tailed else rng.standard_normal(size)
        release = SetRelease(grid, counts + unit * z @ decoder.T, decoder, noise)
        found.append(release.found(ALPHA, shift)[0])
    values = gain(shift, np.array(found))
    enough(values)
    if rows == 1500:
        assert values.mean() < 0.06


@pytest.mark.parametrize("name", SHIFTS)
def test_a_draw_keeps_the_promise(name):
    shift, rng, rows = SHIFTS[name], np.random.default_rng(5), 600
    hit = shift.weights
    need = (1.0 - ALPHA) * hit
    scale = 2.0 * float(need.max())  # epsilon = 1
    draw = Draw(64, 0.02)
    level = need.max() + draw.slack(scale, whole_rows=False)
    grid = spread(draw.candidates)
    query = SetGaps(3, grid, need=need, hit=hit, level=level, tilt=draw.tilt * scale)
    assert 2.0 * query.row_norm(1) == scale
    of, cells = some_counts(rng, rows, 3000, grid)
    found = []
    for n, counts in zip(of, cells, strict=True):
        costs = query.costs(hit @ np.cumsum(counts, axis=1) - need @ n)
        found.append(grid[np.argmax(rng.gumbel(size=64) - costs / scale)])
    enough(gain(shift, np.array(found)))
