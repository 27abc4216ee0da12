"""FedEvaluate and FedPrior: counts by score, by level, by site, and the noise that they state."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from refusals import refused
from strategy_checks import assert_std_is_one, nobody

from fedcal import simulate
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.metrics.score_table import names_text
from fedcal.partition import numbered
from fedcal.personal.posterior import site_priors
from fedcal.privacy import Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.strategies.methods.prior import FedPrior

CLIENTS = 30
TRUSTS = ("central", "distributed", "local")


def shards(classes: int = 3, rows: int = 900, clients: int = CLIENTS) -> Shards:
    rng = np.random.default_rng(classes)
    labels, owner = rng.integers(0, classes, rows), rng.integers(0, clients, rows)
    logits = 2 * rng.normal(size=(rows, classes)) + 2 * np.eye(classes)[labels]
    return rows_by_owner(
        logits, labels, owner, clients, groups=labels % 2, group_names=("a", "b"), other=-logits
    )


def run(data: Shards, settings: dict[str, Any], **fields: Any) -> FedEvaluate:
    own = Federation(**{"clients": data.clients, "classes": data.classes, **fields})
    method = FedEvaluate(own, **settings)
    run_inline(method, data)
    return method


SETTINGS: list[dict[str, Any]] = [
    {},
    {"score": "classes", "bins": 12},
    {"other": True, "bins": 8},
    {"groups": '["a", "b"]', "bins": 30},
    {"encoding": "flat", "bins": 16},
    {"encoding": "tree", "height": 3, "bins": 20},
    {"encoding": "prefix", "bins": 20},
]


@pytest.mark.parametrize(("settings", "trust"), [*zip(SETTINGS, TRUSTS * 3, strict=False)])
def test_noise_is_as_large_as_the_release_says(settings, trust):
    data = shards(rows=300)
    exact = run(data, {k: v for k, v in settings.items() if k not in ("encoding", "height")})
    errors = []
    for seed in range(10):
        noisy = run(data, settings, epsilon=1.0, unit="example", trust=trust, seed=seed).result()
        for key, h in noisy.histograms.items():
            prefix = np.tril(np.ones((h.buckets, h.buckets)))
            weights = np.stack([prefix, 0 * prefix], axis=1)
            off = (weights * (h.counts - exact.result().histograms[key].counts)).sum(axis=(1, 2))
            errors.append(off / h.noise_std(weights))
        if noisy.agreement is not None:
            errors.append((noisy.agreement - exact.result().agreement) / noisy.cell_std)
    assert np.sqrt(np.square(np.concatenate(errors)).mean()) == pytest.approx(1.0, abs=0.25)


def test_each_client_is_asked_about_one_level_and_counts_are_unbiased():
    data = shards(rows=600, clients=300)
    sums = []
    for seed in range(15):
        fields = {"epsilon": 6.0, "trust": "local", "delta": 0.0, "seed": seed}
        method = run(data, {"bins": 16, "height": 2}, **fields)
        assert [r.kind for r in method.releases] == ["score_cell"] * 2
        parts = [method.plan.sample(k) for k in (1, 2)]
        assert np.intersect1d(*parts).size == 0
        assert sum(map(len, parts)) == 300
        sums.append(method.result().histograms["model", "", ""].counts)
    mean, spread = np.mean(sums, axis=0), np.std(sums, axis=0) / np.sqrt(15)
    with_rows = (data.rows > 0).sum()
    assert mean.sum() == pytest.approx(with_rows, abs=4 * spread.sum())
    hit = data.logits.argmax(axis=1) == data.labels
    weight = 1 / data.rows[data.owner]
    assert mean[1].sum() / mean.sum() == pytest.approx(np.average(hit, weights=weight), abs=0.04)


@pytest.mark.parametrize(
    ("settings", "fields", "silent"),
    [
        ({}, {}, 1),
        ({"edges": "equi-depth", "bins": 8}, {"mechanism": "laplace"}, 2),
        ({"bins": 8}, {"unit": "user", "sampling_rate": 1.0}, 2),  # each is asked about one level
    ],
)
def test_a_round_that_nobody_was_asked_in_tells_nothing_and_is_not_exact(
    settings, fields, silent, monkeypatch
):
    data = shards(classes=2)
    own = {"unit": "example", "trust": "local", "sampling_rate": 0.2, **fields}
    source = "seeded" if silent == 2 else "system"
    method = FedEvaluate(
        Federation(CLIENTS, 2, epsilon=1.0, noise_source=source, **own), **settings
    )

    def sample(plan: Plan, number: int) -> Any:
        return np.arange(0 if silent == number else plan.clients)

    with monkeypatch.context() as patched:
        patched.setattr(Plan, "sample", sample)
        run_inline(method, data)
    found = method.result()
    results = found.results()
    assert "tests" not in results
    assert results.get("rows", {"value": None})["value"] is None
    for metric, estimate in results["metrics"].items():
        assert estimate["value"] is None, metric
        assert estimate["drowned"], metric
    assert type(found).from_arrays(found.arrays()).results() == results


# --- a prior for recalibration at a site ----------------------------------------------------------

NAMES = ("d", "b", "c", "a")


def rows_of_sites(groups: np.ndarray | None = None) -> Shards:
    rng = np.random.default_rng(3)
    labels, owner = rng.integers(0, 2, 90), rng.integers(1, 4, 90)  # the first has no rows
    return rows_by_owner(
        *(rng.normal(0, 3, (90, 2)), labels, owner, 4),
        subjects=np.arange(90) % 5,
        groups=owner if groups is None else groups,
        group_names=NAMES,
        names=NAMES,
    )


def by_site(*sites: str) -> ScoreCounts:
    return ScoreCounts(2, np.array([10.0]), groups=names_text(sites), by="site")


def test_rows_count_under_their_sites_own_name_whatever_their_column_says():
    """As by a column that says the same, without its block of others; in each part of the rows."""
    for query in (by_site(*sorted(NAMES)), by_site(*NAMES, "away")):
        want = replace(query, by="group").counts_of(rows_of_sites())[:, : query.counts]
        for groups in (None, np.zeros(90, np.int64)):
            rows = rows_of_sites(groups)
            np.testing.assert_array_equal(query.counts_of(rows), want)
            order = np.array([3, 1, 0, 2])
            np.testing.assert_array_equal(query.counts_of(rows.take(order)), want[order])
            each, owner = rows.each_subject()
            for parts, of in ((each, owner), (rows.each_row(), rows.owner)):
                summed = np.zeros_like(want)
                np.add.at(summed, of, query.counts_of(parts))
                np.testing.assert_array_equal(summed, want)


def test_groups_within_a_site_part_its_counts_and_add_up_to_them():
    rows = rows_of_sites(np.arange(90) % 3)
    full = by_site(*NAMES)
    parted = replace(full, within=names_text(["b", "d"]))
    each = parted.counts_of(rows).reshape(4, 4, 3, 2, 10)  # b, d, and all others
    np.testing.assert_array_equal(each.sum(axis=2).reshape(4, -1), full.counts_of(rows))
    for place, of in enumerate((1, 0, 2)):
        some = rows.keep(np.flatnonzero(rows.groups == of))
        np.testing.assert_array_equal(each[:, :, place].reshape(4, -1), full.counts_of(some))
    total = parted.counts_of(rows).sum(axis=0).astype(np.float64)
    release, plain = ScoreRelease(parted, total, 2.0), ScoreRelease(full, total[:80], 2.0)
    sites = release.by_site
    counts, root = sites.counts, sites.root
    np.testing.assert_array_equal(counts, each.sum(axis=(0, 2)))
    np.testing.assert_allclose(root @ root.T, 3 * plain.by_site.root @ plain.by_site.root.T)
    inside = release.within
    np.testing.assert_array_equal(inside["c", "d"].counts, each.sum(axis=0)[2, 1])
    np.testing.assert_array_equal(inside["", "d"].counts, each.sum(axis=(0, 1))[1])
    assert inside["", "d"].rows_std == 2 * inside["c", "d"].rows_std
    assert site_priors(release).keys() == {"", *NAMES}
    refused("counted within sites", lambda: replace(parted, by="group"))


@pytest.mark.parametrize("trust", TRUSTS)
def test_noise_of_a_prior_is_what_it_states(trust):
    none = nobody(100, 2, subjects=np.zeros(0, np.int64), names=numbered(100))
    strategy = FedPrior(Federation(100, 2, epsilon=1.0, unit="subject", trust=trust))
    run_inline(strategy, none)
    found: Any = strategy.result()
    assert_std_is_one([found.counts / found.std], kurtosis=6.0)


def test_a_prior_of_users_is_refused():
    refused("use unit 'example' or 'subject'", lambda: FedPrior(Federation(200, 2, epsilon=1.0)))


def test_sites_without_rows_tell_nothing_of_the_next():
    """No client without rows or without an answer counts as a site, where sums are exact."""
    found = simulate("heart-disease", method="fedprior", clients=40, partition="dirichlet:0.05")
    prior, sites = found.artifact.results()["next_site"], found.evaluated["personal"]["sites"]
    assert prior["sites"] == sum(one["rows"] > 0 for one in sites.values()) < 40
    numbers = [one[k] for one in prior["metrics"].values() for k in ("mean", "low", "high")]
    assert np.isfinite(numbers).all()


def test_sites_are_evaluated_on_their_own_test_rows_or_out_of_fold():
    own = simulate("heart-disease", method="fedprior", partition="natural")
    found = own.evaluated["personal"]
    assert found["judged_on"] == "test rows of each site"
    assert [one["rows"] for one in found["sites"].values()] == [76, 147, 100, 61]
    assert found["taken"] + found["kept"] == 4
    before = [one["nll_before"] for one in found["sites"].values()]
    rows = np.bincount(own.test.owner)
    assert own.before["nll"] == pytest.approx(np.average(before, weights=rows))
    assert own.after["nll"] < own.before["nll"] - 0.1
    for one in found["sites"].values():
        assert not one["harmed"]
        assert one["taken"] or one["nll_after"] == pytest.approx(one["nll_before"])
    parted = simulate("heart-disease", method="fedprior", partition="iid", clients=4)
    assert parted.evaluated["personal"]["judged_on"] == "own rows, out of fold"
    assert sum(one["rows"] for one in parted.evaluated["personal"]["sites"].values()) == 384
