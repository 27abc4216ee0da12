"""Counts of correct and wrong predictions by confidence, and the one cell that is drawn."""

import numpy as np
from strategy_checks import some_shards

from fedcal.clients.questions.histograms import BinOutcomes, OutcomeCell
from fedcal.core.shards import Shards

CLIENTS = 4  # the first and the last have no rows


def test_one_row_changes_the_counts_by_its_sensitivity():
    shards = some_shards(3, rows=200, clients=CLIENTS)
    for row in range(0, 200, 7):
        keep = np.arange(200) != row
        less = Shards.from_owner(
            shards.logits[keep], shards.labels[keep], shards.owner[keep], CLIENTS
        )
        correct = shards.logits[row].argmax() == shards.labels[row]
        for counts, want in (("correct_wrong", 1.0), ("correct_total", 1.0 + correct)):
            params = BinOutcomes(15, counts)
            change = params.sums(shards) - params.sums(less)
            assert np.abs(change).sum() == want


def test_each_row_of_a_client_is_drawn_equally_often():
    shards = some_shards(3, rows=40, clients=CLIENTS)
    counts = BinOutcomes(5, "correct_wrong").sums(shards)
    draws = 1000
    cells = np.array([OutcomeCell(5, seed).sums(shards) for seed in range(draws)])
    assert (cells.sum(axis=2) == [0.0, 1.0, 1.0, 0.0]).all()
    assert not cells[:, counts == 0].any()
    mean = cells.mean(axis=0)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # five standard errors of a share
    assert np.abs(mean - share).max() < 5 * np.sqrt(0.25 / draws)
