"""fedcal: private, federated calibration of classifiers.

The science, without Flower: shards, calibrators, metrics, secure aggregation, privacy.
`clients` computes contributions, `strategies` asks and learns, `experiments` runs and shows.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__"]
