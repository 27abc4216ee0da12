"""How often a site looks for messages."""

from __future__ import annotations

import inspect
import re

import pytest
from flwr.supernode import start_client_internal as flower

from fedcal.experiments.deploy import node


def test_looks_come_soon_after_an_answer_and_then_as_seldom_as_flowers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    clock = node.Clock()
    for _ in range(20):
        clock.sleep(3)
    assert slept[:3] == pytest.approx([0.2, 0.3, 0.45])
    assert slept == sorted(slept)
    assert slept[-1] == 3
    clock.sleep(0.5)  # a message is being answered
    clock.sleep(3)
    assert slept[-2:] == [0.2, 0.2]


def test_flowers_loop_asks_the_time_for_nothing_but_sleep() -> None:
    """What `Clock` stands in for."""
    calls = re.findall(r"^\s+time\.(\S+)$", inspect.getsource(flower), re.MULTILINE)
    assert calls == ["sleep(3)", "sleep(0.5)", "sleep(0.5)"]
