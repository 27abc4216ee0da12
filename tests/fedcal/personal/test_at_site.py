"""A prior from counts by site, a fit at home, and the gate: on made-up sites of known truth."""

import math

import numpy as np
import pytest
from scipy.special import expit

from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.numerics import Floats, softmax
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites.buckets import edges_of
from fedcal.evaluation.sites.effects import predicted, site_metrics
from fedcal.evaluation.sites.site_tests import Sites
from fedcal.mechanisms import NoiseDistribution
from fedcal.metrics.score_table import names_text
from fedcal.personal import posterior, releases
from fedcal.personal.posterior import HARM, SitePrior, identity_prior, site_priors
from fedcal.personal.releases import applied, calibrator_of, cross_validated, recalibrated

COMMON, TAU = np.array([0.5, -0.35]), np.array([0.3, 0.15])
LAPLACE = math.sqrt(2.0)
"""Std of the noise of a count at epsilon = 1."""


def drawn(
    rng: np.random.Generator, sites: int, rows: int, tau: Floats = TAU, mean: Floats = COMMON
) -> tuple[Shards, Floats]:
    """Rows of sites whose log odds x should be o + exp(l) x, and these parameters."""
    true = mean + rng.normal(size=(sites, 2)) * tau
    x = rng.normal(-0.5, 1.6, (sites, rows))
    y = rng.random(x.shape) < expit(true[:, :1] + np.exp(true[:, 1:]) * x)
    logits = np.stack([np.zeros(x.size), x.ravel()], axis=1)
    owner = np.repeat(np.arange(sites), rows)
    return rows_by_owner(logits, y.ravel().astype(np.int64), owner, sites), true


def counted(shards: Shards) -> Floats:
    """(S, 2, buckets)."""
    edges = edges_of("positive")
    x = shards.logits[:, 1] - shards.logits[:, 0]
    bucket = np.clip(np.searchsorted(edges, expit(x), side="right") - 1, 0, 9)
    place = (shards.owner * 2 + shards.labels) * 10 + bucket
    size = shards.clients * 20
    return np.bincount(place, minlength=size).reshape(-1, 2, 10).astype(float)


def released(counts: Floats, std: float = 0.0, classes: int = 2) -> ScoreRelease:
    """A release by site of such counts."""
    names = names_text([f"site {k}" for k in range(len(counts))])
    score = "positive" if classes == 2 else "confidence"
    asked = ScoreCounts(classes, edges_of(score), score, groups=names, by="site")
    return ScoreRelease(asked, counts.ravel(), std)


# -- the prior ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "std"), [(0, 0.0), (5, 1e4)])
def test_a_release_that_says_nothing_leaves_the_identity_prior(rows: int, std: float) -> None:
    """Neither empty sites nor noise that drowns them move it."""
    rng = np.random.default_rng(1)
    counts = counted(drawn(rng, 6, rows)[0]) + rng.normal(size=(6, 2, 10)) * std
    found, plain = site_priors(released(counts, std))[""], identity_prior(2)
    assert np.abs(found.mean).max() < 0.02
    assert np.sqrt(np.diag(found.cov)) == pytest.approx(np.sqrt(np.diag(plain.cov)), rel=0.04)


def test_many_sites_tell_what_they_have_in_common_and_how_they_differ() -> None:
    """Without noise and with that of epsilon = 1, which widens and does not move."""
    rng = np.random.default_rng(2)
    counts = counted(drawn(rng, 60, 300)[0])
    noisy = counts + rng.laplace(0, 1, counts.shape)
    exact, private = site_priors(released(counts))[""], site_priors(released(noisy, LAPLACE))[""]
    for found, off in ((exact, 0.12), (private, 0.2)):
        assert np.abs(found.mean - COMMON).max() < off
        assert np.sqrt(found.cov[0, 0]) == pytest.approx(TAU[0], rel=0.3)
    assert np.sqrt(exact.cov[1, 1]) == pytest.approx(TAU[1], rel=0.5)


def test_the_prior_of_a_site_is_computed_without_its_own_cells() -> None:
    """Whatever they hold; and of many sites by one linearisation, nearly."""
    rng = np.random.default_rng(3)
    counts = counted(drawn(rng, 8, 60)[0])
    changed = counts.copy()
    changed[3] = [[0.0], [40.0]]
    first, second = (
        site_priors(released(c, LAPLACE), ["site 3", "site 4"]) for c in (counts, changed)
    )
    assert (first["site 3"].mean == second["site 3"].mean).all()
    assert (first["site 3"].cov == second["site 3"].cov).all()
    assert np.abs(first["site 4"].mean - second["site 4"].mean).max() > 0.01
    many = counted(drawn(rng, 101, 30)[0])
    quick, slow = site_priors(released(many)), site_priors(released(many), ["site 7", ""])
    assert np.abs(quick["site 7"].mean - slow["site 7"].mean).max() < 0.01
    assert (quick[""].mean == slow[""].mean).all()


