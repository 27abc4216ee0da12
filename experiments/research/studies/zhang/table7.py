"""Table 7: all methods at epsilon = 3; on CIFAR-10 features by `--data`."""

from __future__ import annotations

from fedcal.experiments.research.studies.zhang.tables import module
from fedcal.experiments.research.studies.zhang.tasks import IMAGES

rows, claims = module(3.0, (IMAGES,), "table7")
