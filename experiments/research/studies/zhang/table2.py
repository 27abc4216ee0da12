"""Table 2: a task that is no image recognition; Adult in place of the paper's texts."""

from __future__ import annotations

from fedcal.experiments.research.studies.zhang.tables import module
from fedcal.experiments.research.studies.zhang.tasks import TABLE

rows, claims = module(8.0, (TABLE,), "table2")
