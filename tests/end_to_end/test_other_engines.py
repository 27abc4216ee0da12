"""Prediction sets and training over Ray, Flower's simulation and gRPC: the bits of inline."""

from typing import Any

import numpy as np
import pytest

from fedcal import simulate
from fedcal.run.training import train

engines = pytest.mark.parametrize("engine", ["ray", "flower", "grpc"])

# Ray leaves its processes to the end of ours
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.mark.slow
@engines
def test_sets_are_the_same(engine):
    for asked in ({}, {"unit": "example", "trust": "distributed"}):
        options: dict[str, Any] = {"method": "conformal", "clients": 3, "epsilon": 1.0, **asked}
        inline = simulate("heart-disease", **options)
        there = simulate("heart-disease", engine=engine, **options)
        assert (there.rounds, there.judged) == (inline.rounds, inline.judged)
        assert there.sets.thresholds == inline.sets.thresholds


@pytest.mark.slow
@engines
def test_a_model_is_the_same(engine, tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    x = rng.normal(0, 0.3, (300, 8)).astype(np.float32) + np.eye(3, 8, dtype=np.float32)[labels]
    np.savez(tmp_path / "rows.npz", features=x, labels=labels, norm=3.0)
    options: dict[str, Any] = {"data": str(tmp_path / "rows.npz"), "epsilon": 8.0, "clients": 3}
    options |= {"partition": "iid", "rounds": 3}
    inline: Any = train(**options)
    there: Any = train(engine=engine, out=tmp_path / "there", **options)
    np.testing.assert_array_equal(there.model.w, inline.model.w)
    assert there.outcome.records == inline.outcome.records
    assert (there.privacy, there.metrics) == (inline.privacy, inline.metrics)
    assert (tmp_path / "there" / "model.npz").is_file()
