"""Calibration of predicted probabilities: scores, and the mergeable record behind them."""

from typing import TYPE_CHECKING

from fedcal.core.imports import lazily

if TYPE_CHECKING:
    from fedcal.metrics.binning import bin_index
    from fedcal.metrics.bootstrap import metric_intervals
    from fedcal.metrics.standard import (
        Reliability,
        accuracy,
        below_floor,
        brier,
        classwise_ece,
        ece,
        nll,
        summary,
    )

__all__ = ["Reliability", "accuracy", "below_floor", "bin_index", "brier"]
__all__ += ["classwise_ece", "ece", "metric_intervals", "nll", "summary"]

if not TYPE_CHECKING:
    __getattr__ = lazily(__name__, __all__, "binning", "standard", "bootstrap")
