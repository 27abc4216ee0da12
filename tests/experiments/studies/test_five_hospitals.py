"""The study of five hospitals: patients are as it says, names are those of verdicts."""

import numpy as np
import pytest

from experiments.studies.expected import shipped
from experiments.studies.own import five_hospitals as study
from experiments.studies.rows import release_of
from fedcal.core.numerics import softmax
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites.verdicts import ALL, verdicts_of
from fedcal.mechanisms import NoiseDistribution


def test_patients_count_once_and_are_off_by_what_is_reported():
    truths = [study.Truth(), *(study.with_gap(g, True) for g in (0.1, -0.2)), study.with_gap(-0.15)]
    truths.append(study.Truth(slope=study.SLOPE))
    rng = np.random.default_rng(0)
    off = []
    for _ in range(60):
        made = study.patients(truths, rng)
        weights = made.weights(1)
        assert made.sum_rows(weights) == pytest.approx(list(study.PATIENTS.values()))
        residual = weights * (softmax(made.logits)[:, 1] - made.labels)
        off.append(made.sum_rows(residual) / made.sum_rows(weights))
    std = np.std(off, axis=0) / 60**0.5
    assert (np.abs(np.mean(off, axis=0) - [t.gap for t in truths]) < 4 * std).all()
    each = np.unique(made.subjects, return_counts=True)[1]
    assert (each.min(), each.max()) == (1, study.MOST_ROWS)
    first = made.labels[np.unique(made.subjects, return_index=True)[1]]
    assert (np.repeat(first, each) == made.labels).mean() > 0.9  # outcomes of one patient are alike


def test_noise_is_that_of_the_plan():
    plan, asked, std = study.plan()
    assert std == pytest.approx((2 * 5 / 3) ** 0.5, rel=1e-3)  # 3 of 5 shares are a whole
    none, rng = np.zeros(asked.counts), np.random.default_rng(0)
    drawn = [release_of(plan, 1, asked, none, 5, rng).values for _ in range(100)]
    assert np.std(drawn) == pytest.approx(std, rel=0.05)
    assert (asked.subject_rows, asked.shape) == (1, (1, 5, 1, 2, 12))


def test_names_are_those_of_verdicts():
    rng, truths = np.random.default_rng(1), study.world(True)
    truths[3] = [*truths[3][:1], study.with_gap(0.1), *truths[3][2:]]
    years = [[study.release(t, rng) for t in truths]]
    joint, gap, slope, changes = study.named(np.moveaxis(np.array(years), 1, 0))
    _, asked, std = study.plan()
    for year, quarters in enumerate(years):
        made = [ScoreRelease(asked, c.ravel(), std, NoiseDistribution(True)) for c in quarters]
        for q, one in enumerate(made):
            ends = sorted({0, q - 1} & {*range(q)})
            verdicts = verdicts_of(one, {str(k): made[k] for k in ends}, level=study.LEVEL)
            named = [verdicts["sites"][s]["named"] for s in study.SITES]
            assert [bool(n) for n in named] == joint[q, year].tolist()
            assert ["gap" in n for n in named] == gap[q, year].tolist()
            assert ["slope" in n for n in named] == slope[q, year].tolist()
            for k in ends:
                since = verdicts["changes"][str(k)]
                off = [bool(since[s]["named"]) for s in (*study.SITES, ALL)]
                assert off == changes[k, q][year].tolist()
        assert verdicts["tests"] == study.TESTS
    assert joint[:, :, 4].all()
    assert slope[:, :, 4].all()
    assert not joint[0, :, 0].any()


def test_targets_are_missed_where_a_row_misses_them():
    found = shipped("five-hospitals").rows
    good = [holds for _, holds, _ in study.claims(found)]
    assert good == [True] * 7
    for what, key, value in (
        *(("years", "false", 0.051), ("years", "limit", 0.071)),
        *(("sites", "right", 0.89), ("changes", "right", 0.89), ("seen", "seen", 0.79)),
    ):
        worse = [r | {key: value} if r["what"] == what else r for r in found]
        assert sum(holds for _, holds, _ in study.claims(worse)) < sum(good)
