"""Table 1: all methods at epsilon = 8, on images; on CIFAR-10 features by `--data`."""

from __future__ import annotations

from fedcal.experiments.research.studies.zhang.tables import module
from fedcal.experiments.research.studies.zhang.tasks import IMAGES

rows, claims = module(8.0, (IMAGES,), "table1")
