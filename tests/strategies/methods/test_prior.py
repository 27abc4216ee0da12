"""A prior for recalibration at home: names of sites, bounds, noise, and what it is judged by."""

from dataclasses import replace

import numpy as np
import pytest
from refusals import refused
from strategy_checks import assert_std_is_one, nobody

from fedcal import simulate
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.shards import Shards, numbered
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.mechanisms import Gaussian, Laplace, Target
from fedcal.metrics.binning import decoder_of, names_text
from fedcal.metrics.histogram import Histogram
from fedcal.personal.posterior import site_priors
from fedcal.privacy.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.prior import HEIGHT, FedPrior
from fedcal.units import Bound

NAMES = ("d", "b", "c", "a")


def named(groups: np.ndarray | None = None) -> Shards:
    rng = np.random.default_rng(3)
    labels, owner = rng.integers(0, 2, 90), rng.integers(1, 4, 90)  # the first has no rows
    return Shards.from_owner(
        *(rng.normal(0, 3, (90, 2)), labels, owner, 4),
        subjects=np.arange(90) % 5,
        groups=owner if groups is None else groups,
        group_names=NAMES,
        names=NAMES,
    )


def asked(*sites: str) -> ScoreCounts:
    return ScoreCounts(2, np.array([10.0]), groups=names_text(sites), by="site")


def test_rows_count_under_their_sites_own_name_whatever_their_column_says():
    """As by a column that says the same, without its block of others; in each part of the rows."""
    for query in (asked(*sorted(NAMES)), asked(*NAMES, "away")):
        want = replace(query, by="group").counts_of(named())[:, : query.counts]
        for groups in (None, np.zeros(90, np.int64)):
            rows = named(groups)
            np.testing.assert_array_equal(query.counts_of(rows), want)
            np.testing.assert_array_equal(query.counts_of(rows.block(1, 3)), want[1:3])
            order = np.array([3, 1, 0, 2])
            np.testing.assert_array_equal(query.counts_of(rows.take(order)), want[order])
            kept = np.flatnonzero(rows.labels)
            np.testing.assert_array_equal(query.counts_of(rows.keep(kept)).sum(), len(kept))
            each, owner = rows.each_subject()
            for parts, of in ((each, owner), (rows.each_row(), rows.owner)):
                summed = np.zeros_like(want)
                np.add.at(summed, of, query.counts_of(parts))
                np.testing.assert_array_equal(summed, want)


def test_groups_within_a_site_part_its_counts_and_add_up_to_them():
    rows = named(np.arange(90) % 3)
    whole, parted = asked(*NAMES), replace(asked(*NAMES), within=names_text(["b", "d"]))
    each = parted.counts_of(rows).reshape(4, 4, 3, 2, 10)  # b, d, and all others
    np.testing.assert_array_equal(each.sum(axis=2).reshape(4, -1), whole.counts_of(rows))
    for place, of in enumerate((1, 0, 2)):
        some = rows.keep(np.flatnonzero(rows.groups == of))
        np.testing.assert_array_equal(each[:, :, place].reshape(4, -1), whole.counts_of(some))
    total = parted.counts_of(rows).sum(axis=0).astype(np.float64)
    release, plain = ScoreRelease(parted, total, 2.0), ScoreRelease(whole, total[:80], 2.0)
    counts, root = release.by_site
    np.testing.assert_array_equal(counts, each.sum(axis=(0, 2)))
    np.testing.assert_allclose(root @ root.T, 3 * plain.by_site[1] @ plain.by_site[1].T)
    inside = release.within
    np.testing.assert_array_equal(inside["c", "d"].counts, each.sum(axis=0)[2, 1])
    np.testing.assert_array_equal(inside["", "d"].counts, each.sum(axis=(0, 1))[1])
    assert inside["", "d"].rows_std == 2 * inside["c", "d"].rows_std
    assert site_priors(release).keys() == {"", *NAMES}
    refused("counted within sites", lambda: replace(parted, by="group"))