def test_noise_does_not_move_the_prior_of_many_small_sites() -> None:
    """Weights that followed each site's noise read a log slope of -.35 as -.58 (100 x 30 rows)."""
    means = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        counts = counted(drawn(rng, 100, 30, 0 * TAU)[0])
        noisy = counts + rng.laplace(0, 1, counts.shape)
        means.append(site_priors(released(noisy, LAPLACE), [""])[""].mean)
    assert np.mean(means, axis=0) == pytest.approx(COMMON, abs=0.11)


@pytest.mark.parametrize(
    ("case", "std"), [("alike", 0.0), ("parted", 1e3), ("parted", 0.0), ("empty", 0.0), ("no", 1e3)]
)
def test_counts_of_any_shape_have_a_prior_and_an_expectation(case: str, std: float) -> None:
    """Scores that are all alike, that part outcomes wholly, sites of nobody or of one class."""
    counts = np.random.default_rng(6).poisson(20, (6, 2, 10)).astype(float)
    if case == "alike":
        counts = np.zeros((6, 2, 10))
        counts[:, :, 4] = 6e4, 4e4
    elif case == "parted":
        counts[:, 0, 5:] = counts[:, 1, :5] = 0
    else:
        counts[(2,) if case == "empty" else (slice(None), 1)] = 0
    release = released(counts + np.random.default_rng(7).normal(size=counts.shape) * std, std)
    for prior in site_priors(release).values():
        assert np.isfinite(prior.mean).all()
        assert (np.linalg.eigvalsh(prior.cov) > 0).all()
    record = release.results()["next_site"]["metrics"]
    for one in record.values():
        assert one["low"] <= one["mean"] <= one["high"]
        assert np.isfinite([v for v in one.values() if isinstance(v, float)]).all()


# -- at the site ----------------------------------------------------------------------------------


def test_the_fit_is_the_largest_posterior_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each site is fitted by itself, for two classes and for a temperature."""
    monkeypatch.setattr(posterior, "STEPS", (1.0,))
    rng = np.random.default_rng(5)
    two, _ = drawn(rng, 3, 25)
    priors = [SitePrior(COMMON, np.array([[0.3, 0.05], [0.05, 0.1]])), *[identity_prior(2)] * 2]
    logits = rng.normal(size=(60, 4)) * 3
    labels = np.array([rng.choice(4, p=p) for p in softmax(logits / 2)])
    more = rows_by_owner(logits, labels, np.repeat([0, 1, 2], 20), 3)
    for shards, known in ((two, priors), (more, [identity_prior(4)] * 3)):
        found = recalibrated(shards, known)
        for k in range(3):
            one = shards.block(k, k + 1)
            at = found.parameters[k]
            best = _log_posterior(one, at, known[k])
            for off in rng.normal(size=(20, len(at))) * 0.05:
                assert _log_posterior(one, at + off, known[k]) < best
            alone = recalibrated(one, known[k : k + 1])
            assert alone.parameters[0] == pytest.approx(at, abs=1e-8)
            assert alone.risk[0] == pytest.approx(found.risk[k], abs=1e-9)


@pytest.mark.parametrize("classes", [2, 10])
def test_the_fit_settles_where_scores_tell_nothing(classes: int) -> None:
    """At the largest density the gradient is 0: of labels that no score, or its reverse, tells."""
    rng = np.random.default_rng(12)
    logits = rng.normal(0, 3, (4000, classes))
    for labels in (rng.integers(0, classes, 4000), logits.argmin(axis=1)):
        rows = rows_by_owner(logits, labels, np.repeat(np.arange(20), 200), 20)
        at, cov, mean, sure = posterior.posterior(rows, [identity_prior(classes)] * 20)
        pull = (
            posterior.OwnRows(rows, None).derivatives(at)[0]
            - (sure @ (at - mean)[..., None])[..., 0]
        )
        assert np.abs(pull).max() < 1e-5 * np.abs(np.linalg.inv(cov)).max()


def _log_posterior(rows: Shards, at: Floats, prior: SitePrior) -> float:
    probs = applied(rows, at[None])
    likelihood = np.log(probs[np.arange(len(rows.labels)), rows.labels]).sum()
    off = at - prior.mean
    return float(likelihood - off @ np.linalg.solve(prior.cov, off) / 2)


def test_the_risk_is_a_probability_of_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many sites drawn from the prior itself are harmed as the risks add up to."""
    monkeypatch.setattr(posterior, "RIGHT", 1e-9)
    rng = np.random.default_rng(6)
    prior = SitePrior(COMMON, np.diag([0.5, 0.2]) ** 2)
    shards, true = drawn(rng, 1500, 15, np.array([0.5, 0.2]))
    x = rng.normal(-0.5, 1.6, 1000)
    p = expit(true[:, :1] + np.exp(true[:, 1:]) * x)

    def loss(at: Floats) -> Floats:
        z = at[:, :1] + np.exp(at[:, 1:]) * x
        return np.asarray((np.logaddexp(0, z) - p * z).mean(axis=1))

    before = loss(np.zeros((1500, 2)))
    gated = loss(recalibrated(shards, [prior] * 1500).chosen) - before
    monkeypatch.setattr(posterior, "STEPS", (1.0,))
    found = recalibrated(shards, [prior] * 1500)
    harmed = loss(found.parameters) - before > HARM
    for low, high in ((0, 0.05), (0.05, 0.1), (0.1, 1)):
        some = (found.risk >= low) & (found.risk < high)
        assert harmed[some].mean() == pytest.approx(found.risk[some].mean(), abs=0.04)
    assert (gated > HARM).mean() < 0.03 < harmed.mean()
    assert gated.mean() < -0.02


