"""The study of class effects: pairs share deal and noise, and limits that are passed are told."""

import numpy as np
import pytest

from fedcal.experiments.research.studies.expected import shipped
from fedcal.experiments.research.studies.own import class_effects as study
from fedcal.experiments.research.studies.rows import one, rng_of


def test_a_method_is_compared_with_its_twin_of_the_same_deal_and_noise():
    alone, ours = (
        one(study.method_rows("mnist-cnn", ("example", 100, 8.0), 2), method=of)
        for of in (study.ALONE, study.OURS)
    )
    assert (alone["ratio"], alone["worst"]) == (1, 1)
    assert ours["kept"] == 1
    assert ours["ratio"] < 0.6 < 1
    assert ours["harm"] < 0


def test_labels_without_effects_are_drawn_from_the_model_at_its_pooled_temperature():
    (row,) = study.null_rows("mnist-cnn", ("example", 100, 8.0), 3)
    assert (row["kept"], row["runs"]) == (0, 3)  # the rows' own labels: kept in all, see above


def test_rows_are_repeated_for_a_thousand_clients_alone():
    fit = 3 * np.eye(4)[np.arange(5000) % 4], np.arange(5000) % 4
    for clients, copies in ((100, 1), (1000, 10)):
        shards, times = study.population(fit, ("user", clients, 1.0), rng_of("test", 0))
        assert (times, len(shards.labels), shards.clients) == (copies, 5000 * copies, clients)


def test_a_limit_that_is_passed_does_not_hold():
    """Each claim that holds of the rows that ship fails on rows that are worse."""
    found = shipped("class-effects").rows
    told = list(study.claims(found))
    worse = []
    for row in found:
        more = {"ratio": 2.0, "harm": 1.0, "kept": 9, "nll": row.get("nll", 0) * row["epsilon"]}
        worse.append(row | {k: v for k, v in more.items() if k in row})
    fell = {text for text, holds, _ in study.claims(worse) if holds} & {t for t, h, _ in told if h}
    assert len(told) > 30
    assert not fell


@pytest.mark.slow
def test_a_quick_run_is_of_the_first_setting():
    found = study.rows(quick=True)
    assert {(r["unit"], r["clients"], r["epsilon"]) for r in found} == {study.FIRST}