def score_noise(query: ScoreCounts, law: type[Laplace | Gaussian]) -> tuple[float, float]:
    """Noise std of sum(y - p) and of sum((y - p) x) of a site, at epsilon = 1."""
    made, one = law.calibrate(Target(1.0, 1e-5, 1)), query.row_norm(law.order)
    bound = Bound((1,), (one,), order=law.order)
    std = float(made.std(made.scale(bound, 1), 1.0, bound).max())
    decoder = decoder_of(query.encoding, query.buckets, query.height)
    h = Histogram(query.bucket_edges, np.zeros((2, query.buckets)), decoder * std)
    score = np.stack([-h.middles, 1.0 - h.middles])
    x = np.log(h.middles / (1.0 - h.middles))
    return float(h.noise_std(score)), float(h.noise_std(score * x))


@pytest.mark.parametrize(("mechanism", "law"), [("auto", Laplace), ("gaussian", Gaussian)])
def test_the_encoding_has_the_least_noise_in_scores(mechanism, law):
    own = Federation(4, 2, epsilon=1.0, unit="example", mechanism=mechanism)
    taken = FedPrior(own).query(1)
    ways = [("flat", 1), ("prefix", 1), *(("tree", height) for height in (2, 3, HEIGHT))]
    noise = [score_noise(replace(taken, encoding=e, height=h), law) for e, h in ways]
    offset, slope = score_noise(taken, law)
    assert offset == min(o for o, _ in noise)
    assert slope <= 1.01 * min(s for _, s in noise)


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_noise_is_what_it_says(trust):
    """Nobody has rows: all that is released is noise, in units of what the artifact says."""
    none = nobody(100, 2, subjects=np.zeros(0, np.int64), names=numbered(100))
    strategy = FedPrior(Federation(100, 2, epsilon=1.0, unit="subject", trust=trust))
    run_inline(strategy, none)
    found = strategy.result()
    assert_std_is_one([found.counts / found.std], kurtosis=6.0)


def test_whole_sites_are_not_counted_one_by_one():
    refused("use unit 'example' or 'subject'", lambda: FedPrior(Federation(200, 2, epsilon=1.0)))


def test_sites_without_rows_tell_nothing_of_the_next():
    """Neither who has none nor who did not answer counts as a site, where sums are exact."""
    found = simulate("heart-disease", method="fedprior", clients=100)
    told, sites = found.artifact.results()["next_site"], found.judged["personal"]["sites"]
    assert told["sites"] == sum(one["rows"] > 0 for one in sites.values()) < 100
    numbers = [one[k] for one in told["metrics"].values() for k in ("mean", "low", "high")]
    assert np.isfinite(numbers).all()


def test_sites_are_judged_on_their_own_test_rows_or_out_of_fold():
    own = simulate("heart-disease", method="fedprior", partition="natural")
    told = own.judged["personal"]
    assert told["judged_on"] == "test rows of each site"
    assert [one["rows"] for one in told["sites"].values()] == [76, 147, 100, 61]
    assert told["taken"] + told["kept"] == 4
    before = [one["nll_before"] for one in told["sites"].values()]
    rows = np.bincount(own.test.owner)
    assert own.before["nll"] == pytest.approx(np.average(before, weights=rows))
    assert own.after["nll"] < own.before["nll"] - 0.1
    for one in told["sites"].values():
        assert not one["harmed"]
        assert one["taken"] or one["nll_after"] == pytest.approx(one["nll_before"])
    dealt = simulate("heart-disease", method="fedprior", partition="iid", clients=4)
    assert dealt.judged["personal"]["judged_on"] == "own rows, out of fold"
    assert sum(one["rows"] for one in dealt.judged["personal"]["sites"].values()) == 384
    assert "stay at the site" in " ".join(own.privacy["more"])
    # where the model is right everywhere, 20 rows of a site tell worse from better by luck alone
    alike = simulate(
        "adult-income", method="fedprior", partition="iid", clients=400, epsilon=1.0, unit="example"
    )
    sites = alike.judged["personal"]["sites"].values()
    looked = sum(one["nll_after"] > one["nll_before"] + 0.02 for one in sites)
    assert alike.judged["personal"]["harmed"] <= 0.03 * 400 < 0.1 * 400 < looked
