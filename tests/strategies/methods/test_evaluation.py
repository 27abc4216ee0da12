"""FedEvaluate: counts by score, encoded, asked for twice, or a level at a time."""

from typing import Any

import numpy as np
import pytest

from fedcal.clients.answers import answer
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.shards import Shards
from fedcal.privacy import Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.query import Query, Request
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import STRATEGIES
from fedcal.strategies.methods.evaluate import FedEvaluate

CLIENTS = 30
TRUSTS = ("central", "distributed", "local")


def shards(classes: int = 3, rows: int = 900, clients: int = CLIENTS) -> Shards:
    rng = np.random.default_rng(classes)
    labels, owner = rng.integers(0, classes, rows), rng.integers(0, clients, rows)
    logits = 2 * rng.normal(size=(rows, classes)) + 2 * np.eye(classes)[labels]
    return Shards.from_owner(
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


@pytest.mark.parametrize(("settings", "delta"), [*zip(SETTINGS, [1e-5, 0.0] * 4, strict=False)])
def test_rows_are_added_up_by_how_often_they_occur_to_the_same_bits(settings, delta, monkeypatch):
    data = shards()
    own = Federation(CLIENTS, 3, epsilon=1.0, delta=delta, unit="example")
    method = FedEvaluate(own, **settings)
    plan = method.plan
    assert plan.bound is not None
    asked = Request(method.query(1), plan.bound, plan.ring, 1)
    quick = answer(data, asked)
    assert quick.any()
    monkeypatch.setattr(ScoreCounts, "row_words", Query.row_words)
    np.testing.assert_array_equal(quick, answer(data, asked))


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


def test_without_noise_counts_are_those_of_the_rows():
    data = shards()
    release = run(data, {"other": True, "groups": '["b", "a"]'}).result()
    hit = data.logits.argmax(axis=1) == data.labels
    group = data.labels % 2
    for g, name in enumerate("ab"):
        h = release.histograms["model", name, ""]
        assert h.counts.sum(axis=1).tolist() == [
            ((group == g) & ~hit).sum(),
            ((group == g) & hit).sum(),
        ]
    other = data.logits.argmin(axis=1) == data.labels
    assert release.agreement.tolist() == [0, hit.sum(), other.sum(), (~hit & ~other).sum()]


def test_each_client_is_asked_about_one_level_and_counts_are_unbiased():
    data = shards(rows=600, clients=300)
    fields = {"epsilon": 6.0, "trust": "local", "delta": 0.0}
    settings = {"bins": 16, "height": 2}
    sums = []
    for seed in range(15):
        method = run(data, settings, **fields, seed=seed)
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
    ("name", "settings", "fields", "silent"),
    [
        ("evaluate", {}, {}, 1),
        ("evaluate", {"edges": "equi-depth", "bins": 8}, {"mechanism": "laplace"}, 2),
        ("evaluate", {"rows_per_client": 30.0}, {"unit": "user", "mechanism": "laplace"}, 2),
        ("evaluate", {"bins": 8}, {"unit": "user"}, 2),
    ],
)
def test_where_nobody_was_asked_nothing_is_known_and_nothing_exact_is_told(
    name, settings, fields, silent, monkeypatch
):
    """Such a release has no noise, and is not exact for that (`silent` = 0: in no round)."""
    data = shards(classes=2)
    own = {"unit": "example", "trust": "local", "sampling_rate": 0.2, **fields}
    if fields.get("unit") == "user" and "mechanism" not in fields:
        own["sampling_rate"] = 1.0  # each client is asked about one level
    source = "seeded" if silent == 2 else "system"
    federation = Federation(CLIENTS, 2, epsilon=1.0, noise_source=source, **own)
    method: Any = STRATEGIES[name](federation, **settings)

    def sample(plan: Plan, number: int) -> Any:
        return np.arange(0 if silent in (0, number) else plan.clients)

    monkeypatch.setattr(Plan, "sample", sample)
    run_inline(method, data)
    monkeypatch.undo()
    found = method.result()
    told = found.results()
    assert "tests" not in told
    assert told.get("rows", {"value": None})["value"] is None
    for metric, estimate in told["metrics"].items():
        assert estimate["value"] is None, metric
        assert estimate["drowned"], metric
    assert found.page()
    kept = type(found).from_arrays(found.arrays())
    assert kept.results() == found.results()
