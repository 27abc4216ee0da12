"""A job as plain values, there and back through TOML, and what of a run is timed."""

import tomllib
from typing import Any

import tomli_w
from refusals import each_is_refused

from fedcal.privacy.noise_plan import Federation
from fedcal.strategies.server.job import Job

JOBS = [
    Job("fedtemp", Federation(5, 2)),
    Job(
        "fednewton",
        Federation(6, 3, epsilon=0.1 + 0.2, delta=1e-7, seed=2**63 - 1),
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


def test_fields_and_back_through_toml():
    for job in JOBS:
        fields = job.to_fields()
        assert all(type(v) in (str, int, float, bool) for v in fields.values())
        assert Job.from_fields(tomllib.loads(tomli_w.dumps(fields))) == job


def test_fields_that_are_not_allowed_or_missing():
    table: list[tuple[dict[str, Any], str]] = [
        ({"method": "none"}, "unknown method"),
        ({"clients": 2.0}, "must be a whole number"),
        ({"ledger": "here.db"}, "must be an absolute path, got 'here.db'"),
        ({"settings": '{"clip": [1]}'}, "must be a JSON object of plain values"),
        ({"settings": '{"ledger": "x"}'}, "unknown --set key 'ledger'"),
    ]
    fields = JOBS[0].to_fields()
    each_is_refused(table, lambda change: Job.from_fields({**fields, **change}))
    missing = [(key, f"'{key}'") for key in fields]
    others = {key: {k: v for k, v in fields.items() if k != key} for key in fields}
    each_is_refused(missing, lambda key: Job.from_fields(others[key]))
