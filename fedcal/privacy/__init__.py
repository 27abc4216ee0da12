"""Bound -> noise -> epsilon: `bounding`, `mechanisms`, `accounting`, `plan`, `ledger`."""

from __future__ import annotations

from fedcal.bounding import Bound
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.plan import Federation, Plan, make_plan

__all__ = ["Bound", "Federation", "Ledger", "Plan", "make_plan"]