def test_a_model_that_is_right_is_kept_and_one_that_is_far_off_is_not() -> None:
    """Without rows nothing is taken."""
    for rows in (5, 60):
        rng = np.random.default_rng(rows)
        right, _ = drawn(rng, 300, rows, 0 * TAU, 0 * COMMON)
        off = np.abs(recalibrated(right, [identity_prior(2)] * 300).chosen[:, 0])
        assert (off > 0.55).mean() < 0.05, rows  # .18 x .55^2 / 2 = more than .02
    far, _ = drawn(rng, 200, 30, 0 * TAU, np.array([2.0, 0.0]))
    assert recalibrated(far, [identity_prior(2)] * 200).taken.mean() > 0.95
    empty = rows_by_owner(np.zeros((0, 2)), np.zeros(0, np.int64), np.zeros(0, np.int64), 2)
    nothing = recalibrated(empty, [identity_prior(2)] * 2)
    assert not nothing.taken.any()
    assert (nothing.chosen == 0).all()


def test_people_count_once_and_are_in_one_fold() -> None:
    """Rows that are repeated change neither fit nor risk, and no fold is judged by its own rows."""
    rng = np.random.default_rng(7)
    once, _ = drawn(rng, 4, 20)
    thrice = rows_by_owner(
        np.repeat(once.logits, 3, axis=0),
        np.repeat(once.labels, 3),
        np.repeat(once.owner, 3),
        4,
        subjects=np.repeat(np.arange(80), 3),
    )
    priors = [identity_prior(2)] * 4
    first, second = recalibrated(once, priors), recalibrated(thrice, priors, thrice.weights(1))
    assert second.parameters == pytest.approx(first.parameters, abs=1e-6)
    assert second.risk == pytest.approx(first.risk, abs=1e-3)
    folds = releases._folds(thrice)
    assert (folds.reshape(-1, 3) == folds[::3, None]).all()
    assert all(np.bincount(folds[thrice.owner == k], minlength=5).min() > 0 for k in range(4))
    some = np.where(folds == 2, 1 - thrice.labels, thrice.labels)
    changed = Shards(thrice.logits, some, thrice.offsets, subjects=thrice.subjects)
    weights = thrice.weights(1)
    probs = [cross_validated(s, priors, weights) for s in (thrice, changed)]
    assert (probs[0][folds == 2] == probs[1][folds == 2]).all()


@pytest.mark.parametrize("classes", [2, 5])
def test_the_calibrator_gives_the_same_probabilities(classes: int) -> None:
    """As those that were judged; parameters of 0 are the model as it is."""
    rng = np.random.default_rng(8)
    logits = rng.normal(size=(30, classes))
    labels = rng.integers(classes, size=30)
    rows = rows_by_owner(logits, labels, np.zeros(30, np.int64), 1)
    at = np.array([0.4, -0.3])[2 - (1 + (classes == 2)) :]
    for own in (at, 0 * at):
        made = calibrator_of(own, classes, "logits")
        assert made.predict_proba(logits) == pytest.approx(applied(rows, own[None]), abs=1e-12)


# -- the next site --------------------------------------------------------------------------------


def test_a_new_site_is_inside_the_prediction_interval() -> None:
    """The interval of the log slope holds in about 95 % of federations of 15 sites."""
    rng = np.random.default_rng(10)
    inside, edges = 0, edges_of("positive")
    for k in range(160):
        shards, true = drawn(rng, 16, 300, np.array([0.3, 0.2]), 0 * COMMON)
        noisy = counted(shards)[:15] + rng.laplace(0, 1, (15, 2, 10)) * (k % 2)
        root, each = np.eye(10) * LAPLACE * (k % 2), NoiseDistribution(tailed=True)
        interval = predicted(*site_metrics(Sites.of(noisy, edges, root, each))["calibration_slope"])
        inside += bool(interval["low"] < true[15, 1] < interval["high"])
    assert 0.89 <= inside / 160 < 1
