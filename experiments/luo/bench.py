"""A data set with its tables at all temperatures that the methods can reach."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedcal.datasets import Dataset
from fedcal.experiments.luo.paths import HIGH, ITERATIONS, LOW, BisectionTree, bisection_tree
from fedcal.experiments.luo.tables import NLL_CLIP, Tables, losses, rows_of, tabulate
from fedcal.numerics import log_grid
from fedcal.search import GoldenTree, golden_tree
from fedcal.types import Floats

GRID = 101
"""Temperatures, evenly spaced in log T, of what is no walk through few points; as many as the
strategies' exponential mechanism has. Neighbours differ by 1.8 %; the last interval of golden
section is 0.22 wide."""


@dataclass(frozen=True)
class Bench:
    """What all trials on a data set share.

    Attributes
    ----------
    name : of the data
    rows, classes : n, c
    plain : at T = 1
    golden, golden_answers : where golden section asks, and where it ends
    bisection, bisection_answers : the same of bisection
    grid : the public grid
    losses : (n, 101) negative log-likelihood on the grid, row by row
    clipped_losses : (32, n) min(nll, 10) where golden section asks
    """

    name: str
    rows: int
    classes: int
    plain: Tables = field(repr=False)
    tree: GoldenTree = field(repr=False)
    golden: Tables = field(repr=False)
    golden_answers: Tables = field(repr=False)
    halves: BisectionTree = field(repr=False)
    bisection: Tables = field(repr=False)
    bisection_answers: Tables = field(repr=False)
    grid: Tables = field(repr=False)
    losses: Floats = field(repr=False)
    clipped_losses: Floats = field(repr=False)

    @classmethod
    def of(cls, data: Dataset) -> Bench:
        """Tabulate all rows of a data set."""
        logits, labels = rows_of(data)
        tree, halves = golden_tree(LOW, HIGH, ITERATIONS), bisection_tree()

        def at(temperatures: Floats) -> Tables:
            return tabulate(logits, labels, temperatures)

        grid = at(np.exp(log_grid(LOW, HIGH, GRID)))
        return cls(
            name=data.name,
            rows=len(labels),
            classes=logits.shape[1],
            plain=at(np.ones(1)),
            tree=tree,
            golden=at(tree.temperatures),
            golden_answers=at(tree.answers),
            halves=halves,
            bisection=at(halves.temperatures),
            bisection_answers=at(halves.answers),
            grid=grid,
            losses=np.ascontiguousarray(losses(logits, labels, grid.temperatures).T),
            clipped_losses=np.minimum(losses(logits, labels, tree.temperatures), NLL_CLIP),
        )
