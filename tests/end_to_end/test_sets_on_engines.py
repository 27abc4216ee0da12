"""Prediction sets over Flower's engines, Ray and real processes on gRPC: the bits of inline."""

from __future__ import annotations

from typing import Any

import pytest

from fedcal import simulate

ASKED: tuple[dict[str, Any], ...] = (
    {"epsilon": 1.0},
    {"epsilon": 1.0, "unit": "example", "trust": "distributed"},
)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "grpc"])
@pytest.mark.parametrize("asked", ASKED, ids=["crossing", "prefix"])
def test_sets_are_the_same(engine: str, asked: dict[str, Any]) -> None:
    options = {"method": "conformal", "clients": 3, **asked}
    inline = simulate("heart-disease", **options)
    there = simulate("heart-disease", engine=engine, **options)
    assert there.rounds == inline.rounds
    assert there.judged == inline.judged
    assert there.sets.thresholds == inline.sets.thresholds
