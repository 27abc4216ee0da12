"""Figure 2 of Angelopoulos et al.: the level q~ by n and epsilon; and what becomes of q~ >= 1."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedcal.conformal.levels.angelopoulos import (
    best_bins,
    best_gamma,
    drawn_bins,
    inflated_level,
    private_thresholds,
    spent_by_authors,
    thresholds,
)
from fedcal.experiments.report.figures.drawing import Panel, Sheet, curve, level
from fedcal.experiments.research.studies.rows import counted
from fedcal.experiments.research.studies.set_trials import ALPHA, rng_of, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.strategies.server.outcome import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = tuple(int(n) for n in np.logspace(2, 4.5, 11).round())
EPSILONS = tuple(float(f"{e:.3g}") for e in np.logspace(-2, 2, 13))
SOME_ROWS, SOME_EPSILONS = (100, 1_000, 10_000), (0.1, 1.0, 10.0)
SMALL = ((20, 0.1), (50, 0.1), (100, 0.1), (100, 0.3), (100, 1.0), (300, 1.0), (1_000, 1.0))
"""n and epsilon of draws at the level as printed."""

TRIALS = 2_000
FLUCTUATION = 0.002
"""By how much q~ may go up again, as m* is drawn."""


def rows(progress: Progress | None = None, *, trials: int = TRIALS) -> Rows:
    """Levels along n and epsilon, and coverage of uniform scores where n epsilon is small.

    Returns
    -------
    list of dict
        what = "level": `along` ("n" or "epsilon"), `n`, `epsilon`, `bins` = m*, `gamma` = gamma*,
        `level` = q~; what = "draw": `n`, `epsilon`, `level`, `coverage` (all labels where
        q~ >= 1), `printed` (at min(q~, 1)), `authors` (the epsilon that their program spends;
        None = no bound)
    """
    todo = [("n", n, e) for e in SOME_EPSILONS for n in ROWS]
    todo += [("epsilon", n, e) for n in SOME_ROWS for e in EPSILONS]
    found: Rows = [{"what": "level", "along": along, **_level(n, e)} for along, n, e in todo]
    for n, epsilon in counted(SMALL, progress):
        rng, mine = rng_of("angelopoulos-figure2", n, epsilon), _level(n, epsilon)
        scores, m, q = rng.random((trials, n)), mine["bins"], mine["level"]
        printed = thresholds(m)[drawn_bins(scores, m, min(q, 1.0), epsilon, rng)]
        covered = private_thresholds(scores, m, epsilon, ALPHA, rng)
        found.append(
            {
                "what": "draw",
                **{k: mine[k] for k in ("n", "epsilon", "level")},
                "coverage": float(covered.mean()),  # of uniform scores, it is the threshold
                "printed": float(printed.mean()),
                "authors": None if q >= 1 else spent_by_authors(epsilon, ALPHA, q),
            }
        )
    return found


def _level(n: int, epsilon: float) -> Record:
    m = best_bins(n, epsilon, ALPHA)
    gamma = best_gamma(n, m, epsilon, ALPHA)
    q = inflated_level(n, m, epsilon, ALPHA, gamma)
    return {"n": n, "epsilon": epsilon, "bins": m, "gamma": gamma, "level": q}


def _lines(found: Rows, along: str) -> dict[float, Rows]:
    """What is held fixed -> levels along the other."""
    other, values = ("epsilon", SOME_EPSILONS) if along == "n" else ("n", SOME_ROWS)
    mine = where(found, what="level", along=along)
    return {float(v): where(mine, **{other: v}) for v in values}


def claims(found: Rows) -> list[RowsClaim]:
    """What the figure shows, and what we measured at min(q~, 1)."""
    said: list[RowsClaim] = []
    for along in ("n", "epsilon"):
        levels = [[r["level"] for r in line] for line in _lines(found, along).values()]
        up = max(b - a for line in levels for a, b in pairwise(line))
        ends = ", ".join(f"{line[-1]:.4f}" for line in levels)
        text = f"q~ falls with {along} towards 1 - alpha, but for mild fluctuations of m*"
        said.append((text, up <= FLUCTUATION, f"largest rise {max(up, 0.0):.4f}; ends at {ends}"))
    small = [r for r in found if r["what"] == "draw" and r["level"] >= 1]
    low, high = (pick(100 * r["printed"] for r in small) for pick in (min, max))
    said += [
        (
            "At the level min(q~, 1), as printed, sets cover 90 % where q~ >= 1",
            low >= 100 * (1 - ALPHA),
            f"{low:.0f} to {high:.0f} % of uniform scores",
        ),
        (
            "The authors' program spends the epsilon that it is given",
            all(
                r["authors"] is not None and r["authors"] <= r["epsilon"]
                for r in found
                if r["what"] == "draw"
            ),
            "; ".join(
                f"{r['authors']:.2f} at n = {r['n']:,}, epsilon = {r['epsilon']:g}"
                for r in found
                if r["what"] == "draw" and r["authors"] is not None
            )
            + "; without bound where q~ >= 1",
        ),
    ]
    return said


def sheet(found: Rows) -> Sheet | None:
    """q~ along n and along epsilon."""
    looks = ("m0", "m1", "m2")
    panels = tuple(
        _panel(along, dict(zip(looks, _lines(found, along).items(), strict=True)))
        for along in ("n", "epsilon")
    )
    legend = tuple(zip(looks, ("smallest", "middle", "largest"), strict=True))
    return Sheet("The level q~ of the private quantile", 2, panels, legend)


def _panel(along: str, lines: dict[str, tuple[float, Rows]]) -> Panel:
    fixed = "ε" if along == "n" else "n"

    def plot(ax: Axes) -> None:
        ax.set(xlabel="rows n" if along == "n" else along, ylabel="q~", xscale="log")
        level(ax, "reference", 1 - ALPHA)
        for look, (_, line) in lines.items():
            curve(ax, look, [r[along] for r in line], [r["level"] for r in line])
        ax.set_ylim(0.88, 1.0)

    said = "; ".join(
        f"{fixed} {v:g}: " + ", ".join(f"{r[along]:g} {r['level']:.3f}" for r in line)
        for v, line in lines.values()
    )
    note = f"{fixed} = {', '.join(f'{v:g}' for v, _ in lines.values())}"
    return Panel(f"By {along}", plot, f"q~. {said}.", aspect=0.75, note=note)
