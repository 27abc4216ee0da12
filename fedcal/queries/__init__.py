"""Questions to the clients: parameters, the shape of the answer, its public bound.

`fedcal.queries.request` has the messages: the question with its bound and ring (`Request`), and its
purpose (`Context`).
"""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.queries.base import Param, Part, Query
from fedcal.queries.base import questions as _questions
from fedcal.queries.confidence import BinOutcomes, OutcomeCell
from fedcal.queries.conformal import SetCounts, SetGaps, SetRanks
from fedcal.queries.evaluation import ScoreCell, ScoreCounts
from fedcal.queries.histograms import ClassCounts, ClassHistograms, PooledHistograms
from fedcal.queries.scaling import MLPUpdate, ScalingGradients, ScalingNewton, ScalingUpdate
from fedcal.queries.search import AccuracyGap, CalibrationGaps, ClippedNLL, MeanGaps
from fedcal.queries.temperature import (
    SiteEffects,
    TemperatureNewton,
    TemperatureScores,
    TemperatureUpdate,
)
from fedcal.queries.training import Gradients, LocalUpdate, WeightedUpdate

QUERIES: dict[str, type[Query]] = registry(*_questions(), key="kind")
"""Every question, by its kind; the clients' statistics have the same names."""

__all__ = [
    "QUERIES",
    "AccuracyGap",
    "BinOutcomes",
    "CalibrationGaps",
    "ClassCounts",
    "ClassHistograms",
    "ClippedNLL",
    "Gradients",
    "LocalUpdate",
    "MLPUpdate",
    "MeanGaps",
    "OutcomeCell",
    "Param",
    "Part",
    "PooledHistograms",
    "Query",
    "ScalingGradients",
    "ScalingNewton",
    "ScalingUpdate",
    "ScoreCell",
    "ScoreCounts",
    "SetCounts",
    "SetGaps",
    "SetRanks",
    "SiteEffects",
    "TemperatureNewton",
    "TemperatureScores",
    "TemperatureUpdate",
    "WeightedUpdate",
]
