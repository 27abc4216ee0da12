"""Counts of correct and wrong predictions by confidence, and the one cell that is drawn."""

import numpy as np
import pytest
from strategy_checks import some_shards

from fedcal.clients.statistics.histograms import bin_outcomes, outcome_cell
from fedcal.core.numerics import softmax
from fedcal.core.shards import Shards
from fedcal.metrics.standard import check_scored, scan, top_tables
from fedcal.queries import BinOutcomes, OutcomeCell

CLIENTS = 4  # the first and the last have no rows


@pytest.mark.parametrize("c", [2, 10, 50])
def test_counts_are_those_of_the_reliability_diagram(c):
    shards = some_shards(c, rows=200, clients=CLIENTS)
    wrong = bin_outcomes(shards, BinOutcomes(15, "correct_wrong"))
    total = bin_outcomes(shards, BinOutcomes(15, "correct_total"))
    for k in (1, 2):
        rows = slice(int(shards.offsets[k]), int(shards.offsets[k + 1]))
        scored = check_scored(softmax(shards.logits[rows]), shards.labels[rows])
        count, _, correct = top_tables(scan(*scored, top=True), 15)
        assert total[k].tolist() == [*correct, *count]
        assert wrong[k].tolist() == [*correct, *(count - correct)]
    assert not wrong[[0, 3]].any()


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
            change = bin_outcomes(shards, params) - bin_outcomes(less, params)
            assert np.abs(change).sum() == want


def test_each_row_of_a_client_is_drawn_equally_often():
    shards = some_shards(3, rows=40, clients=CLIENTS)
    counts = bin_outcomes(shards, BinOutcomes(5, "correct_wrong"))
    draws = 1000
    cells = np.array([outcome_cell(shards, OutcomeCell(5, seed)) for seed in range(draws)])
    assert (cells.sum(axis=2) == [0.0, 1.0, 1.0, 0.0]).all()
    assert not cells[:, counts == 0].any()
    mean = cells.mean(axis=0)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # five standard errors of a share
    assert np.abs(mean - share).max() < 5 * np.sqrt(0.25 / draws)


def test_clients_with_as_many_rows_draw_for_themselves():
    rng = np.random.default_rng(0)
    shards = Shards.from_owner(rng.normal(0, 3, (400, 2)), np.zeros(400, int), np.arange(400), 400)
    pairs = Shards(shards.logits, shards.labels, np.arange(0, 401, 2))
    cells = bin_outcomes(shards, BinOutcomes(15, "correct_wrong")).argmax(axis=1)
    drawn = outcome_cell(pairs, OutcomeCell(15, 3)).argmax(axis=1)
    different = cells[::2] != cells[1::2]
    first = (drawn == cells[::2])[different].mean()
    assert 0.3 < first < 0.7
