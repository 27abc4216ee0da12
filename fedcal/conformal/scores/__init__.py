"""Conformity scores, each in its own file, and their registry."""

from __future__ import annotations

from fedcal.conformal.scores.aps import APS
from fedcal.conformal.scores.base import Score, rounded, settled
from fedcal.conformal.scores.lac import LAC
from fedcal.conformal.scores.margin import Margin
from fedcal.conformal.scores.ranked import Ranked
from fedcal.conformal.scores.raps import RAPS
from fedcal.core.registry import registry

SCORES: dict[str, type[Score]] = registry(LAC, APS, RAPS, Margin)
"""Name on the command line and in files -> score."""

__all__ = ["APS", "LAC", "RAPS", "SCORES", "Margin", "Ranked", "Score", "rounded", "settled"]
