"""Drivers of one strategy object: the inline loop, Flower's in process, and Flower on Ray."""

from __future__ import annotations

from fedcal.experiments.runs.engines.flower import InProcessGrid, run_in_process
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.engines.ray import NamedData, run_ray

__all__ = ["InProcessGrid", "NamedData", "run_in_process", "run_inline", "run_ray"]
