"""Training over Flower's engines, Ray and real processes on gRPC: the bits of inline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedcal.experiments.training.by_method import ModelTraining
from fedcal.experiments.training.run import train


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "grpc"])
def test_a_model_is_the_same(engine: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    x = rng.normal(0, 0.3, (300, 8)).astype(np.float32) + np.eye(3, 8, dtype=np.float32)[labels]
    np.savez(tmp_path / "rows.npz", features=x, labels=labels, norm=3.0)
    options = {"epsilon": 8.0, "clients": 3, "partition": "iid", "rounds": 3}
    data = str(tmp_path / "rows.npz")
    inline = train(data=data, **options)
    there = train(data=data, engine=engine, out=tmp_path / "there", **options)
    assert isinstance(inline, ModelTraining)
    assert isinstance(there, ModelTraining)
    np.testing.assert_array_equal(there.model.w, inline.model.w)
    assert there.outcome.records == inline.outcome.records
    assert (there.privacy, there.metrics) == (inline.privacy, inline.metrics)
    assert (tmp_path / "there" / "model.npz").is_file()
