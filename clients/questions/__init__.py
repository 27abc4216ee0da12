"""Questions to the clients, each with its bound and the sum that a client computes.

Importing this package makes all of ours known (`QUERIES`).
"""

from fedcal.clients.questions.conformal import SetCounts, SetGaps, SetRanks
from fedcal.clients.questions.histograms import (
    BinOutcomes,
    ClassCounts,
    ClassHistograms,
    OutcomeCell,
    PooledHistograms,
)
from fedcal.clients.questions.scaling import (
    MLPUpdate,
    ScalingGradients,
    ScalingNewton,
    ScalingUpdate,
)
from fedcal.clients.questions.scores import ScoreCell, ScoreCounts
from fedcal.clients.questions.search import AccuracyGap, CalibrationGaps, ClippedNLL, MeanGaps
from fedcal.clients.questions.temperature import (
    SiteEffects,
    TemperatureNewton,
    TemperatureScores,
    TemperatureUpdate,
)
from fedcal.clients.questions.training import Gradients, LocalUpdate, WeightedUpdate
from fedcal.privacy.query import QUERIES

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
    "PooledHistograms",
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
