"""Conformity scores: one class in a file of its own each, and their registry."""

from __future__ import annotations

from fedcal.conformal.scores.base import Score
from fedcal.conformal.scores.lac import LAC
from fedcal.registry import registry

SCORES: dict[str, type[Score]] = registry(LAC)
"""Name on the command line and in files -> score."""

__all__ = ["LAC", "SCORES", "Score"]
