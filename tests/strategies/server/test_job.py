"""A job in plain values, there and back through TOML, and an outcome through a folder."""

import math
import tomllib
from typing import Any

import numpy as np
import pytest
import tomli_w
from strategy_checks import assert_refused

from fedcal.core.shards import Shards
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.server.job import Job

CLIENTS, CLASSES = 6, 3
PUBLIC = Federation(CLIENTS, CLASSES, epsilon=0.1 + 0.2, delta=1e-7, seed=2**63 - 1)
JOBS = [
    Job("fedtemp", Federation(5, 2)),
    Job(
        "fednewton",
        PUBLIC,
        {"rows_per_client": 100 / 3},
        secure_aggregation="masks",
        dropout=0.3,
        ledger="/a b/ü.db",
        cap=1.1,
    ),
    Job(
        "fedbbq",
        Federation(7, 4, rounds=3, sampling_rate=0.7, seed=5),
        {"weighting": "all", "bins_exponent": 5},
    ),
    Job("fedoneshot", Federation(5, 2), {"low": 9.0, "points": 33}),  # checked when run
]


@pytest.fixture
def shards():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 90)
    return Shards.from_owner(
        rng.normal(0, 3, (90, CLASSES)), labels, rng.integers(0, CLIENTS, 90), CLIENTS
    )


def test_fields_and_back_through_toml():
    for job in JOBS:
        fields = job.to_fields()
        assert all(type(v) in (str, int, float, bool) for v in fields.values())
        assert Job.from_fields(tomllib.loads(tomli_w.dumps(fields))) == job


def test_fields_that_are_not_allowed_or_missing():
    bad: list[tuple[str, Any, str]] = [
        ("method", "fednewtn", "did you mean 'fednewton'"),
        ("method", "none", "unknown method"),
        ("method", 3, "'method' of the run config must be text, got 3"),
        ("clients", 2.0, "must be a whole number"),
        ("clients", True, "must be a whole number"),
        ("clients", 0, r"clients must be a whole number in \[1, 10000000\]"),
        ("epsilon", "inf", "'epsilon' of the run config must be a number"),
        ("dropout", 1.5, r"dropout must be in \[0, 1\]"),
        ("ledger", "here.db", "must be an absolute path, got 'here.db'"),
        *(("settings", text, "must be a JSON object") for text in ("{", "[1]")),
        ("settings", '{"clip": [1]}', "must be a JSON object of plain values"),
        ("settings", '{"clips": 1}', "unknown --set key 'clips' for fedtemp"),
        ("settings", '{"ledger": "x"}', "unknown --set key 'ledger'"),
    ]
    fields = JOBS[0].to_fields()
    assert_refused(bad, lambda key, value: Job.from_fields({**fields, key: value}))
    missing = [(key, f"'{key}'") for key in fields]
    assert_refused(
        missing, lambda key: Job.from_fields({k: v for k, v in fields.items() if k != key})
    )


@pytest.mark.parametrize(("epsilon", "kept"), [(1.0, 0), (math.inf, 3)])
def test_no_round_is_timed_where_who_is_sampled_is_secret(epsilon, kept, shards):
    """A round's seconds follow from how many were in it, and from whose rows these were."""
    public = Federation(CLIENTS, CLASSES, rounds=3, sampling_rate=0.5, epsilon=epsilon)
    outcome = Job("fedtemp", public).run(lambda s: run_inline(s, shards))
    assert len(outcome.records) == 3
    assert len(outcome.round_seconds) == kept
    assert (outcome.seconds is None) == (not kept)
