"""Drivers of one strategy object: the inline loop, and Flower's own loop in process."""

from __future__ import annotations

from experiments.engines.flower import InProcessGrid, run_in_process
from experiments.engines.inline import run_inline

__all__ = ["InProcessGrid", "run_in_process", "run_inline"]
