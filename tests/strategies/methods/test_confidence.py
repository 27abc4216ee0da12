"""Histogram binning by one query of counts: exact, noisy, and one cell a client."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategy_checks import some_shards

from fedcal.calibrators import TopLabelBinning
from fedcal.clients.answers import answer
from fedcal.core.numerics import softmax
from fedcal.core.shards import Shards
from fedcal.mechanisms.choice import unary_flip
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.histograms import DPHistogram

CLIENTS, CLASSES = 12, 4
COUNTS: tuple[Any, ...] = ("correct_wrong", "correct_total")


federation = partial(Federation, clients=CLIENTS, classes=CLASSES)
private = partial(federation, epsilon=1.0)


def method(own: Federation | None = None, **options: Any) -> DPHistogram:
    return DPHistogram(own or federation(), secure_aggregation="none", **options)


def run(shards: Shards, own: Federation | None = None, **options: Any) -> TopLabelBinning:
    own = own or federation(classes=shards.classes, clients=shards.clients)
    strategy = method(own, **options)
    run_inline(strategy, shards)
    result = strategy.result()
    assert isinstance(result, TopLabelBinning)
    return result


@pytest.mark.parametrize("counts", COUNTS)
def test_without_privacy_it_is_the_calibrator_of_the_pooled_rows(counts):
    for c, bins in ((2, 15), (4, 7), (20, 15)):
        shards = some_shards(c)
        p = softmax(shards.logits)
        index = np.minimum((p.max(axis=1) * bins).astype(int), bins - 1)
        correct = p.argmax(axis=1) == shards.labels
        found = run(shards, counts=counts, bins=bins)
        assert found.classes == c
        for b in range(bins):
            inside = index == b
            want = correct[inside].mean() if inside.any() else (b + 0.5) / bins
            assert found.values[b] == pytest.approx(want, abs=1e-15)
        if bins == 15:
            pooled = TopLabelBinning().fit(shards.logits, shards.labels)
            np.testing.assert_array_equal(found.values, pooled.values)


def test_the_laplace_scale_is_sensitivity_over_epsilon():
    for epsilon, unit, counts, sensitivity in (
        (0.5, "example", "correct_wrong", 1.0),
        (2.0, "example", "correct_total", 2.0),
        (2.0, "user", "correct_wrong", 4.0),
        (0.5, "user", "correct_total", 4.0),
    ):
        more = {"rows_per_client": 50.0} if unit == "user" else {}
        plan = method(private(epsilon=epsilon, unit=unit), counts=counts, **more).plan
        assert (plan.mechanism.name, plan.rounds, plan.delta) == ("laplace", 1, 0.0)
        per_row = 1 / (math.sqrt(2) * math.sinh(epsilon / sensitivity / 2))  # on integers
        std = per_row if unit == "example" else math.sqrt(2) * sensitivity / epsilon
        assert plan.noise_std == pytest.approx([std] * len(plan.noise_std), rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), c=st.integers(2, 12), counts=st.sampled_from(COUNTS))
def test_neighbours_differ_by_at_most_the_bound(seed, c, counts):
    shards = some_shards(c, rows=90, seed=seed)
    client = 1 + seed % (CLIENTS - 2)
    for unit, most, gone in (
        ("user", 2.5, shards.owner == client),
        ("example", 1.0 if counts == "correct_wrong" else 2.0, np.arange(90) == seed % 90),
    ):
        options: dict[str, Any] = {"clip": 2.5} if unit == "user" else {}
        strategy = method(private(classes=c, unit=unit), counts=counts, **options)
        asked = strategy.open_round(1)
        less = shards.keep(np.flatnonzero(~gone))
        sums = [answer(s, asked.request).sum(axis=0, dtype=np.uint64) for s in (shards, less)]
        change = (sums[0] - sums[1]).view(np.int64) * asked.request.ring.grid
        assert np.abs(change).sum() <= most
        assert change.any() or not gone.any()


def test_unary_estimates_how_many_clients_are_in_each_cell():
    clients = 4000
    shards = some_shards(rows=12_000, clients=clients)
    own = private(clients=clients, trust="local", mechanism="unary", epsilon=2.0)
    strategy = method(own)
    run_inline(strategy, shards)
    release = strategy.releases[0]
    assert (strategy.plan.mechanism.name, strategy.plan.adjacency) == ("unary", "replace")
    flip = unary_flip(2.0)
    std = math.sqrt(clients * flip * (1 - flip)) / (0.5 - flip)
    assert release.std == pytest.approx(np.full(30, std))
    with_rows = int((shards.rows > 0).sum())
    assert release.values.sum() == pytest.approx(with_rows, abs=6 * std * math.sqrt(30))
    # a cell's expected count: its share of the rows of each client
    correct = softmax(shards.logits).argmax(axis=1) == shards.labels
    index = np.minimum((softmax(shards.logits).max(axis=1) * 15).astype(int), 14)
    share = 1.0 / np.maximum(shards.rows, 1)[shards.owner]
    want = np.bincount(index + 15 * ~correct, share, 30)
    noise = np.sqrt(std**2 + want)  # and of the draws of rows
    assert (np.abs(release.values - want) < 5 * noise).all()
    assert np.abs(want).max() > 10 * std
